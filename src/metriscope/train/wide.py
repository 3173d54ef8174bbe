"""Training one wide distance network: PyTorch's matrix product between compiled steps.

Axes: B blocks of R rows, D features, K units, as in :mod:`metriscope.train.compiled`.

From some width on the matrix product is all that counts, and PyTorch brings the faster one; below it, the calls
from the interpreter would cost more than they save. Tensors are PyTorch's own, whose memory is aligned alike
every time: the product may sum in another order on memory aligned otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from metriscope.train.compiled import backward, descend

__all__ = ["ROWS", "trainer"]

# Pre-activations of 200 units and 1,024 rows are 800 kB: they stay in the second-level cache.
ROWS = 1024


def trainer(activation: str) -> Callable[..., None]:
    """Return ``train(data, state, step, adam, losses)``, which does what its compiled namesake does."""
    differentiate = backward(activation)

    def gradient(data: Any, planes: torch.Tensor, room: Any, total: torch.Tensor) -> float:
        x, y, count = data
        z, squares = room
        rows, loss = x.shape[2], 0.0
        total.zero_()
        z_array, squares_array, targets = z.numpy(), squares.numpy(), y.numpy()
        for block in range(len(x)):
            torch.mm(planes, x[block], out=z)
            loss += differentiate(z_array, targets[block], squares_array, min(rows, count - block * rows))
            total.addmm_(z, x[block].mT)
        total.mul_(2.0 / count)
        return loss / count

    def train(data: Any, state: Any, step: int, adam: Any, losses: np.ndarray) -> None:
        # In this thread: trials are what is shared out, and one thread's sums have one order.
        torch.set_num_threads(1)
        tensors = tuple(torch.from_numpy(array).clone() for array in state)
        arrays = tuple(tensor.numpy() for tensor in tensors)
        rows, total = data[0].shape[2], torch.empty_like(tensors[0])
        room = (torch.empty(len(total), rows), torch.empty(rows))
        for epoch in range(len(losses)):
            losses[epoch] = gradient(data, tensors[0], room, total)
            descend(arrays, total.numpy(), step + epoch + 1, adam)
        for own, array in zip(arrays, state, strict=True):
            array[:] = own

    return train
