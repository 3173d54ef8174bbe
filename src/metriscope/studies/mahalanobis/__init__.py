"""Learning the Mahalanobis distance: the whole published experiment, C01 to C07, C29, and what means hide."""
