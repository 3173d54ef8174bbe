"""A classifier and a regressor by distances to learned prototypes.

Axes: ``n`` points, ``k`` prototypes, ``m`` targets.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from jaxtyping import Float64
from scipy.special import softmax
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from torch import nn

from metriscope.common.validation import contiguous, integer
from metriscope.nn import Neg
from metriscope.runs.estimators import untensored, validated
from metriscope.sklearn.fitting import PrototypeNetwork
from metriscope.sklearn.prototypes import PrototypeEstimator, RandomState, Units, Weights, center_and_scale, linear_of

__all__ = ["DistanceClassifier", "DistanceRegressor"]


class DistanceClassifier(ClassifierMixin, PrototypeEstimator):  # type: ignore[misc]
    """A classifier that chooses the nearest prototype: one per class, each with its own weighted distance.

    Features are standardized and pass a hidden layer; class probabilities are the softmax of the negative distances
    ``‖alpha_c * (z - mu_c)‖`` to the prototypes. Prototypes start at the means of their classes, and everything is
    trained with Adam in mini-batches; the learning rate falls to zero by cosine decay.

    Parameters
    ----------
    hidden : int, tuple of int or None
        The number of units of the hidden layer, or of several hidden layers; None to measure distances between the
        features themselves.
    activation : "abs" or "relu"
        What the hidden units compute; with ``"abs"`` each is a distance to a hyperplane.
    max_iter : int
        The number of epochs.
    lr : float
        The learning rate at the start.
    weight_decay : float
        The decoupled weight decay of the hidden layers' weights.
    batch_size : int or "auto"
        The number of points per step; ``"auto"`` takes a twentieth of them, but at least 16 and at most 200, and at
        least 8 steps per epoch.
    standardize : bool
        Whether features are centered, scaled, and bounded smoothly by 5 standard deviations.
    class_weight : "balanced", dict or None
        Weights of the classes; ``"balanced"`` gives all classes the same total weight.
    early_stopping : bool
        Whether to hold out points, stop when their loss no longer falls, and keep the best weights.
    validation_fraction : float in (0, 0.5]
        The share of points held out for early stopping, rounded to one in a whole number of points.
    n_iter_no_change : int
        The number of epochs without improvement after which to stop.
    tol : float
        By how much a loss must be lower to count as an improvement.
    warm_start : bool
        Whether ``fit`` continues from the last fit instead of from a new network.
    verbose : bool
        Whether to show a progress bar.
    random_state : int, numpy.random.RandomState or None
        The source of the initial network and the order of points: the same integer gives the same network, None gives
        another one each time.

    Attributes
    ----------
    classes_ : array of shape (k,)
        The class labels.
    prototypes_, alphas_ : arrays of shape (k, units)
        The prototype of each class and the weights of its distance, in the space of the hidden layer's outputs.
    network_ : torch.nn.Sequential
        The trained network, which takes raw features and returns negative distances.
    n_iter_ : int
        The number of epochs done.
    loss_curve_, validation_loss_curve_ : list of float
        The mean loss of each epoch.

    Notes
    -----
    A row with weight 0 has no effect. Up to 1,000 rows, equal rows are merged, so that a weight of 2 is the same as a
    row given twice, and the order of rows has no effect. ``partial_fit`` standardizes by the points of
    its first call.

    Examples
    --------
    >>> x = np.array([[0.0, 0.0], [0.0, 1.0], [5.0, 5.0], [5.0, 6.0]])
    >>> DistanceClassifier().fit(x, ["a", "a", "b", "b"]).predict([[1.0, 1.0], [4.0, 4.0]]).tolist()
    ['a', 'b']
    """

    classes_: np.ndarray

    def __init__(
        self,
        hidden: Units = 128,
        *,
        activation: Literal["abs", "relu"] = "abs",
        max_iter: int = 60,
        lr: float = 0.005,
        weight_decay: float = 0.1,
        batch_size: int | Literal["auto"] = "auto",
        standardize: bool = True,
        class_weight: Any = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        warm_start: bool = False,
        verbose: bool = False,
        random_state: RandomState = 0,
    ) -> None:
        self.hidden, self.activation = hidden, activation
        self.max_iter, self.lr, self.weight_decay, self.batch_size = max_iter, lr, weight_decay, batch_size
        self.standardize, self.class_weight = standardize, class_weight
        self.early_stopping, self.validation_fraction = early_stopping, validation_fraction
        self.n_iter_no_change, self.tol, self.warm_start = n_iter_no_change, tol, warm_start
        self.verbose, self.random_state = verbose, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DistanceClassifier:
        """Learn the prototypes, the weights of their distances and the hidden layer.

        Raises
        ------
        ValueError
            If the data is not valid, or with ``warm_start`` has other classes than before.
        """
        fresh = not (self.warm_start and hasattr(self, "_vector"))
        x, labels, weight = self._checked(X, y, sample_weight, fresh)
        classes, places = np.unique(labels, return_inverse=True)
        if not fresh and not np.array_equal(classes, self.classes_):
            raise ValueError(f"warm_start needs the classes of the last fit, {self.classes_}, got {classes}")
        self.classes_ = classes
        return self._fitted((x, places, weight), fresh, whole=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> DistanceClassifier:
        """Train one epoch on some points; the first call needs all ``classes``, including those of later calls.

        Raises
        ------
        ValueError
            If the data is not valid, the first call gets no ``classes``, or a label is none of them.
        """
        fresh = not hasattr(self, "_vector")
        if fresh and classes is None:
            raise ValueError("classes must be given to the first call of partial_fit")
        known = np.unique(untensored(classes, "y")) if fresh else self.classes_
        if classes is not None and not np.array_equal(np.unique(untensored(classes, "y")), known):
            raise ValueError(f"classes must be those of the first call, {known}")
        x, labels, weight = self._checked(X, y, sample_weight, fresh)
        strange = np.setdiff1d(labels, known)
        if len(strange):
            raise ValueError(f"y must hold only the classes {known}, got {strange[0]!r}")
        self.classes_ = known
        return self._fitted((x, np.searchsorted(known, labels), weight), fresh, whole=False)

    def decision_function(self, X: Any) -> np.ndarray:
        """Return negative distances to the prototypes; for two classes, the first distance minus the second."""
        scores = -self.distances(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Float64[np.ndarray, "n k"]:
        """Return the softmax of the negative distances."""
        return softmax(-self.distances(X), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of the nearest prototype."""
        nearest = self.distances(X).argmin(1)
        return self.classes_[nearest]

    @property
    def network_(self) -> nn.Sequential:
        """Return the trained network, from raw features to negative distances."""
        return nn.Sequential(*self._modules(), Neg())

    def _checked(self, X: Any, y: Any, sample_weight: Any, fresh: bool) -> tuple[np.ndarray, np.ndarray, Weights]:
        self._check_parameters()
        x, y = validated(self, untensored(X), untensored(y, "y"), reset=fresh)
        # Labels that are too large for an integer are valid, so the warning about them is suppressed.
        with np.errstate(invalid="ignore"):
            check_classification_targets(y)
        weight = self._weights(sample_weight, x)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        return self._counted(x, y, weight)

    def _heads(self) -> tuple[int, int]:
        return len(self.classes_), 0

    def _prepare_targets(self, y: np.ndarray, weight: Weights) -> None:
        pass

    def _training_targets(self, y: np.ndarray) -> np.ndarray:
        return y


