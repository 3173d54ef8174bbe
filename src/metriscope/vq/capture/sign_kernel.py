"""Packing the signs of a whole block of values in one pass, by machine code that LLVM generates.

Axes: N points, U units, B bytes. Comparing, packing and checking for NaN as three passes of NumPy takes twice as
long. The code is generated with llvmlite alone, in milliseconds; compiling the same with numba takes half a second.
Large blocks are divided among the OpenMP threads of PyTorch, where the system lets them be called: these threads have
just computed the values, and a thread reads what another one has computed only half as fast as what it has computed.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, UInt8
from llvmlite import binding, ir  # type: ignore[import-untyped]

__all__ = ["available", "pack_signs"]

_LANES = 16
_BYTE, _PAIR, _INT, _WORD = (ir.IntType(bits) for bits in (8, 16, 32, 64))
# By NumPy's letters for single and double precision.
_TYPES = {"f": (ir.FloatType(), ctypes.c_float), "d": (ir.DoubleType(), ctypes.c_double)}
# Fewer values than this are packed by one thread, as PyTorch's own elementwise functions compute them.
_SHARED = 1 << 15


@cache
def available() -> bool:
    """Return whether signs can be packed by generated code: not if ``METRISCOPE_PLAIN_KERNELS`` is 1 at the start."""
    return sys.byteorder == "little" and os.environ.get("METRISCOPE_PLAIN_KERNELS") != "1"


def pack_signs(
    values: Float[np.ndarray, "n u"], level: float = 0.0, out: UInt8[np.ndarray, "n b"] | None = None
) -> tuple[UInt8[np.ndarray, "n b"], bool]:
    """Return one bit per value, 1 where it is at least ``level``, and whether all values are finite.

    ``values`` are contiguous and of single or double precision; unused bits of the last byte are zero. ``out`` may be
    some columns of a larger array.

    >>> pack_signs(np.array([[1.0, -1.0, 0.0]]))
    (array([[160]], dtype=uint8), True)
    """
    rows, units = values.shape
    if out is None:
        out = np.empty((rows, -(-units // 8)), np.uint8)
    code = _compiled(values.dtype.char)
    places = values.ctypes.data, out.ctypes.data, rows, units, out.strides[0], level
    threads = torch.get_num_threads() if values.size >= _SHARED else 1
    if threads > 1 and code.parallel is not None:
        return out, not code.parallel(places, threads)
    return out, not code.pack(*places)


class _Code(NamedTuple):
    """The generated functions: both return whether a value is not finite, and ``parallel`` uses several threads."""

    pack: Callable[..., int]
    parallel: Callable[[tuple[Any, ...], int], int] | None


@cache
def _compiled(kind: str) -> _Code:
    """Return the functions for a type of values."""
    element, in_c = _TYPES[kind]
    engine = _engine(str(_module(element)))
    arguments = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, in_c)
    pack: Any = ctypes.CFUNCTYPE(ctypes.c_int64, *arguments)(engine.get_function_address("pack"))
    pack.engine = engine  # the code lives as long as the engine
    return _Code(pack, _parallel(engine.get_function_address("pack_part"), arguments))


def _parallel(part: int, arguments: tuple[Any, ...]) -> Callable[[tuple[Any, ...], int], int] | None:
    """Return a function that runs ``part`` on OpenMP's threads; None where they cannot be called."""
    try:
        libraries = ctypes.CDLL(None)
        start, number, count = (
            getattr(libraries, name) for name in ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
        )
    except (OSError, TypeError, AttributeError):
        return None
    start.argtypes, start.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint), None
    own = [ctypes.cast(function, ctypes.c_void_p) for function in (number, count)]

    class Job(ctypes.Structure):
        _fields_ = [(f"_{place}", kind) for place, kind in enumerate((*arguments, *[ctypes.c_void_p] * 2))] + [
            ("not_finite", ctypes.c_int64)
        ]

    def run(places: tuple[Any, ...], threads: int) -> int:
        job = Job(*places, *own, 0)
        start(part, ctypes.addressof(job), threads, 0)
        return int(job.not_finite)

    return run


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
    """Return the code of ``pack``, a loop over rows, and of ``pack_part``, which packs one thread's share of rows."""
    module = ir.Module("signs")
    kinds = [element.as_pointer(), _BYTE.as_pointer(), _WORD, _WORD, _WORD, element]
    function = ir.Function(module, ir.FunctionType(_WORD, kinds), "pack")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    values, out, rows, units, stride, level = function.args
    vector = ir.VectorType(element, _LANES)
    levels = _spread(builder, level, vector)
    full = builder.udiv(units, _WORD(_LANES))
    first, rest = builder.mul(full, _WORD(_LANES)), builder.and_(units, _WORD(_LANES - 1))
    # The first unit of eight is the highest bit of a byte, but the first lane is the lowest bit of a comparison.
    reversed_ = ir.Constant(ir.VectorType(_INT, _LANES), [lane ^ 7 for lane in range(_LANES)])

    def row(i: Any, many: Any, few: Any) -> tuple[Any, Any]:
        own, to = builder.gep(values, [builder.mul(i, units)]), builder.gep(out, [builder.mul(i, stride)])

        def sixteen(j: Any, many: Any) -> tuple[Any]:
            place = builder.gep(own, [builder.mul(j, _WORD(_LANES))])
            x = builder.load(builder.bitcast(place, vector.as_pointer()), align=4)
            turned = builder.shuffle_vector(x, x, reversed_)
            bits = builder.bitcast(builder.fcmp_ordered(">=", turned, levels), _PAIR)
            pair = builder.bitcast(builder.gep(to, [builder.mul(j, _WORD(2))]), _PAIR.as_pointer())
            builder.store(bits, pair, align=1)
            return (builder.fadd(many, builder.fsub(x, x)),)

        def one(k: Any, few: Any, bits: Any) -> tuple[Any, Any]:
            x = builder.load(builder.gep(own, [builder.add(first, k)]))
            place = builder.xor(k, _WORD(7))
            bit = builder.shl(builder.zext(builder.fcmp_ordered(">=", x, level), _WORD), place)
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
    bad = builder.bitcast(builder.fcmp_unordered("uno", many, many), _PAIR)
    builder.ret(builder.or_(builder.zext(bad, _WORD), builder.zext(builder.fcmp_unordered("uno", few, few), _WORD)))
    _add_part(module, function, kinds)
    return module


