"""Classical scaling of the VQ kernel, exact and linear in points: the kernel is Euclidean in the signs.

Axes: N points, H units (U with the padding bits), K components. With signs s in {-1, +1}, the distance is
d = |s - s'|² / 4. Centering it on both sides gives B = -Sc Scᵀ / 2 for the centered sign matrix Sc, so that the
embedding, whose products are -B / 2, is Sc / 2 rotated to its principal axes. Weights scale the columns by their
square roots.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import torch
from jaxtyping import Float64, UInt8
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from threadpoolctl import threadpool_limits
from torch import Generator

from metriscope.common.threads import row_slices
from metriscope.common.validation import integer
from metriscope.rng import stream
from metriscope.runs.estimators import SavedEstimator, points
from metriscope.vq.capture.patterns import Layer, Patterns
from metriscope.vq.measures.kernel import Weights, check_same_layers, layer_weights, vq_kernel
from metriscope.vq.measures.sign_products import (
    Products,
    products_and_sums,
    project,
    sign_products,
    tables_of,
    unit_sums,
)

__all__ = ["VQMDS", "fitted_to_products", "sign_patterns"]

# The side of the largest matrix that is decomposed exactly; for larger ones a randomized method is used.
LARGE = 8_000
_SMALL = 1_000
# Random directions beyond those asked for, blocks of directions held, passes over the points at most, and the residual
# to stop at, relative to the first eigenvalue: the relative error of the eigenvalues is about its square.
_SPARE, _BLOCKS, _PASSES, _RESIDUAL = 13, 12, 60, 1e-9
# Points whose signs are multiplied at once, in bytes of packed bits.
_BLOCK = 1 << 19

Matrix = Float64[np.ndarray, "m m"]
Packed = UInt8[np.ndarray, "n b"]
Units = Float64[np.ndarray, " u"]
Directions = Float64[np.ndarray, "u k"]


@dataclass(frozen=True)
class _Axes:
    """Eigenvalues of -B / 2, descending, and the axes: the embedding is the centered signs times these axes."""

    values: Float64[np.ndarray, " k"]
    axes: Float64[np.ndarray, "u k"]
    residual: float = 0.0

    @classmethod
    def none(cls, units: int) -> _Axes:
        """Return one axis of length zero, for points that all have the same pattern."""
        return cls(np.zeros(1), np.zeros((units, 1)))


class _RankError(ValueError):
    """Raised if there are fewer components than requested; ``rank`` is how many there are."""

    def __init__(self, message: str, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


def sign_patterns(values: Float64[np.ndarray, "n h"]) -> Patterns:
    """Return the sign patterns of pre-activations, as patterns of one layer.

    >>> sign_patterns(np.array([[1.0, -2.0]])).signs().tolist()
    [[1, -1]]
    """
    return Patterns((Layer("units", values.shape[1], "pre-activation"),), np.packbits(values >= 0, axis=1))


class VQMDS(ClassNamePrefixFeaturesOutMixin, TransformerMixin, SavedEstimator, BaseEstimator):  # type: ignore[misc]
    """Classical multidimensional scaling of the VQ kernel, without any matrix of points by points.

    Squared Euclidean distances between rows of the full embedding are the VQ distances. The exact method decomposes
    the products of units, or of points where these are fewer. Where both are more than 8,000, the leading components
    come from a randomized block Krylov space.

    It is a scikit-learn transformer: a plain array, points by units, is read as pre-activations. If more components
    are asked for than the rank of the patterns, an array gives zeros, as in PCA, and patterns give an error.

    Parameters
    ----------
    n_components : int, optional
        Number of components; None keeps all of them.
    weights : sequence of float, mapping of str to float, or "mean", optional
        One weight per layer, as in :func:`vq_kernel`.
    random_state : int
        Seed of the randomized method.
    generator : torch.Generator, optional
        Draw the start of the randomized method from this generator instead of ``random_state``.

    Attributes
    ----------
    embedding_ : array, shape (n, n_components)
        The points, after :meth:`fit`.
    eigenvalues_ : array, shape (n_components,)
        Eigenvalues of the centered kernel -B / 2, positive, in descending order; 0 beyond the rank.
    eigenvectors_ : array, shape (n, n_components)
        Its unit eigenvectors; the entry of largest magnitude is positive. NaN beyond the rank.
    method_ : str
        ``"units"``, ``"points"`` or ``"randomized"``.
    residual_ : float
        0 for the exact methods, otherwise the largest |C v - λ v| / λ₁ of the components.

    Examples
    --------
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3]], np.uint8))
    >>> VQMDS(n_components=2).fit(p).embedding_.shape
    (3, 2)
    >>> VQMDS(n_components=1).fit_transform([[1.0, -1.0], [2.0, 1.0]]).round(3)
    array([[ 0.5], [-0.5]])
    """

    _records = (Layer,)

    def __init__(
        self,
        n_components: int | None = 3,
        weights: Weights = None,
        random_state: int = 0,
        generator: Generator | None = None,
    ) -> None:
        self.n_components, self.weights = n_components, weights
        self.random_state, self.generator = random_state, generator

    def fit(self, X: Any, y: None = None) -> VQMDS:
        """Find the embedding of patterns, or of the patterns of an array of pre-activations."""
        if self.n_components is not None:
            integer(self.n_components, "n_components")
        if isinstance(X, Patterns):
            _check_size(len(X))
            self._finish(X, self._axes_of(X, self.n_components), 0)
            self.n_features_in_ = X.width
            self.__dict__.pop("feature_names_in_", None)
            return self
        p = sign_patterns(points(self, X, ensure_min_samples=2))
        try:
            found = self._axes_of(p, self.n_components)
        except _RankError as error:
            found = self._axes_of(p, error.rank) if error.rank else _Axes.none(8 * p.packed.shape[1])
        self._finish(p, found, (self.n_components or len(found.values)) - len(found.values))
        return self

    def _axes_of(self, p: Patterns, wanted: int | None) -> _Axes:
        self.method_ = _method(len(p), 8 * p.packed.shape[1])
        scale = _scale(p.layers, self.weights)
        if self.method_ == "units":
            return _by_units(products_and_sums(p.packed), scale, wanted, len(p))
        if self.method_ == "points":
            return _by_points(p, scale, wanted, self.weights)
        drawn = stream(self.random_state, "vqmds") if self.generator is None else self.generator
        return _by_chance(p.packed, scale, wanted, drawn)

    def _finish(self, p: Patterns, found: _Axes, beyond: int) -> None:
        embedding = project(p.packed, tables_of(found.axes))
        middle = embedding.mean(0)
        embedding -= middle
        leading = np.abs(embedding).argmax(0)
        signs = np.sign(embedding[leading, np.arange(embedding.shape[1])])
        embedding *= signs
        with np.errstate(invalid="ignore"):
            vectors = embedding / np.linalg.norm(embedding, axis=0)
        self.eigenvalues_, self.residual_ = np.pad(found.values, (0, beyond)), found.residual
        self.embedding_ = np.pad(embedding, ((0, 0), (0, beyond)))
        self.eigenvectors_ = np.pad(vectors, ((0, 0), (0, beyond)), constant_values=np.nan)
        self._layers, self._axes, self._middle = p.layers, found.axes * signs, middle * signs
        self._n_features_out = self.embedding_.shape[1]

    def fit_transform(self, X: Any, y: None = None) -> Float64[np.ndarray, "n k"]:
        """Return the embedding of the points."""
        return self.fit(X).embedding_

    def transform(self, X: Any) -> Float64[np.ndarray, "m k"]:
        """Return new points of the same layers, projected onto the fitted axes."""
        check_is_fitted(self)
        q = X if isinstance(X, Patterns) else sign_patterns(points(self, X, reset=False))
        check_same_layers(self._layers, q.layers)
        found = project(q.packed, tables_of(self._axes)) - self._middle
        return np.pad(found, ((0, 0), (0, self._n_features_out - found.shape[1])))

    def __getattr__(self, name: str) -> Any:
        if name in ("embedding_", "eigenvectors_") and "eigenvalues_" in vars(self):
            raise AttributeError(
                f"a VQMDS computed by MDSState has no {name}, because the state keeps no points: transform the points"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def fitted_to_products(
    found: Products, layers: tuple[Layer, ...], count: int, n_components: int | None, weights: Weights
) -> VQMDS:
    """Return a VQMDS fitted to points of which only the products of units are known; it has no ``embedding_``.

    ``found.centered`` is overwritten. The entry of largest magnitude of every axis is positive.
    """
    made = VQMDS(None if n_components is None else integer(n_components, "n_components"), weights)
    _check_size(count)
    axes = _by_units(found, _scale(layers, weights), n_components, count)
    leading = np.abs(axes.axes).argmax(0)
    directions = axes.axes * np.sign(axes.axes[leading, np.arange(axes.axes.shape[1])])
    made.eigenvalues_, made.residual_, made.method_ = axes.values, axes.residual, "units"
    made._layers, made._axes, made._middle = layers, directions, found.left / count @ directions
    made._n_features_out, made.n_features_in_ = len(axes.values), sum(layer.width for layer in layers)
    return made


def _check_size(count: int) -> None:
    if count < 2:
        raise ValueError(f"an embedding needs at least two points, got {count}")


def _method(points: int, units: int) -> str:
    if min(points, units) > LARGE:
        return "randomized"
    return "points" if points < units else "units"


def _scale(layers: tuple[Layer, ...], weights: Weights) -> Float64[np.ndarray, " u"]:
    """Return half the square root of each unit's weight: the factor of its centered sign."""
    return np.repeat(np.sqrt(layer_weights(layers, weights)) / 2, [8 * layer.bytes for layer in layers])


