"""Accuracy while the pre-activations of the first layer are scaled, clipped or moved."""
