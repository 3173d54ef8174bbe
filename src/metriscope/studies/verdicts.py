"""One standard of evidence: a claim is a list of criteria, a criterion is a test, and verdicts follow from one rule.

Axes: N units of replication (runs, starts, Gaussians, data sets).

A criterion consists of a quantity in a study's tidy tables, the unit of replication, a test, and a region with the
reason for its margin. *Supported*: every criterion lies inside its region, each at level ALPHA, without correction
because all must hold. *Contradicted*: one lies entirely outside, at level ALPHA after Holm's correction over the
claim's criteria. *Depends*: supported at one level of the claim's factor and contradicted at another. Everything else
is *undecided*. Holm's correction is applied once more over the claims of a study. Every sentence is built from the
numbers it states.

Where more runs by the source's own protocol are added over time, a claim may have several looks (:class:`Look`), as in
a group-sequential test: it is decided at the first look whose criteria decide it, each look at its own level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from metriscope.functional import holm
from metriscope.report import Claim, Evidence, Requirement, Strength, Verdict, number
from metriscope.report.numbers import estimate_texts
from metriscope.studies.evidence import TESTS, EvidenceSample, Region
from metriscope.studies.tidy_tables import matching

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALPHA", "Criterion", "Look", "Statement", "TestedCriterion", "Values", "finding", "judge"]

ALPHA = 0.05
# The strength "protocol" needs at least this many independent units run by the source's own protocol.
PROTOCOL_UNITS = 5
# Factors by which all margins are multiplied to see whether a verdict depends on them.
SCALES = {0.5: "halved", 2.0: "doubled"}

Tables = Mapping[str, "pd.DataFrame"]
# The values of a criterion, or the reason why there are none.
_Sampled: TypeAlias = "_Groups | str"


@dataclass(frozen=True)
class Values:
    """One column of a tidy table, in the rows where other columns have the given values."""

    table: str
    column: str
    where: tuple[tuple[str, object], ...] = ()

    @classmethod
    def of(cls, table: str, column: str, **where: object) -> Values:
        """Return the values of a column where the named columns have these values."""
        return cls(table, column, tuple(where.items()))

    def rows(self, tables: Tables) -> pd.DataFrame | None:
        """Return the rows, or None where there are none."""
        table = tables.get(self.table)
        if table is None or not {self.column, *(name for name, _ in self.where)} <= set(table.columns):
            return None
        found = matching(table, **dict(self.where))
        return found if len(found) else None


@dataclass(frozen=True)
class Criterion:
    """One thing that must hold, fixed before the numbers are seen.

    ``values``, minus ``minus`` if given (paired by ``unit`` if ``paired``), are averaged within each ``unit``, a column
    of the table, and tested against ``region``; ``why`` is the reason for the margin. At least ``fewest`` units are
    needed. ``level`` is the level of the claim's factor to which the criterion applies. Rows are left out if their
    column ``length``, the share of the source's epochs that was run, is less than ``length``.
    """

    text: str
    values: Values
    region: Region
    why: str
    unit: str = "seed"
    units: str = "runs"
    test: str = "mean"
    minus: Values | None = None
    paired: bool = False
    fewest: int = 3
    level: str = ""
    length: float = 0.0

    def __post_init__(self) -> None:
        if self.test == "exact" and self.region.kind != "below":
            raise ValueError(f"an exact criterion bounds the largest value from above, got the region {self.region}")


@dataclass(frozen=True)
class TestedCriterion:
    """The test result of one criterion."""

    criterion: Criterion
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    units: int = 0
    p_inside: float = 1.0
    p_outside: float = 1.0
    open_reason: str = ""
    strength: Strength = "not run"
    alpha: float = ALPHA

    @property
    def state(self) -> str:
        """``holds``, ``fails`` or ``open``, at level ``alpha`` without corrections."""
        if self.open_reason:
            return "open"
        return "holds" if self.p_inside <= self.alpha else "fails" if self.p_outside <= self.alpha else "open"

    @property
    def sentence(self) -> str:
        """What was required and what was measured, with its interval and number of units."""
        c = self.criterion
        place = f"{c.level}: " if c.level else ""
        if self.open_reason:
            return f"{place}{c.text} (required {c.region}): {self.open_reason}"
        if self.strength == "exact":
            return f"{place}{c.text} {number(self.estimate)} (required {c.region})"
        estimate, low, high = estimate_texts(self.estimate, self.low, self.high)
        ends = f"({1 - 2 * self.alpha:.0%} interval {low} to {high})"
        return f"{place}{c.text} {estimate} {ends}, {self.units} {c.units} (required {c.region})"

    @property
    def requirement(self) -> Requirement:
        """The result as a page shows it."""
        c = self.criterion
        label = f"{c.level}: {c.text}" if c.level else c.text
        return Requirement(self.sentence, self.state, c.why, label, self.estimate, self.low, self.high, c.region.bounds)


@dataclass(frozen=True)
class Look:
    """A test of a growing sample: of the units numbered 0 to ``units`` - 1, at level ``alpha``.

    It takes place when every criterion of the claim has all of these units, so that later units cannot change it.
    """

    units: int
    alpha: float


@dataclass(frozen=True)
class Statement:
    """A published claim with its criteria.

    ``factor`` is the name of the factor whose levels the criteria refer to. ``looks`` says when runs by the source's
    protocol are tested; without looks, and for other runs, all runs are tested once at level ALPHA. ``notes`` and
    ``evidence`` add sentences and numbers that are not tested; they are functions of the tables.
    """

    id: str
    text: str
    source: str
    criteria: tuple[Criterion, ...]
    factor: str = ""
    notes: Callable[[Tables], str] | None = None
    evidence: Callable[[Tables], Sequence[Evidence]] | None = None
    looks: tuple[Look, ...] = ()

    def __post_init__(self) -> None:
        units = [look.units for look in self.looks]
        if units != sorted(set(units)) or sum(look.alpha for look in self.looks) > ALPHA * (1 + 1e-9):
            raise ValueError(f"looks need rising numbers of units and levels that add up to at most {ALPHA}")


@dataclass(frozen=True, eq=False)
class _Groups:
    """The values of a criterion, in one or two groups indexed by unit, and whether all are by the source's protocol."""

    parts: tuple[pd.Series, ...]
    protocol: bool
    paired: bool

    def reaches(self, look: Look) -> bool:
        """Whether every group has all units of a look."""
        return all(set(range(look.units)) <= set(part.index) for part in self.parts)

    def sample(self, look: Look | None) -> EvidenceSample:
        """Return the sample of all units, or of those of a look."""
        parts = self.parts if look is None else [part[part.index < look.units] for part in self.parts]
        return EvidenceSample.of(parts, self.paired)


