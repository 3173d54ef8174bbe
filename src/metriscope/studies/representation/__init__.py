"""Distance against intensity: sixteen networks on MNIST, trained by the paper's protocol, and what is inside them."""
