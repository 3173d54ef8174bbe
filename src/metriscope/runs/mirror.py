"""A copy of a store in another place: an object store or any folder that fsspec can open, one object per run.

A run is a single uncompressed zip file, which object stores write whole or not at all; elsewhere it gets its name last.
"""

from __future__ import annotations

import io
import secrets
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from metriscope.common.errors import Damage, StoreError, printable
from metriscope.runs.address import DIGITS
from metriscope.runs.integrity import MANIFEST, faults, manifest

__all__ = ["Mirror"]

_SUFFIX = ".zip"
# The same bytes for the same run, whenever it is copied.
_TIME = (1980, 1, 1, 0, 0, 0)
T = TypeVar("T")


@dataclass
class Mirror:
    """A place that holds copies of runs.

    Parameters
    ----------
    url : str
        Where, as fsspec names it: ``s3://bucket/folder``, ``gs://...``, ``file:///shared/folder``. Some need a package
        of their own, such as s3fs.

    Raises
    ------
    StoreError
        If the place cannot be opened.

    Examples
    --------
    >>> mirror = Mirror("memory://runs-of-an-example")
    >>> mirror.push("0" * 40, {"spec.json": b"{}"})
    >>> mirror.addresses == {"0" * 40}
    True
    """

    url: str
    addresses: set[str] = field(init=False)
    _files: Any = field(init=False, repr=False)
    _root: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        def begin() -> set[str]:
            import fsspec

            self._files, self._root = fsspec.url_to_fs(self.url, use_listings_cache=False)
            # Fails here, before anything is computed, if the place cannot be written.
            self._files.makedirs(self._root, exist_ok=True)
            names = [PurePosixPath(path) for path in self._files.find(self._root)]
            return {path.stem for path in names if path.suffix == _SUFFIX and len(path.stem) == DIGITS}

        self.addresses = self._tried("use", begin)

    def push(self, key: str, files: Mapping[str, bytes]) -> None:
        """Copy the files of a run to this place, unless they are there already.

        Raises
        ------
        StoreError
            If they cannot be written.
        """
        if key in self.addresses:
            return
        data = _zipped({**files, MANIFEST: manifest(key, files)})

        def write() -> None:
            draft = f"{self._root}/.{key}-{secrets.token_hex(4)}"
            self._files.makedirs(str(PurePosixPath(self._path(key)).parent), exist_ok=True)
            self._files.pipe_file(draft, data)
            self._files.mv(draft, self._path(key))

        self._tried(f"copy run {key[:12]} to", write)
        self.addresses.add(key)

    def pull(self, key: str) -> dict[str, bytes] | None:
        """Return the files of a run without its manifest; None if it is not in this place, or damaged there.

        Raises
        ------
        StoreError
            If it cannot be read.
        """
        if key not in self.addresses:
            return None
        data = self._tried(f"read run {key[:12]} in", lambda: self._files.cat_file(self._path(key)))
        try:
            return _unzipped(key, data)
        except Damage:
            # It is computed again, and then takes the place of the damaged one.
            self.addresses.discard(key)
            return None

    def _path(self, key: str) -> str:
        return f"{self._root}/{key[:2]}/{key}{_SUFFIX}"

    def _tried(self, task: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:  # each kind of place has errors of its own
            said = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise StoreError(printable(f"cannot {task} the mirror {self.url}: {said}")) from error


def _zipped(files: Mapping[str, bytes]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, _TIME), files[name])
    return held.getvalue()


def _unzipped(key: str, data: bytes) -> dict[str, bytes]:
    """Return the files of an archive; raise ``Damage`` unless every byte is as the manifest lists it."""
    with TemporaryDirectory() as place:
        folder = Path(place) / key
        folder.mkdir()
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                members = archive.infolist()
                # Nothing is compressed, so that no member is larger than the archive.
                if any(one.compress_type != zipfile.ZIP_STORED or "/" in one.filename for one in members):
                    raise Damage("not an archive of a run")
                found = {one.filename: archive.read(one) for one in members}
            for name, content in found.items():
                (folder / name).write_bytes(content)
        except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError, RuntimeError) as error:
            raise Damage("not an archive of a run") from error
        for name, why in faults(folder):
            raise Damage(f"{name}: {why}")
        found.pop(MANIFEST, None)
        return found
