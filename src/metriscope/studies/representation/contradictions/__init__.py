"""Four contradictions of the sources, and what our runs and the printed numbers say about each."""
