"""Starts of networks: the published random numbers, and whether they are those of the published runs."""
