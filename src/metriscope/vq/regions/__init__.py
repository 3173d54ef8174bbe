"""Exact linear regions of a network on a plane."""
