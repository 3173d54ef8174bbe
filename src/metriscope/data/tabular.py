"""Readers of tables and sequences: numbers and categories from text files, recordings from arrays.

Axes: N examples, D features. Each ``*_parts`` function takes the path of each file by its name and returns the training
and the test part. Categories become one column per value.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metriscope.data.dataset import DataError, Labeled, Parts, every_fifth, split

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "adult_parts", "breast_cancer_parts", "covertype_parts", "ecg5000_parts", "fsdd_parts", "letter_parts", "numbers",
    "spambase_parts", "wine_parts",
]  # fmt: skip

_LETTER_TRAIN = 16_000
_COVERTYPE_TRAIN = 11_340 + 3_780
_ADULT_COLUMNS = 15
_ADULT_LABELS = ["<=50K", ">50K"]
_FSDD_TEST = 5
_FULL_SCALE = 32_768


def numbers(path: Path, width: int, separator: str = ",") -> np.ndarray:
    """Return the table in a text file, plain or ``.gz``, that holds only finite numbers."""
    import pyarrow as pa
    from pyarrow import csv

    kinds = {f"f{column}": pa.float64() for column in range(width)}
    try:
        found = csv.read_csv(
            str(path),
            csv.ReadOptions(autogenerate_column_names=True),
            csv.ParseOptions(delimiter=separator),
            csv.ConvertOptions(column_types=kinds, null_values=[]),
        )
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is not a table of numbers: {str(error).splitlines()[0]}") from None
    _check_width(path, found.num_columns, width)
    # Rows are gathered from columns in batches, which stay in the processor's cache.
    table = np.concatenate([np.column_stack([c.to_numpy() for c in block.columns]) for block in found.to_batches()])
    if not np.isfinite(table).all():
        raise DataError(f"{path} holds numbers that are not finite")
    return table


def _frame(path: Path, width: int, comment: str | None = None) -> pd.DataFrame:
    """Return the table of numbers and words in a text file without header; no word is read as a missing value."""
    import pandas as pd

    try:
        found = pd.read_csv(path, header=None, comment=comment, skipinitialspace=True, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is not a table: {str(error).splitlines()[0]}") from None
    _check_width(path, found.shape[1], width)
    return found


def _check_width(path: Path, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"{path} has {found} columns, expected {expected}")


def _positions(names: list[str], known: list[str]) -> np.ndarray:
    """Return the position of each name among the known ones; -1, which is no valid label, for any other."""
    places = {name: place for place, name in enumerate(known)}
    return np.array([places.get(name, -1) for name in names], dtype=np.int64)


def adult_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI adult as published, each category a column of zeros and ones.

    No row is dropped: a missing value, ``?``, of work class, occupation or country is a category of its own.
    The six columns of numbers come first, then one column for each category of the training part, sorted within
    each attribute; a category that only the test part had would be zeros throughout.
    """
    train, test = (_frame(paths[name], _ADULT_COLUMNS, comment="|") for name in ("adult.data", "adult.test"))
    labels = train.columns[-1]
    text = [column for column in train.columns[:-1] if train[column].dtype.kind not in "iuf"]
    plain = [column for column in train.columns[:-1] if column not in text]

    def part(table: pd.DataFrame) -> Labeled:
        known = [(table[column].to_numpy(str), np.unique(train[column].to_numpy(str))) for column in text]
        hot = [(values[:, None] == categories).astype(np.float64) for values, categories in known]
        # In the test file, each label ends with a full stop.
        names = [name.rstrip(".") for name in table[labels]]
        return Labeled(np.hstack([table[plain].to_numpy(np.float64), *hot]), _positions(names, _ADULT_LABELS))

    return part(train), part(test)


def letter_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI letter: the first 16,000 rows to train on, as its authors did."""
    found = _frame(paths["letter-recognition.data"], 17)
    labels = _positions(list(found[0]), [chr(ord("A") + number) for number in range(26)])
    return split(found.iloc[:, 1:].to_numpy(np.float64), labels, np.arange(len(found)) >= _LETTER_TRAIN)


def covertype_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI covertype: its published 11,340 training and 3,780 validation rows to train on."""
    table = numbers(paths["covtype.data.gz"], 55)
    return split(table[:, :-1], table[:, -1] - 1, np.arange(len(table)) >= _COVERTYPE_TRAIN)


def spambase_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI spambase, every fifth example of each class as test."""
    table = numbers(paths["spambase.data"], 58)
    return split(table[:, :-1], table[:, -1], every_fifth(table[:, -1]))


def wine_parts(paths: Mapping[str, Path]) -> Parts:
    """Return scikit-learn's wine data; it needs no files."""
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    return split(x, y, every_fifth(y))


def breast_cancer_parts(paths: Mapping[str, Path]) -> Parts:
    """Return scikit-learn's breast cancer data; it needs no files."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return split(x, y, every_fifth(y))


def ecg5000_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCR ECG5000 as published, 140 time steps per heartbeat."""
    train, test = (numbers(paths[f"ECG5000_{part}.tsv"], 141, "\t") for part in ("TRAIN", "TEST"))
    parts = [Labeled(table[:, 1:].astype(np.float32), table[:, 0].astype(np.int64) - 1) for table in (train, test)]
    return parts[0], parts[1]


def fsdd_parts(paths: Mapping[str, Path]) -> Parts:
    """Return the spoken digits: recordings 0 to 4 of each speaker and digit as test, as published.

    Amplitudes are divided by 32,768, so they lie in [-1, 1); recordings are padded with zeros to the longest.
    """
    held = _arrays(paths["fsdd.npz"])
    waves = _padded(held["samples"], held["length"].astype(np.int64), paths["fsdd.npz"])
    return split(waves, held["digit"], held["index"] < _FSDD_TEST)


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        # Opened here, because numpy does not close a file that it cannot read.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in ("samples", "length", "digit", "index")}
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is not a complete archive of spoken digits: {error}") from None


def _padded(samples: np.ndarray, lengths: np.ndarray, path: Path) -> np.ndarray:
    """Return one row per recording from recordings that follow each other in one long array."""
    if lengths.sum() != len(samples):
        raise DataError(f"{path} holds {len(samples)} samples, but its recordings have {lengths.sum()} in total")
    waves = np.zeros((len(lengths), lengths.max(initial=0)), dtype=np.float32)
    waves[np.arange(waves.shape[1]) < lengths[:, None]] = samples / np.float32(_FULL_SCALE)
    return waves
