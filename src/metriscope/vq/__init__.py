"""Any network's activation patterns: capture, kernel, embedding, comparison, units, novelty, counts."""
