"""Follow a network's geometry through its training, in a plain loop, Lightning or the Hugging Face Trainer.

Neither library is imported: their callbacks are methods with certain names, and the tracker has these methods.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.validation import instance, integer
from metriscope.reading.features import layer_features
from metriscope.vq import Patterns, alignment, capture, utilization

__all__ = ["MetricLogger", "TrainingTracker", "effective_rank"]

# The columns that are logged for each layer.
_LOGGED = ("dead", "dying", "effective_rank", "drift")


class MetricLogger(Protocol):
    """Receives numbers while a network trains.

    An object with ``add_scalar(name, value, step)`` or ``log_metric(name, value, step)`` in place of ``log`` works too:
    TensorBoard's ``SummaryWriter``, or the module ``mlflow`` itself.
    """

    def log(self, name: str, value: float, step: int) -> None:
        """Record one number."""


def effective_rank(features: Float[Tensor, "n k"]) -> float:
    """Return the exponential of the entropy of the shares of variance along the principal axes.

    Equal variance in r directions gives r. For constant features the result is NaN. After Roy &
    Vetterli, "The effective rank" (EUSIPCO 2007), with variances in place of singular values.

    >>> import torch
    >>> round(effective_rank(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])), 6)
    2.0
    """
    centered = features.double() - features.double().mean(0)
    gram = centered.T @ centered if centered.shape[1] <= len(centered) else centered @ centered.T
    variances = np.maximum(np.linalg.eigvalsh(gram.numpy()), 0)
    if not variances.sum() > 0:
        return math.nan
    shares = variances / variances.sum()
    shares = shares[shares > 0]
    return float(np.exp(-(shares * np.log(shares)).sum()))


class TrainingTracker:
    """Follow dying units, effective rank and the drift of the kernel, layer by layer, while a network trains.

    Call it with the number of each epoch in a plain loop, pass it to the Hugging Face Trainer as a callback, or pass
    ``tracker.callback(Callback)``, with Lightning's base class ``Callback``, to a Lightning Trainer.

    Parameters
    ----------
    model : torch.nn.Module
        The network that is trained; measurements do not change it.
    data : tensor, array, mapping, data set or loader
        The points to measure on, the same at every measurement.
    every : int
        Number of epochs between two measurements.
    logger : MetricLogger, SummaryWriter or mlflow, optional
        Where to log each layer's numbers, under ``layer/measure``.
    batch_size : int
        How many points to run at once, unless the data comes in batches.

    Raises
    ------
    ValueError
        If the model is not a module, ``every`` is not positive, or the logger has no known method.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> tracker = TrainingTracker(model, np.random.default_rng(0).normal(size=(20, 2)))
    >>> for epoch in range(3):  # ... train for an epoch, then
    ...     tracker(epoch)
    >>> tracker.to_pandas()[["epoch", "layer", "units", "dying"]]
       epoch layer  units  dying
    0      0     1      3      0
    1      1     1      3      0
    2      2     1      3      0
    """

    def __init__(self, model: nn.Module, data: Any, every: int = 1, logger: Any = None, batch_size: int = 1024) -> None:
        self.model, self.data = instance(model, "model", nn.Module), data
        self.every, self.batch_size = integer(every, "every"), integer(batch_size, "batch_size")
        self._log = _log_method(logger)
        self._first: Patterns | None = None
        self._last: Patterns | None = None
        self._dead: dict[str, set[int]] = {}
        self._tables: list[pd.DataFrame] = []

    def __call__(self, epoch: int) -> None:
        """Measure the network if this epoch is to be measured."""
        if epoch % self.every:
            return
        patterns = capture(self.model, self.data, batch_size=self.batch_size)
        table = self._counts(epoch, patterns)
        ranks = {name: effective_rank(z) for name, z in layer_features(self.model, self.data, self.batch_size).items()}
        first, last = self._first or patterns, self._last or patterns
        table["effective_rank"] = [ranks.get(name, math.nan) for name in table["layer"]]
        table["drift"], table["change"] = _drift(first, patterns), _drift(last, patterns)
        self._first, self._last = first, patterns
        self._tables.append(table)
        for row in table.itertuples():
            for name in _LOGGED:
                self._log(f"{row.layer}/{name}", float(getattr(row, name)), epoch)

    def _counts(self, epoch: int, patterns: Patterns) -> pd.DataFrame:
        """Return the numbers of dead units, of those that died since the last measurement, and of rare ones."""
        rows = []
        units = utilization(patterns, by="channel").to_pandas()
        for name, part in units.groupby("layer", sort=False):
            dead = set(part["unit"][part["status"] == "dead"])
            before = self._dead.get(str(name), dead)
            gone = {"dead": len(dead), "dying": len(dead - before), "revived": len(before - dead)}
            rows.append(
                {
                    "epoch": epoch,
                    "layer": name,
                    "units": len(part),
                    **gone,
                    "rare": int((part["status"] == "rare").sum()),
                }
            )
            self._dead[str(name)] = dead
        return pd.DataFrame(rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per measured epoch and layer.

        Columns: epoch, layer, units; dead, dying (dead now, not at the last measurement), revived and rare units;
        effective_rank of the layer's outputs; drift and change, 1 minus the debiased alignment of the layer's signs
        with the first and with the last measurement (0 if the kernel is the same, NaN if all signs of a layer are
        constant).

        Raises
        ------
        ValueError
            If nothing has been measured yet.
        """
        if not self._tables:
            raise ValueError("the tracker has measured nothing yet; call it with an epoch first")
        return pd.concat(self._tables, ignore_index=True)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Measure at the end of an epoch of Lightning's Trainer."""
        self(int(trainer.current_epoch))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure at the end of an epoch of the Hugging Face Trainer."""
        self(round(state.epoch))

    def callback(self, base: type[Any]) -> Any:
        """Return a callback of a library that accepts only its own, such as Lightning.

        Parameters
        ----------
        base : type
            The library's base class of callbacks, ``lightning.Callback``.

        Returns
        -------
        object
            An instance of a subclass of ``base`` that calls this tracker at the end of each epoch.
        """
        hooks = {name: _forwarding(getattr(self, name)) for name in ("on_train_epoch_end", "on_epoch_end")}
        return type("TrainingTrackerCallback", (base,), hooks)()

    def __getattr__(self, name: str) -> Any:
        # Trainers call every event of every callback; those that the tracker does not use do nothing.
        if name.startswith("on_"):
            return lambda *args, **kwargs: None
        raise AttributeError(f"TrainingTracker has no attribute {name!r}")


def _forwarding(method: Any) -> Any:
    return lambda self, *args, **kwargs: method(*args, **kwargs)


def _log_method(logger: Any) -> Any:
    if logger is None:
        return lambda name, value, step: None
    for method in ("log", "add_scalar", "log_metric"):
        if callable(getattr(logger, method, None)):
            return getattr(logger, method)
    raise ValueError(f"logger must have a method log, add_scalar or log_metric, got a {type(logger).__name__}")


def _drift(before: Patterns, now: Patterns) -> list[float]:
    """Return 1 minus the alignment of each layer with itself at another time."""
    if before is now:
        found = np.asarray(alignment(now, now, by_layer=True).value)
        return [0.0 if np.isfinite(value) else math.nan for value in np.diag(found)]
    values = np.asarray(alignment(before, now, by_layer=True).value)
    return [float(1 - value) for value in np.diag(values)]
