"""Many Gaussians in place of one: how results vary, which directions are lost, and what predicts it."""
