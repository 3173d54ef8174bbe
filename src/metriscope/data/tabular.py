"""Tables of numbers and categories, one row an example; categories become one column for each value.

Axes: N examples, D features, float64.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from metriscope.data.dataset import Labeled, Parts, every_fifth, split
from metriscope.data.locations import DataError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "adult_parts",
    "breast_cancer_parts",
    "covertype_parts",
    "ecg5000_parts",
    "fsdd_parts",
    "letter_parts",
    "numbers",
    "spambase_parts",
    "wine_parts",
]

_LETTER_TRAIN = 16_000
_COVERTYPE_TRAIN = 11_340 + 3_780
_ADULT_COLUMNS = 15
_ADULT_LABELS = ["<=50K", ">50K"]


def numbers(path: Path, width: int, separator: str = ",") -> np.ndarray:
    """Return the table in a text file, plain or ``.gz``, that holds nothing but finite numbers."""
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
        raise DataError(f"{path} is no table of numbers: {str(error).splitlines()[0]}") from None
    _check_width(path, found.num_columns, width)
    # Rows are gathered from columns a block at a time, which stays in the processor's cache.
    table = np.concatenate([np.column_stack([c.to_numpy() for c in block.columns]) for block in found.to_batches()])
    if not np.isfinite(table).all():
        raise DataError(f"{path} holds numbers that are not finite")
    return table


def frame(path: Path, width: int, comment: str | None = None) -> pd.DataFrame:
    """Return the table of numbers and words in a text file without header; no word means that a value is missing."""
    import pandas as pd

    try:
        found = pd.read_csv(path, header=None, comment=comment, skipinitialspace=True, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} is no table: {str(error).splitlines()[0]}") from None
    _check_width(path, found.shape[1], width)
    return found


def _check_width(path: Path, found: int, expected: int) -> None:
    if found != expected:
        raise DataError(f"{path} has {found} columns, expected {expected}")


def adult_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI adult as published, each category a column of zeros and ones.

    No row is dropped: a missing value, ``?``, of work class, occupation or country is a category of its own.
    The six columns of numbers come first, then one column for each category of the training part, sorted within
    each attribute; a category that only the test part had would be zeros throughout.
    """
    train, test = (frame(paths[name], _ADULT_COLUMNS, comment="|") for name in ("adult.data", "adult.test"))
    labels = train.columns[-1]
    text = [column for column in train.columns[:-1] if train[column].dtype.kind not in "iuf"]
    plain = [column for column in train.columns[:-1] if column not in text]

    def part(table: pd.DataFrame) -> Labeled:
        known = [(table[column].to_numpy(str), np.unique(train[column].to_numpy(str))) for column in text]
        hot = [(values[:, None] == categories).astype(np.float64) for values, categories in known]
        # The test file, alone, writes a full stop behind each label.
        names = [name.rstrip(".") for name in table[labels]]
        return Labeled(np.hstack([table[plain].to_numpy(np.float64), *hot]), _positions(names, _ADULT_LABELS))

    return part(train), part(test)


def letter_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI letter: the first 16,000 to train on, as its authors did."""
    found = frame(paths["letter-recognition.data"], 17)
    labels = _positions(list(found[0]), [chr(ord("A") + number) for number in range(26)])
    return split(found.iloc[:, 1:].to_numpy(np.float64), labels, np.arange(len(found)) >= _LETTER_TRAIN)


def covertype_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI covertype: its published 11,340 training and 3,780 validation rows to train on."""
    table = numbers(paths["covtype.data.gz"], 55)
    return split(table[:, :-1], table[:, -1] - 1, np.arange(len(table)) >= _COVERTYPE_TRAIN)


def spambase_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCI spambase, every fifth of each class as test."""
    table = numbers(paths["spambase.data"], 58)
    return split(table[:, :-1], table[:, -1], every_fifth(table[:, -1]))


def wine_parts(paths: Mapping[str, Path]) -> Parts:
    """Return scikit-learn's wine; there are no files to find."""
    from sklearn.datasets import load_wine

    x, y = load_wine(return_X_y=True)
    return split(x, y, every_fifth(y))


def breast_cancer_parts(paths: Mapping[str, Path]) -> Parts:
    """Return scikit-learn's breast cancer; there are no files to find."""
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return split(x, y, every_fifth(y))


def _positions(names: list[str], known: list[str]) -> np.ndarray:
    """Return the place of each name among the known; -1, which no set allows, for any other."""
    places = {name: place for place, name in enumerate(known)}
    return np.array([places.get(name, -1) for name in names], dtype=np.int64)


_FULL_SCALE = 32_768
_FSDD_TEST = 5


def ecg5000_parts(paths: Mapping[str, Path]) -> Parts:
    """Return UCR ECG5000 as published, 140 steps a heartbeat."""
    train, test = (_ecg(paths[f"ECG5000_{part}.tsv"]) for part in ("TRAIN", "TEST"))
    return train, test


def _ecg(path: Path) -> Labeled:
    table = numbers(path, 141, "\t")
    return Labeled(table[:, 1:].astype(np.float32), table[:, 0].astype(np.int64) - 1)


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
