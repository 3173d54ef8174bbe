"""What every trained network measures: losses, hyperplanes, whitening, and the rank of its metric."""
