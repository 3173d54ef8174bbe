"""Where output hyperplanes lie between the best and the worst center of their own class."""
