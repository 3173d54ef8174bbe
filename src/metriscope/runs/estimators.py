"""What scikit-learn estimators share: inputs that scikit-learn would misread, and files without pickle.

A fitted estimator is one file: arrays as safetensors, everything else as JSON in its header. It holds only numbers,
words and arrays, and names no code that would be run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from metriscope.common.errors import Damage, explained, shown
from metriscope.common.files import read, replaced
from metriscope.common.validation import contiguous, described, label_array, plain_array, real_array
from metriscope.runs.codec import from_json, from_tensors, header, to_json, to_tensors

__all__ = ["SavedEstimator", "points", "untensored", "validated"]

_FORMAT = "metriscope estimator 1"

Self = TypeVar("Self", bound="SavedEstimator")


class SavedEstimator:
    """The methods ``save`` and ``load`` of an estimator.

    ``_records`` are the dataclasses that its attributes may hold; ``_not_saved`` are parameters that no file can hold,
    which are given to ``load`` again.
    """

    _records: ClassVar[tuple[type, ...]] = ()
    _not_saved: ClassVar[tuple[str, ...]] = ()

    def save(self, path: str | PathLike[str]) -> None:
        """Write parameters and fitted attributes to one file, atomically, without pickle.

        Raises
        ------
        ValueError
            If a parameter is not a number, a word, an array, or a list or dictionary of these.
        """
        arrays: dict[str, Tensor] = {}
        held = {name: value for name, value in vars(self).items() if name not in self._not_saved}
        state = {name: _encoded(value, name, arrays) for name, value in held.items()}
        note = {"format": _FORMAT, "class": type(self).__name__, "state": state}
        data = to_tensors(arrays, to_json(note, "estimator").decode())
        with explained(f"save the estimator to {path}"), replaced(Path(path)) as file:
            file.write(data)

    @classmethod
    def load(cls: type[Self], path: str | PathLike[str], **parameters: Any) -> Self:
        """Return the estimator that :meth:`save` wrote; ``parameters`` replace or add to those in the file.

        Raises
        ------
        metriscope.common.errors.StoreError
            If the file is missing or damaged, or holds another kind of estimator.
        """
        with explained(f"load the estimator from {path}"):
            data = read(Path(path))
            known = {kind.__name__: kind for kind in cls._records}
            arrays = from_tensors(data)
            note = _note(data)
            if note["class"] != cls.__name__:
                raise Damage(f"the file holds a {shown(str(note['class']), 60)}, expected a {cls.__name__}")
            try:
                state = {name: _decoded(value, arrays, known) for name, value in note["state"].items()}
            except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
                # An edited file, whose fields are not those that were written.
                raise Damage(f"its fields are not those of a {cls.__name__}") from error
        made: Self = cls.__new__(cls)
        vars(made).update(dict.fromkeys(cls._not_saved) | state)
        return made.set_params(**parameters) if parameters else made  # type: ignore[attr-defined]


def _note(data: bytes) -> dict[str, Any]:
    kept = header(data).get("__metadata__", {})
    note = from_json(kept.get("metriscope", "null").encode("utf-8", "surrogatepass"))
    fields = isinstance(note, dict) and note.keys() == {"format", "class", "state"}
    if not fields or note["format"] != _FORMAT or not isinstance(note["state"], dict):
        raise Damage("not a saved estimator")
    return note


def _encoded(value: Any, name: str, arrays: dict[str, Tensor]) -> Any:
    """Return a value as JSON; arrays of numbers are added to ``arrays`` under their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return {"scalar": [value.dtype.str, value.item()]}
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biuf":
            arrays[name] = torch.from_numpy(np.ascontiguousarray(value))
            return {"array": [name, list(value.shape)]}
        return {"words": [value.dtype.str, _encoded(value.tolist(), name, arrays)]}
    if isinstance(value, list | tuple):
        parts = [_encoded(one, f"{name}.{i}", arrays) for i, one in enumerate(value)]
        return {"tuple": parts} if isinstance(value, tuple) else parts
    if isinstance(value, Mapping):
        pairs = enumerate(value.items())
        return {"dict": [[_encoded(one, f"{name}.{i}", arrays) for one in pair] for i, pair in pairs]}
    if is_dataclass(value):
        held = [getattr(value, field.name) for field in fields(value)]
        return {"record": [type(value).__name__, [_encoded(one, f"{name}.{i}", arrays) for i, one in enumerate(held)]]}
    raise ValueError(f"{name} must be a number, a word or an array to be saved, got {described(value)}")


def _decoded(value: Any, arrays: Mapping[str, Tensor], known: Mapping[str, type]) -> Any:
    if isinstance(value, list):
        return [_decoded(one, arrays, known) for one in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "array":
        name, shape = content
        if name not in arrays:
            raise Damage(f"the array {name} is missing")
        return arrays[name].numpy().reshape(shape)
    if kind == "scalar":
        return _dtype(content[0], "biufUS").type(content[1])
    if kind == "words":
        words = np.array(_decoded(content[1], arrays, known), dtype=object)
        dtype = _dtype(content[0], "OUS")
        # The width is that of the longest word: a larger one would only take memory.
        return words.astype(dtype if dtype.kind == "O" else f"{dtype.str[0]}{dtype.kind}")
    parts = _decoded(content[1] if kind == "record" else content, arrays, known)
    if kind == "record":
        if content[0] not in known:
            raise Damage(f"it holds an unknown record, {content[0]}")
        return known[content[0]](*parts)
    return tuple(parts) if kind == "tuple" else dict(parts)


def _dtype(text: Any, kinds: str) -> np.dtype[Any]:
    found = np.dtype(text) if isinstance(text, str) else np.dtype("V")
    if found.kind not in kinds:
        raise Damage("it holds values of an unknown type")
    return found


def untensored(values: Any, name: str = "X") -> Any:
    """Return a tensor as an array, and anything else as it is, for scikit-learn to check."""
    # scikit-learn would read dates as numbers and ignore the mask of masked arrays.
    odd = isinstance(values, np.ndarray) and values.dtype.kind in "mMV"
    if odd or isinstance(values, np.ma.MaskedArray):
        return plain_array(values, name)
    if not isinstance(values, Tensor):
        return values
    return label_array(values, name, len(values) if values.ndim else 1) if name == "y" else real_array(values, name)


def validated(estimator: Any, *arrays: Any, **options: Any) -> Any:
    """Return arrays as scikit-learn checks them, points in float64; ``options`` are those of ``validate_data``."""
    from sklearn.utils.validation import validate_data

    # scikit-learn looks for NaN and infinity with a sum, which can overflow and warn.
    with np.errstate(invalid="ignore", over="ignore"):
        return validate_data(estimator, *arrays, dtype=np.float64, **options)


def points(estimator: Any, X: Any, **options: Any) -> Float64[np.ndarray, "n d"]:
    """Return the points as scikit-learn checks them, in float64; ``options`` are those of ``validate_data``."""
    # scikit-learn leaves negative strides as they are, which PyTorch refuses.
    return contiguous(validated(estimator, untensored(X), **options))
