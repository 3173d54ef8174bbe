"""Does the kernel of a network predict its final accuracy before or early in training? Sixty architectures, C30."""
