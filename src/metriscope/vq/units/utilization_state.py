"""Utilization of units whose points come in shards: update states with shards, merge them, compute at the end.

Axes: N points, B bytes, U bits. Duplicates must be found without keeping points, in any order of the shards. So
every point has a fingerprint of 128 random-looking bits, the hash of its pattern in all layers, and every unit the sum
of the fingerprints of the points at which it is 1, in eight parts of 16 bits: whole numbers, exact in any order. Units
with the same sums are 1 at the same points, except with a probability of about 2⁻¹²⁸.
"""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import Float64, Int64, UInt8

from metriscope.common.threads import row_slices
from metriscope.common.validation import instance
from metriscope.vq.capture.patterns import Layer, Patterns
from metriscope.vq.measures.kernel import check_same_layers
from metriscope.vq.units.utilization import By, UnitColumns, Utilization, check_rare_and_by, tabulated

__all__ = ["UtilizationState"]

_ROWS, _PARTS = 4096, 8


class UtilizationState:
    """The :func:`utilization` of a network over shards of points; it takes 72 bytes per bit, and stores no points.

    Examples
    --------
    >>> p = Patterns((Layer("act", 2, "relu"),), np.array([[128], [192]], np.uint8))
    >>> UtilizationState().update(p[:1]).merge(UtilizationState().update(p[1:])).compute().status.tolist()
    ['always on', 'active']
    """

    def __init__(self) -> None:
        self.points = 0
        self._layers: tuple[Layer, ...] | None = None
        # For each bit of a row, with padding: how often it is 1, and the parts of its sum. One more bit, always 1,
        # follows.
        self._sums: Int64[np.ndarray, "9 u"] = np.zeros((1 + _PARTS, 0), np.int64)

    def update(self, p: Patterns) -> UtilizationState:
        """Add the patterns of one shard, and return the state."""
        self._check(instance(p, "p", Patterns).layers)
        self.points += len(p)
        for rows in row_slices(len(p), _ROWS):
            self._sums += _sums(p.packed[rows])
        return self

    def merge(self, other: UtilizationState) -> UtilizationState:
        """Add the points of another state, and return this one."""
        theirs = instance(other, "other", UtilizationState)._layers
        if theirs is not None:
            self._check(theirs)
            self.points += other.points
            self._sums += other._sums
        return self

    def _check(self, layers: tuple[Layer, ...]) -> None:
        if self._layers is None:
            self._layers = layers
            self._sums = np.zeros((1 + _PARTS, 8 * sum(layer.bytes for layer in layers) + 1), np.int64)
        check_same_layers(self._layers, layers)

    def compute(self, rare: float = 0.01, by: By = "unit") -> Utilization:
        """Return the utilization over all points so far, as :func:`utilization` does.

        Raises
        ------
        ValueError
            If there are no points or no units, ``rare`` is not a share, or ``by`` is unknown.
        """
        check_rare_and_by(rare, by)
        layers = self._layers or ()
        if not self.points or not sum(layer.width for layer in layers):
            raise ValueError(f"utilization needs at least one point and one unit, got {self.points} and {len(layers)}")
        found, first = [], 0
        for layer in layers:
            found.append(_columns(self._sums[:, first : first + layer.width], self._sums[:, -1:]))
            first += 8 * layer.bytes
        return tabulated(self.points, layers, found, rare, by)


def _sums(packed: UInt8[np.ndarray, "n b"]) -> Int64[np.ndarray, "9 u"]:
    """Return how often each bit is 1, and the sums of those points' fingerprints; one more bit is 1 everywhere."""
    bits = np.ones((len(packed), 8 * packed.shape[1] + 1))
    bits[:, :-1] = np.unpackbits(packed, axis=1)
    # Sums of 4,096 numbers of 16 bits are exact in float64.
    return (_fingerprints(packed) @ bits).astype(np.int64)


def _fingerprints(packed: UInt8[np.ndarray, "n b"]) -> Float64[np.ndarray, "9 n"]:
    hashes = b"".join(hashlib.blake2b(row.tobytes(), digest_size=2 * _PARTS).digest() for row in packed)
    parts = np.frombuffer(hashes, "<u2").reshape(len(packed), _PARTS)
    return np.concatenate([np.ones((1, len(packed))), parts.T.astype(np.float64)])


def _columns(sums: Int64[np.ndarray, "9 u"], total: Int64[np.ndarray, "9 1"]) -> UnitColumns:
    """Return the columns: the larger of a bit's sum and its opposite's sum is the digest of both."""
    mine, theirs = sums[1:], (total - sums)[1:]
    at = (mine != theirs).argmax(0)
    side = np.take_along_axis(mine, at[None], 0)[0] > np.take_along_axis(theirs, at[None], 0)[0]
    digests = np.ascontiguousarray(np.where(side, mine, theirs).T).view(np.uint8)
    return UnitColumns(sums[0], digests, side)
