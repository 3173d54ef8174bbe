"""How many runs decide a claim on accuracies."""

from __future__ import annotations

__all__ = ["FEWEST", "LOOKS"]

# Looks at a growing number of runs by the paper's protocol: how many runs of each network, and the level of the tests.
# The levels add up to 0.05, so that looking three times makes no more errors than looking once.
LOOKS = ((5, 0.005), (10, 0.015), (20, 0.03))
# The least number of runs by another protocol, which are tested once: with two, the spread is hardly known.
FEWEST = 3
