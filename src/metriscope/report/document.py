"""A page described as data: prose, tables, figures, and claims with their verdicts.

Text fields understand ``**bold**`` and `` `code` ``; everything else is shown as typed.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "STRENGTHS",
    "VERDICTS",
    "Block",
    "Claim",
    "Companion",
    "Details",
    "Evidence",
    "Figure",
    "FormatSpec",
    "Ledger",
    "Page",
    "Panel",
    "Prose",
    "Requirement",
    "Section",
    "Strength",
    "Table",
    "Verdict",
    "walk",
]

Verdict = Literal["supported", "contradicted", "depends", "undecided"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Strength = Literal["exact", "protocol", "hint", "not run"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)

FormatSpec: TypeAlias = "str | int"
"""How a column is written: significant digits, "seconds", "p", "as printed", or a Python format such as ".2f"."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SVG_ID = re.compile(r'\sid="([^"]*)"')


def slug(title: str) -> str:
    """Return ``title`` as the anchor of a link.

    >>> slug("Distance, or intensity?")
    'distance-or-intensity'
    """
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _check_name(kind: str, name: str) -> None:
    # Names become file names and ids, so they must not need quoting anywhere.
    if not _NAME.fullmatch(name):
        raise ValueError(f"a {kind} name has letters, digits, '.', '_' and '-' only, got {name!r}")


def _check_unique(kind: str, names: Iterable[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise ValueError(f"every {kind} on a page needs its own name, got {repeated[0]!r} more than once")


@dataclass(frozen=True)
class Prose:
    """Paragraphs, separated by blank lines."""

    text: str


@dataclass(frozen=True, eq=False)
class Table:
    """A named data frame with a title; ``frame``'s columns are shown and stored, its index is not.

    ``groups`` maps a heading to the adjacent columns it spans; ``labels`` gives a column another
    heading than its name. Columns whose name, label or heading holds the word "ours" or "published"
    are set apart, and published numbers are shown as printed unless a format says otherwise.
    ``terminal``: whether the command prints the table too.
    """

    name: str
    title: str
    frame: pd.DataFrame
    note: str = ""
    formats: Mapping[str, FormatSpec] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    terminal: bool = False

    def __post_init__(self) -> None:
        _check_name("table", self.name)
        columns = list(self.frame.columns)
        if not all(isinstance(column, str) for column in columns) or len(set(columns)) < len(columns):
            raise ValueError(f"table {self.name!r} needs columns with distinct string names, got {columns}")
        if any(level is not None for level in self.frame.index.names):
            raise ValueError(f"table {self.name!r} has a named index, which is not shown: call reset_index() first")
        grouped = [column for members in self.groups.values() for column in members]
        for column in (*self.formats, *self.labels, *grouped):
            if column not in columns:
                raise ValueError(f"table {self.name!r} has no column {column!r}, its columns are {columns}")
        for heading, members in self.groups.items():
            _check_adjacent(self.name, heading, [columns.index(member) for member in members])


def _check_adjacent(name: str, heading: str, places: list[int]) -> None:
    if not places or places != list(range(places[0], places[0] + len(places))):
        raise ValueError(f"heading {heading!r} of table {name!r} must span adjacent columns in order, got {places}")


@dataclass(frozen=True)
class Figure:
    """A drawing as inline SVG, whose ids begin with the figure's name (see ``to_svg``)."""

    name: str
    title: str
    svg: str
    caption: str = ""

    def __post_init__(self) -> None:
        _check_name("figure", self.name)
        if not self.svg.startswith("<svg"):
            raise ValueError(f"figure {self.name!r} needs text that begins with '<svg', got {self.svg[:20]!r}")
        foreign = [i for i in _SVG_ID.findall(self.svg) if not i.startswith(f"{self.name}-")]
        if foreign:
            raise ValueError(f"figure {self.name!r} needs ids that begin with '{self.name}-', got {foreign[0]!r}")


@dataclass(frozen=True)
class Panel:
    """HTML of our own making under a title, with everything that a user typed escaped already.

    ``data`` is handed to the page's script as JSON, in an element whose id is the panel's name and ``-data``.
    """

    name: str
    title: str
    html: str
    caption: str = ""
    data: Mapping[str, object] | None = None

    def __post_init__(self) -> None:
        _check_name("panel", self.name)


@dataclass(frozen=True)
class Evidence:
    """One measured value next to the published one; ``published`` is None where the source prints none."""

    label: str
    ours: str | float | None
    published: str | float | None = None
    source: str = ""


@dataclass(frozen=True)
class Requirement:
    """One requirement of a claim: what was measured, whether it holds, fails or is open, and why this margin.

    ``label`` names the quantity, ``region`` is where it must lie; its estimate and interval are NaN if not measured.
    """

    text: str
    state: str
    why: str = ""
    label: str = ""
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    region: tuple[float, float] = (-math.inf, math.inf)


@dataclass(frozen=True)
class Claim:
    """A published statement, the verdict on it and its strength, the reason, and the numbers behind it.

    ``study`` is the study that judges it and ``origin`` where its numbers come from: this run, or a stored record.
    """

    id: str
    text: str
    source: str
    verdict: Verdict
    reason: str
    evidence: tuple[Evidence, ...] = ()
    strength: Strength = "hint"
    requirements: tuple[Requirement, ...] = ()
    study: str = ""
    origin: str = "run"

    def __post_init__(self) -> None:
        _check_name("claim", self.id)
        if self.verdict not in VERDICTS:
            raise ValueError(f"the verdict on {self.id} is one of {', '.join(VERDICTS)}, got {self.verdict!r}")
        if self.strength not in STRENGTHS:
            raise ValueError(f"the strength of {self.id} is one of {', '.join(STRENGTHS)}, got {self.strength!r}")
        if self.strength == "not run" and self.verdict != "undecided":
            raise ValueError(f"{self.id} was not run, so its verdict is undecided, got {self.verdict!r}")


@dataclass(frozen=True)
class Ledger:
    """The claims of a section, in order."""

    claims: tuple[Claim, ...]


@dataclass(frozen=True)
class Details:
    """Blocks that are hidden until the reader opens them; ``summary`` is the line that is always shown."""

    summary: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Companion:
    """A separate page, written next to the report as the file ``name`` and linked from it with a sentence."""

    name: str
    title: str
    text: str
    html: str

    def __post_init__(self) -> None:
        _check_name("companion", self.name)
        if not self.name.endswith(".html") or self.name == "report.html":
            raise ValueError(f"a companion needs a file name such as page.html, not report.html, got {self.name!r}")


Block: TypeAlias = "Prose | Table | Figure | Panel | Ledger | Details | Companion"


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; ``anchor`` is its address on the page, made from the title unless given."""

    title: str
    blocks: tuple[Block, ...]
    anchor: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "anchor", self.anchor or slug(self.title))
        _check_name("section", self.anchor)


@dataclass(frozen=True)
class Page:
    """A whole report; ``provenance`` says what was run, by what, and may hold one level of groups.

    ``ledger`` holds all claims that the front page counts, including those that no section judges. ``script`` and
    ``style`` are our own and added to the page as they are; without a script, the page allows none.
    """

    title: str
    subtitle: str
    sections: tuple[Section, ...]
    provenance: Mapping[str, object] = field(default_factory=dict)
    ledger: tuple[Claim, ...] = ()
    script: str = ""
    style: str = ""

    def __post_init__(self) -> None:
        _check_unique("section", (section.anchor for section in self.sections))
        _check_unique("table", (table.name for table in self.tables))
        _check_unique("figure", (block.name for block in self.blocks if isinstance(block, Figure | Panel)))
        _check_unique("companion", (companion.name for companion in self.companions))
        _check_unique("claim", (claim.id for claim in self.claims))

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Every block of every section, including those inside Details."""
        return tuple(block for section in self.sections for block in walk(section.blocks))

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table on the page, in reading order."""
        return tuple(block for block in self.blocks if isinstance(block, Table))

    @property
    def companions(self) -> tuple[Companion, ...]:
        """Every page that is written next to this one."""
        return tuple(block for block in self.blocks if isinstance(block, Companion))

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Every claim on the page, in reading order."""
        return tuple(claim for block in self.blocks if isinstance(block, Ledger) for claim in block.claims)


def walk(blocks: Iterable[Block]) -> Iterator[Block]:
    """Yield every block in reading order, a Details before its contents."""
    for block in blocks:
        yield block
        if isinstance(block, Details):
            yield from walk(block.blocks)
