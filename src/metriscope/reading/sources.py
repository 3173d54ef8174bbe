"""Where networks, points and labels came from, as a page states it: what the user named, and the SHA-256 of files."""

from __future__ import annotations

from pathlib import Path

from metriscope.common.files import sha256
from metriscope.reading.networks import network_name

__all__ = ["UNCHANGED", "digest", "network_sources", "source"]

_DIGITS = 12
UNCHANGED = "as the factory returned them"


def digest(path: Path) -> str:
    """Return the first digits of the SHA-256 of a file, or of the names and SHA-256 of all files of a folder.

    Every file of the folder is read. Anything else, such as a pipe, has no digest.
    """
    if path.is_file():
        return sha256(path)[:_DIGITS]
    if not path.is_dir():
        return "none"
    files = sorted(one for one in path.rglob("*") if one.is_file())
    lines = [f"{one.relative_to(path).as_posix()} {sha256(one)}\n" for one in files]
    return sha256("".join(lines).encode("utf-8", "surrogateescape"))[:_DIGITS]


def source(path: Path | None, missing: str = "none") -> str:
    """Return a file or folder as the user named it, with its SHA-256; ``missing`` if none was named."""
    if path is None:
        return missing
    return f"{path} (SHA-256 of its {'files' if path.is_dir() else 'content'}: {digest(path)})"


def network_sources(named: str, weights: Path | None = None) -> dict[str, str]:
    """Return the factory and weights, or the saved patterns, of a network that is named as on the command line.

    >>> network_sources("metriscope.demo:network")
    {'factory': 'metriscope.demo:network', 'weights': 'as the factory returned them'}
    """
    if Path(named).is_dir():
        return {"saved patterns": source(Path(named))}
    name = network_name(named)
    written = Path(name.place)
    code = f" (SHA-256 of {written.name}: {digest(written)})" if written.is_file() else ""
    return {"factory": f"{name.target}{code}", "weights": source(weights or name.weights, UNCHANGED)}
