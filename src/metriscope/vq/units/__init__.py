"""Measures of single units and points: utilization, novelty, counts."""