def _by_units(found: Products, scale: Units, wanted: int | None, points: int) -> _Axes:
    """Return the axes from the products of units, which are overwritten."""
    products = found.centered
    products *= scale
    products *= scale[:, None]
    values, vectors = _leading(products, wanted, points)
    return _Axes(values, scale[:, None] * vectors)


def _by_points(p: Patterns, scale: Units, wanted: int | None, weights: Weights) -> _Axes:
    values, vectors = _leading(_centered_kernel(vq_kernel(p, weights=weights)), wanted, len(p))
    # Eigenvectors of a centered matrix add up to zero, so that the mean of the signs has no effect.
    return _Axes(values, scale[:, None] ** 2 * sign_products(p.packed, vectors) / np.sqrt(values))


def _centered_kernel(distances: np.ndarray) -> Matrix:
    """Return -B / 2, the matrix that classical scaling decomposes: ``-distances / 2`` centered on both sides."""
    half = np.multiply(distances, -0.5, dtype=np.float64)
    half -= half.mean(0)
    half -= half.mean(1, keepdims=True)
    return half


def _leading(matrix: Matrix, wanted: int | None, points: int) -> tuple[Float64[np.ndarray, " k"], Matrix]:
    """Return the leading eigenpairs, descending; raise ValueError if more are requested than exist."""
    side = len(matrix)
    chosen = None if wanted is None or wanted > side else [side - wanted, side - 1]
    # On a small matrix, threads of the linear algebra library spend more time waiting than working.
    with threadpool_limits(1 if side < _SMALL else None, user_api="blas"):
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=chosen)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = _floor(values, side)
    if wanted is not None and (wanted > side or values[-1] <= floor):
        rank = int((scipy.linalg.eigvalsh(matrix) > floor).sum())
        _check_rank(wanted, rank, points)
    count = int((values > floor).sum())
    _check_rank(1, count, points)
    return values[:count].copy(), np.ascontiguousarray(vectors[:, :count])


