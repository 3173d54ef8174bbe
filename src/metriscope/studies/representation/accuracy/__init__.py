"""What the networks reach: test accuracy over seeds, learning curves, tests between networks, and contradictions."""
