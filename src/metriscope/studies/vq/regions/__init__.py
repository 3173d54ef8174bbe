"""Exact linear regions: figure 5 and both lemmas in random networks, tent maps, and the networks of the explorer."""
