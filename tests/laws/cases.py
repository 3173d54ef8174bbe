"""What the laws of novelty and of units are checked on."""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Case:
    """Training and test points, or what a network makes of them, and numbers to draw from."""

    train: np.ndarray
    test: np.ndarray
    seed: int

    @property
    def draw(self):
        return np.random.default_rng(self.seed)

    def of_both(self, change):
        return replace(self, train=change(self.train), test=change(self.test))
