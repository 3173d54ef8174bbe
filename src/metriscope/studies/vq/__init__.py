"""VQ kernels: figures 1 to 5 of S4 with nulls, controls and intervals, the claims C21 to C25, and beyond."""
