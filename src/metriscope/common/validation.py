"""Argument checks: whatever users pass becomes a plain array, tensor or number, or raises one clear sentence.

Public functions check their arguments here once and compute without further checks. Every error is a ``ValueError`` of
one sentence that names the argument and says what was expected and what was given. Shapes are written as one word per
axis, ``"points features"``: the same word means the same size, within one array and, through ``sizes``, across several;
a number is a fixed size; ``*`` at the front and ``...`` at the end stand for any number of axes.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence, ValuesView
from typing import Any, NoReturn, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

__all__ = [
    "broadcast_axes", "check_shape", "contiguous", "covariance", "described", "float64_tensor", "instance", "integer",
    "label_array", "listed", "number", "one_of", "plain_array", "real_array", "real_tensor", "require_finite",
    "require_tensors", "require_text", "same_precision", "whole_array",
]  # fmt: skip

T = TypeVar("T")
Sizes = dict[str, int]

_LONGEST = 60
_MOST = (1 << 48) - 1  # largest count of anything: no memory holds more
# Asymmetry of a covariance that is accepted as rounding error, in machine epsilons of its largest entry.
_ROUNDINGS = 1_000


def described(value: Any) -> str:
    """Return a short description of a value: short values as they are, anything else by its type.

    >>> described(None), described("abc"), described(np.zeros((2, 3))), described({"a": 1})
    ('None', "'abc'", 'a float64 array of shape (2, 3)', 'a dict')
    """
    if isinstance(value, Tensor | np.ndarray):
        kind = "tensor" if isinstance(value, Tensor) else "array"
        return f"a {str(value.dtype).removeprefix('torch.')} {kind} of shape {tuple(value.shape)}"
    if value is None or isinstance(value, str | bytes | bool | int | float | complex | np.generic):
        text = repr(value.item() if isinstance(value, np.generic) else value)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
    if isinstance(value, type):
        return f"the class {value.__name__}"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _refuse(name: str, wanted: str, got: str) -> NoReturn:
    raise ValueError(f"{name} must {wanted}, got {got}")


def real_tensor(
    value: Any, name: str, shape: str = "*", sizes: Sizes | None = None, finite: bool = True, empty: bool = False
) -> Tensor:
    """Return a dense tensor of floating-point numbers, on its device and with its gradient.

    Floating-point numbers keep their precision (at least that of half precision), whole numbers and booleans become
    float64. ``empty`` allows arrays without entries, ``finite=False`` NaN and infinity.

    >>> real_tensor([[1, 2]], "x", "points features")
    tensor([[1., 2.]], dtype=torch.float64)
    """
    found = _plain_tensor(value, name) if isinstance(value, Tensor) else _from_numpy(plain_array(value, name))
    if not found.is_floating_point():
        found = found.double()
    elif found.dtype.itemsize < 2:
        found = found.float()
    check_shape(tuple(found.shape), name, shape, sizes, empty)
    if finite and not _values_hidden(found):
        require_finite(found, name)
    return found


def real_array(
    value: Any, name: str, shape: str = "*", sizes: Sizes | None = None, finite: bool = True, empty: bool = False
) -> np.ndarray:
    """Return a tensor, array, table or nested lists as a contiguous float64 array.

    >>> real_array(np.arange(3)[::-1], "x", "points")
    array([2., 1., 0.])
    """
    found = contiguous(_as_array(value, name).astype(np.float64, copy=False))
    check_shape(found.shape, name, shape, sizes, empty)
    if finite:
        require_finite(found, name)
    return found


def float64_tensor(value: Any, name: str, shape: str = "*", sizes: Sizes | None = None) -> Tensor:
    """Return a finite float64 tensor on the CPU, without gradient, for measuring rather than training.

    >>> float64_tensor([1, 2], "mean", "features")
    tensor([1., 2.], dtype=torch.float64)
    """
    return real_tensor(value, name, shape, sizes).detach().cpu().double()


def whole_array(
    value: Any, name: str, shape: str = "*", sizes: Sizes | None = None, low: int = 0, high: int | None = None
) -> np.ndarray:
    """Return an int64 array of whole numbers from ``low`` to below ``high``.

    >>> whole_array([0.0, 2.0], "y", "points")
    array([0, 2])
    """
    given = _as_array(value, name)
    check_shape(given.shape, name, shape, sizes, empty=False)
    if given.dtype.kind == "f":
        require_finite(given, name)
        if not np.array_equal(given, np.rint(given)):
            _refuse(name, "hold whole numbers", f"for example {given[given != np.rint(given)].flat[0]}")
    elif given.dtype.kind == "b":
        _refuse(name, "hold whole numbers", "booleans")
    outside = (given < low) | (given >= (2**63 if high is None else high))
    if outside.any():
        wanted = f"of at least {low} and below 2^63" if high is None else f"from {low} to {high - 1}"
        _refuse(name, f"hold whole numbers {wanted}", described(given[outside].flat[0]))
    return given.astype(np.int64)


def contiguous(found: np.ndarray) -> np.ndarray:
    """Return an array in row-major order, copied if it is not, or if a stride is negative, which PyTorch refuses.

    >>> contiguous(np.zeros(1)[::-1]).strides
    (8,)
    """
    # numpy ignores the stride of an axis of length one.
    fine = found.flags.c_contiguous and all(stride >= 0 for stride in found.strides)
    return found if fine else found.copy(order="C")


def label_array(value: Any, name: str, count: int) -> np.ndarray:
    """Return ``count`` labels, numbers or words, as an array of one axis.

    >>> label_array(["cat", "dog"], "labels", 2).tolist()
    ['cat', 'dog']
    """
    found = np.asarray(_as_array(value, name, kinds="fiubUO"))
    if found.dtype == object:
        if not all(isinstance(one, str) for one in found.flat):
            _refuse(name, "hold numbers or words", _held(value, found))
        found = found.astype(np.str_)
    check_shape(found.shape, name, str(count), None, empty=True)
    if found.dtype.kind == "f":
        require_finite(found, name)
    if found.dtype.kind == "U":
        require_text(found.tolist(), name)
    return found


def plain_array(value: Any, name: str, kinds: str = "fiub") -> np.ndarray:
    """Return a plain numpy array in native byte order whose dtype is one of ``kinds``; copied only if necessary.

    >>> plain_array([1, 2], "x").dtype.kind
    'i'
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.count_masked(value):
        _refuse(name, "have no masked entries", f"{np.ma.count_masked(value)} of {value.size} masked")
    if type(value).__module__.startswith("scipy.sparse"):
        _refuse(name, "be dense", f"a sparse {type(value).__name__}; call toarray() first")
    try:
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        _refuse(name, "be an array of real numbers", f"{described(value)} that is none")
    if found.dtype.kind not in kinds:
        _refuse(name, f"hold {'numbers or words' if 'U' in kinds else 'real numbers'}", _held(value, found))
    if found.dtype.kind not in "fiub":
        return found
    if found.dtype.itemsize > 8:
        with np.errstate(over="ignore"):
            return found.astype(np.float64)
    return found.astype(found.dtype.newbyteorder("="), copy=False)


