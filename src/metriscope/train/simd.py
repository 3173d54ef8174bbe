"""Hand-written vector kernels that the compiler does not generate: eight rows at a time, in full vectors of units.

Axes: G = 8 rows of a group, K units. The functions made here are for use inside compiled code. Accumulators stay in
registers for the whole sum, and the order of each unit's sum does not depend on the other units.

This generates LLVM code through numba's internals; only :mod:`metriscope.train.kernels` may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, NamedTuple

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.extending import intrinsic

from metriscope.train.sparse_points import GROUP

__all__ = ["VectorShape", "intrinsics", "shape_for", "target_features"]

# Entries of a group are prefetched this many numbers, two kilobytes, ahead.
AHEAD = 512

_WORD, _FLOAT = ir.IntType(64), ir.FloatType()


class VectorShape(NamedTuple):
    """Number of floats per vector, and how many vectors of how many rows are summed in registers at once."""

    lanes: int
    vectors: int
    rows: int

    @property
    def width(self) -> int:
        """Number of columns of a row that are in registers at once."""
        return self.lanes * self.vectors


def target_features(codegen: Any = None) -> frozenset[str]:
    """Return the features of the processor that numba compiles for, which need not be the one it runs on.

    ``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES`` and ``NUMBA_ENABLE_AVX`` choose it; by default it is the host.
    ``codegen`` is the code generator; by default that of numba.
    """
    _, _, features = (codegen or cpu_target.target_context.codegen()).magic_tuple()
    return frozenset(feature[1:] for feature in features.split(",") if feature.startswith("+"))


def shape_for(features: frozenset[str]) -> VectorShape:
    """Return the shape that uses all vector registers of a processor and reads whole cache lines where possible.

    With 32 registers all eight rows of a group are summed at once, with 16 registers four.

    >>> shape_for(frozenset({"avx", "avx512f"}))
    VectorShape(lanes=16, vectors=2, rows=8)
    >>> shape_for(frozenset({"avx"}))
    VectorShape(lanes=8, vectors=2, rows=4)
    """
    if "avx512f" in features:
        return VectorShape(16, 2, GROUP)
    return VectorShape(8 if "avx" in features else 4, 2, GROUP // 2)


class _Code:
    """Emits instructions on vectors of floats at the builder's position in a function."""

    def __init__(self, builder: ir.IRBuilder, shape: VectorShape) -> None:
        self.builder, self.shape = builder, shape
        self.vector = ir.VectorType(_FLOAT, shape.lanes)

    @cached_property
    def _fused(self) -> Any:
        kind = ir.FunctionType(self.vector, [self.vector] * 3)
        return cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fmuladd.v{self.shape.lanes}f32")

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
        """Return a vector of neighboring entries."""
        found = self.builder.load(self._pointer(data, position))
        found.align = 4
        return found

    def store(self, vector: Any, data: Any, position: Any) -> None:
        """Write a vector over neighboring entries."""
        self.builder.store(vector, self._pointer(data, position)).align = 4

    def fetch(self, data: Any, position: Any) -> None:
        """Prefetch an entry; a position after the end does no harm."""
        kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer(), *[ir.IntType(32)] * 3])
        ask = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        place = self.builder.bitcast(self.builder.gep(data, [position]), ir.IntType(8).as_pointer())
        self.builder.call(ask, [place, *(ir.IntType(32)(k) for k in (0, 3, 1))])

    def spread(self, number: Any) -> Any:
        """Return a vector whose entries are all one number."""
        lanes = self.shape.lanes
        first = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), number, ir.IntType(32)(0))
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
        return self.builder.shuffle_vector(first, first, everywhere)

    def fused(self, a: Any, b: Any, c: Any) -> Any:
        """Return ``a * b + c``."""
        return self.builder.call(self._fused, [a, b, c])

    def variables(self, values: list[Any]) -> list[Any]:
        """Return variables with the given vectors as values; the compiler keeps them in registers."""
        made = [cgutils.alloca_once(self.builder, self.vector) for _ in values]
        for variable, value in zip(made, values, strict=True):
            self.builder.store(value, variable)
        return made

    @contextmanager
    def loop(self, start: Any, stop: Any) -> Iterator[Any]:
        """Count from ``start`` up to ``stop``."""
        with cgutils.for_range_slice(self.builder, start, stop, _WORD(1), intp=_WORD) as (step, _):
            yield step

    def _pointer(self, data: Any, position: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(data, [position]), self.vector.as_pointer())


