"""C22: in 100 dimensions VQ scaling separates the moons and Euclidean scaling does not; the kernel is of low rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Above, Below
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.vq.spheres.plan import DISTANCES, MEASURES, PLACES

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SEPARATION"]

STRUCTURE, HALF, QUARTER = 0.25, 0.5, 0.25


def _criteria(place: str, title: str) -> Iterator[Criterion]:
    silhouette = Values.of("separation", "silhouette", points=place, distance="first")
    yield Criterion(
        "silhouette in the VQ scaling",
        silhouette,
        Above(STRUCTURE),
        "Kaufman and Rousseeuw (1990) see no substantial structure in a mean silhouette of 0.25 or less.",
        units="seeds",
        level=title,
    )
    euclid = Values.of("separation", "silhouette", points=place, distance="euclid")
    yield Criterion(
        "silhouette in the Euclidean scaling",
        euclid,
        Below(STRUCTURE),
        "The same bound: above it Euclidean scaling would separate the moons too.",
        units="seeds",
        level=title,
    )
    yield Criterion(
        "silhouette, VQ − Euclid",
        silhouette,
        Above(0.0),
        "Euclidean scaling is said not to separate, so VQ must separate more.",
        units="seeds",
        minus=euclid,
        paired=True,
        level=title,
    )
    yield Criterion(
        "effective rank of the VQ kernel / Euclid's",
        Values.of("ranks", "of euclid", points=place),
        Below(HALF),
        "The source sets low rank against Euclid's unstructured kernel; less than half of its rank is clearly lower.",
        units="seeds",
        level=title,
    )
    yield Criterion(
        "effective rank of the VQ kernel / the largest that points and units allow",
        Values.of("ranks", "of largest", points=place),
        Below(QUARTER),
        "A kernel that uses a quarter or more of all its dimensions is hardly of low rank, whatever Euclid's uses.",
        units="seeds",
        level=title,
    )


def _text(tables: Mapping[str, pd.DataFrame], distance: str, place: str, measure: str) -> str:
    rows = tables["separation"]
    return mean_text(rows[(rows["distance"] == distance) & (rows["points"] == place)][measure], 3)


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    if not {"separation", "sphere accuracies"} <= set(tables):
        return ""
    ends = tables["sphere accuracies"]
    own = mean_text(ends[ends["role"] == "first"]["test"], 3)
    return (
        f"Effective rank on training points: VQ {_text(tables, 'first', 'training', 'rank')}, Euclid "
        f"{_text(tables, 'euclid', 'training', 'rank')}, VQ before training "
        f"{_text(tables, 'start', 'training', 'rank')}. On new points the nearest neighbor has the same label with a "
        f"share of {_text(tables, 'first', 'new', 'neighbor')}, and the network itself is right with {own}, where 0.5 "
        "is chance. Networks given random labels have, on the training points and by those labels, a silhouette of "
        f"{_text(tables, 'shuffled', 'training', 'silhouette')} and a rank of "
        f"{_text(tables, 'shuffled', 'training', 'rank')}."
    )


def _evidence(tables: Mapping[str, pd.DataFrame]) -> Iterator[Evidence]:
    if "separation" not in tables:
        return
    for measure, title in MEASURES.items():
        for place, where in PLACES.items():
            for distance, name in DISTANCES.items():
                shown = measure == "silhouette" or (measure == "rank" and place == "training")
                text = _text(tables, distance, place, measure)
                if shown and text != "–":
                    yield Evidence(f"{name}, {where}: {title}", text)


SEPARATION = Statement(
    "C22",
    "In 100 dimensions VQ scaling separates the moons and Euclidean scaling does not; the kernel is of low rank.",
    "S4 fig. 2",
    tuple(criterion for place, title in PLACES.items() for criterion in _criteria(place, title)),
    factor="points that are looked at",
    notes=_notes,
    evidence=lambda tables: tuple(_evidence(tables)),
)
