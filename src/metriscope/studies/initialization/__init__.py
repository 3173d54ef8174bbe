"""The study of initialization: starts from clusters against random ones, on Gaussians, mixtures and real data."""
