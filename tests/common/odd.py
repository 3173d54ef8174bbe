"""Odd forms of an array: the same numbers in another guise, other numbers, and what is no array of numbers at all."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import sparse


class Subclass(torch.Tensor):
    """A tensor of another class."""


class Duck:
    """Something that is no array, but says how to become one."""

    def __init__(self, values):
        self.values = values

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype=dtype)


@dataclass(frozen=True)
class Kind:
    """One way to be odd.

    ``fate`` is what a call must do with it: give the ``same`` result, give some ``finite`` result, ``either`` that or
    a clear error, or a clear error because it is ``broken``. ``nonfinite`` marks real numbers that are not finite.
    """

    name: str
    make: Callable[[np.ndarray], Any]
    fate: str
    tolerance: float = 1e-9
    nonfinite: bool = False


def _floats(a):
    return np.array(a, dtype=np.float64)


def _with(value, places=(0,)):
    def make(a):
        found = _floats(a)
        found.reshape(-1)[list(places)] = value
        return found

    return make


def _half_view(a):
    wide = np.empty((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2], wide[..., 1::2] = a, 7
    return wide[..., ::2]


def _read_only(a):
    found = a.copy()
    found.flags.writeable = False
    return found


def _masked(a):
    return np.ma.masked_array(a, mask=np.arange(a.size).reshape(a.shape) == 0)


def _frame(a):
    return pd.Series(a, index=range(5, 5 + len(a))) if a.ndim == 1 else pd.DataFrame(a)


def _structured(a):
    return np.zeros(a.shape, dtype=[("u", float), ("v", float)])


def _tensor(a, dtype=None):
    return torch.tensor(np.ascontiguousarray(a), dtype=dtype)


def _noncontiguous(a):
    return torch.stack([_tensor(a), torch.zeros(a.shape, dtype=_tensor(a).dtype)], dim=-1)[..., 0]


def _nested(a):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.tensor(row, dtype=torch.float64) for row in _floats(a)])


def _quantized(a):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.quantize_per_tensor(_tensor(_floats(a), torch.float32), 0.1, 0, torch.qint8)


def _layout(name):
    def make(a):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = _tensor(_floats(a))
            return values.to_sparse() if name == "coo" else values.to_sparse_csr()

    return make


def _object_with_none(a):
    found = np.array(a, dtype=object)
    found.reshape(-1)[0] = None
    return found


def _ragged(a):
    return [*a.tolist()[:-1], [1.0, [2.0, 3.0]]]


SAME = [
    Kind("negative strides", lambda a: np.ascontiguousarray(a[::-1])[::-1], "same"),
    Kind("negative strides of every axis", lambda a: np.flip(np.ascontiguousarray(np.flip(a))), "same"),
    Kind("Fortran order", np.asfortranarray, "same"),
    Kind("every second column", _half_view, "same"),
    Kind("read-only", _read_only, "same"),
    Kind("list", lambda a: a.tolist(), "same", 1e-5),
    Kind("tuple", lambda a: tuple(a.tolist()), "same", 1e-5),
    Kind("pandas", _frame, "same"),
    Kind("other byte order", lambda a: a.astype(a.dtype.newbyteorder(">")), "same"),
    Kind("masked array without mask", lambda a: np.ma.masked_array(a), "same"),
    Kind("ndarray subclass", lambda a: a.view(np.recarray), "same"),
    Kind("array interface", Duck, "same"),
    Kind("tensor", _tensor, "same"),
    Kind("non-contiguous tensor", _noncontiguous, "same"),
    Kind("tensor subclass", lambda a: _tensor(a).as_subclass(Subclass), "same"),
    Kind("negated view", lambda a: torch._neg_view(-_tensor(a)), "same"),
]
FLOATS = [
    Kind("long double", lambda a: a.astype(np.longdouble), "same"),
    Kind("float32", lambda a: a.astype(np.float32), "same", 1e-3),
    Kind("float16", lambda a: a.astype(np.float16), "finite"),
    Kind("float32 tensor", lambda a: _tensor(a, torch.float32), "same", 1e-3),
    Kind("bfloat16 tensor", lambda a: _tensor(a, torch.bfloat16), "finite"),
    Kind("tensor that requires a gradient", lambda a: _tensor(_floats(a)).requires_grad_(), "same"),
    Kind("parameter", lambda a: torch.nn.Parameter(_tensor(_floats(a))), "same"),
]
OTHER = [
    Kind("whole numbers", lambda a: np.rint(a).astype(np.int64), "either"),
    Kind("bytes as numbers", lambda a: np.abs(np.rint(a)).astype(np.uint8), "either"),
    Kind("booleans", lambda a: np.asarray(a > 0), "either"),
    Kind("huge", lambda a: _floats(a) * 1e300, "either"),
    Kind("tiny", lambda a: _floats(a) * 1e-300, "either"),
    Kind("zeros", lambda a: np.zeros_like(a), "either"),
    Kind("one axis more", lambda a: a[None], "either"),
    Kind("no rows", lambda a: a[:0], "either"),
    Kind("last axis empty", lambda a: _floats(a)[..., :0], "either"),
    Kind("last axis too long", lambda a: np.concatenate([a, a], axis=-1), "either"),
]
BROKEN = [
    Kind("one NaN", _with(np.nan), "broken", nonfinite=True),
    Kind("all NaN", lambda a: np.full(a.shape, np.nan), "broken", nonfinite=True),
    Kind("infinity", _with(np.inf), "broken", nonfinite=True),
    Kind("minus infinity", _with(-np.inf, (-1,)), "broken", nonfinite=True),
    Kind("NaN tensor", lambda a: _tensor(_with(np.nan)(a)), "broken", nonfinite=True),
    Kind("infinite float32 tensor", lambda a: _tensor(_with(np.inf)(a), torch.float32), "broken", nonfinite=True),
    Kind("all infinite", lambda a: np.full(a.shape, np.inf), "broken", nonfinite=True),
    Kind("masked entries", _masked, "broken"),
    Kind("complex", lambda a: a + 1j, "broken"),
    Kind("complex tensor", lambda a: _tensor(a + 1j), "broken"),
    Kind("objects with None", _object_with_none, "broken"),
    Kind("dates", lambda a: np.zeros(a.shape, "datetime64[s]"), "broken"),
    Kind("durations", lambda a: np.zeros(a.shape, "timedelta64[s]"), "broken"),
    Kind("records", _structured, "broken"),
    Kind("ragged list", _ragged, "broken"),
    Kind("None", lambda a: None, "broken"),
    Kind("word", lambda a: "abc", "broken"),
    Kind("bytes", lambda a: b"abc", "broken"),
    Kind("mapping", lambda a: {"a": 1}, "broken"),
    Kind("set", lambda a: {1.0, 2.0}, "broken"),
    Kind("function", lambda a: len, "broken"),
    Kind("single number", lambda a: 1.5, "broken"),
    Kind("single NaN", lambda a: float("nan"), "broken"),
    Kind("no axes", lambda a: np.float64(1.5), "broken"),
    Kind("no axes, tensor", lambda a: torch.tensor(1.5), "broken"),
    Kind("two axes more", lambda a: a[None, None], "broken"),
    Kind("sparse COO tensor", _layout("coo"), "broken"),
    Kind("quantized tensor", _quantized, "broken"),
    Kind("tensor without values", lambda a: torch.empty(a.shape, device="meta"), "broken"),
]
WORDS = [
    Kind("words", lambda a: a.astype(np.str_), "broken"),
    Kind("objects", lambda a: a.astype(object), "broken"),
]
MATRICES = [
    Kind("sparse CSR tensor", _layout("csr"), "broken"),
    Kind("scipy sparse", lambda a: sparse.csr_array(_floats(a)), "broken"),
    Kind("nested tensor", _nested, "broken"),
]


def kinds_of(array: np.ndarray) -> list[Kind]:
    """Return the kinds that make sense for an array: labels are whole numbers, and words are good labels."""
    floating = array.dtype.kind == "f"
    return [
        *(one for one in SAME if one.name != "pandas" or array.ndim < 3),
        *(FLOATS if floating else []),
        *OTHER,
        *BROKEN,
        *(WORDS if floating else []),
        *(MATRICES if array.ndim == 2 else []),
    ]
