"""Synthetic tables that satisfy, violate, or are silent on the criteria of a claim, and what must then be said of it.

A series is one column of one table under one ``where``: an offset plus a little noise, one value per unit. Offsets are
found by going round the criteria until each has its quantity where it is wanted: well inside or outside its region.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from metriscope.report import Claim, number
from metriscope.report.numbers import estimate_texts
from metriscope.studies.evidence import Region
from metriscope.studies.verdicts import Criterion, Statement, Values, finding, judge

__all__ = ["check_statement", "synthetic", "verdict_on"]

ROUNDS = 200
# Shares are tested with exact binomial tests, which need many units before a share near its margin can be told.
SHARED_UNITS = 400


@dataclass
class _Series:
    """Values of one column: ``offset`` plus ``spread`` times fixed noise with mean 0 and standard deviation 1."""

    noise: np.ndarray
    offset: float = 0.0
    spread: float = 1e-4
    share: float | None = None

    def values(self) -> np.ndarray:
        if self.share is not None:
            return (np.arange(len(self.noise)) < round(self.share * len(self.noise))).astype(float)
        return self.offset + self.spread * self.noise


def _target(region: Region, inside: bool, step: float) -> float:
    if region.kind == "within":
        return 0.0 if inside else region.margin + step
    return region.margin + step * (1 if (region.kind == "above") == inside else -1)


@dataclass
class _World:
    """All series of a statement."""

    units: int
    seed: int
    series: dict[Values, _Series] = field(default_factory=dict)

    def get(self, values: Values) -> _Series:
        if values not in self.series:
            noise = np.random.default_rng([self.seed, len(self.series)]).normal(size=self.units)
            self.series[values] = _Series((noise - noise.mean()) / noise.std(ddof=1))
        return self.series[values]

    def place(self, criterion: Criterion, inside: bool) -> None:
        """Move the criterion's own values so that its quantity is where it is wanted."""
        own, region = self.get(criterion.values), criterion.region
        if criterion.test == "share":
            edges = (region.margin, 1.0) if (region.kind == "above") == inside else (0.0, region.margin)
            own.share = edges[1] if edges[1] in (0.0, 1.0) else edges[0]
            return
        step = 3 * max(abs(region.margin), 0.1)
        if criterion.test == "exact":
            step = abs(region.margin) / 2 or 0.5
            own.spread = step / 100
        if criterion.test == "spread":
            assert criterion.minus is not None
            own.spread = self.get(criterion.minus).spread * math.exp(
                _target(region, inside, 3 * max(abs(region.margin), 2))
            )
            return
        base = 0.0 if criterion.minus is None else self.get(criterion.minus).offset
        if not _clearly(region, own.offset - base, inside, 0.9 * step):
            own.offset = base + _target(region, inside, step)

    def tables(self, silent: Mapping[Values, str]) -> dict[str, pd.DataFrame]:
        found: dict[str, list[pd.DataFrame]] = {}
        for values, series in self.series.items():
            if silent.get(values) == "missing":
                continue
            columns = {values.column: series.values(), "protocol": True, "length": 1.0}
            frame = pd.DataFrame({**columns, **{name: value for name, value in values.where}})
            if silent.get(values) == "nan":
                frame.loc[frame.index[0], values.column] = math.nan
            found.setdefault(values.table, []).append(frame if silent.get(values) != "few" else frame[:1])
        return {name: _joined(frames) for name, frames in found.items()}


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Return one table; columns measured on the same rows stand side by side."""
    grouped: dict[tuple[object, ...], pd.DataFrame] = {}
    for frame in frames:
        wheres = [c for c in frame.columns[3:]]
        key = tuple((c, frame[c].iloc[0]) for c in sorted(wheres))
        if key in grouped and len(grouped[key]) == len(frame):
            grouped[key] = grouped[key].assign(**{frame.columns[0]: frame.iloc[:, 0]})
        else:
            grouped[(*key, len(frame)) if key in grouped else key] = frame
    return pd.concat(grouped.values(), ignore_index=True)


def _clearly(region: Region, value: float, inside: bool, room: float) -> bool:
    if region.kind == "within":
        return abs(value) < 0.1 * region.margin if inside else abs(value) > region.margin + room
    above = (region.kind == "above") == inside
    return value > region.margin + room if above else value < region.margin - room


def synthetic(
    statement: Statement, outside: int | None = None, silent: tuple[int, str] | None = None, seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Return tables in which every criterion holds, but for one that lies outside or that nothing is known of."""
    shares = any(c.test == "share" for c in statement.criteria)
    world = _World(SHARED_UNITS if shares else max(12, *(c.fewest + 2 for c in statement.criteria)), seed)
    for _ in range(ROUNDS):
        for i, criterion in enumerate(statement.criteria):
            world.place(criterion, inside=i != outside)
    if outside is not None:
        # Where criteria share their values, not all others can hold beside one that fails; that one goes last.
        world.place(statement.criteria[outside], inside=False)
    quiet = {} if silent is None else {statement.criteria[silent[0]].values: silent[1]}
    tables = world.tables(quiet)
    for name, table in tables.items():
        used = [
            (v, c.unit) for c in statement.criteria for v in (c.values, c.minus) if v is not None and v.table == name
        ]
        keys = sorted({key for values, _ in used for key, _ in values.where})
        # A unit is numbered within its rows, so that paired criteria find their partners.
        numbers = table.groupby(keys, dropna=False).cumcount() if keys else np.arange(len(table))
        for unit in {unit for _, unit in used}:
            table[unit] = numbers
    return tables


