"""Trained networks of the plane as scenes of the explorer, and what their exact regions show."""
