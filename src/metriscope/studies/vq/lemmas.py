"""Both lemmas over every pair of exact regions of random networks, and the tent map of figure 5.

Axes: R regions. On a convex part of the plane the lemmas hold as they do on the whole plane: the straight way between
two regions stays inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int64
from torch import Tensor, nn

from metriscope.report import Evidence, Prose, Section, Table
from metriscope.rng import stream
from metriscope.runs import Run, Store
from metriscope.studies.contract import Announce
from metriscope.studies.vq.networks import mlp
from metriscope.studies.vq.parts import Judgement, Part, mean_text, summary_table
from metriscope.studies.vq.spec import NAME, Plan, Shape
from metriscope.train import progress
from metriscope.vq import Partition, linear_regions, vq_kernel

__all__ = [
    "PART",
    "Lemmas",
    "Lot",
    "Steps",
    "Tent",
    "compare",
    "judge_lemma1",
    "judge_lemma2",
    "random_network",
    "tent_rows",
]

# Random networks for every seed of the plan, of each kind; three seeds make sixty.
EACH = 20
BOUNDS = ((-2.0, 2.0), (-2.0, 2.0))
KINDS = {"shallow": (1,), "deep": (2, 3, 4, 5)}
WIDTHS = {"shallow": (4, 8, 12, 16, 20), "deep": (4, 6, 8, 10)}
LAYERS = tuple(range(1, 11))


@dataclass(frozen=True)
class Lot:
    """Random networks of one kind, compared region by region: what is computed and stored at once."""

    depth: str
    number: int
    count: int = EACH
    seed: int = 0
    method: int = 1  # raised when the same request would end in other numbers


@dataclass(frozen=True)
class TentMaps:
    """The tent map and its shallow twin, for every number of layers."""

    layers: tuple[int, ...] = LAYERS
    method: int = 1


@dataclass(frozen=True)
class Lemmas:
    """What both lemmas show: one row a network, and one row a number of layers of the tent map."""

    networks: pd.DataFrame
    tents: pd.DataFrame
    seed: int


class Tent(nn.Module):
    """The tent map of the unit interval, 2z up to the middle and 2 - 2z behind it, so many times; one unit each.

    ``printed`` is the formula as S4 prints it, min(2z, 1).
    """

    def __init__(self, layers: int, printed: bool = False) -> None:
        super().__init__()
        self.layers, self.slope = layers, 2.0 if printed else 4.0

    def forward(self, z: Tensor) -> Tensor:
        """Return the map of each number."""
        for _ in range(self.layers):
            z = 2 * z - torch.relu(self.slope * (z - 0.5))
        return z


class Steps(nn.Module):
    """One hidden layer that cuts the unit interval into equal pieces, one unit for each cut."""

    def __init__(self, pieces: int) -> None:
        super().__init__()
        self.register_buffer("cuts", torch.arange(1, pieces, dtype=torch.float64) / pieces)

    def forward(self, z: Tensor) -> Tensor:
        """Return the sum of all units."""
        return torch.relu(z - self.get_buffer("cuts")).sum(1, keepdim=True)


def random_network(lot: Lot, index: int) -> nn.Sequential:
    """Return one network of a lot; every combination of width, depth and activation comes in its turn."""
    combinations = list(product(WIDTHS[lot.depth], KINDS[lot.depth], ("relu", "abs")))
    width, depth, activation = combinations[(lot.number * lot.count + index) % len(combinations)]
    shape = Shape(2, depth, width, 1, activation)
    return mlp(shape, stream(lot.seed, NAME, "lemmas", lot.depth, lot.number, index))


def both_distances(partition: Partition) -> tuple[Int64[np.ndarray, " p"], Int64[np.ndarray, " p"]]:
    """Return the VQ distance and the region-graph distance of every pair of regions."""
    pairs = np.triu_indices(len(partition), 1)
    everything = np.arange(len(partition))
    return vq_kernel(partition.patterns)[pairs].astype(np.int64), partition.distance(everything)[pairs]


def compare(vq: Int64[np.ndarray, " p"], graph: Int64[np.ndarray, " p"]) -> dict[str, float]:
    """Return how two distances of the same pairs differ.

    >>> compare(np.array([1, 2, 2]), np.array([1, 2, 5]))["strict"]
    0.3333333333333333
    """
    gap = graph - vq
    return {
        "pairs": len(gap),
        "violations": int((gap < 0).sum()),
        "strict": float((gap > 0).mean()) if len(gap) else 0.0,
        "mean gap": float(gap.mean()) if len(gap) else 0.0,
        "largest gap": int(gap.max(initial=0)),
        "stretch": float(graph.sum() / vq.sum()) if len(gap) else 1.0,
    }


def tent_rows(layers: tuple[int, ...] = LAYERS) -> Iterator[dict[str, float]]:
    """Yield what the tent map, its printed formula and its shallow twin give, one row a number of layers."""
    for count in layers:
        tent = linear_regions(Tent(count), bounds=(0.0, 1.0))
        twin = linear_regions(Steps(2**count), bounds=(0.0, 1.0))
        vq, graph = both_distances(tent)
        flat, steps = both_distances(twin)
        yield {
            "layers": count,
            "units": count,
            "pieces": len(tent),
            "pieces as printed": len(linear_regions(Tent(count, printed=True), bounds=(0.0, 1.0))),
            "largest VQ": int(vq.max()),
            "largest graph": int(graph.max()),
            "strict": compare(vq, graph)["strict"],
            "violations": compare(vq, graph)["violations"],
            "twin units": 2**count - 1,
            "twin pieces": len(twin),
            "twin differs": int((flat != steps).sum()),
        }


def collect(plan: Plan, store: Store, announce: Announce) -> Lemmas:
    """Compare the distances of every pair of regions, or read what was compared before."""
    lots = [Lot(kind, number, EACH, plan.seed) for number in range(plan.seeds) for kind in KINDS]
    with progress("regions of random networks", total=len(lots) + 1) as show:
        runs = []
        for done, lot in enumerate(lots):
            runs.append(store.get(lot) or _store(store, lot, pd.DataFrame(_lot_rows(lot))))
            show(done + 1)
        tents = store.get(TentMaps()) or _store(store, TentMaps(), pd.DataFrame(list(tent_rows())))
        show(len(lots) + 1)
    networks = pd.concat([run.table("rows") for run in runs], ignore_index=True)
    announce(f"lemmas: {len(networks)} random networks, {int(networks['pairs'].sum()):,} pairs of regions")
    return Lemmas(networks, tents.table("rows"), plan.seed)


def _store(store: Store, spec: object, rows: pd.DataFrame) -> Run:
    return store.put(spec, {}, {"study": NAME}, {"rows": rows})


def _lot_rows(lot: Lot) -> list[dict[str, object]]:
    rows = []
    for index in range(lot.count):
        model = random_network(lot, index)
        partition = linear_regions(model, bounds=BOUNDS)
        layers = [layer for layer in model if isinstance(layer, nn.Linear)]
        kind = "ReLU" if isinstance(model[1], nn.ReLU) else "Abs"
        what = {"kind": lot.depth, "depth": len(layers) - 1, "width": layers[0].out_features, "activation": kind}
        found = compare(*both_distances(partition))
        rows.append({**what, "seed": lot.number, "number": index, "regions": len(partition), **found})
    return rows


def judge_lemma1(lemmas: Lemmas) -> Judgement:
    """Judge C24: one pair that differs would contradict it."""
    rows = lemmas.networks.query("kind == 'shallow'")
    pairs, differ = int(rows["pairs"].sum()), int((rows["strict"] * rows["pairs"]).round().sum())
    wrong = differ + int(rows["violations"].sum())
    equal = f"equal for all {pairs:,} pairs" if wrong == 0 else f"different for {wrong:,} of {pairs:,} pairs"
    reason = f"In {len(rows)} random networks with one hidden layer the two distances are {equal} of exact regions."
    evidence = (
        Evidence("random shallow networks", len(rows)),
        Evidence("pairs of regions that differ", f"{wrong:,} of {pairs:,}", "0", "S4 lemma 1"),
        Evidence("regions a network, mean", mean_text(rows["regions"])),
    )
    return Judgement("supported" if wrong == 0 else "contradicted", reason, evidence)


def judge_lemma2(lemmas: Lemmas) -> Judgement:
    """Judge C25: one pair with a larger VQ distance would contradict it, as would a tent map that is never strict."""
    rows, tents = lemmas.networks.query("kind == 'deep'"), lemmas.tents
    wrong = int(rows["violations"].sum() + tents["violations"].sum())
    strict = tents.query("layers > 1")["strict"]
    last = tents.iloc[-1]
    pieces = bool((tents["pieces"] == 2 ** tents["layers"]).all())
    holds = wrong == 0 and pieces and bool((strict > 0).all())
    reason = (
        f"No pair of regions of {len(rows)} random deep networks has a larger VQ distance "
        f"({int(rows['pairs'].sum()):,} pairs; strictly smaller for {mean_text(100 * rows['strict'])} % of a network's "
        f"pairs). The tent map makes 2^L pieces, {int(last['pieces']):,} with {int(last['layers'])} units, and is "
        "strict from L = 2 on. The formula printed for it, 2z − relu(2z − 1), is min(2z, 1) and makes L + 1 pieces; "
        "2z − relu(4z − 2) is the tent."
        if holds
        else f"{wrong:,} pairs of regions have a larger VQ distance, or the tent map is not what it should be."
    )
    evidence = (
        Evidence("pairs with a larger VQ distance", f"{wrong:,}", "0", "S4 lemma 2"),
        Evidence("share of strict pairs in a network, %", mean_text(100 * rows["strict"])),
        Evidence("graph distance / VQ distance, all pairs of a network", mean_text(rows["stretch"])),
        Evidence(f"pieces of the tent map, L = {int(last['layers'])}", int(last["pieces"]), "2^L", "S4 app. B.2"),
        Evidence("pieces of the printed formula", int(last["pieces as printed"]), "2^L", "S4 app. B.2"),
        Evidence("units of a shallow network with these pieces", int(last["twin units"]), "2^L", "S4 app. B.2"),
    )
    return Judgement("supported" if holds else "contradicted", reason, evidence)


def sections(lemmas: Lemmas) -> tuple[Section, ...]:
    """Return the part's section of the report."""
    from metriscope.studies.vq import lemma_figures as figures

    measures = {
        "regions": "regions",
        "strict": "share of pairs that differ",
        "mean gap": "mean difference",
        "largest gap": "largest difference",
        "stretch": "graph / VQ",
    }
    rows = lemmas.networks.rename(columns={"depth": "hidden layers"})
    note = "Differences are region-graph distance minus VQ distance, over every pair of regions of a network."
    table = summary_table(
        "vq-lemmas", "Both distances in random networks", rows, ("hidden layers", "activation"), measures, note
    )
    # A row sums up networks here, not seeds.
    table = replace(table, frame=table.frame.rename(columns={"seeds": "networks"}))
    tents = Table("vq-tents", "The tent map, layer by layer", lemmas.tents.drop(columns=["units", "violations"]))
    blocks = (Prose(_text(lemmas)), figures.same_pieces(), table, figures.strictness(lemmas), tents)
    return (Section("Figure 5: regions, and the two lemmas", blocks),)


def _text(lemmas: Lemmas) -> str:
    shallow, deep = (lemmas.networks.query(f"kind == '{kind}'") for kind in KINDS)
    return (
        "A walk from region to region crosses one unit's border at a time. Behind one hidden layer the fewest "
        "crossings are the units that differ, so both distances are the same number (lemma 1). Deeper, a unit's "
        "border is bent and may be crossed there and back, so the walk can be longer, never shorter (lemma 2). Regions "
        "are exact here: polygons cut by every unit, and a graph of shared sides.\n\n"
        f"{len(shallow)} shallow networks: the distances differ for "
        f"{int((shallow['strict'] * shallow['pairs']).round().sum()):,} of {int(shallow['pairs'].sum()):,} pairs. "
        f"{len(deep)} deep networks: VQ is larger for {int(deep['violations'].sum()):,} of "
        f"{int(deep['pairs'].sum()):,} pairs, and smaller for {100 * deep['strict'].mean():.1f} % of a network's pairs "
        "on average."
    )


PART = Part("lemmas", collect, sections)
