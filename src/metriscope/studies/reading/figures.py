"""The drawing of the study: how much better the nearest points predict than the most activating points."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, figure
from metriscope.studies.reading.plan import ACTIVATIONS, MEASURES
from metriscope.studies.tidy_tables import matching

__all__ = ["differences"]


def gaps(table: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return the difference between both readings, one row per data set and activation."""
    means = table.groupby(["data", "activation", "reading"], sort=False)[measure].mean().unstack("reading")
    return (means["near"] - means["top"]).rename("gap").reset_index()


def differences(table: pd.DataFrame) -> Figure:
    """Draw one panel per measure; each dot is a data set."""
    drawing, axes = figure(9.2, 4.2, len(MEASURES), 1)
    for ax, (measure, word) in zip(axes.flat, MEASURES.items(), strict=True):
        found = gaps(table, measure)
        groups = {title: matching(found, activation=name)["gap"] for name, title in ACTIVATIONS.items()}
        strip(ax, groups, dict(zip(groups, CYCLE, strict=False)))
        ax.axvline(0, color="0.6", lw=0.8)
        ax.set(title=word, xlabel="nearest to the zero set minus most activating")
    caption = (
        "Each dot is a data set, the mean of its networks; the large dot is the mean, the line its 95 % interval, "
        "or the range of fewer than five."
    )
    means = [gaps(table, m).groupby("activation")["gap"].mean() for m in MEASURES]
    worse, count = sum(int((mean < 0).sum()) for mean in means), sum(map(len, means))
    heading = f"The points nearest to zero sets predict worse in {worse} of {count} comparisons"
    return Figure("reading-gaps", heading, to_svg(drawing, "reading-gaps", focus=(0,)), caption)
