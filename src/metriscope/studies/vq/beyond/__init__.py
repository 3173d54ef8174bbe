"""Beyond S4: when in training the kernel takes its shape, what depth does at equal size, and Abs in place of ReLU."""
