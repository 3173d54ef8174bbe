"""VQ kernels: figures 1 to 5 of Roddenberry et al. with nulls, controls and intervals; claims C21 to C25, C30, C31."""
