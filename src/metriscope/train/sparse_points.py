"""Points packed in groups of eight rows, so that features that are zero in a whole group cost nothing.

Axes: N points, D features, B blocks of at most R rows, G = 8 rows of a group.

A full-batch gradient is a sum over points, so their order does not matter. Points that are non-zero in similar features
are grouped by eight, and a group keeps only the features that are non-zero in any of its points. For the gradient,
features and points are exchanged and packed in the same way, block by block. A value that most entries share, such as
the background of normalized images, is subtracted from all entries and added to the bias instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from metriscope.common.threads import one_blas_thread

__all__ = ["GROUP", "PADDING", "ROWS", "Packed", "Side", "background", "pack", "round_up", "similar"]

GROUP = 8
# The number of units is padded to a multiple of this, which is divisible by every vector width.
PADDING = 32
# Pre-activations of 128 units and 512 points are 256 kB, which fits, with weights and gradient, into the L2 cache.
ROWS = 512
# Number of directions in which points are compared, and of points from which the directions are computed.
DIRECTIONS, SAMPLE = 24, 2_000


def round_up(size: int, step: int) -> int:
    """Return the smallest multiple of ``step`` that is at least ``size``.

    >>> round_up(9, 8)
    16
    """
    return -(-size // step) * step


def similar(features: Float[np.ndarray, "n d"], size: int = GROUP) -> Int[np.ndarray, n]:
    """Return an order of the rows in which groups of ``size`` neighbors are similar.

    Rows are split in two halves along the direction of largest variance, recursively, down to groups.

    >>> similar(np.array([[0.0], [9.0], [1.0], [8.0]]), size=2).tolist() in ([0, 2, 3, 1], [1, 3, 2, 0])
    True
    """
    waiting, done = [np.arange(len(features))], []
    while waiting:
        rows = waiting.pop()
        if len(rows) <= size:
            done.append(rows)
            continue
        order = rows[np.argsort(_heights(features[rows]), kind="stable")]
        half = round_up(len(rows) // 2, size)
        waiting += [order[half:], order[:half]]
    return np.concatenate(done) if done else np.arange(0)


def _heights(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, n]:
    """Return each row's coordinate along the direction of largest variance, found by a few power iterations."""
    centered = features - features.mean(axis=0)
    direction = centered[np.argmax(np.einsum("nd,nd->n", centered, centered))]
    for _ in range(5):
        direction = (centered @ direction) @ centered
        direction = direction / (np.linalg.norm(direction) or 1.0)
    return centered @ direction


