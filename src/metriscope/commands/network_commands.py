"""Commands that read a user's networks: ``inspect``, ``compare``, and ``demo``, which trains a network first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import OmitArgPrefixes, Positional, arg

from metriscope.commands.output import announce, asked, deliver, note, show, tell

if TYPE_CHECKING:
    from metriscope.reading.inspection import Subject
    from metriscope.report.document import Companion, Page, Prose

__all__ = ["HowRead", "compare", "demo", "inspect"]


@dataclass(frozen=True)
class HowRead:
    """How networks are read."""

    layers: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """Names or glob patterns of the layers to capture: of activations, or of the layers that feed them."""
    conv: Literal["positions", "channels"] = "positions"
    """Treat each position of a convolution as a unit, or pool positions into one sign per channel."""
    tokens: Annotated[
        Literal["positions", "any", "first", "last", "mean"] | None,
        arg(help_behavior_hint="(default: mean where the data has an attention_mask, else positions)"),
    ] = None
    """Treat each token of a sequence as separate units, or pool tokens into one sign per feature, without padding."""
    device: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: the network's own)")] = None
    """Where to run, such as cpu, cuda or cuda:1."""
    batch_size: int = 256
    """Points to run at once."""
    image_size: Annotated[int | None, arg(metavar="SIDE", help_behavior_hint="(default: as they are)")] = None
    """Resize the pictures of a folder to squares with sides of this many pixels."""


def inspect(
    network: Annotated[Positional[str], arg(metavar="FACTORY")],
    /,
    *,
    data: Path,
    weights: Path | None = None,
    labels: Path | None = None,
    how: Annotated[HowRead, OmitArgPrefixes] = HowRead(),  # noqa: B008  frozen
    explore: bool = False,
    read_seconds: float = 30.0,
    out: Path = Path("out"),
) -> int:
    """Write one self-contained page about a network: findings first, then its points, layers and units.

    Args:
        network: package.module:factory or path/to/file.py:factory, called without arguments.
        data: Points: a .npy file; an .npz file of named arrays, such as input_ids and attention_mask, optionally with
            labels and texts; or a folder of pictures with pixels from 0 to 1, whose subfolders are the labels.
        weights: The network's state_dict: a .safetensors file, or a .pt file that holds only tensors.
        labels: One label per point, a .npy file.
        how: How the network is read.
        explore: Also write explore.html: distances on the plane through three of the points. Only for networks that are
            piecewise affine (ReLU, not GELU or SiLU) and data that is one array of floats.
        read_seconds: Seconds for measuring layers as distances, the cheapest first; the first one is always read. 0 for
            no limit.
        out: Folder for inspect.html and tables/inspect/.
    """
    from metriscope.reading.inspection import Subject, inspected
    from metriscope.reading.networks import read_network, short_name
    from metriscope.report.export import write_report
    from metriscope.report.network_pages import inspection_page

    if not read_seconds >= 0:
        raise ValueError(f"--read-seconds must be 0 or more, got {read_seconds:g}")
    points, known = _points_and_labels(data, labels, how)
    reading = _reading(how, points)
    patterns, model = read_network(network, points, weights, reading)
    origin = {**_network_origin(network, weights), **_data_origin(data, labels, known)}
    subject = Subject(short_name(network), patterns, known, model, points, how.batch_size, reading.tokens)
    beside = _explorer(subject) if explore else None
    found = inspected(subject, tell, read_seconds)
    if found.late:
        names = ", ".join(subject.names[at].plain for at in found.late)
        note(f"not read as distances within {read_seconds:g} seconds: {names}; --read-seconds 0 sets no limit")
    tell("drawing the page")
    page = inspection_page(found, _provenance(origin), beside)
    return _written(page, write_report(page, out, "inspect.html"))


def _explorer(subject: Subject) -> Companion | Prose:
    """Return the explorer of a network; if it cannot be drawn, say why here and on the page."""
    from metriscope.report.document import Prose
    from metriscope.report.explorer.own_plane import explorer_of

    try:
        return explorer_of(subject, tell)
    except (ValueError, RuntimeError) as error:
        why = f"explore.html was left out: {' '.join(str(error).split())}"
        note(why, always=True)
        return Prose(f"{why}.")


def _network_origin(named: str, weights: Path | None = None) -> dict[str, str]:
    """Return where a network came from; say so if it has no weights but those of its factory."""
    from metriscope.reading.sources import UNCHANGED, network_sources

    found = network_sources(named, weights)
    if found.get("weights") == UNCHANGED:
        note(f"no weights were given for {named}; those that the factory set are used")
    return found


def _data_origin(data: Path | None, labels: Path | None, known: Any) -> dict[str, str]:
    """Return where points and labels came from."""
    from metriscope.reading.sources import source

    inside = "none" if known is None else "in the data file"
    return {"data": source(data), "labels": source(labels, inside)}


def _provenance(origin: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance of a page: the command and what it named, then versions and machine."""
    from metriscope.runs.provenance import provenance

    return {"command": asked().command, **origin, **provenance()}


