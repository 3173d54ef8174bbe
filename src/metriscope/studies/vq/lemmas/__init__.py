"""Figure 5 and the lemmas: both distances over every pair of exact regions of random networks, and the tent map."""