class DistanceRegressor(RegressorMixin, PrototypeEstimator):  # type: ignore[misc]
    """A regressor whose prediction is a linear function of the distances to learned prototypes.

    Features are standardized and pass a hidden layer, and the distances
    ``‖alpha_i * (z - mu_i)‖`` are measured between its outputs ``z`` and the prototypes. Prototypes start at random
    points; targets are standardized for training.

    Parameters
    ----------
    hidden : int, tuple of int or None
        The number of units of the hidden layer, or of several hidden layers; None to measure distances between the
        features themselves.
    n_prototypes : int
        The number of prototypes.
    activation, max_iter, lr, weight_decay, batch_size, standardize
        The hidden layers and how they are trained, as in :class:`DistanceClassifier`.
    early_stopping, validation_fraction, n_iter_no_change, tol
        When to stop early, as in :class:`DistanceClassifier`.
    warm_start, verbose, random_state
        As in :class:`DistanceClassifier`.

    Attributes
    ----------
    prototypes_, alphas_ : arrays of shape (n_prototypes, units)
        The prototypes and the weights of their distances, in the space of the hidden layer's outputs.
    network_ : torch.nn.Sequential
        The trained network, which takes raw features and returns one column per target.
    n_iter_ : int
        The number of epochs done.
    loss_curve_, validation_loss_curve_ : list of float
        The mean loss of each epoch: half the squared error of standardized targets.

    Notes
    -----
    Weights act as in :class:`DistanceClassifier`. ``partial_fit`` standardizes by the points of its first call.

    Examples
    --------
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> bool(DistanceRegressor().fit(x, np.abs(x[:, 0])).score(x, np.abs(x[:, 0])) > 0.99)
    True
    """

    def __init__(
        self,
        hidden: Units = 128,
        *,
        n_prototypes: int = 16,
        standardize: bool = True,
        activation: Literal["abs", "relu"] = "abs",
        batch_size: int | Literal["auto"] = "auto",
        max_iter: int = 60,
        lr: float = 0.005,
        weight_decay: float = 1.5,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 10,
        tol: float = 1e-4,
        random_state: RandomState = 0,
        verbose: bool = False,
    ) -> None:
        self.hidden, self.n_prototypes, self.activation = hidden, n_prototypes, activation
        self.max_iter, self.lr, self.weight_decay, self.batch_size = max_iter, lr, weight_decay, batch_size
        self.standardize, self.early_stopping = standardize, early_stopping
        self.validation_fraction, self.n_iter_no_change = validation_fraction, n_iter_no_change
        self.tol, self.warm_start, self.verbose, self.random_state = tol, warm_start, verbose, random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> DistanceRegressor:
        """Learn the prototypes, the weights of their distances, the hidden layer and the output."""
        return self._learned(X, y, sample_weight, not (self.warm_start and hasattr(self, "_vector")), whole=True)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> DistanceRegressor:
        """Train one epoch on some points."""
        return self._learned(X, y, sample_weight, not hasattr(self, "_vector"), whole=False)

    def predict(self, X: Any) -> np.ndarray:
        """Return the predicted targets, in the shape that ``fit`` was given."""
        distances = self.distances(X)
        weight, bias = self._output()
        found = distances @ weight + bias
        return found[:, 0] if self._flat else found

    @property
    def network_(self) -> nn.Sequential:
        """Return the trained network, from raw features to targets in their own units."""
        return nn.Sequential(*self._modules(), linear_of(*self._output()))

    def _output(self) -> tuple[np.ndarray, np.ndarray]:
        """Return weight and bias of the last layer, in the targets' own units."""
        output = PrototypeNetwork(self._shape, self._vector).output
        weight, bias = (array.astype(np.float64) * self._target_scale for array in output)
        return weight, bias + self._target_mean

    def _learned(self, X: Any, y: Any, sample_weight: Any, fresh: bool, whole: bool) -> DistanceRegressor:
        self._check_parameters()
        integer(self.n_prototypes, "n_prototypes")
        options = {"multi_output": True, "y_numeric": True, "reset": fresh}
        x, y = validated(self, untensored(X), untensored(y, "targets"), **options)
        targets = contiguous(np.asarray(y, np.float64).reshape(len(y), -1))
        if fresh:
            self._flat = y.ndim == 1
        elif targets.shape[1] != len(self._target_mean):
            raise ValueError(f"y must have {len(self._target_mean)} targets as before, got {targets.shape[1]}")
        return self._fitted(self._counted(x, targets, self._weights(sample_weight, x)), fresh, whole)

    def _heads(self) -> tuple[int, int]:
        return self.n_prototypes, len(self._target_mean)

    def _prepare_targets(self, y: np.ndarray, weight: Weights) -> None:
        self._target_mean, self._target_scale = center_and_scale(y, weight)

    def _training_targets(self, y: np.ndarray) -> np.ndarray:
        return ((y - self._target_mean) / self._target_scale).astype(np.float32)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
