"""What every data set is once it is loaded: a training part and a test part, each with its labels.

Axes: N examples; labels are 0 to k - 1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int64, Shaped

__all__ = ["DataError", "DataSet", "Labeled", "Parts", "check_labels", "content_digest", "every_fifth", "split"]


class DataError(RuntimeError):
    """Raised when data is missing or is not what it should be; the message is one sentence."""


@dataclass(frozen=True, eq=False)
class Labeled:
    """Examples and the class of each. Indexing with rows returns those examples with their labels.

    Parameters
    ----------
    x : array of shape (n, ...)
        Examples.
    y : int64 array of shape (n,)
        Class of each example.

    Raises
    ------
    DataError
        If there is not one label per example.

    Examples
    --------
    >>> part = Labeled(np.eye(3), np.array([0, 1, 1]))
    >>> len(part), part[1:].y.tolist()
    (3, [1, 1])
    """

    x: Shaped[np.ndarray, "n ..."]
    y: Int64[np.ndarray, n]

    def __post_init__(self) -> None:
        if self.y.shape != (len(self.x),):
            raise DataError(f"{len(self.x)} examples need one label each, got an array of shape {self.y.shape}")

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: Any) -> Labeled:
        return Labeled(self.x[rows], self.y[rows])


Parts = tuple[Labeled, Labeled]


@dataclass(frozen=True, eq=False)
class DataSet:
    """A named data set with its training and test part.

    Parameters
    ----------
    name : str
        Name under which :func:`metriscope.data.load` knows the data set.
    train : Labeled
        Examples to train on.
    test : Labeled
        Examples to test on.
    note : str
        How the data was split or prepared; empty if it is used as published.

    Examples
    --------
    >>> part = Labeled(np.eye(2), np.array([0, 1]))
    >>> DataSet("tiny", part, part[:1], note="").test.y
    array([0])
    """

    name: str
    train: Labeled
    test: Labeled
    note: str


def every_fifth(labels: Int64[np.ndarray, n]) -> np.ndarray:
    """Return a mask of the fifth, tenth, ... example of each class.

    >>> every_fifth(np.array([0, 1, 0, 0, 0, 0, 0])).nonzero()
    (array([5]),)
    """
    chosen = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        chosen[np.flatnonzero(labels == label)[4::5]] = True
    return chosen


def split(x: np.ndarray, y: np.ndarray, test: np.ndarray) -> Parts:
    """Return the training part and the test part, which the mask ``test`` marks; the order stays."""
    whole = Labeled(x, y.astype(np.int64))
    return whole[~test], whole[test]


def check_labels(name: str, parts: Parts, classes: int) -> None:
    """Raise ``DataError`` unless all labels are 0 to ``classes - 1``."""
    for part, held in zip(("training", "test"), parts, strict=True):
        wrong = held.y[(held.y < 0) | (held.y >= classes)]
        if len(wrong):
            raise DataError(f"the {part} part of {name} holds the label {wrong[0]}, expected 0 to {classes - 1}")


def content_digest(parts: Parts) -> str:
    """Return the SHA-256 of both parts: dtype, shape and little-endian bytes of each array.

    >>> one, two = Labeled(np.zeros((1, 4)), np.array([0])), Labeled(np.zeros((1, 2, 2)), np.array([0]))
    >>> len(content_digest((one, two))), content_digest((one, two)) == content_digest((one, one))
    (64, False)
    """
    digest = hashlib.sha256()
    for array in (array for part in parts for array in (part.x, part.y)):
        plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{plain.dtype.str} {plain.shape}\n".encode())
        digest.update(plain.tobytes())
    return digest.hexdigest()
