"""The drawings of the study: losses of all starts, how they fall, and ranks with their critical difference."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import panels, strip
from metriscope.report.style import CYCLE
from metriscope.studies.heads.figures import rank_figure
from metriscope.studies.initialization.measure import gains, references, standing
from metriscope.studies.initialization.plan import ENTRIES, KINDS
from metriscope.studies.tidy_tables import matching

__all__ = ["curves", "losses", "ranks"]

# The starts whose curves are drawn; all of them would hide each other.
DRAWN = ("kaiming", "orthogonal", "lsuv", "points", "clusters", "model")


def losses(table: pd.DataFrame) -> Figure:
    """Draw the loss of every start less that of the reference, one panel per kind of data."""
    known = references(table)
    drawing, axes = panels(len(known), 3.1, width=9.6)
    for ax, (kind, reference) in zip(axes, known.items(), strict=True):
        wide = gains(table, kind).drop(columns=reference)
        groups = {ENTRIES[str(name)]: values for name, values in wide.items()}
        strip(ax, groups, {name: CYCLE[place % len(CYCLE)] for place, name in enumerate(groups)})
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.set(title=KINDS[kind], xlabel=f"log10 of the loss, less that of {ENTRIES[reference]}")
    caption = (
        "Loss on new points after training; left of the line is better. Each dot is a Gaussian, mixture or data set "
        "(mean over starts and activations); the large dot is the mean with its 95 % interval."
    )
    return Figure("starts-losses", "Losses by start", to_svg(drawing, "starts-losses"), caption)


def curves(table: pd.DataFrame) -> Figure:
    """Draw how the loss falls, one panel per kind of data."""
    kinds = list(dict.fromkeys(table["kind"]))
    drawing, axes = panels(len(kinds), 2.7, width=9.6)
    for ax, kind in zip(axes, kinds, strict=True):
        rows = matching(table, kind=kind)
        for color, entry in zip(CYCLE, DRAWN, strict=False):
            part = matching(rows, entry=entry)
            mean = part.groupby(part["check"] / part["checks"])["log_loss"].mean()
            ax.plot(mean.index, mean, color=color, label=ENTRIES[entry], linewidth=1.2)
        ax.set(title=KINDS[kind], xlabel="share of training", ylabel="log10 of the loss")
    axes[0].legend(fontsize=7)
    caption = "Loss on new points, mean of its logarithm over data sets, activations and starts."
    return Figure("starts-curves", "How the loss falls", to_svg(drawing, "starts-curves"), caption)


def ranks(table: pd.DataFrame, kind: str) -> Figure | None:
    """Draw average ranks by the loss."""
    found = standing(table, kind)
    if found is None:
        return None
    ranking, names = found
    group = f"Average over {len(gains(table, kind))} data sets. Starts"
    titles, score = [ENTRIES[name] for name in names], "the loss on new points"
    return rank_figure(f"starts-{kind}-ranks", f"Ranks of starts: {KINDS[kind]}", ranking, titles, score, group)