def _add_part(module: ir.Module, pack: ir.Function, kinds: list[ir.Type]) -> None:
    """Add ``pack_part``: every thread of a team calls it with the same job, and packs its own rows."""
    asks = ir.FunctionType(_INT, []).as_pointer()
    job_type = ir.LiteralStructType([*kinds, asks, asks, _WORD])
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [job_type.as_pointer()]), "pack_part")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    (job,) = function.args
    fields = [builder.gep(job, [_INT(0), _INT(place)], inbounds=True) for place in range(len(kinds) + 3)]
    values, out, rows, units, stride, level, number, count = (builder.load(field) for field in fields[:-1])
    own, threads = (builder.zext(builder.call(function, []), _WORD) for function in (number, count))
    share = builder.udiv(builder.add(rows, builder.sub(threads, _WORD(1))), threads)
    start, end = (_least(builder, builder.mul(which, share), rows) for which in (own, builder.add(own, _WORD(1))))
    from_ = builder.gep(values, [builder.mul(start, units)])
    to = builder.gep(out, [builder.mul(start, stride)])
    bad = builder.call(pack, [from_, to, builder.sub(end, start), units, stride, level])
    with builder.if_then(builder.icmp_unsigned("!=", bad, _WORD(0))):
        builder.store(bad, fields[-1])
    builder.ret_void()


def _least(builder: ir.IRBuilder, one: Any, other: Any) -> Any:
    return builder.select(builder.icmp_unsigned("<", one, other), one, other)


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
