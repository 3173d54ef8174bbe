"""Figure 2 and its numbers on training points and on new ones."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Prose, Section, mean_text, number
from metriscope.studies.vq.networks.page import summary_table
from metriscope.studies.vq.spheres import figures
from metriscope.studies.vq.spheres.measure import Results
from metriscope.studies.vq.spheres.plan import DISTANCES, MEASURES, PLACES

__all__ = ["sections"]


def sections(results: Results) -> tuple[Section, ...]:
    """Return figure 2 and its numbers on training points and on new ones."""
    order = pd.Categorical(results.rows["distance"], list(DISTANCES), ordered=True)
    rows = results.rows.assign(order=order).sort_values(["points", "order"], ascending=[False, True])
    rows = rows.assign(points=rows["points"].map(PLACES), distance=rows["distance"].map(DISTANCES))
    note = (
        "Silhouette of the labels on the two-dimensional scaling; nearest-neighbor accuracy in the full distance, "
        "ties shared; effective rank of the centered kernel as the exponential of its spectrum's entropy and as "
        "participation ratio. New points have their own scaling, and true labels."
    )
    table = summary_table("vq-separation", "Separation and rank", rows, ["points", "distance"], MEASURES, note)
    return (Section("Moons in 100 dimensions", (Prose(_words(results)), figures.scalings(results), table)),)


def _words(results: Results) -> str:
    names = {"first": "moons", "turned": "turned moons", "shuffled": "random labels"}
    parts = [f"{text} {mean_text(results.accuracies(role))}" for role, text in names.items()]
    return (
        "The moons are scaled by 0.1 and 98 random coordinates bring every point to the unit sphere: the signal is as "
        "faint as any single coordinate of the noise. S4 shows that the VQ kernel of the training points separates the "
        "classes in two dimensions where Euclidean scaling does not, and that the kernel is of approximately low rank. "
        "Two controls are added: points of a new draw, and networks trained on labels dealt at random, which have "
        "nothing but memory to go by.\n\n"
        f"Lowest accuracy of a network on its training points: {number(results.ends['train'].min())}. On new points, "
        f"where 0.5 is chance: {', '.join(parts)}."
    )