def _directions(support: Bool[np.ndarray, "n d"]) -> Float32[np.ndarray, "n p"]:
    """Return the leading principal components of rows of zeros and ones."""
    sample = support[:: max(1, len(support) // SAMPLE)].astype(np.float32)
    if sample.shape[1] <= DIRECTIONS:
        return support.astype(np.float32)
    sample -= sample.mean(axis=0)
    _, vectors = np.linalg.eigh(sample.T @ sample)
    leading = np.ascontiguousarray(vectors[:, -DIRECTIONS:], np.float32)
    parts = np.array_split(support, -(-len(support) // 8_192))
    return np.concatenate([part.astype(np.float32) @ leading for part in parts])


def background(x: Float32[np.ndarray, "n d"]) -> np.float32:
    """Return the value of more than half of the entries, or 0 if there is none.

    >>> float(background(np.array([[-1.0, -1.0, 2.0]], dtype=np.float32)))
    -1.0
    """
    # Such a value is the median; a subsample is enough to find it.
    some = x.ravel()[:: max(1, x.size // 500_000)]
    middle = np.float32(np.sort(some)[len(some) // 2]) if len(some) else np.float32(0)
    return middle if np.count_nonzero(some == middle) * 2 > len(some) else np.float32(0)


@dataclass(frozen=True, eq=False)
class Side:
    """A sparse matrix in groups of eight rows; group ``g`` holds the columns ``index[starts[g]:starts[g + 1]]``.

    ``rows[8 g + r]`` is the row of the result to which row ``r`` of group ``g`` belongs. Block ``b`` consists of the
    groups ``bounds[b]`` to ``bounds[b + 1]``.
    """

    bounds: Int[np.ndarray, " b+1"]
    starts: Int[np.ndarray, " g+1"]
    index: Int[np.ndarray, m]
    values: Float32[np.ndarray, "m 8"]
    rows: Int[np.ndarray, "8g"]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All arrays, as arguments for compiled code."""
        return self.bounds, self.starts, self.index, self.values, self.rows


def _groups(matrix: Float32[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return how many columns each group of eight rows holds, their indices and values; missing rows are zero."""
    full = np.zeros((round_up(len(matrix), GROUP), matrix.shape[1]), np.float32)
    full[: len(matrix)] = matrix
    groups = full.reshape(-1, GROUP, matrix.shape[1])
    held = (groups != 0).any(axis=1)
    group, index = held.nonzero()
    return held.sum(axis=1), index.astype(np.int32), groups[group, :, index]


def _side(blocks: list[np.ndarray], rows: list[np.ndarray], spare: int) -> Side:
    """Return the matrices of all blocks as one side; padding rows are assigned to the row ``spare``."""
    parts = [_groups(block) for block in blocks]
    counts, index, values = (np.concatenate(part) for part in zip(*parts, strict=True))
    filled = [np.full(len(part[0]) * GROUP, spare, np.int32) for part in parts]
    for whole, own in zip(filled, rows, strict=True):
        whole[: len(own)] = own
    bounds = np.cumsum([0, *(len(part[0]) for part in parts)])
    return Side(bounds, np.cumsum([0, *counts]), index, np.ascontiguousarray(values), np.concatenate(filled))


@dataclass(frozen=True, eq=False)
class Packed:
    """Points, packed once for any number of networks.

    Entries are those of the points minus ``background``. ``order[i]`` is the point at position ``i``. ``gradient`` is
    None if it was not requested.
    """

    count: int
    features: int
    rows: int
    background: np.float32
    order: Int[np.ndarray, n]
    forward: Side
    gradient: Side | None

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self.forward.bounds) - 1

    @property
    def density(self) -> float:
        """The work of the forward pass, as a fraction of that of a dense product."""
        return len(self.forward.index) * GROUP / max(1, self.count * self.features)


def pack(x: Float32[np.ndarray, "n d"], *, gradient: bool = True, rows: int = ROWS) -> Packed:
    """Return points in blocks of at most ``rows``, reordered and packed for products with dense matrices.

    >>> packed = pack(np.eye(16, dtype=np.float32))
    >>> packed.blocks, packed.density
    (1, 0.5)
    """
    if x.ndim != 2 or len(x) == 0 or x.dtype != np.float32:
        raise ValueError(f"points to pack are a float32 array of shape (n, d), not {x.dtype} of shape {x.shape}")
    common = background(x)
    # On several threads, sums could round differently and change the order of the points.
    with one_blas_thread():
        order = _order(x != common)
        number = -(-len(x) // rows)
        rows = -(-len(x) // number // GROUP) * GROUP if number > 1 else round_up(len(x), GROUP)
        starts = range(0, len(x), rows)
        blocks = [x[order[start : start + rows]] - common for start in starts]
        columns = [_columns(block) for block in blocks] if gradient else []
    forward = _side(blocks, [np.arange(round_up(len(b), GROUP)) for b in blocks], spare=0)
    transposed = [block[:, own].T for block, own in zip(blocks, columns, strict=False)]
    backward = _side(transposed, columns, spare=x.shape[1]) if gradient else None
    return Packed(len(x), x.shape[1], rows, common, order, forward, backward)


def _order(support: Bool[np.ndarray, "n d"]) -> Int[np.ndarray, n]:
    return np.arange(len(support)) if support.all() else similar(_directions(support))


def _columns(block: Float32[np.ndarray, "r d"]) -> Int[np.ndarray, c]:
    """Return the features that are non-zero in any point of a block, similar ones side by side."""
    held = np.flatnonzero(block.any(axis=0))
    return held[similar((block[:, held] != 0).T.astype(np.float32))]
