"""Learning the Mahalanobis distance: the whole published experiment, the claims C01 to C08, and what means hide."""
