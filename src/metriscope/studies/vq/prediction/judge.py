"""Claim C30 with its criteria, two for each score of the kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd

from metriscope.report import Evidence, mean_text, number
from metriscope.studies.evidence import Above
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.vq.prediction.plan import REFERENCE, SCORES, USEFUL

__all__ = ["STATEMENT"]

Tables = Mapping[str, pd.DataFrame]


def _criteria(score: str, title: str) -> Iterator[Criterion]:
    criterion = partial(Criterion, unit="architecture", units="architectures", level=title, fewest=10)
    yield criterion(
        "partial rank correlation with final accuracy, given parameters and depth",
        Values.of("forecasts", "partial", score=score),
        Above(USEFUL),
        f"A correlation of {USEFUL:g} explains {USEFUL**2:.0%} of what parameters and depth leave open; with less, the "
        "score hardly helps to choose among architectures.",
    )
    yield criterion(
        "share of the squared error on held-out architectures that the score removes",
        Values.of("forecasts", "gain", score=score),
        Above(0.0),
        "A score that helps must also help on architectures that the regression has not seen.",
    )


def _rows(tables: Tables) -> pd.DataFrame:
    return tables["forecast correlations"].set_index("score")


def _notes(tables: Tables) -> str:
    if "forecast correlations" not in tables:
        return ""
    found = _rows(tables)
    ps = "; ".join(f"{title} {number(found['p'][score], 2)}" for score, title in SCORES.items())
    ((score, title),) = REFERENCE.items()
    return (
        f"One-sided p-values by permutation: {ps}. For comparison, the {title}, which needs no kernel, has a partial "
        f"correlation of {number(found['partial'][score], 2)}. NASWOT's score is −∞ for {found['tied']['naswot']} "
        "architectures with too few units: their kernel is singular, and they share the lowest rank."
    )


def _evidence(tables: Tables) -> list[Evidence]:
    if "forecasts" not in tables:
        return []
    found, each = _rows(tables), tables["forecasts"]
    return [
        evidence
        for score, title in {**SCORES, **REFERENCE}.items()
        for evidence in (
            Evidence(f"{title}: rank correlation, nothing else known", number(found["plain"][score], 2)),
            Evidence(f"{title}: given parameters and depth", mean_text(each[each["score"] == score]["partial"])),
        )
    ]


STATEMENT = Statement(
    "C30",
    "The kernel of a network tells its worth before or early in training.",
    "Roddenberry et al., future work",
    tuple(criterion for row in SCORES.items() for criterion in _criteria(*row)),
    "score",
    _notes,
    _evidence,
)
