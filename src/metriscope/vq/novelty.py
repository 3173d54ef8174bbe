"""How unlike the training set a point's sign pattern is: the distance to its k-th nearest training pattern.

Axes: ``n`` test points, ``m`` training points, ``b`` bytes of a pattern. Distances are exact counts of units.

Range: 0 to the number of bits. Laws: nothing changes with the order of the units or of the training points,
with a positive scale or a turned sign of a unit, or with a unit that never changes; training points taken
twice change nothing at ``k=1``. More training points never make a point more novel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import Any, Literal, TypeAlias, get_args

import numkong as nk
import numpy as np
from jaxtyping import Float64, UInt8, UInt32

from metriscope.train import workers_available
from metriscope.validation import instance, integer, label_array, one_of
from metriscope.vq.patterns import Patterns

__all__ = ["Index", "novelty"]

Index: TypeAlias = Literal["exact", "faiss"]

# A block of distances takes 4 * 256 * 8192 bytes = 8 MiB a thread, whatever the sizes of the two sets.
_TEST_ROWS = 256
_TRAIN_ROWS = 8192


def novelty(
    train: Patterns,
    test: Patterns,
    k: int = 1,
    train_labels: Any = None,
    test_labels: Any = None,
    index: Index = "exact",
) -> Float64[np.ndarray, " n"]:
    """Return of each test point the distance to its ``k``-th nearest training pattern: larger, less alike.

    With labels, usually those the network predicts, a test point is compared with the training points of
    its own class alone. A point that is itself among the training points is its own nearest neighbour.

    ``index="faiss"`` searches an inverted file of the optional package ``faiss-cpu``: quicker on millions of
    training points, approximate, and never smaller than the exact answer.

    >>> from metriscope.vq.patterns import Layer
    >>> layers = (Layer("act", 8, "relu"),)
    >>> train, test = (Patterns(layers, np.array(rows, np.uint8)) for rows in ([[0], [7]], [[1], [255]]))
    >>> novelty(train, test), novelty(train, test, k=2)
    (array([1., 5.]), array([2., 8.]))
    """
    _check_patterns(train, test)
    k = integer(k, "k")
    one_of(index, "index", get_args(Index))
    search = _exact if index == "exact" else _faiss
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
    known, asked = ([(layer.name, layer.width) for layer in p.layers] for p in (train, test))
    if known != asked:
        raise ValueError(
            f"training and test patterns must be of the same layers (name, width), got {known} and {asked}"
        )
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
    blocks = [slice(start, start + _TEST_ROWS) for start in range(0, len(test), _TEST_ROWS)]
    with ThreadPoolExecutor(workers_available()) as pool:
        for start in range(0, len(train), _TRAIN_ROWS):
            packed = nk.hammings_pack(train[start : start + _TRAIN_ROWS], dtype="uint1")

            def merge(rows: slice, packed: Any = packed) -> None:
                nearest[rows] = _smallest(np.asarray(nk.hammings_packed(test[rows], packed)), nearest[rows])

            # The list raises what a thread raised.
            list(pool.map(merge, blocks))
    return nearest.max(1)


def _smallest(distances: UInt32[np.ndarray, "n m"], best: UInt32[np.ndarray, "n k"]) -> UInt32[np.ndarray, "n k"]:
    """Return the k smallest of each row of both, in any order."""
    k = best.shape[1]
    if k == 1:
        return np.minimum(best, distances.min(1, keepdims=True))
    return np.partition(np.concatenate([best, distances], axis=1), k - 1, axis=1)[:, :k]


def _faiss(train: UInt8[np.ndarray, "m b"], test: UInt8[np.ndarray, "n b"], k: int) -> np.ndarray:
    """Return the k-th distance that an inverted file finds; where it finds fewer points, the exact one."""
    try:
        faiss = import_module("faiss")
    except ImportError as missing:
        raise ImportError('index="faiss" needs the package faiss-cpu: pip install faiss-cpu') from missing
    bits = 8 * train.shape[1]
    # faiss asks for 39 points a list to place its centres.
    lists = max(1, min(math.isqrt(len(train)), len(train) // 39))
    quantizer = faiss.IndexBinaryFlat(bits)
    found = faiss.IndexBinaryIVF(quantizer, bits, lists)
    found.nprobe = max(1, lists // 8)
    found.train(train)
    found.add(train)
    distances, neighbours = found.search(test, k)
    scores = distances[:, k - 1].copy()
    short = np.flatnonzero(neighbours[:, k - 1] < 0)
    if len(short):
        scores[short] = _exact(train, test[short], k)
    return scores
