"""Measures on sign patterns: kernels, embeddings, and comparisons of two networks."""
