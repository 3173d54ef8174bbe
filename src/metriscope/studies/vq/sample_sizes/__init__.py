"""From how many training points on does VQ scaling separate new points of the moons in 100 dimensions? C22."""
