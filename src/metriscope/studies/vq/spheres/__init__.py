"""Figure 2: moons hidden in 100 dimensions, seen by the VQ kernel and by Euclid, learned or memorized."""
