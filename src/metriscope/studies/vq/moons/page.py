"""Figure 1, its numbers, and how the networks ended."""

from __future__ import annotations

import numpy as np

from metriscope.report import Block, Details, Prose, Section, mean_text, number
from metriscope.studies.vq.moons import figures
from metriscope.studies.vq.moons.measure import Results
from metriscope.studies.vq.moons.plan import COMPARISONS, MEASURES
from metriscope.studies.vq.networks.page import summary_table

__all__ = ["sections"]


def sections(results: Results) -> tuple[Section, ...]:
    """Return figure 1, its numbers, and how the networks ended."""
    places = {name: place for place, name in enumerate(COMPARISONS)}
    rows = results.rows.sort_values("comparison", key=lambda names: names.map(places), kind="stable")
    rows = rows.assign(comparison=rows["comparison"].map(COMPARISONS))
    cells = int(np.isfinite(results.pictures["first"].fields[0]).sum())
    note = (
        f"Kernels on the {cells:,} cells of the unit disc. The overlap is the mean squared canonical correlation of "
        "the two spaces of three leading eigenvectors; |cosine| is the mean over the three, each with its partner. The "
        "centered alignment is debiased; the biased one stands beside it."
    )
    shown = {**MEASURES, "biased": "alignment, biased"}
    table = summary_table("vq-turning", "Does the kernel turn with the data?", rows, ["comparison"], shown, note)
    single = {f"cosine{k}": f"eigenvector {k}" for k in (1, 2, 3)}
    note = "Matched |cosine| of single eigenvectors, in the order of the first network's eigenvalues."
    each = summary_table("vq-eigenvectors", "Eigenvector by eigenvector", rows, ["comparison"], single, note)
    blocks: tuple[Block, ...] = (Prose(_text(results)), figures.eigenvectors(results), figures.turning(results))
    return (Section("Do VQ kernels turn with the data?", (*blocks, table, Details("Each eigenvector", (each,)))),)


def _text(results: Results) -> str:
    ends, bound = results.ends, results.part.converged
    worst, first = ends["loss"].max(), ends[ends["role"] == "first"]
    reached = f"{int((ends['loss'] < bound).sum())} of {len(ends)} networks converged"
    return (
        "The VQ distance of two points is the number of units that have them on different sides. S4 trains one network "
        "on two moons and one, from another start, on the same moons turned by π/6, and shows that the leading "
        "eigenvectors of the kernel turn too. Here the second network is evaluated on turned points: what turns with "
        "the data must then agree, point by point, with the first network. How far any two networks agree is said by "
        "a second start on the same data; what the turn is worth, by leaving it out; what training is worth, by the "
        "same networks before it.\n\n"
        "Some of it is no discovery. Turning the data and the first layer's weights together changes nothing, so with "
        "an optimizer and a distribution of starts that know no axes the turned problem is the same problem. Adam and "
        "uniform weights do know axes; how much they matter is what the gap between the first two rows says.\n\n"
        f"{reached}: largest mean loss {number(worst, 2)} against the bound of {bound:g}; lowest accuracy on "
        f"training points {number(ends['train'].min())}, on new points {mean_text(first['test'])}."
    )
