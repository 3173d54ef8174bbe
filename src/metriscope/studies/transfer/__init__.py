"""The study of transfer: findings on MNIST, tried on other images, activations, tables and sequences."""
