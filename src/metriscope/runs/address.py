"""The address of a run: a hash of its specification, independent of when and where it is computed.

A specification is a dataclass or a mapping of words and numbers. Its canonical text is JSON with sorted
keys, no spaces and floats by ``repr``. So ``1``, ``1.0`` and ``True`` have three addresses, ``0.0`` and
``-0.0`` have two, and a list and a tuple of the same values have one. A dataclass is the mapping of its
fields with its type name under ``"kind"``, so that a specification read back from a run keeps its address.
A field that was :func:`added` later is left out while it has its default, so that earlier runs keep theirs.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

from metriscope.common.files import sha256

__all__ = ["DIGITS", "added", "address", "canonical", "plain"]

ADDED = "added"
DIGITS = 40  # 160 bits of SHA-256, as in a git commit: no two specifications share them by chance


def added(default: Any) -> Any:
    """Return a field that was added after runs were stored: it counts in the address unless it has its default.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Spec:
    ...     seed: int
    ...     rate: float = added(1e-3)
    >>> canonical(Spec(7)), canonical(Spec(7, 1e-2))
    ('{"kind":"Spec","seed":7}', '{"kind":"Spec","rate":0.01,"seed":7}')
    """
    return dataclasses.field(default=default, metadata={ADDED: True})


def canonical(spec: object) -> str:
    """Return the canonical JSON text of a specification.

    >>> canonical({"seed": 7, "rate": 1e-3, "layers": (64, 64)})
    '{"layers":[64,64],"rate":0.001,"seed":7}'
    """
    if not isinstance(spec, Mapping) and not _is_record(spec):
        raise ValueError(f"a specification is a dataclass or a mapping, not a {type(spec).__name__}")
    return json.dumps(plain(spec, "spec"), sort_keys=True, separators=(",", ":"), allow_nan=False)


def address(spec: object) -> str:
    """Return the first 40 hex digits of the SHA-256 of the canonical text.

    >>> address({"seed": 7}) == address({"seed": 7.0})
    False
    """
    return sha256(canonical(spec).encode())[:DIGITS]


def plain(value: object, where: str, *, undefined: bool = False) -> Any:
    """Return ``value`` as JSON can hold it; ``where`` names it in errors.

    With ``undefined``, NaN and infinities become ``{"$float": "nan"}``, so that any reader of JSON accepts the text.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # of an enumeration its value, whatever its own __str__ returns
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _number(float(value), where, undefined)
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{where}[{i}]", undefined=undefined) for i, item in enumerate(value)]
    if isinstance(value, Mapping) or _is_record(value):
        fields = _fields(value, where).items()
        return {key: plain(item, f"{where}.{key}", undefined=undefined) for key, item in fields}
    raise ValueError(f"{where} is a {type(value).__name__}; expected words, numbers, lists, mappings or dataclasses")


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _number(value: float, where: str, undefined: bool) -> Any:
    if math.isfinite(value):
        return value
    if undefined:
        return {"$float": repr(value)}
    raise ValueError(f"{where} is {value}; expected a finite number")


def _fields(value: Any, where: str) -> dict[str, object]:
    if isinstance(value, Mapping):
        for key in value:
            _check_key(key, where)
        return {str.__str__(key): item for key, item in value.items()}
    known = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
    fields = {field.name: item for field, item in known if not (ADDED in field.metadata and item == field.default)}
    if "kind" in fields:
        raise ValueError(f"{where} has a field named 'kind', which is taken by the name of its type")
    return {"kind": type(value).__name__, **fields}


def _check_key(key: object, where: str) -> None:
    if not isinstance(key, str):
        raise ValueError(f"{where} has the key {key!r} of type {type(key).__name__}; expected words as keys")
    if key.startswith("$"):
        raise ValueError(f"{where} has the key {key!r}; keys that begin with '$' are taken")
