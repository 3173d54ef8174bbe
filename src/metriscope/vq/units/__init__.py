"""What patterns tell about single units and points: utilization, novelty, counts."""
