"""Classes in the hidden space: along hidden units, and where output hyperplanes meet them."""