def _floor(values: Float64[np.ndarray, " k"], side: int) -> float:
    """Return the largest value that rounding can give to an eigenvalue that is really zero."""
    return float(16 * max(values[0], 0.0) * side * np.finfo(np.float64).eps)


def _check_rank(wanted: int, rank: int, points: int) -> None:
    if rank == 0:
        raise _RankError(f"all {points} points have the same pattern: an embedding needs two that differ", 0)
    if wanted > rank:
        raise _RankError(f"n_components={wanted}, but the patterns of the {points} points have only rank {rank}", rank)


def _by_chance(packed: Packed, scale: Units, wanted: int | None, generator: Generator) -> _Axes:
    """Return leading components from random directions and the block Krylov space that grows from them.

    Musco and Musco 2015, algorithm 2, restarted from its best directions when the space gets large. Each pass over
    the points also measures how far the components still are from eigenvectors, and decides whether to stop.
    """
    mean = unit_sums(packed) / len(packed)
    most = min(len(packed) - 1, len(scale))
    if wanted is None:
        sizes = f"{len(packed)} points x {len(scale)} units"
        raise ValueError(f"{sizes} are too many for all components: give n_components")
    _check_rank(wanted, most, len(packed))
    size = min(most, wanted + _SPARE)
    room = min(_BLOCKS * size, len(scale) - size)
    start = torch.randn(len(scale), size, dtype=torch.float64, generator=generator)
    space = _Space.of(np.linalg.qr(start.numpy())[0])
    for number in range(_PASSES):
        if number:
            space = space.renewed(size) if space.basis.shape[1] > room else space.continued()
        space = space.grown(_covariance_times(packed, scale, mean, space.block))
        if space.residual(wanted) <= _RESIDUAL:
            break
    _check_rank(wanted, int((space.values > _floor(space.values, most)).sum()), len(packed))
    vectors = space.basis @ space.rotation[:, :wanted]
    return _Axes(space.values[:wanted].copy(), scale[:, None] * vectors, space.residual(wanted))