def covariance(value: Any, name: str = "cov", features: str = "features", sizes: Sizes | None = None) -> Tensor:
    """Return a covariance, or a stack of them, in float64: square, finite, and symmetric but for rounding.

    >>> covariance([[2.0, 0.0], [0.0, 1.0]]).dtype
    torch.float64
    """
    given = real_tensor(value, name, f"* {features} {features}", sizes)
    plain = given.detach()
    largest = plain.abs().amax(dim=(-2, -1))
    gap = (plain - plain.mT).abs().amax(dim=(-2, -1))
    wrong = ~(gap <= max(given.shape[-1], _ROUNDINGS) * torch.finfo(given.dtype).eps * largest)
    if not _values_hidden(given) and bool(wrong.any()):
        _refuse(name, "be symmetric", f"entries that differ from their mirror by up to {float(gap.max()):.3g}")
    half = given.double() / 2
    return half + half.mT


def check_shape(shape: tuple[int, ...], name: str, axes: str, sizes: Sizes | None, empty: bool) -> None:
    """Raise unless a shape is as described; sizes of new words are added to ``sizes``.

    >>> check_shape((5, 2), "x", "points features", {"features": 3}, empty=False)
    Traceback (most recent call last):
    ValueError: x must have the shape (points, 3), got (5, 2)
    """
    words, known = axes.split(), {} if sizes is None else sizes
    front, behind = words[:1] == ["*"], words[-1:] == ["..."]
    words = [word for word in words if word not in ("*", "...")]
    wanted = ", ".join(["..."] * front + [str(known.get(word, word)) for word in words] + ["..."] * behind)
    found = dict(known)
    fits = len(shape) >= len(words) if front or behind else len(shape) == len(words)
    for word, size in zip(words, shape if behind else shape[len(shape) - len(words) :], strict=False):
        fits = fits and (size == int(word) if word.isdigit() else found.setdefault(word, size) == size)
    if not fits:
        _refuse(name, f"have the shape ({wanted}{',' * (len(words) == 1 and ',' not in wanted)})", f"{shape}")
    if 0 in shape and not empty:
        _refuse(name, "hold at least one number", f"the shape {shape}")
    known.update(found)


