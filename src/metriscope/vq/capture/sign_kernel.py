"""Packing the signs of a whole block of values in one pass, by machine code that LLVM generates.

Axes: N points, U units, B bytes. Comparing, packing and checking for NaN as three passes of NumPy takes twice as
long. The code is generated with llvmlite alone, in milliseconds; compiling the same with numba takes half a second.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from llvmlite import binding, ir  # type: ignore[import-untyped]

__all__ = ["available", "pack_signs"]

_LANES = 16
_BYTE, _PAIR, _WORD = ir.IntType(8), ir.IntType(16), ir.IntType(64)
# By NumPy's letters for single and double precision.
_TYPES = {"f": (ir.FloatType(), ctypes.c_float), "d": (ir.DoubleType(), ctypes.c_double)}


def available() -> bool:
    """Return whether signs can be packed by generated code: not if ``METRISCOPE_PLAIN_KERNELS`` is set to 1."""
    return sys.byteorder == "little" and os.environ.get("METRISCOPE_PLAIN_KERNELS") != "1"


def pack_signs(values: Float[np.ndarray, "n u"], level: float = 0.0) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    """Return one bit per value, 1 where it is at least ``level``, and whether all values are finite.

    ``values`` are contiguous and of single or double precision; unused bits of the last byte are zero.

    >>> pack_signs(np.array([[1.0, -1.0, 0.0]]))
    (array([[160]], dtype=uint8), True)
    """
    rows, units = values.shape
    out = np.empty((rows, -(-units // 8)), np.uint8)
    not_finite = _compiled(values.dtype.char)(values.ctypes.data, out.ctypes.data, rows, units, level)
    return out, not not_finite


@cache
def _compiled(kind: str) -> Callable[..., int]:
    """Return the function for a type of values: (values, out, rows, units, level) to 1 if a value is not finite."""
    element, in_c = _TYPES[kind]
    engine = _engine(str(_module(element)))
    arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, in_c)
    found: Any = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(engine.get_function_address("pack"))
    found.engine = engine  # the code lives as long as the engine
    return found


def _engine(code: str) -> Any:
    """Return the machine code of a module, for the processor that numba compiles for as well."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    named = os.environ.get("NUMBA_CPU_NAME")
    features = "" if named else binding.get_host_cpu_features().flatten()
    target = binding.Target.from_default_triple()
    machine = target.create_target_machine(cpu=named or binding.get_host_cpu_name(), features=features, opt=3)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(code), machine)
    engine.finalize_object()
    return engine


def _module(element: ir.Type) -> ir.Module:
    """Return the code of a loop over rows: bits, the first unit lowest, whose bytes are reversed at the end."""
    module = ir.Module("signs")
    kinds = [element.as_pointer(), _BYTE.as_pointer(), _WORD, _WORD, element]
    function = ir.Function(module, ir.FunctionType(_WORD, kinds), "pack")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    values, out, rows, units, level = function.args
    vector = ir.VectorType(element, _LANES)
    levels = _spread(builder, level, vector)
    full = builder.udiv(units, _WORD(_LANES))
    first, rest = builder.mul(full, _WORD(_LANES)), builder.and_(units, _WORD(_LANES - 1))
    bytes_ = builder.udiv(builder.add(units, _WORD(7)), _WORD(8))

    def row(i: Any, many: Any, few: Any) -> tuple[Any, Any]:
        own, to = builder.gep(values, [builder.mul(i, units)]), builder.gep(out, [builder.mul(i, bytes_)])

        def sixteen(j: Any, many: Any) -> tuple[Any]:
            place = builder.gep(own, [builder.mul(j, _WORD(_LANES))])
            x = builder.load(builder.bitcast(place, vector.as_pointer()), align=4)
            bits = builder.bitcast(builder.fcmp_ordered(">=", x, levels), _PAIR)
            pair = builder.bitcast(builder.gep(to, [builder.mul(j, _WORD(2))]), _PAIR.as_pointer())
            builder.store(bits, pair, align=1)
            return (builder.fadd(many, builder.fsub(x, x)),)

        def one(k: Any, few: Any, bits: Any) -> tuple[Any, Any]:
            x = builder.load(builder.gep(own, [builder.add(first, k)]))
            bit = builder.shl(builder.zext(builder.fcmp_ordered(">=", x, level), _WORD), k)
            return builder.fadd(few, builder.fsub(x, x)), builder.or_(bits, bit)

        (many,) = _loop(builder, full, (many,), sixteen)
        few, bits = _loop(builder, rest, (few, _WORD(0)), one)
        for byte in range(2):
            with builder.if_then(builder.icmp_unsigned(">", rest, _WORD(8 * byte))):
                place = builder.gep(to, [builder.add(builder.mul(full, _WORD(2)), _WORD(byte))])
                builder.store(builder.trunc(builder.lshr(bits, _WORD(8 * byte)), _BYTE), place)
        return many, few

    # x - x is 0, or NaN where x is NaN or infinite; a sum that met a NaN stays NaN.
    many, few = _loop(builder, rows, (ir.Constant(vector, [0.0] * _LANES), element(0.0)), row)
    _reverse(builder, out, builder.mul(rows, bytes_))
    bad = builder.bitcast(builder.fcmp_unordered("uno", many, many), _PAIR)
    builder.ret(builder.or_(builder.zext(bad, _WORD), builder.zext(builder.fcmp_unordered("uno", few, few), _WORD)))
    return module


def _reverse(builder: ir.IRBuilder, out: Any, count: Any) -> None:
    """Reverse the bits of each byte."""
    wide = ir.VectorType(_BYTE, _LANES)
    full = builder.udiv(count, _WORD(_LANES))
    for kind, start, number in ((wide, _WORD(0), full), (_BYTE, builder.mul(full, _WORD(_LANES)), None)):
        name = "llvm.bitreverse." + ("i8" if kind is _BYTE else f"v{_LANES}i8")
        reverse = ir.Function(builder.module, ir.FunctionType(kind, [kind]), name)

        def one(i: Any, kind: Any = kind, start: Any = start, reverse: Any = reverse) -> tuple[()]:
            step = _WORD(1 if kind is _BYTE else _LANES)
            place = builder.gep(out, [builder.add(start, builder.mul(i, step))])
            place = builder.bitcast(place, kind.as_pointer())
            builder.store(builder.call(reverse, [builder.load(place, align=1)]), place, align=1)
            return ()

        _loop(builder, builder.and_(count, _WORD(_LANES - 1)) if number is None else number, (), one)


def _spread(builder: ir.IRBuilder, number: Any, vector: ir.VectorType) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES))


def _loop(builder: ir.IRBuilder, count: Any, start: tuple[Any, ...], body: Callable[..., tuple[Any, ...]]) -> Any:
    """Call ``body(i, *carried)`` for i below ``count``; each call returns the next ``carried``. Return the last."""
    before = builder.block
    head, inside, after = (builder.append_basic_block(name) for name in ("head", "inside", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    i, *carried = [builder.phi(value.type) for value in (_WORD(0), *start)]
    builder.cbranch(builder.icmp_unsigned("<", i, count), inside, after)
    builder.position_at_end(inside)
    later = builder.add(i, _WORD(1)), *body(i, *carried)
    for phi, first, following in zip((i, *carried), (_WORD(0), *start), later, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(following, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return carried
