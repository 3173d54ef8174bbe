"""Replay of the published runs: their own Gaussians, points and starts, and the record digit by digit."""
