"""Capture data that comes in shards, each into a folder of its own, and continue where an earlier call stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from metriscope.common.errors import explained
from metriscope.common.files import read, replaced
from metriscope.common.validation import integer
from metriscope.runs.codec import from_json, to_json
from metriscope.vq.capture.batches import is_table, table_shards
from metriscope.vq.capture.capture import capture
from metriscope.vq.capture.patterns import Patterns
from metriscope.vq.capture.storage import parts_of

__all__ = ["capture_shards"]

_ABOUT = "capture.json"


def capture_shards(
    model: nn.Module, shards: Any, path: str | PathLike[str], shard_size: int = 65_536, **options: Any
) -> Patterns:
    """Capture shards of data one after the other into a folder, and return all of them, opened lazily.

    Memory holds the patterns of one shard at a time. A shard that an earlier call has written is not computed again,
    so a call that was stopped continues where it was.

    Parameters
    ----------
    model : torch.nn.Module
        Any module, as for :func:`capture`.
    shards : iterable, Hugging Face dataset or Ray dataset
        The shards in a fixed order, each anything that :func:`capture` takes, or a function that returns it: a function
        is not called for a shard that is there already. A dataset of Hugging Face or Ray is divided into shards.
    path : str or path
        The folder; it is made if it does not exist.
    shard_size : int
        Points per shard of a dataset of Hugging Face or Ray.
    **options
        Further arguments of :func:`capture`, except ``ids``: points are numbered through all shards.

    Returns
    -------
    Patterns
        All points; :meth:`Patterns.shards <metriscope.Patterns.shards>` yields them shard by shard.

    Raises
    ------
    ValueError
        If the folder holds the patterns of a model with other weights or of other options, or there are no shards.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     capture_shards(model, [torch.zeros(4, 2), torch.ones(3, 2)], folder)
    Patterns(7 points, 1 layer, 3 bits per point)
    """
    if "ids" in options:
        raise ValueError("capture_shards numbers the points through all shards: it takes no ids")
    folder, first = Path(path), 0
    pieces: Iterable[Any] = shards
    asked = sorted(options.items())
    if is_table(shards):
        pieces = table_shards(shards, integer(shard_size, "shard_size"))
        asked.append(("shard_size", shard_size))
    _check_same(folder, {"another model": _digest(model), "other options": repr(asked)})
    for number, shard in enumerate(pieces):
        place = folder / f"part-{number:05d}"
        if place.exists():
            first += len(Patterns.load(place))
            continue
        data = shard() if callable(shard) and not isinstance(shard, nn.Module) else shard
        found = capture(model, data, **options)
        numbered = Patterns.concatenate([found], np.arange(first, first + len(found)), lazy=True)
        numbered.save(place)
        first += len(found)
    if not parts_of(folder):
        raise ValueError("capture_shards needs at least one shard, got none")
    return Patterns.load(folder)


def _check_same(folder: Path, asked: dict[str, str]) -> None:
    """Write what the folder is for, or check that it is for the same."""
    with explained(f"capture shards to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _ABOUT).exists():
            with replaced(folder / _ABOUT) as file:
                file.write(to_json(asked, _ABOUT))
        before = from_json(read(folder / _ABOUT))
    if not isinstance(before, dict):
        raise ValueError(f"{folder / _ABOUT} was not written by capture_shards: choose a new folder")
    for name, value in asked.items():
        if before.get(name) != value:
            raise ValueError(f"{folder} holds shards captured with {name}: choose a new folder")


def _digest(model: nn.Module) -> str:
    """Return a digest of a model's parameters and buffers, and of how it prints."""
    found = hashlib.sha256(repr(model).encode())
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
