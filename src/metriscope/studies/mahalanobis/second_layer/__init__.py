"""Whether a second linear layer over distances clusters what the first layer found."""
