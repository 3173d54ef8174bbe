"""Sequences of one channel, one row an example.

Axes: N examples, T steps, float32.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from metriscope.data.errors import DataError
from metriscope.data.sets import Labelled, Parts, split
from metriscope.data.tables import numbers

__all__ = ["ecg5000_parts", "fsdd_parts"]

_FULL_SCALE = 32_768
_FSDD_TEST = 5


def ecg5000_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCR ECG5000 as published, 140 steps a heartbeat."""
    train, test = (_ecg(paths[f"ECG5000_{part}.tsv"]) for part in ("TRAIN", "TEST"))
    return train, test


def _ecg(path: Path) -> Labelled:
    table = numbers(path, 141, "\t")
    return Labelled(table[:, 1:].astype(np.float32), table[:, 0].astype(np.int64) - 1)


def fsdd_parts(paths: Mapping[str, Path]) -> Parts:
    """Return the spoken digits: recordings 0 to 4 of each speaker and digit as test, as published.

    Amplitudes are divided by 32,768, so they lie in [-1, 1); behind a recording stand zeros up to the longest.
    """
    held = _arrays(paths["fsdd.npz"])
    waves = _padded(held["samples"], held["length"].astype(np.int64), paths["fsdd.npz"])
    return split(waves, held["digit"], held["index"] < _FSDD_TEST)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        # Opened here, since numpy leaves open what it cannot read.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in ("samples", "length", "digit", "index")}
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is no whole archive of spoken digits: {error}") from None


def _padded(samples: np.ndarray, lengths: np.ndarray, path: Path) -> np.ndarray:
    """Return one row a recording from recordings that follow each other in one long array."""
    if lengths.sum() != len(samples):
        raise DataError(f"{path} holds {len(samples)} samples, but its recordings are {lengths.sum()} long together")
    waves = np.zeros((len(lengths), lengths.max(initial=0)), dtype=np.float32)
    waves[np.arange(waves.shape[1]) < lengths[:, None]] = samples / np.float32(_FULL_SCALE)
    return waves
