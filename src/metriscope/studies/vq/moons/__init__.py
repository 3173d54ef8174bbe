"""Figures 1 and 2: VQ kernels of networks on two moons, in the plane and hidden in 100 dimensions."""