def verdict_on(statement: Statement, tables: Mapping[str, pd.DataFrame]) -> Claim:
    """Return the claim as it is judged by its criteria alone: notes and evidence ask for more than they do."""
    return judge([replace(statement, notes=None, evidence=None)], tables)[0]


def _check_sentences(statement: Statement, tables: Mapping[str, pd.DataFrame], claim: Claim) -> None:
    """Every number that a sentence states is that of the tables, at the look that decided where there are looks."""
    states = [requirement.state for requirement in claim.requirements]
    every = {look: [finding(c, tables, look) for c in statement.criteria] for look in statement.looks or (None,)}
    findings = next((found for found in every.values() if [f.state for f in found] == states), None)
    assert findings is not None, (states, every)
    for found, requirement in zip(findings, claim.requirements, strict=True):
        criterion = found.criterion
        assert requirement.text in claim.reason
        assert requirement.why
        assert str(criterion.region) in requirement.text
        if not found.open_reason:
            exact = found.strength == "exact"
            rounded = number(found.estimate) if exact else estimate_texts(found.estimate, found.low, found.high)[0]
            assert rounded in requirement.text


def check_statement(statement: Statement, seed: int = 0) -> None:
    """Check verdict and sentence where all criteria hold, where one does not, and where one is silent."""
    tables = synthetic(statement, seed=seed)
    claim = verdict_on(statement, tables)
    states = {r.text: r.state for r in claim.requirements}
    assert claim.verdict == "supported", states
    _check_sentences(statement, tables, claim)
    levels = {c.level for c in statement.criteria}
    for i, criterion in enumerate(statement.criteria):
        tables = synthetic(statement, outside=i, seed=seed)
        claim = verdict_on(statement, tables)
        others = [finding(c, tables).state for c in statement.criteria if c.level != criterion.level]
        rest_holds = bool(statement.factor and len(levels) > 1 and others) and "holds" in others
        assert claim.requirements[i].state == "fails", claim.requirements[i]
        assert claim.verdict in (("depends", "contradicted") if rest_holds else ("contradicted",)), claim.reason
        _check_sentences(statement, tables, claim)
        kinds = ("missing", "nan") if criterion.test == "exact" else ("missing", "nan", "few")
        # Each criterion is silent in one way, the first in all of them: the rule is the same for all.
        for kind in kinds if i == 0 else kinds[i % len(kinds) :][:1]:
            tables = synthetic(statement, silent=(i, kind), seed=seed)
            claim = verdict_on(statement, tables)
            assert claim.verdict == "undecided", (kind, claim.reason)
            assert claim.requirements[i].state == "open"
            _check_sentences(statement, tables, claim)
