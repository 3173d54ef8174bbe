"""C24 and C25: the VQ distance against the distance in the graph of regions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text
from metriscope.studies.evidence import Below
from metriscope.studies.judging import Criterion, Statement, Values

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["LEMMA_1", "LEMMA_2"]

NONE = Below(0.5)


def _exact(text: str, values: Values, why: str, unit: str) -> Criterion:
    return Criterion(text, values, NONE, f"{why} A count is below a half only if it is zero.", unit=unit, test="exact")


FIRST = (
    _exact(
        "most pairs of regions in one shallow network whose two distances differ:",
        Values.of("lemmas", "differ", kind="shallow"),
        "One pair that differs breaks the lemma.",
        "network",
    ),
    _exact(
        "the same on a wider window:",
        Values.of("lemmas", "wider differ", kind="shallow"),
        "The lemma is about the whole plane, to which a wider window comes nearer.",
        "network",
    ),
)
SECOND = (
    _exact(
        "most pairs of regions in one deep network with a larger VQ distance:",
        Values.of("lemmas", "violations", kind="deep"),
        "One pair with a larger VQ distance breaks the lemma.",
        "network",
    ),
    _exact(
        "the same on a wider window:",
        Values.of("lemmas", "wider violations", kind="deep"),
        "A window lengthens ways in the graph, which favors the lemma; a wider one does so less.",
        "network",
    ),
    _exact(
        "most pairs of pieces of a tent map with a larger VQ distance:",
        Values.of("tents", "violations"),
        "One pair with a larger VQ distance breaks the lemma.",
        "layers",
    ),
    _exact(
        "tent maps of two or more layers without a pair of smaller VQ distance:",
        Values.of("tents", "never strict"),
        "The tent map is said to have pairs with a smaller VQ distance.",
        "layers",
    ),
    _exact(
        "pieces of a tent map of L layers, largest difference from 2^L:",
        Values.of("tents", "pieces off"),
        "The tent map of L layers is said to cut the interval into 2^L pieces.",
        "layers",
    ),
)


def _networks(tables: Mapping[str, pd.DataFrame], kind: str) -> pd.DataFrame | None:
    table = tables.get("lemmas")
    rows = None if table is None else table[table["kind"] == kind]
    return None if rows is None or rows.empty else rows


def _first_notes(tables: Mapping[str, pd.DataFrame]) -> str:
    rows = _networks(tables, "shallow")
    if rows is None:
        return ""
    return (
        f"{len(rows)} random networks with one hidden layer: the distances differ for {int(rows['differ'].sum()):,} of "
        f"{int(rows['pairs'].sum()):,} pairs of exact regions."
    )


def _first_evidence(tables: Mapping[str, pd.DataFrame]) -> Iterator[Evidence]:
    rows = _networks(tables, "shallow")
    if rows is not None:
        differ = f"{int(rows['differ'].sum()):,} of {int(rows['pairs'].sum()):,}"
        yield Evidence("random shallow networks", len(rows))
        yield Evidence("pairs of regions that differ", differ, "0", "S4 lemma 1")
        yield Evidence("regions per network, mean", mean_text(rows["regions"]))


def _second_notes(tables: Mapping[str, pd.DataFrame]) -> str:
    parts, rows = [], _networks(tables, "deep")
    if rows is not None:
        parts.append(
            f"{len(rows)} random deep networks: VQ is larger for {int(rows['violations'].sum()):,} of "
            f"{int(rows['pairs'].sum()):,} pairs, and smaller for {mean_text(100 * rows['strict'])} % of a network's "
            f"pairs. {_window(rows)}"
        )
    if "tents" in tables:
        last = tables["tents"].iloc[-1]
        parts.append(
            f"The tent map of {int(last['layers'])} layers makes {int(last['pieces']):,} pieces; the formula printed "
            f"for it, 2z − relu(2z − 1), is min(2z, 1) and makes {int(last['pieces as printed'])}; 2z − relu(4z − 2) "
            "is the tent."
        )
    return " ".join(parts)


def _window(rows: pd.DataFrame) -> str:
    return (
        f"The window lengthens the graph distance of {mean_text(100 * rows['shortened'])} % of a network's pairs, by "
        f"{mean_text(rows['excess'], 3)} on average over all pairs, against one {rows['wider'].iloc[0]:g} "
        "times as wide, on which "
        f"{mean_text(100 * rows['wider strict'])} % are strict."
    )


def _second_evidence(tables: Mapping[str, pd.DataFrame]) -> Iterator[Evidence]:
    rows = _networks(tables, "deep")
    if rows is not None:
        yield Evidence("pairs with a larger VQ distance", f"{int(rows['violations'].sum()):,}", "0", "S4 lemma 2")
        yield Evidence("share of strict pairs in a network, %", mean_text(100 * rows["strict"]))
        yield Evidence("graph distance / VQ distance, all pairs of a network", mean_text(rows["stretch"]))
    if "tents" in tables:
        last = tables["tents"].iloc[-1]
        source = "S4 app. B.2"
        yield Evidence(f"pieces of the tent map, L = {int(last['layers'])}", int(last["pieces"]), "2^L", source)
        yield Evidence("pieces of the printed formula", int(last["pieces as printed"]), "2^L", source)
        yield Evidence("units of a shallow network with these pieces", int(last["twin units"]), "2^L", source)


LEMMA_1 = Statement(
    "C24",
    "In a network of one hidden layer the VQ distance is the distance in the graph of regions.",
    "S4 lemma 1",
    FIRST,
    notes=_first_notes,
    evidence=lambda tables: tuple(_first_evidence(tables)),
)
LEMMA_2 = Statement(
    "C25",
    "In a deep network the VQ distance is at most the distance in the graph of regions, and less for the tent map.",
    "S4 lemma 2",
    SECOND,
    notes=_second_notes,
    evidence=lambda tables: tuple(_second_evidence(tables)),
)
