"""Drawings of the factorial experiment: every cell's accuracy and dead outputs, and when outputs die.

Axes: S starts, T counted epochs.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import COLORS, CYCLE, INK, figure, legend
from metriscope.studies.representation.accuracy.measure import by_seed, select
from metriscope.studies.representation.collapse.plan import EVENED, FACTORS
from metriscope.studies.representation.plan import PIXELS

__all__ = ["cells", "deaths"]

FORMS = {"raw": CYCLE[3], "unit": CYCLE[2]}
PANELS = {"test_accuracy": "test accuracy, %", "dead": "share of outputs dead at the end"}


def cells(tables: Mapping[str, pd.DataFrame]) -> Figure | None:
    """Draw every start of every cell: its test accuracy, and the share of its outputs that are dead."""
    evened = select(tables["collapse controls"], factors=EVENED)
    rows = pd.concat([tables["collapse"], evened]) if len(evened) else tables["collapse"]
    if rows.empty:
        return None
    drawing, axes = figure(9.2, 7.2, 1, len(PANELS))
    own = rows[rows["network"] == "relu2"].groupby(["pixels", "factors"], sort=False)
    for ax, (column, text) in zip(axes[0], PANELS.items(), strict=True):
        groups = {f"{factors} · {pixels}": part[column].to_numpy() for (pixels, factors), part in own}
        strip(ax, groups, {label: FORMS[label.rpartition(" ")[2]] for label in groups})
        ax.set(xlabel=text)
    for pixels, part in rows[rows["network"] == "relu"].groupby("pixels", sort=False):
        axes[0, 0].axvline(part["test_accuracy"].mean(), color=FORMS[str(pixels)], linewidth=1, dashes=(4, 3), zorder=0)
    axes[0, 1].set_yticklabels([])
    caption = (
        "ReLU2: each small dot is a start, the large dot the mean with its 95 % interval; rows name the factors that "
        "are on, and the form of pixels. Dashed: mean test accuracy of ReLU on the same pixels."
    )
    return Figure("collapse-cells", "What saves ReLU2", to_svg(drawing, "collapse-cells"), caption)


def deaths(tables: Mapping[str, pd.DataFrame]) -> Figure | None:
    """Draw the number of dead outputs over epochs, for no factor and for each alone, on each form of pixels."""
    table = tables["collapse deaths"]
    if table.empty:
        return None
    alone = {"none": INK, FACTORS["warm"]: COLORS["relu"], FACTORS["balanced"]: CYCLE[3], FACTORS["lifted"]: CYCLE[2]}
    drawing, axes = figure(9.2, 2.9, 1, len(FORMS))
    for ax, pixels in zip(axes[0], FORMS, strict=True):
        for factors, shade in alone.items():
            epochs, values = by_seed(select(table, pixels=pixels, factors=factors), "epoch", "dead")
            band(ax, epochs + 1, values, factors, shade, log="x")
        ax.set(title=PIXELS[pixels], xlabel="epoch + 1", ylabel="dead outputs of ten", ylim=(-0.4, 10.4))
    legend(axes[0, -1], "upper left")
    caption = (
        "Outputs that no training image makes active (|activation| > 10⁻⁶). Median over starts, the band of the middle "
        "80 %, extremes as thin lines. A network that diverged has no active output."
    )
    return Figure("collapse-deaths", "When the outputs of ReLU2 die", to_svg(drawing, "collapse-deaths"), caption)
