"""Do the centers (prototypes) of OffsetL2 matter, and is its distance a Mahalanobis distance?"""
