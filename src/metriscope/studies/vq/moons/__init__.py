"""Figure 1: does the VQ kernel of a network turn with its training data? A number for it, and what it is worth."""
