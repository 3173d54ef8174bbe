"""Whether trained weights recover principal axes and eigenvalues, or only some whitening."""
