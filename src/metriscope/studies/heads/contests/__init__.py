"""Contests: classifiers that differ in one part, tuned with the same budget, on many data sets."""
