"""Figures 3 and 4: does training on digits make networks of 4 and 6 layers more similar? The answer of each measure."""
