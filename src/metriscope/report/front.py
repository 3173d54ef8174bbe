"""The first page of a report: what was found, every claim as one cell, and one card per claim.

Everything else is in the appendix, a page with every table and figure. A claim is shown as a cell whose shape is its
verdict and whose fill is its strength, and as a card with its deciding criterion drawn as an interval beside the
region in which it had to lie.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from metriscope.report import theory
from metriscope.report.document import STRENGTHS, Claim, Companion, Evidence, Figure, Panel, Requirement, Section, slug
from metriscope.report.html import allowed, environment, inline, rows, verdict_counts, visible
from metriscope.report.tables import cell

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

__all__ = ["APPENDIX", "Front", "FrontStudy", "ShownProblem", "Strip", "deciding", "findings", "render_front", "strip"]

APPENDIX = "appendix.html"
# The states of a criterion that decide a verdict, the most telling first.
_TELLING: Mapping[str, tuple[str, ...]] = {
    "supported": ("holds", "open", "fails"),
    "contradicted": ("fails", "open", "holds"),
    "depends": ("fails", "holds", "open"),
    "undecided": ("open", "fails", "holds"),
}
# Surprising findings are shown before those that confirm a claim.
_SURPRISE = ("contradicted", "depends", "supported")
_SOURCES = {
    "Oursland 2024a": "https://arxiv.org/abs/2410.19352",
    "Oursland 2024b": "https://arxiv.org/abs/2411.17932",
    "Oursland 2025": "https://arxiv.org/abs/2502.02103",
}
WIDTH = 180.0  # of a strip, in pixels
_MARGIN = 0.08  # of a strip's width, left free on both sides


@dataclass(frozen=True)
class ShownProblem:
    """A problem in a source: what the source says, and what was found."""

    title: str
    source: str
    says: str
    found: str


@dataclass(frozen=True)
class FrontStudy:
    """One study on the first page: its question, small figures, panels, its claims, and where the rest is."""

    name: str
    title: str
    question: str
    figures: tuple[Figure, ...]
    claims: tuple[Claim, ...]
    command: str
    contents: tuple[Section, ...] = ()
    companions: tuple[Companion, ...] = ()
    panels: tuple[Panel, ...] = ()


@dataclass(frozen=True)
class Front:
    """The first page; ``trust`` says in a line what was run, ``ledger`` holds every claim, also of other studies."""

    title: str
    trust: str
    studies: tuple[FrontStudy, ...]
    problems: tuple[ShownProblem, ...] = ()
    provenance: Mapping[str, object] = field(default_factory=dict)
    ledger: tuple[Claim, ...] = ()

    @property
    def groups(self) -> dict[str, list[Claim]]:
        """Every claim of the ledger by study, those of the studies that were run first."""
        found: dict[str, list[Claim]] = {study.name: [] for study in self.studies}
        for claim in self.ledger:
            found.setdefault(claim.study, []).append(claim)
        return found


@dataclass(frozen=True)
class Strip:
    """An interval beside a required region, in pixels from the left of a strip of width ``WIDTH``."""

    region: tuple[float, float]
    interval: tuple[float, float]
    estimate: float
    edges: tuple[float, ...]


def strip(requirement: Requirement) -> Strip | None:
    """Return where a requirement's interval and region are drawn; None if nothing was measured.

    >>> strip(Requirement("a", "holds", estimate=2.0, low=1.0, high=3.0, region=(0.0, math.inf))).edges
    (14.4,)
    """
    numbers = (requirement.estimate, requirement.low, requirement.high)
    if not all(map(math.isfinite, numbers)):
        return None
    edges = tuple(edge for edge in requirement.region if math.isfinite(edge))
    low, high = min(*numbers, *edges), max(*numbers, *edges)
    span = (high - low) or 1.0

    def at(value: float) -> float:
        if not math.isfinite(value):
            return 0.0 if value < 0 else WIDTH
        return round(WIDTH * (_MARGIN + (value - low) / span * (1 - 2 * _MARGIN)), 1)

    start, end = map(at, requirement.region)
    return Strip(
        (start, end), (at(requirement.low), at(requirement.high)), at(requirement.estimate), (*map(at, edges),)
    )


@dataclass(frozen=True)
class Beside:
    """Our value with its interval beside published values, in pixels from the left of a strip of width ``WIDTH``."""

    ours: tuple[float, float, float]
    published: tuple[tuple[float, float, float], ...]


_PLAIN = r"(−?\d[\d,]*(?:\.\d+)?)"
_OURS = re.compile(rf"{_PLAIN}(?: \[{_PLAIN}, {_PLAIN}\])?")
_PUBLISHED = re.compile(rf"{_PLAIN}(?: ± {_PLAIN})?")


def beside(evidence: Evidence) -> Beside | None:
    """Return where our value and the published ones are drawn; None unless all are plain numbers.

    >>> beside(Evidence("accuracy", "2.0 [1.0, 3.0]", "4 ± 1")).ours
    (52.2, 14.4, 90.0)
    """
    ours = _OURS.fullmatch(cell(evidence.ours))
    theirs = [_PUBLISHED.fullmatch(part) for part in cell(evidence.published, "as printed").split(", ")]
    if ours is None or None in theirs:
        return None
    value, low, high = (float(text.replace("−", "-").replace(",", "")) if text else math.nan for text in ours.groups())
    own = (value, value, value) if math.isnan(low) else (value, low, high)
    printed = []
    for found in filter(None, theirs):
        mean, sd = (float((text or "0").replace("−", "-").replace(",", "")) for text in found.groups())
        printed.append((mean, mean - sd, mean + sd))
    every = [*own, *(end for one in printed for end in one)]
    low, high = min(every), max(every)
    if low == high:
        return None

    def at(one: tuple[float, float, float]) -> tuple[float, float, float]:
        first, second, third = (_MARGIN + (v - low) / (high - low) * (1 - 2 * _MARGIN) for v in one)
        return round(WIDTH * first, 1), round(WIDTH * second, 1), round(WIDTH * third, 1)

    return Beside(at(own), tuple(map(at, printed)))


def deciding(claim: Claim) -> Requirement | None:
    """Return the criterion that best explains a verdict: for a contradicted claim the first that fails."""
    order = _TELLING[claim.verdict]
    measured = [each for each in claim.requirements if strip(each)] or list(claim.requirements)
    return min(measured, key=lambda each: order.index(each.state), default=None)


def findings(claims: Iterable[Claim], most: int = 5) -> tuple[Claim, ...]:
    """Return the claims to show first: decided ones, one per study, the strongest and most surprising first.

    Identities come last, since they were known to hold.
    """
    decided = [claim for claim in claims if claim.verdict in _SURPRISE]

    def rank(claim: Claim) -> tuple[bool, int, int]:
        return claim.strength == "exact", STRENGTHS.index(claim.strength), _SURPRISE.index(claim.verdict)

    first: dict[str, Claim] = {}
    for claim in sorted(decided, key=rank):
        first.setdefault(claim.study, claim)
    return tuple(first.values())[:most]


def source_link(source: str) -> str:
    """Return the address of a source, or nothing for one without.

    >>> source_link("Oursland 2025, section 6.2"), source_link("our own question")
    ('https://arxiv.org/abs/2502.02103', '')
    """
    return next((address for name, address in _SOURCES.items() if name in source), "")


GLOSSARY: Mapping[str, str] = {
    "Mahalanobis distance": "A point's distance from the mean of a Gaussian, in standard deviations along each axis.",
    "lose directions": "A network that loses a direction gives the same answer however far a point moves along it.",
    "linear regions": "The pieces of the input space on each of which a ReLU network is one affine map.",
    "calibration": "Whether answers given with 80 % confidence are right in 80 % of cases.",
    "prototypes": "Points to which distances are measured, one or more per class.",
    "principal axes": "The directions along which data vary most, one orthogonal to the other.",
    "LSUV": "A start that scales each layer until its outputs have unit variance on the data.",
    "zero set": "The inputs at which a unit's pre-activation is 0: for a distance, the place it measures from.",
    "outputs forced to be positive or negative": "A second activation after the last layer, with or without a minus.",
    "put them on different sides": "A unit has two points on different sides if its pre-activations differ in sign.",
}


def explained(text: str) -> Markup:
    """Return a text with its first terms of the glossary as buttons that explain them.

    >>> str(explained("a zero set")).startswith('a <button type="button" class="term" popovertarget="term-zero-set">')
    True
    """
    from markupsafe import Markup, escape

    html = str(inline(text))
    for term in GLOSSARY:
        button = Markup('<button type="button" class="term" popovertarget="term-{}">{}</button>').format(
            slug(term), term
        )
        html = html.replace(str(escape(term)), str(button), 1)
    return Markup(html)


def focused(drawing: Markup) -> Markup:
    """Return a figure reduced to its main panels, which are readable at a small size; the page can show the rest."""
    from markupsafe import Markup

    def narrowed(found: re.Match[str]) -> str:
        *_, width, height = map(float, found[3].split())
        return (
            f'viewBox="{found[3]}" data-whole="{found[1]}"{found[2]}{found[4]} style="--ratio: {width / height:.3f}; '
        )

    return Markup(_FOCUS.sub(narrowed, str(drawing), count=1))


_FOCUS = re.compile(r'viewBox="([^"]+)"([^>]*?) data-focus="([^"]+)"([^>]*?) style="')


def told(requirements: Sequence[Requirement]) -> str:
    """Return how many criteria hold, fail and are open.

    >>> told([Requirement("a", "holds"), Requirement("b", "open")])
    '1 of 2 criteria holds, 1 is open.'
    """
    counts = {state: sum(each.state == state for each in requirements) for state in ("holds", "fails", "open")}
    words: list[str] = []
    total = len(requirements)
    verbs = {"holds": ("holds", "hold"), "fails": ("fails", "fail"), "open": ("is open", "are open")}
    for state, count in counts.items():
        if count:
            noun = "" if words else f" of {total} {'criterion' if total == 1 else 'criteria'}"
            words.append(f"{count}{noun} {verbs[state][count > 1]}")
    return f"{', '.join(words)}." if words else ""


def render_front(front: Front, tables: str = "tables") -> str:
    """Return the first page as an HTML document; the same page gives the same bytes."""
    from markupsafe import Markup

    known: dict[str, object] = {
        "front": front,
        "tables": tables,
        "counts": verdict_counts(front.ledger),
        "appendix": APPENDIX,
    }
    known |= {"told_first": findings(front.ledger), "provenance": list(rows(front.provenance))}
    # The first figure of the first study opens the page.
    known["glossary"] = GLOSSARY
    known["lead"] = next((each for study in front.studies for each in study.figures), None)
    known["shown"] = {claim.id for study in front.studies for claim in study.claims}
    tried = any(study.panels for study in front.studies)
    known |= allowed([_text("front.js"), theory.script()] if tried else [_text("front.js")])
    known["theory_css"] = Markup(theory.style()) if tried else ""
    return visible(_template().render(**known).lstrip())


@cache
def _template() -> Template:
    from markupsafe import Markup

    made = environment()
    made.filters |= {f.__name__: f for f in (beside, deciding, explained, focused, slug, source_link, strip, told)}
    made.globals |= {"width": WIDTH, "front_css": Markup(_text("front.css"))}
    return made.get_template("front.html.j2")


def _text(name: str) -> str:
    return (files("metriscope.report") / name).read_text("utf-8")
