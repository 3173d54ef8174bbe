"""The innermost sums of the classifiers' passes: hand-written vector code, or plain loops where that cannot be built.

Axes: G = 8 rows of a group, K units. Both kinds compute the same sums, in one order for each unit, and differ by
rounding alone. The plain kind is chosen where the other cannot be built, and by ``METRISCOPE_PLAIN_KERNELS=1``.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metriscope.train.sparse_points import GROUP, PADDING

__all__ = ["FAST", "Kernels", "chosen", "plain", "vectors"]

# Sums may be reordered into vector lanes and products fused; NaN and infinity keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
_SWITCH = "METRISCOPE_PLAIN_KERNELS"
# More columns than any row has.
_ALL = 1 << 30

_compiled = njit(nogil=True, fastmath=FAST, error_model="numpy", boundscheck=False)


class Kernels(NamedTuple):
    """Two functions for use inside compiled code, and how many columns a call of each takes on.

    ``accumulate(out, dense, side, span)`` adds ``Σ_n values[n, g] dense[index[n]]`` to row ``rows[8 group + g]`` of
    ``out``, ``width`` columns from ``column`` on. ``side`` is ``(rows, index, values)``; ``span`` is
    ``(group, start, stop, column)``, and ``n`` runs from ``start`` to ``stop``. Rows that only fill up a group may
    share one row of ``out``, whose values are then of no meaning.

    ``attract(points, prototypes, results, span)`` takes eight points back through weighted distances to prototypes,
    ``lanes`` columns from ``column`` on. ``prototypes`` is ``(mu, weight, share)``, ``results`` is
    ``(pull, of_mu, of_alpha)`` and ``span`` is ``(number of prototypes, column)``. With
    ``t = share[c, g] (points[g] - mu[c])``: ``pull[g]`` becomes ``Σ_c weight[c] t``; ``of_mu[c]`` gains ``Σ_g t`` and
    ``of_alpha[c]`` gains ``Σ_g t (points[g] - mu[c])``. Differences are formed first, so nothing cancels.
    """

    name: str
    lanes: int
    width: int
    accumulate: Any
    attract: Any


# Plain loops take on whole rows from column 0, whose length the compiler then knows to be no less than zero: with any
# other first column it would look out for negative numbers of columns, and find no vector simd.


@_compiled
def _accumulate(out: Any, dense: Any, side: Any, span: Any) -> None:
    rows, index, values = side
    group, start, stop, _ = span
    for g in range(GROUP):
        own = out[rows[GROUP * group + g]]
        for n in range(start, stop):
            weight, other = values[n, g], dense[index[n]]
            for k in range(own.shape[0]):
                own[k] += weight * other[k]


@_compiled
def _attract(points: Any, prototypes: Any, results: Any, span: Any) -> None:
    mu, weight, share = prototypes
    pull, of_mu, of_alpha = results
    pull[:] = np.float32(0)
    for c in range(span[0]):
        for g in range(GROUP):
            for k in range(points.shape[1]):
                difference = points[g, k] - mu[c, k]
                t = share[c, g] * difference
                of_mu[c, k] += t
                of_alpha[c, k] += t * difference
                pull[g, k] += weight[c, k] * t


def plain() -> Kernels:
    """Return loops that numba compiles by itself, on any processor."""
    return Kernels("plain", _ALL, _ALL, _accumulate, _attract)


def vectors(lanes: int | None = None, count: int | None = None) -> Kernels:
    """Return vector code of ``count`` vectors of ``lanes`` floats each; None for what suits numba's target."""
    from metriscope.train import simd

    shape = simd.shape_for(simd.target_features())
    shape = simd.VectorShape(lanes or shape.lanes, count or shape.vectors)
    return Kernels(f"{shape.lanes}x{shape.vectors}", shape.lanes, shape.width, *simd.intrinsics(shape))


def chosen() -> Kernels:
    """Return the vector code if it can be built and is not switched off, else the plain loops."""
    if os.environ.get(_SWITCH, "") not in ("", "0"):
        return plain()
    # Numba's internals change without notice, so that anything may be raised here.
    try:
        found = vectors()
        _try(found)
    except Exception as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        warnings.warn(
            f"vector code could not be built ({type(error).__name__}: {reason}); slower plain loops are used instead",
            RuntimeWarning,
            stacklevel=2,
        )
        return plain()
    return found


def _try(kernels: Kernels) -> None:
    """Compile both functions once, and compare what they give with sums that are known."""
    accumulate, attract = kernels.accumulate, kernels.attract

    @njit
    def run(ones: Any, natural: Any, sums: Any, prototypes: Any, results: Any) -> None:
        accumulate(sums, sums, (natural, natural, ones), (0, 0, GROUP, 0))
        attract(sums, prototypes, results, (1, 0))

    ones, natural = np.ones((GROUP, GROUP), np.float32), np.arange(GROUP, dtype=np.int32)
    sums, mu, weight = (np.full((GROUP, PADDING), value, np.float32) for value in (1, 2, 3))
    results = tuple(np.zeros_like(mu) for _ in range(3))
    run(ones, natural, sums, (mu, weight, ones), results)
    # Eight rows of ones are added to ones: 9. The difference to 2 is 7, once for each of eight points.
    known = [(sums, 9), *zip(results, (3 * 7, 8 * 7, 8 * 7 * 7), strict=True)]
    if any(found[0, column] != value for found, value in known for column in (0, kernels.lanes - 1)):
        raise RuntimeError(f"vectors of shape {kernels.name} give wrong sums")
