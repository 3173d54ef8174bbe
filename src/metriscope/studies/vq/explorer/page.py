"""The explorer beside the report, and the numbers of its networks."""

from __future__ import annotations

from metriscope.report import Companion, Prose, Section, Table
from metriscope.report.explorer import explorer_page
from metriscope.studies.vq.explorer.figures import partitions
from metriscope.studies.vq.explorer.measure import Results

__all__ = ["sections"]


def sections(results: Results) -> tuple[Section, ...]:
    """Return the section of the report, with the explorer beside it."""
    sources = results.part.views()[0].sources
    table = Table(
        "vq-regions",
        "Exact regions of small networks on the moons",
        results.rows.drop(columns="violations"),
        f"Distances from {sources} regions to all others; “strict” is the share of pairs with VQ below the region "
        "graph, differences are graph minus VQ. One seed; shallow is 1 × 96, deep is 3 × 32: as many units. The "
        "decision boundary's length is in units of the plane.",
        labels={"strict": "share strict", "stretch": "graph / VQ", "decision boundary": "decision boundary, length"},
    )
    page = Companion(
        "explorer.html",
        "Open the explorer",
        "Move the pointer to paint the distance from there to everywhere: VQ, region graph and Euclid side by side, "
        f"for {len(results.views)} networks. One file, no network; works with mouse, touch and keyboard.",
        explorer_page([view.scene for view in results.views]),
    )
    return (Section("The explorer", (Prose(_text(results)), page, partitions(results), table)),)


def _text(results: Results) -> str:
    rows = results.rows
    means = rows.groupby(["shape", "state"])["strict"].mean()
    deep = {state: 100 * float(means.loc[("deep", state)]) for state in ("initial", "trained")}
    wrong = rows["violations"] + (rows["strict"] > 0) * (rows["shape"] == "shallow")
    return (
        "Shallow and deep networks of 96 units, ReLU and Abs, on the moons and on the turned moons, before and after "
        f"training: {int(rows['regions'].sum()):,} regions, all exact. {int((wrong > 0).sum())} of {len(rows)} "
        f"networks have a pair of regions that breaks a lemma. Deep networks are strict for {deep['initial']:.0f} % of "
        f"pairs before training and {deep['trained']:.0f} % after it."
    )
