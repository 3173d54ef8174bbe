"""The claim C29 as criteria on the table ``second layer``, fixed before the numbers are seen.

Judged is the second layer that the source has, a linear one before softmax; the unit is the start, and values are
averaged over mixtures of 3, 4 and 5 clusters.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from metriscope.report import number
from metriscope.studies.evidence import Above
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.mahalanobis.second_layer.plan import DATA, FIRST
from metriscope.studies.published import matching

if TYPE_CHECKING:
    from metriscope.studies.judging import Tables

__all__ = ["STATEMENT"]

LINEAR = "abs-bias"
HALFWAY, APART = 0.5, 0.1
PARTITION = "Halfway between chance, 0, and the same partition, 1."
TENTH = "A tenth of the way from overlapping clusters, 0, to clusters that are points, 1."

_on_starts = partial(Criterion, unit="start", units="starts", paired=True)


def _criteria(first: str, data: str) -> tuple[Criterion, ...]:
    values = partial(Values.of, "second layer", data=data, first=first, head=LINEAR)
    space, level = values("second layer"), FIRST[first]
    same = f"{data}, adjusted Rand index between groups of second-layer weights and the clusters of their units"
    beyond = f"{data}, silhouette of new points after the second layer less that after the first"
    learned = f"{data}, silhouette of new points after the second layer less that with an untrained one"
    return (
        _on_starts(same, values("agreement"), Above(HALFWAY), PARTITION, level=level),
        _on_starts(beyond, space, Above(APART), TENTH, minus=values("first layer"), level=level),
        _on_starts(learned, space, Above(APART), TENTH, minus=values("untrained"), level=level),
    )


def _notes(tables: Tables) -> str:
    """Say how often the agreement is beyond that of permuted units."""
    parts = []
    for (first, data), rows in matching(tables["second layer"], head=LINEAR).groupby(["first", "data"], sort=False):
        beyond = int((rows["agreement"] > rows["high"]).sum())
        parts.append(
            f"{FIRST[str(first)]}, {data}: agreement {number(float(rows['agreement'].mean()))}, beyond 95 % of the "
            f"permutations of units in {beyond} of {len(rows)} networks"
        )
    return f"{'; '.join(parts)}." if parts else ""


STATEMENT = Statement(
    "C29",
    "A second linear layer over distances clusters what the first layer found.",
    "Oursland 2024a, arXiv:2410.19352",
    tuple(criterion for first in FIRST for data in DATA for criterion in _criteria(first, data)),
    factor="first layer",
    notes=_notes,
)
