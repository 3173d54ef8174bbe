"""Does matching VQ kernels distill a network into a smaller one better than its logits alone? C31."""
