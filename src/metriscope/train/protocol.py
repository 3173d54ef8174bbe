"""Training protocols: optimizer, loss, batch size and epochs, and the epochs whose loss is recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metriscope.common.validation import integer, number, one_of

__all__ = ["Protocol", "recorded_epochs"]

LOSSES = ("mse", "cross-entropy", "bce")
OPTIMIZERS = ("adam", "sgd")


@dataclass(frozen=True)
class Protocol:
    """How networks are trained.

    Parameters
    ----------
    epochs : int
        Number of passes over the training points.
    optimizer : {"adam", "sgd"}
        Optimizer.
    lr : float
        Learning rate.
    betas : tuple of two floats
        Decay rates of Adam's moments.
    eps : float
        Adam's constant in the denominator.
    batch_size : int, optional
        Number of points per step; by default all of them.
    loss : {"mse", "cross-entropy", "bce"}
        Loss.

    Raises
    ------
    ValueError
        If a value is unknown or out of range.

    Examples
    --------
    >>> Protocol(epochs=100, optimizer="sgd", lr=0.1).batch_size is None
    True
    """

    epochs: int
    optimizer: str = "adam"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    batch_size: int | None = None
    loss: str = "mse"

    def __post_init__(self) -> None:
        integer(self.epochs, "epochs", least=0)
        one_of(self.optimizer, "optimizer", OPTIMIZERS)
        one_of(self.loss, "loss", LOSSES)
        number(self.lr, "lr", "(0, inf)")
        number(self.eps, "eps", "(0, inf)")
        for beta in self.betas:
            number(beta, "betas", "[0, 1)")
        if self.batch_size is not None:
            integer(self.batch_size, "batch_size")


def recorded_epochs(epochs: int, points: int = 240) -> np.ndarray:
    """Return the epochs whose loss is recorded: the first, the last, and a geometric sequence between them.

    Parameters
    ----------
    epochs : int
        Number of epochs of the training.
    points : int
        Largest number of recorded epochs.

    Returns
    -------
    int64 array
        Epochs in ascending order.

    Raises
    ------
    ValueError
        If ``points`` is less than two.

    Examples
    --------
    >>> recorded_epochs(5).tolist()
    [0, 1, 2, 3, 4]
    >>> len(recorded_epochs(250_000)) <= 240
    True
    """
    integer(points, "points", least=2)
    if epochs <= points:
        return np.arange(epochs)
    ladder = np.unique(np.rint(np.geomspace(1, epochs, points - 1)).astype(np.int64)) - 1
    return np.unique(np.concatenate([[0, epochs - 1], ladder]))
