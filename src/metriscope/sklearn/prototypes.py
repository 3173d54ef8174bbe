"""Base of the estimators with prototypes: standardized data, training in epochs, the network as modules.

Axes: ``n`` points, ``d`` features, ``k`` prototypes, ``m`` targets. Training is in float32, prediction in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from jaxtyping import Float64
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted
from torch import Tensor, nn

from metriscope.common.progress import progress
from metriscope.common.validation import contiguous, integer, number, one_of
from metriscope.functional import offset_l2
from metriscope.nn import OffsetL2, activation_row
from metriscope.rng import derive
from metriscope.runs.estimators import SavedEstimator, points, untensored
from metriscope.sklearn.fitting import (
    ACTIVATIONS,
    Adam,
    Examples,
    FitRecipe,
    PrototypeNetwork,
    Shape,
    draw_network,
    train,
)

__all__ = ["PrototypeEstimator", "RandomState", "Standardize", "Units", "Weights", "center_and_scale", "linear_of"]

RandomState: TypeAlias = int | np.random.RandomState | None
Units: TypeAlias = int | tuple[int, ...] | None
Weights = Float64[np.ndarray, " n"]
Self = TypeVar("Self", bound="PrototypeEstimator")

# Standardized features are bounded smoothly by this many standard deviations, which limits the influence of an outlier.
_LIMIT = 5.0
# Up to this many rows, equal rows are merged into one row of larger weight.
_MERGED = 1_000
# Batches are a twentieth of the rows within these bounds, and an epoch has at least this many batches.
_SMALLEST, _LARGEST, _FEWEST = 16, 200, 8


class Standardize(nn.Module):
    """Features minus their mean, divided by their scale, and smoothly bounded: ``limit * tanh(z / limit)``.

    Parameters
    ----------
    mean : array of shape (d,)
        The mean of each feature, which is subtracted.
    scale : array of shape (d,)
        The scale of each feature, by which it is divided.
    limit : float
        The bound of the result.

    Examples
    --------
    >>> Standardize(np.array([1.0]), np.array([2.0]))(torch.tensor([[3.0], [1e9]])).numpy().round(2)
    array([[0.99], [5.  ]])
    """

    def __init__(self, mean: np.ndarray, scale: np.ndarray, limit: float = _LIMIT) -> None:
        super().__init__()
        self.mean: Tensor
        self.scale: Tensor
        self.register_buffer("mean", torch.tensor(mean))
        self.register_buffer("scale", torch.tensor(scale))
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        """Return the standardized features."""
        return self.limit * torch.tanh((x - self.mean) / (self.limit * self.scale))


def center_and_scale(x: np.ndarray, weight: Weights) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted mean and standard deviation of each column; the deviation of a constant column is 1."""
    # Dividing by the largest entry first keeps squares finite.
    largest = np.abs(x).max(0)
    largest = np.where(largest > 0, largest, 1.0)
    share = weight / weight.sum()
    relative = x / largest
    mean = share @ relative
    scale = np.sqrt(share @ np.square(relative - mean))
    varies = scale > 16 * np.finfo(np.float64).eps
    # A deviation that is too small to divide by counts as zero.
    return mean * largest, np.where(varies & (scale * largest >= np.finfo(np.float32).tiny), scale * largest, 1.0)


def _merged(x: np.ndarray, y: np.ndarray, weight: Weights) -> tuple[np.ndarray, np.ndarray, Weights]:
    """Return distinct rows, sorted, with summed weights: then a weight of 2 is the same as a row given twice."""
    rows = np.concatenate([x, y.reshape(len(y), -1)], axis=1) + 0.0
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return x[first], y[first], np.bincount(which.ravel(), weight, len(first))


