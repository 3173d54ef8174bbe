"""What is measured on every trained network: losses, hyperplanes, whitening, and the rank of its metric."""
