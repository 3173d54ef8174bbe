"""What became of a call with an odd array."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from common.cases import CASES, Case, numbers
from common.odd import Kind, kinds_of

# Words of the machinery below, which say nothing to whoever made the mistake.
MACHINERY = re.compile(
    r"linalg|LinAlg|scalar type|ufunc|has no attribute|RuntimeError|NoneType|Traceback|mat1 and mat2|"
    r"object of type|not iterable|subscriptable|unsupported operand|could not run|dispatch|symbolic|0x[0-9a-f]{6}"
)
# What the user's own model says of data that it cannot take follows behind this.
MODEL = re.compile(r"the model does not run on [^:]*")
OTHER_PRECISION = ("float32 tensor", "bfloat16 tensor", "infinite float32 tensor")
RUN_A_MODEL = frozenset(("capture", "capture_shards", "describe", "local_complexity", "read_layer", "similarity"))
RUN_A_MODEL |= {"LayerState.update", "UtilizationTracker", "TrainingTracker"}
RUN_A_MODEL |= {f"LayerNovelty.{name}" for name in ("partial_fit", "score", "calibrate")}
ANY_AXES = ("two axes more", "no axes", "no axes, tensor", "single number")


@dataclass(frozen=True)
class Outcome:
    """How a call ended, and what is wrong with that; empty if nothing is."""

    case: str
    argument: str
    kind: str
    fault: str = ""
    ended: str = ""


def outcomes(cases: list[Case] = CASES) -> Iterator[Outcome]:
    """Call every function once for every array and every odd form of it."""
    for case in cases:
        given = {name: _plain(case, array) for name, array in case.arrays.items()}
        expected = numbers(case.call(**given))
        for argument, array in case.arrays.items():
            for kind in kinds_of(array):
                # In a forward pass a tensor without values is as good as any.
                if not (case.tensors and kind.name == "tensor without values"):
                    yield _outcome(case, given, argument, kind, expected)


def _plain(case: Case, array):
    return torch.tensor(np.ascontiguousarray(array)) if array.dtype.kind == "f" and not case.own_words else array


def _outcome(case: Case, given, argument: str, kind: Kind, expected) -> Outcome:
    odd = kind.make(case.arrays[argument])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = numbers(case.call(**{**given, argument: odd}))
    except Exception as error:
        fault = _refusal_fault(case, kind, error)
        return Outcome(case.name, argument, kind.name, fault, f"{type(error).__name__}: {error}")
    return Outcome(case.name, argument, kind.name, _result_fault(case, kind, found, expected), "a result")


def _refusal_fault(case: Case, kind: Kind, error: Exception) -> str:
    if _is_pytorchs(case, kind):
        return ""
    if not _is_clear(case, error):
        return "unclear"
    welcome = kind.fate in ("same", "finite") and (not case.tensors or "tensor" in kind.name)
    return "refused" if welcome and not _is_unfit(case, kind) else ""


def _is_clear(case: Case, error: Exception) -> bool:
    """Say whether an error is one sentence that names an argument, and nothing of the machinery."""
    text = str(error)
    said = MODEL.match(text)
    if MACHINERY.search(said.group() if said else text):
        return False
    if case.own_words:
        return isinstance(error, ValueError | TypeError)
    named = any(re.search(rf"\b{word}\b", text) for word in (*case.arrays, *case.also))
    return type(error) in (ValueError, TypeError) and named and "\n" not in text and len(text) <= 300


def _is_pytorchs(case: Case, kind: Kind) -> bool:
    """Say whether it is up to PyTorch: a layer's forward pass takes the precision that it has."""
    return case.name in ("Mahalanobis.forward", "cosine.forward", "stacked_forward") and kind.name in OTHER_PRECISION


def _is_unfit(case: Case, kind: Kind) -> bool:
    """Say whether a function may refuse what others take: a model is given tensors in the precision they have."""
    return case.name in RUN_A_MODEL and kind.name in OTHER_PRECISION


def _result_fault(case: Case, kind: Kind, found, expected) -> str:
    finite = all(bool(np.isfinite(part).all()) for part in found)
    if kind.fate == "broken":
        if case.carries and (kind.nonfinite or kind.name == "single NaN"):
            return "finite" if finite else ""
        fine = (case.shapes and kind.name in ANY_AXES) or (case.optional and kind.name == "None")
        words = case.own_words and kind.name in ("words", "objects")
        return "" if fine or words else "finite" if finite else "accepted"
    if kind.fate == "finite":
        return "" if finite or not all(np.isfinite(part).all() for part in expected) else "not finite"
    if kind.fate == "same":
        same = len(found) == len(expected) and all(
            a.shape == b.shape and np.allclose(a, b, rtol=kind.tolerance, atol=kind.tolerance, equal_nan=True)
            for a, b in zip(found, expected, strict=True)
        )
        return "" if same else "different"
    return ""