def finding(criterion: Criterion, tables: Tables, look: Look | None = None) -> TestedCriterion:
    """Return the test result of a criterion, from all units or from those of a look."""
    return _finding(criterion, tables, _sample(criterion, tables), 1.0, look)


def _finding(criterion: Criterion, tables: Tables, found: _Sampled, scale: float, look: Look | None) -> TestedCriterion:
    """Return the test result of a sample for a criterion whose margin is multiplied by ``scale``."""
    alpha = ALPHA if look is None else look.alpha
    if isinstance(found, str):
        silent = any(v.rows(tables) is None for v in filter(None, (criterion.values, criterion.minus)))
        return TestedCriterion(criterion, open_reason=found, strength="not run" if silent else "hint", alpha=alpha)
    sample, test = found.sample(look), TESTS[criterion.test]
    units, strength = sample.units, _strength_of(criterion, found.protocol, sample.units)
    needed = max(criterion.fewest, test.fewest(criterion.region, alpha))
    if look is not None and not found.reaches(look):
        needed = max(needed, look.units)
    if criterion.test != "exact" and units < needed:
        reason = f"{units} {criterion.units}, {needed} are needed"
        return TestedCriterion(criterion, units=units, open_reason=reason, strength=strength, alpha=alpha)
    estimate, low, high = test.interval(sample, 1 - 2 * alpha)
    if not math.isfinite(estimate):
        return TestedCriterion(
            criterion, units=units, open_reason="the value is undefined", strength=strength, alpha=alpha
        )
    inside, outside = test.p_region(sample, criterion.region.scaled(scale))
    return TestedCriterion(criterion, estimate, low, high, units, inside, outside, strength=strength, alpha=alpha)


def _strength_of(criterion: Criterion, protocol: bool, units: int) -> Strength:
    if criterion.test == "exact":
        return "exact"
    return "protocol" if protocol and units >= PROTOCOL_UNITS else "hint"


