"""What the distance layer OffsetL2 has learned: prototypes and weights."""
