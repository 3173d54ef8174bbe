"""The claim C26 as criteria on the cells of the factorial experiment.

The cause that the paper names is removed by evening the pushes: then the targets of an output push it up exactly as
much as all other images push it down. Cells are paired by start: all begin from the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Evidence, interval, mean_text
from metriscope.studies.evidence import Above, Below
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.representation.collapse.plan import EVENED
from metriscope.studies.representation.plan import PIXELS

__all__ = ["STATEMENT"]

COLLAPSE = "C12 calls a loss of more than 10 points against ReLU a collapse; a network that loses less is saved."
TENTH = "One of ten outputs, as in C12."
EARLY = "Early: the first twentieth of training, half as long as the warm-up."


def _criteria(pixels: str) -> tuple[Criterion, ...]:
    level = PIXELS[pixels]

    def of(column: str, factors: str, network: str = "relu2") -> Values:
        table = "collapse controls" if factors == EVENED else "collapse"
        return Values.of(table, column, network=network, pixels=pixels, factors=factors)

    def lost(text: str, factors: str, kind: str) -> Criterion:
        region = Above(-10.0) if kind == "above" else Below(-10.0)
        values, minus = of("test_accuracy", factors), of("test_accuracy", "none", "relu")
        return Criterion(text, values, region, COLLAPSE, units="starts", minus=minus, paired=True, level=level)

    def of_outputs(text: str, column: str, factors: str, kind: str) -> Criterion:
        margin, why = (0.05, EARLY) if column == "early" else (0.1, TENTH)
        region = Above(margin) if kind == "above" else Below(margin)
        return Criterion(text, of(column, factors), region, why, units="starts", level=level)

    return (
        lost("ReLU2 − ReLU, points", "none", "below"),
        of_outputs("share of ReLU2's outputs that are dead at the end", "dead", "none", "above"),
        of_outputs("share of training after which half of them are dead", "early", "none", "below"),
        lost("ReLU2 with evened pushes − ReLU, points", EVENED, "above"),
        of_outputs("share of outputs dead with evened pushes", "dead", EVENED, "below"),
    )


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say which factors change accuracy and dead outputs, averaged over the cells that do not diverge."""
    effects = tables["collapse effects"]
    main = effects[(effects["with"] == "") & (effects["cells"] == "plain gradient")]
    if main.empty:
        return ""
    parts = []
    for outcome, scale, unit in (("test_accuracy", 1, "points of accuracy"), ("dead", 10, "dead outputs of ten")):
        rows = main[main["outcome"] == outcome]
        ends = [(f"{scale * row.mean:+.1f}", interval(scale * row.low, scale * row.high)) for row in rows.itertuples()]
        texts = [f"{factor} {mean} {span}" for factor, (mean, span) in zip(rows["factor"], ends, strict=True)]
        parts.append(f"{unit}: {', '.join(texts)}".replace(" -", " −"))
    return f"What saves it, on average over the other factors [95 % interval], in {'; in '.join(parts)}."


def _evidence(tables: Mapping[str, pd.DataFrame]) -> tuple[Evidence, ...]:
    found = []
    for (network, pixels, factors), part in tables["collapse"].groupby(["network", "pixels", "factors"], sort=False):
        if network == "relu2" and "," not in str(factors):
            label = f"ReLU2, {PIXELS[str(pixels)]}, {factors}: test accuracy, %, and dead outputs of ten"
            texts = (mean_text(part["test_accuracy"]), mean_text(10 * part["dead"]))
            found.append(Evidence(label, "; ".join(texts)))
    return tuple(found)


STATEMENT = Statement(
    "C26",
    "ReLU2 fails because nine of ten labels push an output down: outputs die early under the 90/10 imbalance.",
    "Oursland 2025, §6.2",
    (*_criteria("raw"), *_criteria("unit")),
    factor="form of pixels",
    notes=_notes,
    evidence=_evidence,
)
