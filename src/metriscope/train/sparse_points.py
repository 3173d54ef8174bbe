"""Points packed so that what is zero in eight neighboring rows costs nothing.

Axes: N points, D features, B blocks of at most R rows, G = 8 rows of a group.

A full-batch gradient is a sum over points, so they may stand in any order. Points that are non-zero in the same
features are put side by side, eight to a group, and a group keeps only the features that any of its points has.
For the gradient the same is done with features and points exchanged, block by block. A value that most entries
share, such as the background of normalized images, is taken out of all entries and given to the bias.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int
from threadpoolctl import threadpool_limits

__all__ = ["GROUP", "PADDING", "ROWS", "Packed", "Side", "background", "pack", "similar"]

GROUP = 8
# The number of units is filled up to a multiple of this, which every width of vectors divides.
PADDING = 32
# Pre-activations of 128 units and 512 points are 256 kB: with weights and gradient they stay in the second-level cache.
ROWS = 512
# Directions that points are compared in, and points that the directions are found from.
DIRECTIONS, SAMPLE = 24, 2_000


def similar(features: Float[np.ndarray, "n d"], size: int = GROUP) -> Int[np.ndarray, n]:
    """Return an order in which groups of ``size`` neighbors are alike.

    Rows are halved along the direction in which they differ most, and each half again, down to the groups.

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
        half = -(-(len(rows) // 2) // size) * size
        waiting += [order[half:], order[:half]]
    return np.concatenate(done) if done else np.arange(0)


def _heights(features: Float[np.ndarray, "n d"]) -> Float[np.ndarray, n]:
    """Return each row's place along the direction of largest variance, after a few steps of the power method."""
    centered = features - features.mean(axis=0)
    direction = centered[np.argmax(np.einsum("nd,nd->n", centered, centered))]
    for _ in range(5):
        direction = (centered @ direction) @ centered
        direction = direction / (np.linalg.norm(direction) or 1.0)
    return centered @ direction


def _directions(support: Bool[np.ndarray, "n d"]) -> Float32[np.ndarray, "n p"]:
    """Return rows of zeros and ones in their few leading directions, which tell them apart well enough."""
    sample = support[:: max(1, len(support) // SAMPLE)].astype(np.float32)
    if sample.shape[1] <= DIRECTIONS:
        return support.astype(np.float32)
    sample -= sample.mean(axis=0)
    _, vectors = np.linalg.eigh(sample.T @ sample)
    leading = np.ascontiguousarray(vectors[:, -DIRECTIONS:], np.float32)
    parts = np.array_split(support, -(-len(support) // 8_192))
    return np.concatenate([part.astype(np.float32) @ leading for part in parts])


def background(x: Float32[np.ndarray, "n d"]) -> np.float32:
    """Return the value that more than half of the entries have, or 0 where there is none.

    >>> float(background(np.array([[-1.0, -1.0, 2.0]], dtype=np.float32)))
    -1.0
    """
    # A value that more than half share is the median; every so many entries tell it.
    some = x.ravel()[:: max(1, x.size // 500_000)]
    middle = np.float32(np.sort(some)[len(some) // 2]) if len(some) else np.float32(0)
    return middle if np.count_nonzero(some == middle) * 2 > len(some) else np.float32(0)


@dataclass(frozen=True, eq=False)
class Side:
    """A sparse matrix in groups of eight rows; group ``g`` holds the columns ``index[starts[g]:starts[g + 1]]``.

    ``rows[8 g + r]`` is the row of the result that a group's row ``r`` belongs to. The groups of block ``b`` are
    ``bounds[b]`` to ``bounds[b + 1]``.
    """

    bounds: Int[np.ndarray, " b+1"]
    starts: Int[np.ndarray, " g+1"]
    index: Int[np.ndarray, m]
    values: Float32[np.ndarray, "m 8"]
    rows: Int[np.ndarray, "8g"]

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """Everything, as compiled code takes it."""
        return self.bounds, self.starts, self.index, self.values, self.rows


def _groups(matrix: Float32[np.ndarray, "n d"]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns held by each group of eight rows, their numbers and their values; missing rows are zero."""
    full = np.zeros((-(-len(matrix) // GROUP) * GROUP, matrix.shape[1]), np.float32)
    full[: len(matrix)] = matrix
    groups = full.reshape(-1, GROUP, matrix.shape[1])
    held = (groups != 0).any(axis=1)
    group, index = held.nonzero()
    return held.sum(axis=1), index.astype(np.int32), groups[group, :, index]


def _side(blocks: list[np.ndarray], rows: list[np.ndarray], spare: int) -> Side:
    """Return the blocks' matrices as one side; rows that only fill up a group go to the row ``spare``."""
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

    Entries are those of the points less ``background``. ``order`` says which point stands where. ``gradient`` is None
    where it was not asked for.
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
        """The share of a dense product's work that is left in the forward pass."""
        return len(self.forward.index) * GROUP / max(1, self.count * self.features)


def pack(x: Float32[np.ndarray, "n d"], *, gradient: bool = True, rows: int = ROWS) -> Packed:
    """Return points in an order of our own, in blocks of at most ``rows``, for products with dense matrices.

    >>> packed = pack(np.eye(16, dtype=np.float32))
    >>> packed.blocks, packed.density
    (1, 0.5)
    """
    if x.ndim != 2 or len(x) == 0 or x.dtype != np.float32:
        raise ValueError(f"points to pack are a float32 array of shape (n, d), not {x.dtype} of shape {x.shape}")
    common = background(x)
    # One thread: a sum shared out among threads could round another way and order the points anew.
    with threadpool_limits(limits=1, user_api="blas"):
        order = _order(x != common)
        number = -(-len(x) // rows)
        rows = -(-len(x) // number // GROUP) * GROUP if number > 1 else -(-len(x) // GROUP) * GROUP
        starts = range(0, len(x), rows)
        blocks = [x[order[start : start + rows]] - common for start in starts]
        columns = [_columns(block) for block in blocks] if gradient else []
    forward = _side(blocks, [np.arange(-(-len(b) // GROUP) * GROUP) for b in blocks], spare=0)
    turned = [block[:, own].T for block, own in zip(blocks, columns, strict=False)]
    backward = _side(turned, columns, spare=x.shape[1]) if gradient else None
    return Packed(len(x), x.shape[1], rows, common, order, forward, backward)


def _order(support: Bool[np.ndarray, "n d"]) -> Int[np.ndarray, n]:
    return np.arange(len(support)) if support.all() else similar(_directions(support))


def _columns(block: Float32[np.ndarray, "r d"]) -> Int[np.ndarray, c]:
    """Return the features that any point of a block has, those alike side by side."""
    held = np.flatnonzero(block.any(axis=0))
    return held[similar((block[:, held] != 0).T.astype(np.float32))]
