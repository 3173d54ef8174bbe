"""Figure 5, both lemmas in random networks, and the tent map layer by layer."""

from __future__ import annotations

from dataclasses import replace

from metriscope.report import Prose, Section, Table
from metriscope.studies.vq.lemmas import figures
from metriscope.studies.vq.lemmas.measure import Results
from metriscope.studies.vq.networks.page import summary_table

__all__ = ["sections"]

MEASURES = {
    "regions": "regions",
    "strict": "share of pairs that differ",
    "mean gap": "mean difference",
    "largest gap": "largest difference",
    "stretch": "graph / VQ",
    "excess": "longer by the window",
}


def sections(results: Results) -> tuple[Section, ...]:
    """Return figure 5, the random networks and the tent maps."""
    rows = results.networks.rename(columns={"depth": "hidden layers"})
    note = (
        "Differences are region-graph distance minus VQ distance, over every pair of regions of a network. The last "
        f"column is by how much graph distances are longer than on a window {rows['wider'].iloc[0]:g} times as wide."
    )
    table = summary_table(
        "vq-lemmas", "Both distances in random networks", rows, ("hidden layers", "activation"), MEASURES, note
    )
    # A row sums up networks here, not seeds.
    table = replace(table, frame=table.frame.rename(columns={"seeds": "networks"}))
    tents = Table("vq-tents", "The tent map, layer by layer", results.tents.drop(columns=["units", "violations"]))
    blocks = (Prose(_text(results)), figures.same_pieces(results), table, figures.strictness(results), tents)
    return (Section("Figure 5: regions, and the two lemmas", blocks),)


def _text(results: Results) -> str:
    rows = results.networks
    shallow, deep = rows[rows["kind"] == "shallow"], rows[rows["kind"] == "deep"]
    return (
        "A walk from region to region crosses one unit's border at a time. Behind one hidden layer the fewest "
        "crossings are the units that differ, so both distances are the same number (lemma 1). Deeper, a unit's "
        "border is bent and may be crossed there and back, so the walk can be longer, never shorter (lemma 2). Regions "
        "are exact here: polygons cut by every unit, and a graph of shared sides.\n\n"
        f"{len(shallow)} shallow networks: the distances differ for "
        f"{int((shallow['strict'] * shallow['pairs']).round().sum()):,} of {int(shallow['pairs'].sum()):,} pairs. "
        f"{len(deep)} deep networks: VQ is larger for {int(deep['violations'].sum()):,} of "
        f"{int(deep['pairs'].sum()):,} pairs, and smaller for {100 * deep['strict'].mean():.1f} % of a network's pairs "
        f"on average. The window makes ways longer: on one {deep['wider'].iloc[0]:g} times as wide the region-graph "
        f"distance of {100 * deep['shortened'].mean():.1f} % of a network's pairs is shorter, and "
        f"{100 * deep['wider strict'].mean():.1f} % are strict."
    )