def listed(values: Any) -> Any:
    """Return an iterator, or the values of a mapping, as a list, and anything else as it is."""
    return list(values) if isinstance(values, Iterator | ValuesView) else values


def require_finite(found: Tensor | np.ndarray, name: str) -> None:
    """Raise if there is NaN or infinity, and say how many there are and where the first is.

    >>> require_finite(np.array([[1.0, np.nan]]), "x")
    Traceback (most recent call last):
    ValueError: x must be finite, got 1 NaN or infinite of 2 entries, the first at (0, 1)
    """
    good = found.detach().isfinite() if isinstance(found, Tensor) else np.isfinite(found)
    if bool(good.all()):
        return
    bad = np.asarray((~good).cpu() if isinstance(good, Tensor) else ~good)
    place = tuple(int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
    where = f", the first at {place if len(place) > 1 else place[0]}" if place else ""
    raise ValueError(f"{name} must be finite, got {int(bad.sum())} NaN or infinite of {bad.size} entries{where}")


def require_text(words: Iterable[str], name: str) -> None:
    r"""Raise if a word holds half of a character (an unpaired surrogate), which files and tables cannot store.

    >>> require_text(["cat", "do\ud800"], "labels")
    Traceback (most recent call last):
    ValueError: labels must be text, got half of a character in 'do\ud800'
    """
    for word in words:
        if not word.isascii() and any("\ud800" <= letter <= "\udfff" for letter in word):
            _refuse(name, "be text", f"half of a character in {described(word)}")


def require_tensors(**tensors: Any) -> None:
    """Raise unless all are dense tensors of real numbers; no value is read, so forward passes can afford it.

    >>> require_tensors(x=[1.0])
    Traceback (most recent call last):
    ValueError: x must be a torch.Tensor, got a list
    """
    for name, value in tensors.items():
        if not isinstance(value, Tensor):
            _refuse(name, "be a torch.Tensor", described(value))
        _check_form(value, name)


def same_precision(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return tensors in one common floating-point dtype that can represent all of them."""
    first = tensors[0].dtype
    if first.is_floating_point and all(one.dtype == first for one in tensors):
        return tensors
    wanted = first
    for one in tensors:
        wanted = torch.promote_types(wanted, one.dtype)
    wanted = wanted if wanted.is_floating_point else torch.get_default_dtype()
    return tuple(one.to(wanted) for one in tensors)


def broadcast_axes(behind: int | Sequence[int], **tensors: Tensor) -> None:
    """Raise unless the axes before the last ``behind`` ones of each tensor broadcast."""
    counts = [behind] * len(tensors) if isinstance(behind, int) else behind
    fronts = {name: tuple(one.shape[: one.ndim - k]) for k, (name, one) in zip(counts, tensors.items(), strict=True)}
    try:
        # PyTorch's own function imports sympy, which takes seconds.
        np.broadcast_shapes(*fronts.values())
    except ValueError:
        got = ", ".join(f"{front} of {name}" for name, front in fronts.items())
        raise ValueError(f"the axes in front must be the same or 1, got {got}") from None


def integer(value: Any, name: str, least: int | None = 1, most: int | None = None) -> int:
    """Return a whole number from ``least`` to ``most``; a boolean does not count as one.

    >>> integer(np.int64(3), "k"), integer(0, "epochs", least=0)
    (3, 0)
    """
    found: int | None
    try:
        found = None if isinstance(value, bool | np.bool_) else operator.index(value)
    except (TypeError, ValueError, RuntimeError):
        found = None
    small = found is not None and least is not None and found < least
    most = _MOST if most is None and least is not None and least > 0 else most
    large = found is not None and most is not None and found > most
    if found is None or small or large:
        room = " below 2^48" if large and most == _MOST else ""
        _refuse(name, f"be {_integers(least, most)}{room}", described(value))
    return found


def _integers(least: int | None, most: int | None) -> str:
    if most not in (None, _MOST):
        return f"an integer from {least} to {most}"
    if least is None:
        return "an integer"
    return "a positive integer" if least == 1 else f"an integer of at least {least}"


def number(value: Any, name: str, interval: str = "(-inf, inf)") -> float:
    """Return a real number of an interval such as ``"[0, 1)"``; a boolean does not count as one.

    >>> number(0.95, "confidence", "(0, 1)")
    0.95
    """
    found = math.nan
    if isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool):
        found = math.nan if isinstance(value, int) and abs(value) >> 1000 else float(value)
    elif isinstance(value, Tensor | np.ndarray) and value.ndim == 0 and not isinstance(value, np.ma.MaskedArray):
        found = float(_as_array(value, name))
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = found > low if interval[0] == "(" else found >= low
    below = found < high if interval[-1] == ")" else found <= high
    if not (above and below):
        wanted = "be a finite number" if (low, high) == (-math.inf, math.inf) else f"lie in {interval}"
        _refuse(name, wanted, described(value))
    return found


def one_of(value: Any, name: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of the choices."""
    words = list(choices)
    if not isinstance(value, str) or value not in words:
        _refuse(name, f"be one of {', '.join(words)}", described(value))
    return value


def instance(value: Any, name: str, kind: type[T]) -> T:
    """Return ``value`` if it is an instance of a type."""
    if not isinstance(value, kind):
        home = kind.__module__.split(".")[0]
        full = f"torch.nn.{kind.__name__}" if kind.__module__.startswith("torch.nn") else f"{home}.{kind.__name__}"
        _refuse(name, f"be a {full}", described(value))
    return value


def _values_hidden(found: Tensor) -> bool:
    """Return whether values cannot be read, inside a torch.func transform or the compiler."""
    return torch.compiler.is_compiling() or is_functorch_wrapped_tensor(found)


def _check_form(value: Tensor, name: str) -> None:
    if value.is_nested:
        _refuse(name, "be one rectangular tensor", "a nested tensor")
    if value.layout is not torch.strided:
        layout = str(value.layout).removeprefix("torch.")
        _refuse(name, "be dense", f"a {layout} tensor; call to_dense() first")
    if value.is_quantized:
        _refuse(name, "hold real numbers", "a quantized tensor; call dequantize() first")
    if value.is_complex():
        _refuse(name, "hold real numbers", "complex ones")


def _plain_tensor(value: Tensor, name: str) -> Tensor:
    _check_form(value, name)
    if value.device.type == "meta":
        _refuse(name, "hold values", "a tensor on the meta device, which has none")
    if type(value) is not Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            value = value.as_subclass(Tensor)
    return value.resolve_neg() if value.is_neg() else value


def _as_array(value: Any, name: str, kinds: str = "fiub") -> np.ndarray:
    if not isinstance(value, Tensor):
        return plain_array(value, name, kinds)
    plain = _plain_tensor(value, name).detach().cpu()
    if plain.is_floating_point() and plain.dtype not in (torch.float32, torch.float64):
        plain = plain.double()
    return plain.numpy()


def _held(value: Any, found: np.ndarray) -> str:
    if found.ndim == 0:
        return described(value)
    words = {"c": "complex ones", "O": "objects", "U": "words", "S": "bytes", "M": "dates", "m": "durations"}
    return words.get(found.dtype.kind, f"{found.dtype.name} entries")


def _from_numpy(found: np.ndarray) -> Tensor:
    # PyTorch warns about read-only memory.
    return torch.from_numpy(contiguous(found) if found.flags.writeable else found.copy())
