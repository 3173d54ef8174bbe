"""Heat kernels of two networks compared on the same points, for any number of scales from one pass.

Axes: N points, H1, H2 bits of the networks, T scales. Distances are whole numbers up to H, so that the counts of
(d1, d2) over all pairs of points determine the result for every scale and both forms; no N x N matrix is ever held.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from metriscope.common.threads import in_parallel, row_slices, workers_available
from metriscope.common.validation import check_shape, instance, one_of, real_array
from metriscope.vq.capture.patterns import Patterns, check_same_points
from metriscope.vq.measures.hamming import columns_of, compact_dtype, compiled, write_distances

__all__ = ["FORMS", "cosine_from_counts", "counts_between", "heat_cosine", "pair_counts"]

# Two networks on the same points.
Networks = tuple[Patterns, Patterns]

FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"distance": lambda d: d, "squared": np.square}

# Cells of the largest table of counts, and of all threads' tables together.
LARGEST, _ALL_TABLES = 1 << 24, 1 << 25
# A tile of pairs: the distances of both networks stay in the second-level cache.
_ROWS, _COLUMNS = 128, 2048


def heat_cosine(p: Patterns, q: Patterns, sigma2: ArrayLike, form: str = "distance") -> Float64[np.ndarray, " t"]:
    """Return the cosine between the heat kernels of two networks on the same points, one value per ``sigma2``.

    Time grows with the number of pairs of points; memory does not, as it holds only the counts of
    :func:`pair_counts`. Where the table of counts would have more than 16 million cells (two networks of more than
    4,095 bits), the kernels are summed tile by tile instead, for all scales in one pass, and the time grows with the
    number of scales as well.

    Parameters
    ----------
    p, q : Patterns
        The patterns of two networks on the same points.
    sigma2 : float or array of float
        Scales of the kernels, positive.
    form : {"distance", "squared"}
        The kernel exp(-d / sigma2) or exp(-d² / sigma2), over all N x N pairs of points.

    Returns
    -------
    array of float, shape (t,)
        One cosine per scale, between 0 and 1.

    Raises
    ------
    ValueError
        If the points differ or there are none, a scale is not positive, or the form is unknown.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3]], np.uint8))
    >>> heat_cosine(p, p, [0.5, 2.0])
    array([1., 1.])
    """
    _check(p, q)
    heats = _heats(sigma2, form, (p.width, q.width))
    if (p.width + 1) * (q.width + 1) > LARGEST:
        return _cosine(*_tile_sums(p, q, heats))
    return _cosine_of_counts(pair_counts(p, q), heats)


def cosine_from_counts(
    counts: Int64[np.ndarray, "h1 h2"], sigma2: ArrayLike, form: str = "distance"
) -> Float64[np.ndarray, " t"]:
    """Return :func:`heat_cosine` from the counts of :func:`pair_counts`.

    >>> cosine_from_counts(np.diag([3, 4, 2]), 2.0)
    array([1.])
    """
    return _cosine_of_counts(counts, _heats(sigma2, form, (counts.shape[0] - 1, counts.shape[1] - 1)))


def _heats(sigma2: ArrayLike, form: str, widths: tuple[int, int]) -> list[Float64[np.ndarray, "t h"]]:
    """Return both kernels at every distance and scale."""
    scales = np.atleast_1d(real_array(sigma2, "sigma2"))
    check_shape(scales.shape, "sigma2", "scales", None, empty=False)
    if not (scales > 0).all():
        raise ValueError(f"sigma2 must hold positive numbers, got {scales.min()}")
    one_of(form, "form", FORMS)
    # With a tiny scale the quotient overflows to infinity, and the kernel is 0, as it should be.
    with np.errstate(over="ignore"):
        return [np.exp(-FORMS[form](np.arange(width + 1.0)) / scales[:, None]) for width in widths]


def _cosine_of_counts(
    counts: Int64[np.ndarray, "h1 h2"], heats: list[Float64[np.ndarray, "t h"]]
) -> Float64[np.ndarray, " t"]:
    real = counts.astype(np.float64)
    both = np.einsum("ti,tj,ij->t", *heats, real, optimize=True)
    return _cosine(both, np.square(heats[0]) @ real.sum(1), np.square(heats[1]) @ real.sum(0))


def _cosine(both: np.ndarray, first: np.ndarray, second: np.ndarray) -> Float64[np.ndarray, " t"]:
    return both / (np.sqrt(first) * np.sqrt(second))


def pair_counts(p: Patterns, q: Patterns) -> Int64[np.ndarray, "h1 h2"]:
    """Return how many of the N x N pairs of points are d1 apart in ``p`` and d2 in ``q``, for every (d1, d2).

    Parameters
    ----------
    p, q : Patterns
        The patterns of two networks on the same points.

    Returns
    -------
    array of int64, shape (H1 + 1, H2 + 1)
        The counts. Each pair of points counts in both orders, and each point with itself at (0, 0).

    Raises
    ------
    ValueError
        If the points differ or there are none.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 2, "relu"),), np.array([[0], [64], [192]], np.uint8))
    >>> pair_counts(p, p)
    array([[3, 0, 0],
           [0, 4, 0],
           [0, 0, 2]])
    """
    _check(p, q)
    total = _counted(both := (p, q), both)
    total[0, 0] += len(p)
    return total


def counts_between(first: Networks, second: Networks) -> Int64[np.ndarray, "h1 h2"]:
    """Return the counts of the pairs of one point of ``first`` and one of ``second``, in both orders.

    Both are the patterns of the same two networks, on different points. The counts of all points together are the sum
    of these counts and of the counts within each of the two sets.

    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 2, "relu"),), np.array([[0], [64], [192]], np.uint8))
    >>> counts_between((p[:1], p[:1]), (p[1:], p[1:]))
    array([[0, 0, 0],
           [0, 2, 0],
           [0, 0, 2]])
    """
    for pair in (first, second):
        _check(*pair)
    for one, other in zip(first, second, strict=True):
        if one.width != other.width:
            raise ValueError(f"the patterns are of different networks: {one.width} bits against {other.width}")
    return _counted(first, second)


def _counted(rows: Networks, columns: Networks) -> Int64[np.ndarray, "h1 h2"]:
    shape = rows[0].width + 1, rows[1].width + 1
    workers = max(1, min(workers_available(), _ALL_TABLES // (shape[0] * shape[1])))
    found = _over_pairs(rows, columns, lambda: np.zeros(shape, np.int64), _count, workers)
    return 2 * sum(found, np.zeros(shape, np.int64))


def _check(p: Patterns, q: Patterns) -> None:
    check_same_points(instance(p, "p", Patterns), instance(q, "q", Patterns))
    if not len(p):
        raise ValueError("comparing networks needs at least one point, got none")


def _tile_sums(p: Patterns, q: Patterns, heats: list[Float64[np.ndarray, "t h"]]) -> Float64[np.ndarray, "3 t"]:
    """Return the sums of h1 h2, h1² and h2² over all pairs, for every scale."""
    scales = len(heats[0])

    def add(first: Any, second: Any, start: int, sums: Any) -> None:
        _add_heats(first, second, start, heats[0], heats[1], sums)

    both = p, q
    found = _over_pairs(both, both, lambda: np.zeros((3, scales)), add, workers_available())
    return 2 * sum(found, np.zeros((3, scales))) + len(p)


def _over_pairs(
    rows: Networks, columns: Networks, empty: Callable[[], np.ndarray], add: Callable[..., None], workers: int
) -> list[np.ndarray]:
    """Return each thread's result of ``add(d1, d2, start, result)`` over tiles that cover every pair once.

    If ``rows`` and ``columns`` are the same points, these are the pairs i < j: ``start`` is the index of the
    tile's first column minus that of its first row, and only pairs with j + start > i are counted.
    """
    # Largest tasks first, so that no thread starts a large one at the end.
    tasks = iter(list(row_slices(len(columns[0]), _COLUMNS))[::-1])

    def work(_: int) -> np.ndarray:
        result = empty()
        for part in tasks:
            _over_columns(rows, columns, part, lambda first, second, start: add(first, second, start, result))
        return result

    return in_parallel(work, range(workers), workers)


def _over_columns(first: Networks, second: Networks, columns: slice, add: Callable[..., None]) -> None:
    """Call ``add`` with both networks' distances from some points of ``second`` to the points of ``first``.

    If both are the same points, only distances to points before ``columns.stop`` are computed.
    """
    same = first is second
    ready = [columns_of(each.packed[columns], compact_dtype(each.width)) for each in second]
    room = [np.empty((_ROWS, each.count), each.dtype) for each in ready]
    for rows in row_slices(columns.stop if same else len(first[0]), _ROWS):
        tiles = [each[: rows.stop - rows.start] for each in room]
        for patterns, each, tile in zip(first, ready, tiles, strict=True):
            write_distances(patterns.packed[rows], each, tile)
        add(tiles[0], tiles[1], columns.start - rows.start if same else _ROWS)


@compiled
def _count(first: Any, second: Any, start: int, counts: Any) -> None:
    flat, width = counts.reshape(-1), np.int32(counts.shape[1])
    cells = np.empty(first.shape[1], np.uint32)
    for i in range(first.shape[0]):
        one, other = first[i], second[i]
        # Apart from the counting, which goes cell by cell, this becomes vector code.
        for j in range(cells.shape[0]):
            cells[j] = np.uint32(np.int32(one[j]) * width + np.int32(other[j]))
        for j in range(max(0, i + 1 - start), cells.shape[0]):
            flat[cells[j]] += 1


@compiled
def _add_heats(first: Any, second: Any, start: int, heat1: Any, heat2: Any, sums: Any) -> None:
    for scale in range(heat1.shape[0]):
        table1, table2 = heat1[scale], heat2[scale]
        both = one = two = 0.0
        for i in range(first.shape[0]):
            for j in range(max(0, i + 1 - start), first.shape[1]):
                a, b = table1[first[i, j]], table2[second[i, j]]
                both += a * b
                one += a * a
                two += b * b
        sums[0, scale] += both
        sums[1, scale] += one
        sums[2, scale] += two
