"""Two-layer classifiers that no compiled kernel knows: the same training and measuring, by autograd.

Axes: N points, D features, K units, C classes, E epochs. What :mod:`metriscope.train.classifiers` does for networks
that have kernels is done here for any other row of :data:`metriscope.nn.ARCHITECTURES`, several times more slowly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor
from torch.nn import functional as F

from metriscope.nn import build

__all__ = ["AutogradClassifier"]


class AutogradClassifier:
    """One named network in training, as a plain module.

    >>> model = build("relu", in_features=4, hidden=3, out_features=2)
    >>> AutogradClassifier("relu", model.state_dict()).classes
    2
    """

    def __init__(self, architecture: str, state: Mapping[str, Tensor]) -> None:
        first = state["0.weight"]
        head = next(value for name, value in state.items() if name.startswith("2.") and value.ndim == 2)
        (self.units, self.features), self.classes = first.shape, len(head)
        unused = torch.Generator()
        self.model = build(architecture, self.features, self.units, self.classes, unused)
        self.model.load_state_dict(dict(state))

    def state(self) -> dict[str, Tensor]:
        """Return the parameters as the network's ``state_dict`` has them, as copies."""
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def train(
        self, x: Float32[np.ndarray, "n d"], y: Int[np.ndarray, n], epochs: int, lr: float
    ) -> Float[np.ndarray, "e 2"]:
        """Take full-batch steps; return summed loss and number of right answers before each."""
        points, labels = torch.from_numpy(x), torch.from_numpy(y)
        found = np.zeros((epochs, 2))
        for epoch in range(epochs):
            outputs = self.model(points)
            loss = F.cross_entropy(outputs, labels)
            gradients = torch.autograd.grad(loss, list(self.model.parameters()))
            found[epoch] = float(loss.detach()) * len(labels), int((outputs.argmax(1) == labels).sum())
            with torch.no_grad():
                for parameter, gradient in zip(self.model.parameters(), gradients, strict=True):
                    parameter.sub_(gradient, alpha=lr)
        return found

    @torch.no_grad()
    def measure(
        self, x: Float32[np.ndarray, "n d"], y: Int[np.ndarray, n], active: float
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return summed loss and right answers, and on how many points each unit and each output is active."""
        points, labels = torch.from_numpy(x), torch.from_numpy(y)
        hidden = self.model[:2](points)
        outputs = self.model[2:](hidden)
        loss = float(F.cross_entropy(outputs, labels, reduction="sum"))
        counts = [(part.abs() > active).sum(0).double().numpy() for part in (hidden, outputs)]
        return np.array([loss, float((outputs.argmax(1) == labels).sum())]), counts[0], counts[1]