def _sample(criterion: Criterion, tables: Tables) -> _Sampled:
    """Return the values of a criterion, or the reason why there are none."""
    groups, protocol = [], True
    for values in filter(None, (criterion.values, criterion.minus)):
        rows = values.rows(tables)
        if rows is None:
            return "not run"
        if "length" in rows and criterion.length:
            most = float(rows["length"].max())
            rows = rows[rows["length"] >= criterion.length]
            if rows.empty:
                return f"run for {most:.2%} of the source's epochs, {criterion.length:.0%} are needed"
        column = rows[values.column].astype(float)
        if column.isna().any():
            return f"{int(column.isna().sum())} of {len(column)} values are undefined"
        protocol &= "protocol" in rows and bool(rows["protocol"].all())
        averaged = criterion.unit in rows and criterion.test != "exact"
        groups.append(column.groupby(rows[criterion.unit]).mean() if averaged else column)
    return _Groups(tuple(groups), protocol, criterion.paired)


@dataclass(frozen=True)
class _Ruling:
    """A verdict before the correction over claims: the findings it rests on and its p-value.

    ``p`` of a look is multiplied by ALPHA over the look's level, so that it is at most ALPHA where the look decides.
    """

    verdict: Verdict
    p: float
    findings: tuple[TestedCriterion, ...]
    supported: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    corrected: bool = False
    look: Look | None = None
    waits: bool = False


def _rule(statement: Statement, tables: Tables, samples: Mapping[Criterion, _Sampled], scale: float) -> _Ruling:
    """Return the ruling of the first look that decides; otherwise of the last look that took place, or of all units.

    For the correction over claims, the p-value is the smallest of all looks with this verdict: the levels of the looks
    add up to ALPHA, so that this is a p-value too.
    """
    groups = [found for c in statement.criteria if not isinstance(found := samples[c], str)]
    if not statement.looks or not all(found.protocol for found in groups):
        return _look(statement, tables, samples, scale)
    whole = len(groups) == len(statement.criteria)
    taken = [look for look in statement.looks if whole and all(found.reaches(look) for found in groups)]
    if not taken:
        first = _look(statement, tables, samples, scale, statement.looks[0])
        return replace(first, verdict="undecided", p=1.0, supported=(), contradicted=(), waits=True)
    rulings = [_look(statement, tables, samples, scale, look) for look in taken]
    first = next((ruling for ruling in rulings if ruling.verdict != "undecided"), rulings[-1])
    return replace(first, p=min(ruling.p for ruling in rulings if ruling.verdict == first.verdict))


def _look(
    statement: Statement,
    tables: Tables,
    samples: Mapping[Criterion, _Sampled],
    scale: float,
    look: Look | None = None,
) -> _Ruling:
    """Return the ruling of the criteria on all units, or on those of a look."""
    findings = tuple(_finding(c, tables, samples[c], scale, look) for c in statement.criteria)
    ruling = _ruled(statement, findings, ALPHA if look is None else look.alpha)
    return ruling if look is None else replace(ruling, p=min(1.0, ruling.p * ALPHA / look.alpha), look=look)


def _ruled(statement: Statement, findings: tuple[TestedCriterion, ...], alpha: float) -> _Ruling:
    outside = holm([f.p_outside for f in findings])
    levels = dict.fromkeys(f.criterion.level for f in findings)
    inside = {k: max(f.p_inside for f in findings if f.criterion.level == k) for k in levels}
    corrected = list(zip(findings, map(float, outside), strict=True))
    against = {k: min(p for f, p in corrected if f.criterion.level == k) for k in levels}
    bad = tuple(k for k, p in against.items() if p <= alpha)
    if max(inside.values()) <= alpha:
        return _Ruling("supported", max(inside.values()), findings, tuple(levels))
    # "Some level holds" selects the best of several levels, so it is corrected; "all levels hold" selects nothing.
    some = dict(zip(inside, map(float, holm(inside.values())), strict=True))
    good = tuple(k for k, p in some.items() if p <= alpha)
    if good and bad and statement.factor:
        p = max(min(some[k] for k in good), min(against[k] for k in bad))
        return _Ruling("depends", p, findings, good, bad)
    if bad:
        return _Ruling("contradicted", min(against[k] for k in bad), findings, (), bad)
    return _Ruling("undecided", 1.0, findings, good, bad)


