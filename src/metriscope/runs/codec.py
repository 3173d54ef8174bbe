"""The content of a run as bytes and back: records as JSON, tensors as safetensors, tables as Parquet.

The same content gives the same bytes. No function here touches a file, and nothing is pickled.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Damage
from metriscope.runs.address import plain

if TYPE_CHECKING:
    from pandas import DataFrame
    from torch import Tensor

__all__ = ["from_json", "from_parquet", "from_tensors", "header", "to_json", "to_parquet", "to_tensors"]

# The numbers that JSON cannot represent, by their repr.
_UNDEFINED = ("nan", "inf", "-inf")


def to_json(record: object, where: str) -> bytes:
    """Return a record as JSON; NaN and infinities are kept, tuples become lists.

    >>> from_json(to_json({"loss": float("inf")}, "record"))
    {'loss': inf}
    """
    return (json.dumps(plain(record, where, undefined=True), indent=1, allow_nan=False) + "\n").encode()


def from_json(data: bytes) -> Any:
    """Return the record that :func:`to_json` encoded, with lists for tuples."""
    try:
        return json.loads(data, object_hook=_undefined, parse_constant=_refused)
    except (ValueError, RecursionError):
        raise Damage("not JSON") from None


def _undefined(fields: dict[str, Any]) -> Any:
    if fields.keys() != {"$float"}:
        return fields
    if fields["$float"] not in _UNDEFINED:
        raise Damage("not JSON as it was written: its '$float' is not one of the allowed numbers")
    return float(fields["$float"])


def _refused(constant: str) -> Any:
    raise Damage(f"not JSON: it holds {constant}")


def to_tensors(tensors: Mapping[str, Tensor], note: str | None = None) -> bytes:
    """Return tensors as safetensors, with an optional note in the header."""
    from safetensors import SafetensorError
    from safetensors.torch import save

    dense = {name: _dense(name, tensor) for name, tensor in tensors.items()}
    try:
        # One entry only: several would be written in no fixed order, and the bytes would vary.
        return save(dense, None if note is None else {"metriscope": note})
    except (KeyError, ValueError, SafetensorError) as error:
        raise ValueError(f"the tensors cannot be written as safetensors: {error}") from error


def from_tensors(data: bytes) -> dict[str, Tensor]:
    """Return the tensors in safetensors bytes, in the order of their names."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError, AssertionError):
        raise Damage("not safetensors") from None
    return {name: tensors[name] for name in sorted(tensors)}


def header(data: bytes) -> dict[str, Any]:
    """Return the JSON header of safetensors bytes: its length in eight bytes, then the text."""
    fields = from_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
    if not isinstance(fields, dict):
        raise Damage("not safetensors")
    return fields


def _dense(name: str, tensor: Tensor) -> Tensor:
    """Return a dense copy on the CPU; the format refuses tensors that share memory."""
    import torch

    if not isinstance(name, str) or name == "__metadata__":
        raise ValueError(f"a tensor is named {name!r}; expected a word other than '__metadata__'")
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"tensor {name!r} is a {type(tensor).__name__}; expected a torch.Tensor")
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise ValueError(f"tensor {name!r} is sparse, quantized or without values; expected a dense tensor")
    own = tensor.detach().cpu().resolve_conj().resolve_neg()
    return own.clone(memory_format=torch.contiguous_format)


def to_parquet(name: str, table: DataFrame) -> bytes:
    """Return a table as Parquet, its index and column types included."""
    import pyarrow
    import pyarrow.parquet

    if not all(isinstance(column, str) for column in table.columns):
        raise ValueError(f"table {name!r} has the columns {list(table.columns)}; expected words")
    sink = io.BytesIO()
    try:
        pyarrow.parquet.write_table(pyarrow.Table.from_pandas(table), sink, compression="zstd")
    except (pyarrow.ArrowException, ValueError, TypeError) as error:
        raise ValueError(f"table {name!r} cannot be written as Parquet: {error}") from error
    return sink.getvalue()


def from_parquet(data: bytes) -> DataFrame:
    """Return the table in Parquet bytes."""
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(pyarrow.BufferReader(data)).to_pandas()
    except (pyarrow.ArrowException, OSError, TypeError, ValueError, LookupError, AttributeError):
        # Damaged metadata for pandas can raise any of these in pandas.
        raise Damage("not Parquet") from None