Write = Callable[[_Code, list[Any], Any], None]


def _flat(context: Any, builder: Any, kind: Any, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield pointer and number of columns of each array in an argument, and its integers; tuples are unpacked."""
    if isinstance(kind, types.Tuple | types.UniTuple):
        for part, own in zip(kind.types, cgutils.unpack_tuple(builder, value), strict=True):
            yield from _flat(context, builder, part, own)
    elif isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        yield array.data, cgutils.unpack_tuple(builder, array.shape)[-1]
    else:
        yield context.cast(builder, value, kind, types.intp), None


def _emitted(write: Write, shape: VectorShape) -> Callable[..., Any]:
    """Return the function that numba calls to generate the code of an intrinsic."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pairs = zip(signature.args, arguments, strict=True)
        flat = [part for kind, value in pairs for part in _flat(context, builder, kind, value)]
        # The rows of the first argument are as long as those of all other arrays that are accessed by vectors.
        write(_Code(builder, shape), [data for data, _ in flat], flat[0][1])
        return context.get_dummy_value()

    return generate


def _accumulate(code: _Code, data: list[Any], stride: Any) -> None:
    for first in range(0, GROUP, code.shape.rows):
        _accumulate_rows(code, data, stride, range(first, first + code.shape.rows))


def _accumulate_rows(code: _Code, data: list[Any], stride: Any, group_rows: range) -> None:
    out, dense, rows, index, values, group, start, stop, column = data
    b, (lanes, vectors, _) = code.builder, code.shape
    homes = [code.row(rows, code.at(group, _WORD(GROUP), _WORD(g))) for g in group_rows]
    places = [code.at(home, stride, column, v * lanes) for home in homes for v in range(vectors)]
    sums = code.variables([code.load(out, place) for place in places])
    with code.loop(start, stop) as n:
        if group_rows.start == 0:
            code.fetch(values, code.at(n, _WORD(GROUP), _WORD(AHEAD)))
        row = code.row(index, n)
        read = [code.load(dense, code.at(row, stride, column, v * lanes)) for v in range(vectors)]
        for g in group_rows:
            weight = code.spread(code.number(values, code.at(n, _WORD(GROUP), _WORD(g))))
            for v in range(vectors):
                total = sums[(g - group_rows.start) * vectors + v]
                b.store(code.fused(weight, read[v], b.load(total)), total)
    for total, place in zip(sums, places, strict=True):
        code.store(b.load(total), out, place)


def _attract(code: _Code, data: list[Any], stride: Any) -> None:
    points, mu, weight, share, pull, of_mu, of_alpha, units, column = data
    b, group_rows, zero = code.builder, range(GROUP), ir.Constant(code.vector, [0.0] * code.shape.lanes)
    places = [code.at(_WORD(g), stride, column) for g in group_rows]
    own, pulls = [code.load(points, place) for place in places], code.variables([zero] * GROUP)
    with code.loop(_WORD(0), units) as c:
        here = code.at(c, stride, column)
        center, weighing = code.load(mu, here), code.load(weight, here)
        mu_sum, alpha_sum = code.load(of_mu, here), code.load(of_alpha, here)
        for g in group_rows:
            difference = b.fsub(own[g], center)
            t = b.fmul(code.spread(code.number(share, code.at(c, _WORD(GROUP), _WORD(g)))), difference)
            mu_sum, alpha_sum = b.fadd(mu_sum, t), code.fused(t, difference, alpha_sum)
            b.store(code.fused(weighing, t, b.load(pulls[g])), pulls[g])
        code.store(mu_sum, of_mu, here)
        code.store(alpha_sum, of_alpha, here)
    for total, place in zip(pulls, places, strict=True):
        code.store(b.load(total), pull, place)


def intrinsics(shape: VectorShape) -> tuple[Any, Any]:
    """Return ``accumulate`` and ``attract`` of :class:`metriscope.train.kernels.Kernels` for a vector shape."""

    def accumulate(_typing: Any, out: Any, dense: Any, side: Any, span: Any) -> Any:
        return types.none(out, dense, side, span), _emitted(_accumulate, shape)

    def attract(_typing: Any, points: Any, prototypes: Any, results: Any, span: Any) -> Any:
        return types.none(points, prototypes, results, span), _emitted(_attract, shape)

    return intrinsic(accumulate), intrinsic(attract)
