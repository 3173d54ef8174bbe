"""The perturbation experiment of Oursland 2024b, on networks that start from the published random numbers."""
