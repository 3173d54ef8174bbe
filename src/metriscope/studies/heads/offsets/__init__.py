"""Whether the centers of OffsetL2 matter, and whether its distance is a Mahalanobis distance."""
