"""Vector code that a compiler does not find by itself: eight rows at a time against whole vectors of units.

Axes: G = 8 rows of a group, K units. The functions below are for use inside compiled code. Accumulators stay in
registers for the whole sum, and each unit's sum runs in the same order whatever stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import llvmlite.binding  # type: ignore[import-untyped]
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from metriscope.train.blocks import GROUP

__all__ = ["LANES", "WIDTH", "accumulate", "attract"]

# Entries of a group are asked for this many numbers, two kilobytes, before their turn.
AHEAD = 512

_WORD, _FLOAT = ir.IntType(64), ir.FloatType()


def _widest() -> tuple[int, int]:
    """Return lanes of a vector, and how many vectors a group's accumulators may take of the registers there are."""
    features = llvmlite.binding.get_host_cpu_features()
    return (16, 2) if features.get("avx512f") else (8, 1)


LANES, VECTORS = _widest()
WIDTH = LANES * VECTORS
_VECTOR = ir.VectorType(_FLOAT, LANES)


class _Code:
    """Instructions on vectors of floats, written at one place of a function under construction."""

    def __init__(self, builder: ir.IRBuilder) -> None:
        self.builder = builder

    @cached_property
    def _fused(self) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        return cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fmuladd.v{LANES}f32")

    def at(self, row: Any, stride: Any, column: Any, shift: int = 0) -> Any:
        """Return the position of an entry in an array of rows."""
        b = self.builder
        return b.add(b.add(b.mul(row, stride), column), _WORD(shift))

    def number(self, data: Any, position: Any) -> Any:
        """Return one entry."""
        return self.builder.load(self.builder.gep(data, [position]))

    def row(self, data: Any, position: Any) -> Any:
        """Return an entry of an array of row numbers."""
        return self.builder.sext(self.number(data, position), _WORD)

    def load(self, data: Any, position: Any) -> Any:
        """Return a vector of neighbouring entries."""
        found = self.builder.load(self._pointer(data, position))
        found.align = 4
        return found

    def store(self, vector: Any, data: Any, position: Any) -> None:
        """Write a vector over neighbouring entries."""
        self.builder.store(vector, self._pointer(data, position)).align = 4

    def fetch(self, data: Any, position: Any) -> None:
        """Ask for an entry that will be needed soon; a position behind the end does no harm."""
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3])
        ask = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        place = self.builder.bitcast(self.builder.gep(data, [position]), ir.IntType(8).as_pointer())
        self.builder.call(ask, [place, *(ir.IntType(32)(k) for k in (0, 3, 1))])

    def spread(self, number: Any) -> Any:
        """Return a vector of one number."""
        first = self.builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.IntType(32)(0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(first, first, everywhere)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Return ``a * b + c``."""
        return self.builder.call(self._fused, [a, b, c])

    def variables(self, values: list[Any]) -> list[Any]:
        """Return variables that hold vectors; the compiler keeps them in registers."""
        made = [cgutils.alloca_once(self.builder, _VECTOR) for _ in values]
        for variable, value in zip(made, values, strict=True):
            self.builder.store(value, variable)
        return made

    @contextmanager
    def loop(self, start: Any, stop: Any) -> Iterator[Any]:
        """Count from ``start`` up to ``stop``."""
        with cgutils.for_range_slice(self.builder, start, stop, _WORD(1), intp=_WORD) as (step, _):
            yield step

    def _pointer(self, data: Any, position: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [position]), _VECTOR.as_pointer())


Write = Callable[[_Code, list[Any], Any], None]


def _flat(context: Any, builder: Any, kind: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield an argument's arrays as pointer and number of columns, its numbers as they are, tuples unpacked."""
    if isinstance(kind, types.Tuple | types.UniTuple):
        for part, own in zip(kind.types, cgutils.unpack_tuple(builder, value), strict=True):
            yield from _flat(context, builder, part, own)
    elif isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        yield array.data, cgutils.unpack_tuple(builder, array.shape)[-1]
    else:
        yield context.cast(builder, value, kind, types.intp), None


def _emitted(write: Write) -> Callable[..., Any]:
    """Return what numba asks of an intrinsic: its type, and a function that writes its code."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = zip(signature.args, arguments, strict=True)
        flat = [part for kind, value in pairs for part in _flat(context, builder, kind, value)]
        # The first argument is an array of rows, as long as those of all others that are read or written by vectors.
        write(_Code(builder), [data for data, _ in flat], flat[0][1])
        return context.get_dummy_value()

    return generate


def _accumulate(code: _Code, data: list[Any], stride: Any) -> None:
    out, dense, rows, index, values, group, start, stop, column = data
    lanes, b = range(GROUP), code.builder
    homes = [code.row(rows, code.at(group, _WORD(GROUP), _WORD(g))) for g in lanes]
    places = [code.at(home, stride, column, v * LANES) for home in homes for v in range(VECTORS)]
    sums = code.variables([code.load(out, place) for place in places])
    with code.loop(start, stop) as n:
        code.fetch(values, code.at(n, _WORD(GROUP), _WORD(AHEAD)))
        row = code.row(index, n)
        read = [code.load(dense, code.at(row, stride, column, v * LANES)) for v in range(VECTORS)]
        for g in lanes:
            weight = code.spread(code.number(values, code.at(n, _WORD(GROUP), _WORD(g))))
            for v in range(VECTORS):
                total = sums[g * VECTORS + v]
                b.store(code.fused(weight, read[v], b.load(total)), total)
    for total, place in zip(sums, places, strict=True):
        code.store(b.load(total), out, place)


def _attract(code: _Code, data: list[Any], stride: Any) -> None:
    points, mu, weight, share, pull, of_mu, of_alpha, units, column = data
    lanes, b, zero = range(GROUP), code.builder, ir.Constant(_VECTOR, [0.0] * LANES)
    places = [code.at(_WORD(g), stride, column) for g in lanes]
    own, pulls = [code.load(points, place) for place in places], code.variables([zero] * GROUP)
    with code.loop(_WORD(0), units) as c:
        here = code.at(c, stride, column)
        centre, weighing = code.load(mu, here), code.load(weight, here)
        mu_sum, alpha_sum = code.load(of_mu, here), code.load(of_alpha, here)
        for g in lanes:
            difference = b.fsub(own[g], centre)
            t = b.fmul(code.spread(code.number(share, code.at(c, _WORD(GROUP), _WORD(g)))), difference)
            mu_sum, alpha_sum = b.fadd(mu_sum, t), code.fused(t, difference, alpha_sum)
            b.store(code.fused(weighing, t, b.load(pulls[g])), pulls[g])
        code.store(mu_sum, of_mu, here)
        code.store(alpha_sum, of_alpha, here)
    for total, place in zip(pulls, places, strict=True):
        code.store(b.load(total), pull, place)


def _accumulate_typed(_typing: Any, out: Any, dense: Any, side: Any, span: Any) -> Any:
    """Add ``Σ_n values[n, g] dense[index[n]]`` to row ``rows[8 group + g]`` of ``out``, ``WIDTH`` columns from one on.

    ``side`` is ``(rows, index, values)``; ``span`` is ``(group, start, stop, column)``, and ``n`` runs from ``start``
    to ``stop``.
    """
    return types.none(out, dense, side, span), _emitted(_accumulate)


def _attract_typed(_typing: Any, points: Any, prototypes: Any, results: Any, span: Any) -> Any:
    """Take eight points back through weighted distances to prototypes, ``LANES`` columns from one on.

    ``prototypes`` is ``(mu, weight, share)``, ``results`` is ``(pull, of_mu, of_alpha)`` and ``span`` is
    ``(number of prototypes, column)``. With ``t = share[c, g] (points[g] - mu[c])``: ``pull[g]`` becomes
    ``Σ_c weight[c] t``; ``of_mu[c]`` gains ``Σ_g t`` and ``of_alpha[c]`` gains ``Σ_g t (points[g] - mu[c])``.
    Differences are formed first, so nothing cancels.
    """
    return types.none(points, prototypes, results, span), _emitted(_attract)


accumulate: Any = intrinsic(_accumulate_typed)
attract: Any = intrinsic(_attract_typed)