class PrototypeEstimator(SavedEstimator, BaseEstimator, ABC):  # type: ignore[misc]
    """What the classifier and the regressor share: parameters, data, training, and the network as modules."""

    _records = (Shape,)

    mean_: Float64[np.ndarray, " d"]
    scale_: Float64[np.ndarray, " d"]
    prototypes_: Float64[np.ndarray, "k h"]
    alphas_: Float64[np.ndarray, "k h"]
    n_iter_: int
    loss_curve_: list[float]
    validation_loss_curve_: list[float]

    @abstractmethod
    def _heads(self) -> tuple[int, int]:
        """Return the numbers of prototypes and of outputs, 0 if the distances are the outputs."""

    @abstractmethod
    def _prepare_targets(self, y: np.ndarray, weight: Weights) -> None:
        """Learn how to standardize targets, from those of the first fit."""

    @abstractmethod
    def _training_targets(self, y: np.ndarray) -> np.ndarray:
        """Return the targets in the form that the training loop takes."""

    def _fitted(self: Self, data: tuple[np.ndarray, np.ndarray, Weights], fresh: bool, whole: bool) -> Self:
        """Train on checked data: a whole fit with early stopping and a decaying learning rate, or one more epoch."""
        x, y, weight = _merged(*data) if len(data[0]) <= _MERGED else data
        seed = self._seed()
        if fresh:
            unscaled = np.zeros(x.shape[1]), np.ones(x.shape[1])
            self.mean_, self.scale_ = center_and_scale(x, weight) if self.standardize else unscaled
            self._prepare_targets(y, weight)
            self._times = 0
        draws = np.random.default_rng(derive(seed, "prototypes", self._times))
        examples = self._examples(x, y, weight)
        prototypes, outputs = self._heads()
        shape = Shape((x.shape[1], *self._units()), prototypes, outputs, self.activation)
        if not fresh and shape != self._shape:
            raise ValueError(f"the network was fitted with other sizes, {self._shape}, than asked for now, {shape}")
        network = draw_network(shape, examples, draws) if fresh else PrototypeNetwork(shape, self._vector.copy())
        state = (np.zeros_like(network.vector), np.zeros_like(network.vector), 0)
        adam = Adam(*state) if fresh else Adam(self._first.copy(), self._second.copy(), self._steps)
        self._train(network, adam, examples, draws, whole)
        return self

    def _train(
        self, network: PrototypeNetwork, adam: Adam, examples: Examples, draws: np.random.Generator, whole: bool
    ) -> None:
        held_out = None
        if self.early_stopping and whole:
            examples, held_out = self._split(examples, draws)
        recipe = self._recipe(len(examples.x), whole)
        bar = progress(type(self).__name__, recipe.epochs) if self.verbose and whole else nullcontext(lambda _: None)
        with bar as show:
            history = train(network, adam, (examples, held_out), recipe, draws, show)
        self._vector, self._first, self._second, self._steps = network.vector, adam.first, adam.second, adam.steps
        self._times += 1
        self._shape, done = network.shape, len(history.training)
        self.n_iter_ = done if whole else getattr(self, "n_iter_", 0) + done
        earlier = [] if whole else getattr(self, "loss_curve_", [])
        self.loss_curve_, self.validation_loss_curve_ = earlier + history.training, history.held_out
        self.prototypes_, self.alphas_ = (array.astype(np.float64) for array in (network.mu, network.alpha))

    def _recipe(self, rows: int, whole: bool) -> FitRecipe:
        auto = min(_LARGEST, max(_SMALLEST, rows // 20))
        batch = auto if self.batch_size == "auto" else self.batch_size
        steps = -(-rows // batch) if self.batch_size != "auto" else max(_FEWEST, -(-rows // batch))
        epochs = self.max_iter if whole else 1
        stop = self.n_iter_no_change, self.tol
        return FitRecipe(epochs, self.lr, batch, steps, self.weight_decay, whole, *stop)

    def _split(self, examples: Examples, draws: np.random.Generator) -> tuple[Examples, Examples]:
        """Hold out a share of the rows; with classes, the same share of each class."""
        order = draws.permutation(len(examples.x))
        if examples.y.ndim == 1:
            order = order[np.argsort(examples.y[order], kind="stable")]
        every = max(2, round(1 / self.validation_fraction))
        if len(order) < every:
            raise ValueError(f"early_stopping needs at least {every} different rows, got {len(order)}")
        held = np.zeros(len(order), bool)
        held[order[every - 1 :: every]] = True
        return examples.rows(~held), examples.rows(held)

    def _examples(self, x: np.ndarray, y: np.ndarray, weight: Weights) -> Examples:
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = self._standardized(x).astype(np.float32)
        return Examples(scaled, self._training_targets(y), (weight / weight.mean()).astype(np.float32))

    def _standardized(self, x: np.ndarray) -> np.ndarray:
        if not self.standardize:
            return x
        # The divisor may overflow to infinity; the quotient is then 0, close to its true value.
        with np.errstate(over="ignore"):
            return np.asarray(_LIMIT * np.tanh((x - self.mean_) / (_LIMIT * self.scale_)))

    def _units(self) -> tuple[int, ...]:
        return () if self.hidden is None else (self.hidden,) if isinstance(self.hidden, int) else tuple(self.hidden)

    def _seed(self) -> int:
        if self.random_state is None or isinstance(self.random_state, np.random.RandomState):
            return int(check_random_state(self.random_state).randint(2**31 - 1))
        return integer(self.random_state, "random_state", least=None)

    def _check_parameters(self) -> None:
        units = self._units() if isinstance(self.hidden, list | tuple) else (1 if self.hidden is None else self.hidden,)
        for count in units:
            integer(count, "hidden")
        one_of(self.activation, "activation", ACTIVATIONS)
        integer(self.max_iter, "max_iter", least=0)
        number(self.lr, "lr", "(0, inf)")
        number(self.weight_decay, "weight_decay", "[0, inf)")
        if self.batch_size != "auto":
            integer(self.batch_size, "batch_size")
        number(self.validation_fraction, "validation_fraction", "(0, 0.5]")
        integer(self.n_iter_no_change, "n_iter_no_change")
        number(self.tol, "tol", "[0, inf)")

    def _weights(self, sample_weight: Any, x: np.ndarray) -> Weights:
        return _check_sample_weight(untensored(sample_weight), x, dtype=np.float64, ensure_non_negative=True)

    def _counted(self, x: np.ndarray, y: np.ndarray, weight: Weights) -> tuple[np.ndarray, np.ndarray, Weights]:
        """Return the rows whose weight is not zero."""
        if not np.isfinite(weight).all() or not weight.any():
            raise ValueError("the weights must be finite, and not all of them zero")
        chosen = weight > 0
        return (x, y, weight) if chosen.all() else (x[chosen], y[chosen], weight[chosen])

    def _modules(self) -> list[nn.Module]:
        """Return the trained modules up to the distances, in float64."""
        check_is_fitted(self)
        network = PrototypeNetwork(self._shape, self._vector)
        modules: list[nn.Module] = [Standardize(self.mean_, self.scale_)] if self.standardize else []
        for weight, bias in zip(network.weights, network.biases, strict=True):
            modules += [linear_of(weight, bias), activation_row(self.activation).module()]
        head = OffsetL2(self._shape.units[-1], self._shape.prototypes, generator=torch.Generator(), dtype=torch.float64)
        with torch.no_grad():
            head.mu.copy_(torch.from_numpy(network.mu))
            head.alpha.copy_(torch.from_numpy(network.alpha))
        return [*modules, head]

    def distances(self, X: Any) -> Float64[np.ndarray, "n k"]:
        """Return the distance of each point to each prototype."""
        check_is_fitted(self)
        z, network = self._standardized(points(self, X, reset=False)), PrototypeNetwork(self._shape, self._vector)
        for weight, bias in zip(network.weights, network.biases, strict=True):
            z = ACTIVATIONS[self.activation](z @ weight.astype(np.float64) + bias)[0]
        head = torch.from_numpy(self.prototypes_), torch.from_numpy(self.alphas_)
        return offset_l2(torch.from_numpy(contiguous(z)), *head).numpy()


def linear_of(weight: np.ndarray, bias: np.ndarray) -> nn.Linear:
    """Return a linear layer in float64 with the given weight (inputs by outputs) and bias; draws no random number."""
    # Not skip_init, which imports sympy and takes seconds.
    with torch.random.fork_rng(devices=[]):
        made = nn.Linear(weight.shape[0], weight.shape[1], dtype=torch.float64)
    with torch.no_grad():
        made.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight.T)))
        made.bias.copy_(torch.from_numpy(bias))
    return made
