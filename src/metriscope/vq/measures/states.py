"""Comparisons and embeddings of points that come in shards: update states with shards, merge them, compute at the end.

Axes: U, V bits of the networks, H1, H2 their distances. A state holds sums of integers, so the result is
bit-identical however the points are sharded and in whatever order states are merged. No state stores points.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import ArrayLike

from metriscope.common.validation import instance
from metriscope.vq.capture.patterns import Layer, Patterns, check_same_points
from metriscope.vq.measures.alignment import Alignment, aligned, check_estimator, whole
from metriscope.vq.measures.centered_kernels import KernelPair, Signs, Totals, side_of, totals_of
from metriscope.vq.measures.embedding import VQMDS, fitted_to_products
from metriscope.vq.measures.heat import Networks, cosine_from_counts, counts_between, pair_counts
from metriscope.vq.measures.kernel import Weights, check_same_layers
from metriscope.vq.measures.sign_products import Differences, differences

__all__ = ["AlignmentState", "MDSState", "PairState"]


class _Networks:
    """The layers of two networks, which all shards share."""

    def __init__(self) -> None:
        self._empty: Networks | None = None

    def _check_networks(self, p: Patterns, q: Patterns) -> None:
        if self._empty is None:
            self._empty = p[:0], q[:0]
        for mine, theirs in zip(self._empty, (p, q), strict=True):
            check_same_layers(mine.layers, theirs.layers)

    def _networks(self) -> Networks:
        if self._empty is None:
            raise ValueError("the state has seen no points yet: call update first")
        return self._empty


class AlignmentState(_Networks):
    """The :func:`alignment` of two networks over shards of points.

    The state takes 8 bytes for each pair of units, within and across the networks. Values equal those of
    all points at once. Permutations and intervals would need the points, so they are not computed.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3], [7], [15]], np.uint8))
    >>> first, second = AlignmentState().update(p[:2], p[:2]), AlignmentState().update(p[2:], p[2:])
    >>> first.merge(second).compute().value
    1.0
    """

    def __init__(self) -> None:
        super().__init__()
        self._found: tuple[Differences, ...] = ()

    def update(self, p: Patterns, q: Patterns) -> AlignmentState:
        """Add the patterns of two networks on the points of one shard, and return the state."""
        check_same_points(p, q)
        self._check_networks(p, q)
        if len(p):
            self._add((differences(p.packed, q.packed), differences(p.packed), differences(q.packed)))
        return self

    def merge(self, other: AlignmentState) -> AlignmentState:
        """Add the points of another state, and return this one."""
        if instance(other, "other", AlignmentState)._empty is not None:
            self._check_networks(*other._networks())
            self._add(other._found)
        return self

    def _add(self, found: tuple[Differences, ...]) -> None:
        if self._found and found:
            found = tuple(mine.plus(theirs) for mine, theirs in zip(self._found, found, strict=True))
        self._found = found or self._found

    def compute(self, estimator: str = "debiased", by_layer: bool = False) -> Alignment:
        """Return the alignment of all points so far, for whole networks or ``by_layer``, as :func:`alignment` does.

        Raises
        ------
        ValueError
            If there are fewer than two points, or the estimator is unknown.
        """
        check_estimator(estimator)
        sides = [side_of(each, by_layer) for each in self._networks()]
        if not self._found:
            raise ValueError("an alignment needs at least two points, got 0")
        cross = totals_of(_copied(self._found[0]), *sides)
        alone = [_alone(found, side) for found, side in zip(self._found[1:], sides, strict=True)]
        pair = KernelPair((sides[0], sides[1]), cross, (alone[0], alone[1]), estimator)
        value = pair.cosines(cross.product(estimator))
        nothing = np.full((2, *value.shape), np.nan)
        found = aligned(pair, value, np.empty((0, *value.shape)), nothing[0], nothing)
        return found if by_layer else whole(found)


def _copied(found: Differences) -> Differences:
    return found._replace(different=found.different.copy())


def _alone(found: Differences, side: Signs) -> list[Totals]:
    """Return the totals of each group of a side with itself."""
    totals = []
    for span, group in zip(side.spans, side.groups(), strict=True):
        bits = slice(8 * span.start, 8 * span.stop)
        own = Differences(
            found.points, np.array(found.different[bits, bits], order="C"), found.left[bits], found.right[bits]
        )
        totals.append(totals_of(own, group, group))
    return totals


class PairState(_Networks):
    """The :func:`pair_counts` of two networks over shards of points, and the :func:`heat_cosine` from them.

    Call :meth:`update` once for every shard and :meth:`update_between` once for every two shards, in any order and on
    any state. For S shards these are S (S + 1) / 2 independent tasks.

    Examples
    --------
    >>> from metriscope.vq.capture.patterns import Layer
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3]], np.uint8))
    >>> one, two = (p[:1], p[:1]), (p[1:], p[1:])
    >>> PairState().update(*one).merge(PairState().update(*two)).update_between(one, two).compute(2.0)
    array([1.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.points = 0
        self.counts: Int64[np.ndarray, "h1 h2"] = np.zeros((0, 0), np.int64)

    def update(self, p: Patterns, q: Patterns) -> PairState:
        """Add the pairs within one shard, and return the state."""
        self._check_networks(p, q)
        return self._add(pair_counts(p, q), len(p))

    def update_between(self, first: Networks, second: Networks) -> PairState:
        """Add the pairs of a point of one shard and a point of another, and return the state."""
        for pair in (first, second):
            self._check_networks(*pair)
        return self._add(counts_between(first, second), 0)

    def merge(self, other: PairState) -> PairState:
        """Add the pairs of another state, and return this one."""
        if instance(other, "other", PairState)._empty is None:
            return self
        self._check_networks(*other._networks())
        return self._add(other.counts, other.points)

    def _add(self, counts: Int64[np.ndarray, "h1 h2"], points: int) -> PairState:
        self.points += points
        self.counts = self.counts + counts if self.counts.size else counts
        return self

    def compute(self, sigma2: ArrayLike, form: str = "distance") -> Float64[np.ndarray, " t"]:
        """Return :func:`heat_cosine` of all points; raise ``ValueError`` if pairs are missing or were added twice.

        Raises
        ------
        ValueError
            If pairs are missing or were added twice, a scale is not positive, or the form is unknown.
        """
        self._networks()
        pairs = int(self.counts.sum())
        if pairs != self.points**2:
            raise ValueError(
                f"{self.points:,} points make {self.points**2:,} pairs, got {pairs:,}: "
                "update once for every shard, and once between every two"
            )
        return cosine_from_counts(self.counts, sigma2, form)


class MDSState:
    """The classical scaling of the VQ kernel, as :class:`VQMDS` fits it, over shards of points.

    The state takes 8 bytes for each pair of units, however many points there are. It decomposes the products of units,
    as ``VQMDS`` does where there are at least as many points as units, and gives the same eigenvalues.

    Examples
    --------
    >>> p = Patterns((Layer("act", 8, "relu"),), np.array([[0], [1], [3]], np.uint8))
    >>> fitted = MDSState().update(p[:1]).merge(MDSState().update(p[1:])).compute(n_components=2)
    >>> bool(np.allclose(fitted.eigenvalues_, VQMDS(2).fit(p).eigenvalues_)), fitted.transform(p).shape
    (True, (3, 2))
    """

    def __init__(self) -> None:
        self._layers: tuple[Layer, ...] | None = None
        self._found: Differences | None = None

    @property
    def points(self) -> int:
        """Number of points so far."""
        return 0 if self._found is None else self._found.points

    def update(self, p: Patterns) -> MDSState:
        """Add the patterns of one shard, and return the state."""
        self._check(instance(p, "p", Patterns).layers)
        return self._add(differences(p.packed)) if len(p) else self

    def merge(self, other: MDSState) -> MDSState:
        """Add the points of another state, and return this one."""
        theirs = instance(other, "other", MDSState)._layers
        if theirs is not None:
            self._check(theirs)
        return self if other._found is None else self._add(other._found)

    def _check(self, layers: tuple[Layer, ...]) -> None:
        self._layers = self._layers or layers
        check_same_layers(self._layers, layers)

    def _add(self, found: Differences) -> MDSState:
        self._found = found if self._found is None else self._found.plus(found)
        return self

    def compute(self, n_components: int | None = 3, weights: Weights = None) -> VQMDS:
        """Return a fitted :class:`VQMDS` of all points so far, whose ``transform`` places these or other points.

        It has no ``embedding_``, because the state keeps no points. The entry of largest magnitude of each axis is
        positive, so that a column can have the opposite sign of that of ``VQMDS.fit``.

        Parameters
        ----------
        n_components : int, optional
            Number of components; None keeps all of them.
        weights : sequence of float, mapping of str to float, or "mean", optional
            One weight per layer, as in :func:`vq_kernel`.

        Raises
        ------
        ValueError
            If there are fewer than two different patterns, more components are asked for than their rank, or weights
            do not fit the layers.
        """
        if self._found is None or self._layers is None:
            raise ValueError(f"an embedding needs at least two points, got {self.points}")
        products = _copied(self._found).products()
        return fitted_to_products(products, self._layers, self.points, n_components, weights)
