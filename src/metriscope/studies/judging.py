"""One standard of evidence: a claim is a list of criteria, a criterion is a test, and verdicts follow from one rule.

Axes: N units of replication (runs, starts, Gaussians, data sets).

A criterion names a quantity in a study's tidy tables, the unit of replication, a test, and a region with the reason
for its margin. *Supported*: every criterion lies inside its region, each at level ALPHA; no correction, since all
must hold. *Contradicted*: one lies wholly outside, at level ALPHA after Holm's correction over the claim's criteria.
*Depends*: supported at one level of the claim's factor and contradicted at another. Everything else is *undecided*.
Across the claims of a study Holm's correction is applied once more. Every sentence is built from the numbers it states.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from metriscope.functional import holm
from metriscope.report import Claim, Evidence, Requirement, Strength, Verdict, number
from metriscope.studies.evidence import TESTS, Region, Sample, Test

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALPHA", "Criterion", "Finding", "Statement", "Values", "finding", "judge"]

ALPHA = 0.05
# Runs by the source's own protocol count as such from this many independent units on.
PROTOCOL_UNITS = 5
# The margins, not ALPHA, are halved and doubled to see whether a verdict hangs on them.
SCALES = {0.5: "halved", 2.0: "doubled"}

Tables = Mapping[str, "pd.DataFrame"]
# The sample of a criterion and how strong it is, or why there is none.
_Sampled: TypeAlias = "tuple[Sample, Strength] | str"


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
        if table is None or self.column not in table:
            return None
        if not all(name in table for name, _ in self.where):
            return None
        masks = [(table[name] == value).to_numpy() for name, value in self.where]
        table = table[np.logical_and.reduce(masks)] if masks else table
        return table if len(table) else None


@dataclass(frozen=True)
class Criterion:
    """One thing that must hold, written before looking.

    ``values`` (less ``minus`` where given, paired by ``unit`` if ``paired``) are averaged within each ``unit``, a
    column of the table, and tested against ``region``; ``why`` is the reason for the margin. ``fewest`` units are
    needed. ``level`` is the level of the claim's factor that this is about. Rows whose column ``length`` (the share of
    the source's epochs that they were run for) is less than ``length`` are left out.
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
class Finding:
    """What the data say about one criterion."""

    criterion: Criterion
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    units: int = 0
    p_inside: float = 1.0
    p_outside: float = 1.0
    open_reason: str = ""
    strength: Strength = "not run"

    @property
    def state(self) -> str:
        """``holds``, ``fails`` or ``open``, at level ALPHA without corrections."""
        if self.open_reason:
            return "open"
        return "holds" if self.p_inside <= ALPHA else "fails" if self.p_outside <= ALPHA else "open"

    @property
    def sentence(self) -> str:
        """What was required and what was measured, with its interval and number of units."""
        c = self.criterion
        place = f"{c.level}: " if c.level else ""
        if self.open_reason:
            return f"{place}{c.text} (required {c.region}): {self.open_reason}"
        if self.strength == "exact":
            return f"{place}{c.text} {number(self.estimate)} (required {c.region})"
        ends = f"({1 - 2 * ALPHA:.0%} interval {number(self.low)} to {number(self.high)})"
        return f"{place}{c.text} {number(self.estimate)} {ends}, {self.units} {c.units} (required {c.region})"


@dataclass(frozen=True)
class Statement:
    """A published claim with its criteria.

    ``factor`` names what the criteria's levels are levels of. ``notes`` and ``evidence`` add sentences and numbers
    that are not tested; they are functions of the tables.
    """

    id: str
    text: str
    source: str
    criteria: tuple[Criterion, ...]
    factor: str = ""
    notes: Callable[[Tables], str] | None = None
    evidence: Callable[[Tables], Sequence[Evidence]] | None = None


def finding(criterion: Criterion, tables: Tables) -> Finding:
    """Return what the tables say about a criterion."""
    return _finding(criterion, tables, _sample(criterion, tables), 1.0)


def _finding(criterion: Criterion, tables: Tables, found: _Sampled, scale: float) -> Finding:
    """Return what a sample says about a criterion with its margin multiplied by ``scale``."""
    if isinstance(found, str):
        strength: Strength = "not run" if _silent(criterion, tables) else "hint"
        return Finding(criterion, open_reason=found, strength=strength)
    sample, strength = found
    test, region = TESTS[criterion.test], criterion.region.scaled(scale)
    if reason := _too_few(criterion, sample, test):
        return Finding(criterion, units=sample.units, open_reason=reason, strength=strength)
    estimate, low, high = test.interval(sample, 1 - 2 * ALPHA)
    if not math.isfinite(estimate):
        return Finding(criterion, units=sample.units, open_reason="the value is undefined", strength=strength)
    inside, outside = _p_values(
        region, lambda edge: test.p_above(sample, edge), lambda edge: test.p_below(sample, edge)
    )
    return Finding(criterion, estimate, low, high, sample.units, inside, outside, strength=strength)


def _silent(criterion: Criterion, tables: Tables) -> bool:
    return any(v is not None and v.rows(tables) is None for v in (criterion.values, criterion.minus))


