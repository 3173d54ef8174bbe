"""How unlike the training set a point's sign pattern is: the distance to its k-th nearest training pattern.

Axes: ``n`` test points, ``m`` training points, ``b`` bytes of a pattern. Distances are exact counts of units.

Range: 0 to the number of bits. Novelty is invariant to the order of units or training points, to a unit's positive
scale or flipped sign, to additional constant units and, at ``k=1``, to repeated training points. Additional training
points never make a point more novel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, Literal, TypeAlias, get_args

import numkong as nk
import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt8, UInt32
from torch import Tensor, nn

from metriscope.common.threads import in_parallel, row_slices
from metriscope.common.validation import instance, integer, label_array, number, one_of, real_tensor
from metriscope.rng import stream
from metriscope.vq.capture.capture import capture
from metriscope.vq.capture.patterns import Patterns
from metriscope.vq.measures.kernel import check_same_layers

__all__ = ["Index", "local_complexity", "naswot_score", "novelty", "pattern_multiplicities", "region_count"]

Index: TypeAlias = Literal["exact", "faiss"]

# A block of distances takes 4 * 256 * 8192 bytes = 8 MiB per thread, whatever the sizes of the two sets.
_TEST_ROWS = 256
_TRAIN_ROWS = 8192
# Up to this many training points an inverted file is searched in full, which is then fast enough.
_SEARCHED_WHOLE = 100_000


def novelty(
    train: Patterns,
    test: Patterns,
    k: int = 1,
    train_labels: Any = None,
    test_labels: Any = None,
    index: Index = "exact",
    nprobe: int | None = None,
) -> Float64[np.ndarray, " n"]:
    """Return the distance of each test point to its ``k``-th nearest training pattern: larger is less alike.

    A point that is itself among the training points is its own nearest neighbor.

    Parameters
    ----------
    train, test : Patterns
        Patterns of the same layers at the training points and at the points to be judged.
    k : int
        The rank of the neighbor to which the distance is measured, 1 for the nearest.
    train_labels, test_labels : array of int or str, optional
        One label per point, usually the class that the network predicts. With labels, a test point is compared with
        the training points of its own class only.
    index : {"exact", "faiss"}
        ``"faiss"`` searches an inverted file of the optional package ``faiss-cpu``: faster on millions of training
        points, and never smaller than the exact answer.
    nprobe : int, optional
        How many lists of the inverted file ``"faiss"`` searches. There are about as many lists as the square root of
        the number of training points. If not given, all lists are searched up to 100,000 training points, which is
        exact, and one in eight beyond.

    Returns
    -------
    array of float, shape (n,)
        One distance per test point: the number of units that differ.

    Raises
    ------
    ValueError
        If the layers differ, there are no points, or a class has fewer than ``k`` training points.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> layers = (Layer("act", 8, "relu"),)
    >>> train, test = (Patterns(layers, np.array(rows, np.uint8)) for rows in ([[0], [7]], [[1], [255]]))
    >>> novelty(train, test), novelty(train, test, k=2)
    (array([1., 5.]), array([2., 8.]))
    """
    _check_patterns(train, test)
    k = integer(k, "k")
    one_of(index, "index", get_args(Index))
    if nprobe is not None and index == "exact":
        raise ValueError('nprobe is for index="faiss"; index="exact" searches everything')
    lists = None if nprobe is None else integer(nprobe, "nprobe")
    search = _exact if index == "exact" else partial(_faiss, nprobe=lists)
    if train_labels is None and test_labels is None:
        return _enough(search, train.packed, test.packed, k, "")
    groups = _groups(_labels(train_labels, "train_labels", train), _labels(test_labels, "test_labels", test))
    scores = np.full(len(test), math.nan)
    for label, known, asked in groups:
        where = f" whose entry in train_labels is {label}"
        scores[asked] = _enough(search, train.packed[known], test.packed[asked], k, where)
    return scores


Search: TypeAlias = Callable[[np.ndarray, np.ndarray, int], np.ndarray]


def _enough(search: Search, train: np.ndarray, test: np.ndarray, k: int, where: str) -> Float64[np.ndarray, " n"]:
    if len(train) < k:
        raise ValueError(f"train must hold at least k = {k} points{where}, got {len(train)}")
    return search(np.ascontiguousarray(train), np.ascontiguousarray(test), k).astype(np.float64)


def _check_patterns(train: Patterns, test: Patterns) -> None:
    instance(train, "train", Patterns)
    instance(test, "test", Patterns)
    if len(train) == 0 or len(test) == 0:
        raise ValueError(f"novelty needs at least one training and one test point, got {len(train)} and {len(test)}")
    check_same_layers(train.layers, test.layers)
    if train.width == 0:
        raise ValueError("patterns without any unit cannot be compared")


def _labels(labels: Any, name: str, p: Patterns) -> np.ndarray:
    if labels is None:
        raise ValueError(f"{name} must be given where the other labels are, got None")
    return label_array(labels, name, len(p))


def _groups(known: np.ndarray, asked: np.ndarray) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    if (known.dtype.kind == "U") != (asked.dtype.kind == "U"):
        raise ValueError("train_labels and test_labels must both be numbers or both be words, got one of each")
    for label in np.unique(asked):
        yield label, np.flatnonzero(known == label), np.flatnonzero(asked == label)


def _exact(train: UInt8[np.ndarray, "m b"], test: UInt8[np.ndarray, "n b"], k: int) -> UInt32[np.ndarray, " n"]:
    """Return the k-th smallest distance of each test row, keeping the k best while passing over blocks."""
    nearest = np.full((len(test), k), np.iinfo(np.uint32).max, np.uint32)
    blocks = list(row_slices(len(test), _TEST_ROWS))
    for start in range(0, len(train), _TRAIN_ROWS):
        packed = nk.hammings_pack(train[start : start + _TRAIN_ROWS], dtype="uint1")

        def merge(rows: slice, packed: Any = packed) -> None:
            nearest[rows] = _smallest(np.asarray(nk.hammings_packed(test[rows], packed)), nearest[rows])

        in_parallel(merge, blocks)
    return nearest.max(1)


def _smallest(distances: UInt32[np.ndarray, "n m"], best: UInt32[np.ndarray, "n k"]) -> UInt32[np.ndarray, "n k"]:
    """Return the k smallest values of each row of both arrays together, in any order."""
    k = best.shape[1]
    if k == 1:
        return np.minimum(best, distances.min(1, keepdims=True))
    return np.partition(np.concatenate([best, distances], axis=1), k - 1, axis=1)[:, :k]


def _faiss(
    train: UInt8[np.ndarray, "m b"], test: UInt8[np.ndarray, "n b"], k: int, nprobe: int | None = None
) -> np.ndarray:
    """Return the k-th distance that an inverted file finds; where it finds fewer points, the exact one."""
    try:
        faiss = import_module("faiss")
    except ImportError as missing:
        raise ImportError('index="faiss" needs the package faiss-cpu: pip install faiss-cpu') from missing
    bits = 8 * train.shape[1]
    # faiss needs 39 points per list to place its centers.
    lists = max(1, min(math.isqrt(len(train)), len(train) // 39))
    quantizer = faiss.IndexBinaryFlat(bits)
    found = faiss.IndexBinaryIVF(quantizer, bits, lists)
    found.nprobe = min(lists, nprobe or (lists if len(train) <= _SEARCHED_WHOLE else max(1, lists // 8)))
    found.train(train)
    found.add(train)
    distances, neighbors = found.search(test, k)
    scores = distances[:, k - 1].copy()
    short = np.flatnonzero(neighbors[:, k - 1] < 0)
    if len(short):
        scores[short] = _exact(train, test[short], k)
    return scores


# The default for inputs of many features, where all directions would take thousands of forward passes.
_DIRECTIONS = 32


def region_count(p: Patterns) -> int:
    """Return the number of distinct patterns among the points: the linear regions that they visit.

    Where every layer is piecewise affine, points with the same pattern lie where the network is one affine
    map: the count is a lower bound of the number of regions, and at most ``len(p)``. For other layers it
    counts the cells between their sign changes. Without points the count is 0.

    Regions as a measure of a network: Pascanu, Montúfar & Bengio, "On the number of response regions of
    deep feed forward networks with piece-wise linear activations" (ICLR 2014); Montúfar, Pascanu, Cho &
    Bengio, "On the number of linear regions of deep neural networks" (NeurIPS 2014).

    Invariant to the order of units or points, to repeated points or units, and to a unit's positive scale or
    flipped sign. An additional unit or point never decreases it.

    Parameters
    ----------
    p : Patterns
        The patterns of some points.

    Returns
    -------
    int
        The number of distinct patterns.

    Raises
    ------
    ValueError
        If ``p`` is not a :class:`Patterns`.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> region_count(Patterns((Layer("act", 8, "relu"),), np.array([[3], [1], [3]], np.uint8)))
    2
    """
    return len(pattern_multiplicities(p))


def pattern_multiplicities(p: Patterns) -> Int64[np.ndarray, " r"]:
    """Return how many points share each distinct pattern, largest first; they add up to ``len(p)``.

    Parameters
    ----------
    p : Patterns
        The patterns of some points.

    Returns
    -------
    array of int64, shape (r,)
        The number of points of each distinct pattern, in descending order.

    Raises
    ------
    ValueError
        If ``p`` is not a :class:`Patterns`.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> pattern_multiplicities(Patterns((Layer("act", 8, "relu"),), np.array([[3], [1], [3]], np.uint8)))
    array([2, 1])
    """
    if len(instance(p, "p", Patterns)) == 0 or p.width == 0:
        return np.full(int(len(p) > 0), len(p), np.int64)
    rows = np.ascontiguousarray(p.packed)
    # One opaque value per row sorts by memory alone, many times faster than sorting rows.
    _, counts = np.unique(rows.view(np.dtype((np.void, rows.shape[1]))), return_counts=True)
    return np.sort(counts.astype(np.int64))[::-1].copy()


def local_complexity(
    model: nn.Module,
    point: Any,
    radius: float,
    samples: int | None = None,
    seed: int = 0,
    generator: torch.Generator | None = None,
    **options: Any,
) -> int:
    """Return how many bits change sign among the corners of a cross-polytope around ``point``.

    The corners are ``point ± radius * v_i`` for orthonormal directions ``v_i``. A bit counts if it is not the same at
    every corner. For a unit of the first layer this is the case exactly if its hyperplane separates corners; for
    deeper units the count is a lower bound, since a bit may change and change back between corners.

    After Humayun, Balestriero & Baraniuk, "Deep networks always grok and here is why" (ICML 2024).

    Parameters
    ----------
    model : torch.nn.Module
        Any module, as for :func:`capture`.
    point : tensor or array of float
        One input, without an axis of points.
    radius : float
        Distance of the corners from the point, positive.
    samples : int, optional
        Number of directions, at most the number of features of the point; by default all of them, up to 32.
    seed : int
        Seed of the directions, which are drawn uniformly, each from a stream of its own.
    generator : torch.Generator, optional
        Draw the directions from this generator instead of ``seed``.
    **options
        Further arguments of :func:`capture`.

    Returns
    -------
    int
        The number of bits that change, from 0 to the number of bits.

    Raises
    ------
    ValueError
        If the radius is not positive, ``samples`` is out of range, or the point does not hold floating-point numbers.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 1), nn.ReLU())
    >>> _ = model[0].weight.data.fill_(1.0), model[0].bias.data.zero_()
    >>> local_complexity(model, np.zeros(2), 1.0), local_complexity(model, np.full(2, 9.0), 1.0)
    (1, 0)
    """
    given, radius = _checked_point(point), number(radius, "radius", "(0, inf)")
    corners = _corners(given, radius, _directions(given.numel(), samples, seed, generator))
    # For an array, capture chooses the precision; a tensor keeps its own.
    data = corners if isinstance(point, Tensor) else corners.numpy()
    packed = capture(model, data, **options).packed
    changing = np.bitwise_or.reduce(packed ^ packed[0], axis=0)
    return int(np.unpackbits(changing).sum())


def naswot_score(p: Patterns) -> float:
    """Return ``log |det K|``, where ``K_ij = h - d_ij`` is the number of the ``h`` units that agree at points i and j.

    Larger means that the network separates the points more clearly. After Mellor, Turner, Storkey & Crowley, "Neural
    architecture search without training" (ICML 2021). Invariant to the order of units or points and to a unit's
    positive scale or flipped sign, but not to an additional constant unit, which adds 1 to every entry of ``K``.

    Parameters
    ----------
    p : Patterns
        The patterns of some points.

    Returns
    -------
    float
        The score. It is -inf if ``K`` is singular within rounding, as with two equal patterns or more than ``h + 1``
        points, and NaN without points or units.

    Raises
    ------
    ValueError
        If ``p`` is not a :class:`Patterns`.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [255]], np.uint8))
    >>> bool(np.isclose(naswot_score(p), np.log(64)))
    True
    """
    if len(instance(p, "p", Patterns)) == 0 or p.width == 0:
        return math.nan
    signs = p.signs().astype(np.float64)
    # With s = ±1 the product s·s' is the number of agreements minus that of disagreements, and both add up to h.
    eigenvalues = np.linalg.eigvalsh((p.width + signs @ signs.T) / 2)
    if eigenvalues[0] <= eigenvalues[-1] * len(p) * np.finfo(np.float64).eps:
        return -math.inf
    return float(np.log(eigenvalues).sum())


def _checked_point(point: Any) -> Tensor:
    found = real_tensor(point, "point").detach().cpu()
    floating = point.is_floating_point() if isinstance(point, Tensor) else np.asarray(point).dtype.kind == "f"
    if not floating:
        raise ValueError("point must hold floating-point numbers to be moved, got whole numbers or booleans")
    return found


def _directions(features: int, samples: int | None, seed: int, generator: torch.Generator | None) -> Tensor:
    """Return random directions as columns, not yet orthogonal."""
    count = integer(min(features, _DIRECTIONS) if samples is None else samples, "samples", 1, features)
    if generator is None:
        streams = [stream(seed, "local-complexity", i) for i in range(count)]
    else:
        streams = [instance(generator, "generator", torch.Generator)] * count
    return torch.stack([torch.randn(features, generator=one, dtype=torch.float64) for one in streams], dim=1)


def _corners(point: Float[Tensor, "*shape"], radius: float, directions: Float64[Tensor, "f k"]) -> Tensor:
    """Return the corners, those in the positive directions first."""
    # A positive diagonal of R makes the orthonormal columns uniformly distributed.
    axes, triangle = torch.linalg.qr(directions)
    steps = radius * (axes * triangle.diagonal().sign()).mT.reshape(-1, *point.shape)
    return torch.cat([point + steps, point - steps]).to(point.dtype)