def _points_and_labels(data: Path, labels: Path | None, how: HowRead) -> tuple[Any, Any]:
    """Return the user's points and their labels, from the file of labels or from that of the points."""
    from metriscope.reading.points import checked_labels, load_labels, load_points

    points = load_points(data, how.image_size)
    known = load_labels(labels, len(points))
    if known is None and points.labels is not None:
        known = checked_labels(points.labels, len(points), f"labels of {data}")
    return points, known


def _reading(how: HowRead, points: Any) -> Any:
    """Return how to read a network; if the data can be padded, tokens are pooled unless the user says otherwise."""
    from metriscope.reading.networks import Reading

    padded = points is not None and isinstance(points.inputs, dict) and "attention_mask" in points.inputs
    pooled = how.tokens or ("mean" if padded else "positions")
    return Reading(how.layers, how.conv, None if pooled == "positions" else pooled, how.device, how.batch_size)


def compare(
    first: Annotated[Positional[str], arg(metavar="A")],
    second: Annotated[Positional[str], arg(metavar="B")],
    /,
    *,
    data: Path | None = None,
    labels: Path | None = None,
    how: Annotated[HowRead, OmitArgPrefixes] = HowRead(),  # noqa: B008  frozen
    out: Path = Path("out"),
) -> int:
    """Compare the geometry of two networks on the same points, as one self-contained page.

    Args:
        first: FACTORY, FACTORY@weights.safetensors, or a folder of saved patterns.
        second: The same for the other network.
        data: Points: a .npy file, an .npz file of named arrays, or a folder of pictures, as for inspect.
        labels: One label per point, a .npy file.
        how: How the networks are read.
        out: Folder for compare.html and tables/compare/.
    """
    from metriscope.reading.networks import check_comparable, read_network, short_name
    from metriscope.reading.points import load_labels
    from metriscope.report.export import write_report
    from metriscope.report.network_comparison import compare_page
    from metriscope.report.network_pages import Subject

    points, known = (None, None) if data is None else _points_and_labels(data, labels, how)
    (one, model), (two, other) = (read_network(named, points, None, _reading(how, points)) for named in (first, second))
    check_comparable(first, one, second, two)
    known = load_labels(labels, len(one)) if points is None else known
    rows = (("A", first, one, model), ("B", second, two, other))
    subjects = [Subject(f"{k}: {short_name(n)}", p, known, m, points, how.batch_size) for k, n, p, m in rows]
    origin = {"A": _network_origin(first), "B": _network_origin(second), **_data_origin(data, labels, known)}
    page = compare_page(subjects[0], subjects[1], _provenance(origin), tell)
    return _written(page, write_report(page, out, "compare.html"))


def _written(page: Page, path: Path) -> int:
    """Print where a page and those beside it were written, or as JSON also its findings and tables."""
    from metriscope.report.document import Panel, walk
    from metriscope.report.export import tables_folder

    blocks = [block for section in page.sections for block in walk(section.blocks)]
    told = [block.data for block in blocks if isinstance(block, Panel) and block.name == "findings" and block.data]
    tables = {table.name: path.parent / tables_folder(path.name) / f"{table.name}.csv" for table in page.tables}
    beside = {Path(each.name).stem: path.parent / each.name for each in page.companions}
    lines = [f"{name}: {each}" for name, each in {"report": path, **beside}.items()]
    deliver("\n".join(lines), {"report": path, **beside, **(told[0] if told else {}), "tables": tables})
    show(path)
    return 0


def demo(*, out: Path = Path("out")) -> int:
    """Train a small CNN on embedded digits, in seconds, and write the page that inspect would write about it.

    Args:
        out: Folder for inspect.html and demo/.
    """
    from metriscope.demo import write_demo

    path = write_demo(out, announce)
    files = f"--weights {out}/demo/weights.safetensors --data {out}/demo/x.npy --labels {out}/demo/y.npy"
    command = f"metriscope inspect metriscope.demo:network {files}"
    deliver(f"report: {path}\nthe same page by hand: {command}", {"report": path, "command": command})
    show(path)
    return 0
