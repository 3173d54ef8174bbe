"""The study of heads: what the last layer of a network learns, and what it is good for."""
