"""What the networks reach: test accuracy over seeds, learning curves, and tests between networks."""
