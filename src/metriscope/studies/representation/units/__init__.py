"""Hidden and output units: which are inactive, where their hyperplanes meet the classes, and how they are perturbed."""