def _sample(criterion: Criterion, tables: Tables) -> _Sampled:
    """Return the sample of a criterion and how strong it is, or why there is none."""
    groups, protocol = [], True
    for values in (criterion.values, criterion.minus):
        if values is None:
            continue
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
    sample = Sample.of(groups, criterion.paired)
    if criterion.test == "exact":
        return sample, "exact"
    return sample, "protocol" if protocol and sample.units >= PROTOCOL_UNITS else "hint"


def _too_few(criterion: Criterion, sample: Sample, test: Test) -> str:
    needed = max(criterion.fewest, test.fewest(criterion.region, ALPHA))
    if criterion.test == "exact" or sample.units >= needed:
        return ""
    return f"{sample.units} {criterion.units}, {needed} are needed"


def _p_values(region: Region, above: Callable[[float], float], below: Callable[[float], float]) -> tuple[float, float]:
    """Return the p-values for lying inside and for lying wholly outside a region."""
    m = region.margin
    if region.kind == "above":
        return above(m), below(m)
    if region.kind == "below":
        return below(m), above(m)
    return max(above(-m), below(m)), min(1.0, 2 * min(above(m), below(-m)))


@dataclass(frozen=True)
class _Ruling:
    """A verdict before the correction over claims: the findings it rests on and its p-value."""

    verdict: Verdict
    p: float
    findings: tuple[Finding, ...]
    supported: tuple[str, ...] = ()
    contradicted: tuple[str, ...] = ()
    corrected: bool = False

    @property
    def exact(self) -> bool:
        """Whether nothing in it is a random sample."""
        return all(f.criterion.test == "exact" for f in self.findings)


def _rule(statement: Statement, tables: Tables, samples: Mapping[Criterion, _Sampled], scale: float) -> _Ruling:
    findings = tuple(_finding(c, tables, samples[c], scale) for c in statement.criteria)
    outside = holm([f.p_outside for f in findings])
    levels = dict.fromkeys(f.criterion.level for f in findings)
    inside = {k: max(f.p_inside for f in findings if f.criterion.level == k) for k in levels}
    against = {
        k: min(float(p) for f, p in zip(findings, outside, strict=True) if f.criterion.level == k) for k in levels
    }
    bad = tuple(k for k, p in against.items() if p <= ALPHA)
    if max(inside.values()) <= ALPHA:
        return _Ruling("supported", max(inside.values()), findings, tuple(levels))
    # That some level holds is said of the best of several, so it is corrected, where "all hold" is not.
    some = dict(zip(inside, map(float, holm(inside.values())), strict=True))
    good = tuple(k for k, p in some.items() if p <= ALPHA)
    if good and bad and statement.factor:
        p = max(min(some[k] for k in good), min(against[k] for k in bad))
        return _Ruling("depends", p, findings, good, bad)
    if bad:
        return _Ruling("contradicted", min(against[k] for k in bad), findings, (), bad)
    return _Ruling("undecided", 1.0, findings, good, bad)


def _corrected(rulings: Sequence[_Ruling]) -> list[_Ruling]:
    """Apply Holm's correction over the claims of a study; what is exact is no sample and takes no part in it.

    Claims that are undecided count too: if only the decided ones did, less data on one claim could decide another.
    """
    random = [i for i, r in enumerate(rulings) if not r.exact]
    adjusted = holm([rulings[i].p for i in random])
    found = list(rulings)
    for i, p in zip(random, adjusted, strict=True):
        if p > ALPHA and found[i].verdict != "undecided":
            found[i] = replace(found[i], verdict="undecided", corrected=True)
    return found


_ORDER: tuple[Strength, ...] = ("hint", "protocol", "exact")


def _strength(ruling: _Ruling) -> Strength:
    """Return the strength of the weakest finding that there is."""
    found = [f.strength for f in ruling.findings if f.strength != "not run"]
    return min(found, key=_ORDER.index) if found else "not run"


def _reason(statement: Statement, ruling: _Ruling, tables: Tables, flips: Mapping[str, Verdict]) -> str:
    words = {"holds": "Holds", "fails": "Fails", "open": "Open"}
    parts = []
    for state, word in words.items():
        texts = [f.sentence for f in ruling.findings if f.state == state]
        parts += [f"{word}: {'; '.join(texts)}."] if texts else []
    if ruling.verdict == "depends":
        lists = (", ".join(ruling.supported), ", ".join(ruling.contradicted))
        parts.insert(0, f"Depends on the {statement.factor}: supported for {lists[0]}, contradicted for {lists[1]}.")
    if ruling.corrected:
        parts.append("Undecided after Holm's correction over the claims of this study.")
    elif ruling.verdict == "undecided" and any(f.state == "fails" for f in ruling.findings):
        parts.append("What fails does so only before Holm's correction over the criteria of this claim.")
    for word, verdict in flips.items():
        parts.append(f"With margins {word} the verdict is {verdict}.")
    if statement.notes and _strength(ruling) != "not run":
        parts.append(statement.notes(tables))
    return " ".join(part for part in parts if part)


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
        shown = tuple(Requirement(f.sentence, f.state, f.criterion.why) for f in ruling.findings)
        evidence = tuple(statement.evidence(tables)) if statement.evidence and strength != "not run" else ()
        fields = (ruling.verdict, _reason(statement, ruling, tables, flips), evidence, strength, shown)
        found.append(Claim(statement.id, statement.text, statement.source, *fields))
    return tuple(found)