@dataclass(frozen=True)
class _Space:
    """Orthonormal directions, their images under the covariance C, its eigenpairs in their span, the next block."""

    basis: Float64[np.ndarray, "u m"]
    images: Float64[np.ndarray, "u m"]
    block: Float64[np.ndarray, "u k"]
    values: Float64[np.ndarray, " m"]
    rotation: Float64[np.ndarray, "m m"]

    @classmethod
    def of(cls, block: Float64[np.ndarray, "u k"]) -> _Space:
        return cls(block[:, :0], block[:, :0], block, np.zeros(0), np.zeros((0, 0)))

    def grown(self, image: Float64[np.ndarray, "u k"]) -> _Space:
        """Return the space extended by the last block, given its image."""
        basis, images = np.hstack([self.basis, self.block]), np.hstack([self.images, image])
        inside = basis.T @ images
        values, rotation = np.linalg.eigh((inside + inside.T) / 2)
        return _Space(basis, images, image, values[::-1], rotation[:, ::-1])

    def residual(self, wanted: int) -> float:
        """Return the largest |C v - λ v| / λ₁ of the leading directions."""
        if self.values[0] <= 0:
            return 0.0
        rotation = self.rotation[:, :wanted]
        missed = self.images @ rotation - self.basis @ (rotation * self.values[:wanted])
        return float(np.linalg.norm(missed, axis=0).max() / self.values[0])

    def continued(self) -> _Space:
        """Return the space with a new block: the part of the last image that is orthogonal to it."""
        block = self.block
        for _ in range(2):  # once more, to remove what rounding left after the first time
            block = np.linalg.qr(block - self.basis @ (self.basis.T @ block))[0]
        return replace(self, block=block)

    def renewed(self, size: int) -> _Space:
        """Return a new space that starts from the images of the leading directions."""
        return _Space.of(np.linalg.qr(self.images @ self.rotation[:, :size])[0])


def _covariance_times(packed: Packed, scale: Units, mean: Units, basis: Directions) -> Directions:
    """Return Aᵀ A basis for A = Sc diag(scale), a block of points at a time."""
    total, sums = np.zeros_like(basis), np.zeros(basis.shape[1])
    tables = scale[:, None] * basis
    for rows in row_slices(len(packed), max(1, _BLOCK // packed.shape[1])):
        signs = np.unpackbits(packed[rows], axis=1) * 2.0 - 1
        image = signs @ tables - mean @ tables
        total += signs.T @ image
        sums += image.sum(0)
    return scale[:, None] * (total - np.outer(mean, sums))
