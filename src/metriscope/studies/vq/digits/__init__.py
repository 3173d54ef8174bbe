"""Figures 3 and 4: whether networks of 4 and 6 layers grow more alike by training on digits, by every measure."""