def _corrected(rulings: Sequence[_Ruling]) -> list[_Ruling]:
    """Apply Holm's correction over the claims of a study; exact claims have no random sample and are left out.

    Undecided claims are counted as well. Otherwise, having less data on one claim could decide another claim.
    """
    random = [i for i, r in enumerate(rulings) if any(f.criterion.test != "exact" for f in r.findings)]
    adjusted = holm([rulings[i].p for i in random])
    found = list(rulings)
    for i, p in zip(random, adjusted, strict=True):
        if p > ALPHA and found[i].verdict != "undecided":
            found[i] = replace(found[i], verdict="undecided", corrected=True)
    return found


def _strength(ruling: _Ruling) -> Strength:
    """Return the strength of the weakest finding."""
    found = {f.strength for f in ruling.findings}
    weakest_first: tuple[Strength, ...] = ("hint", "protocol", "exact")
    return next((strength for strength in weakest_first if strength in found), "not run")


def _reason(statement: Statement, ruling: _Ruling, tables: Tables, flips: Mapping[str, Verdict]) -> str:
    parts = []
    for state in ("holds", "fails", "open"):
        texts = [f.sentence for f in ruling.findings if f.state == state]
        parts += [f"{state.capitalize()}: {'; '.join(texts)}."] if texts else []
    if ruling.verdict == "depends":
        good, bad = ", ".join(ruling.supported), ", ".join(ruling.contradicted)
        parts.insert(0, f"Depends on the {statement.factor}: supported for {good}, contradicted for {bad}.")
    parts += _look_sentence(statement, ruling)
    if ruling.corrected:
        parts.append("Undecided after Holm's correction over the claims of this study.")
    elif ruling.verdict == "undecided" and not ruling.waits and any(f.state == "fails" for f in ruling.findings):
        parts.append("What fails does so only before Holm's correction over the criteria of this claim.")
    parts += [f"With margins {word} the verdict is {verdict}." for word, verdict in flips.items()]
    if statement.notes and _strength(ruling) != "not run":
        parts.append(statement.notes(tables))
    return " ".join(part for part in parts if part)


def _look_sentence(statement: Statement, ruling: _Ruling) -> list[str]:
    """Return a sentence that says at which look a claim was decided, or which look is next."""
    if ruling.look is None or not any(f.units for f in ruling.findings):
        return []
    i, units = statement.looks.index(ruling.look), statement.criteria[0].units
    text = (
        f"look {i + 1} of {len(statement.looks)} (the first {ruling.look.units} {units}, level {ruling.look.alpha:g})"
    )
    if ruling.verdict != "undecided" or ruling.corrected:
        return [f"Decided at {text}."]
    if ruling.waits:
        return [f"Waits for {text}."]
    more = statement.looks[i + 1 : i + 2]
    return [f"Not decided at {text}{f'; the next look is at {more[0].units} {units}' if more else ''}."]


def _origin(statement: Statement, tables: Tables) -> str:
    """Return "record" if any value of the criteria was measured elsewhere and recorded, otherwise "run"."""
    asked = [values for c in statement.criteria for values in (c.values, c.minus) if values is not None]
    found = [rows for values in asked if (rows := values.rows(tables)) is not None and "origin" in rows]
    return "record" if any((rows["origin"] == "record").any() for rows in found) else "run"


def judge(statements: Sequence[Statement], tables: Tables) -> tuple[Claim, ...]:
    """Return the claims of a study with verdict, strength, reason, criteria and evidence.

    The verdict is reached once more with all margins halved and doubled; where it differs, the reason says so.
    """
    samples = {c: _sample(c, tables) for s in statements for c in s.criteria}
    rulings = _corrected([_rule(s, tables, samples, 1.0) for s in statements])
    others = {word: _corrected([_rule(s, tables, samples, k) for s in statements]) for k, word in SCALES.items()}
    found = []
    for i, (statement, ruling) in enumerate(zip(statements, rulings, strict=True)):
        flips = {word: some[i].verdict for word, some in others.items() if some[i].verdict != ruling.verdict}
        strength = _strength(ruling)
        shown = tuple(f.requirement for f in ruling.findings)
        evidence = tuple(statement.evidence(tables)) if statement.evidence and strength != "not run" else ()
        fields = (ruling.verdict, _reason(statement, ruling, tables, flips), evidence, strength, shown)
        origin = _origin(statement, tables)
        found.append(Claim(statement.id, statement.text, statement.source, *fields, origin=origin))
    return tuple(found)
