"""The drawings of the study: losses of all starts, how they fall, and ranks with their critical difference."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Figure, number, to_svg
from metriscope.report.plots import panels, strip
from metriscope.report.style import CYCLE, legend
from metriscope.studies.heads.figures import rank_figure
from metriscope.studies.initialization.measure import gains, references, standing
from metriscope.studies.initialization.plan import ENTRIES, KINDS
from metriscope.studies.tidy_tables import matching

__all__ = ["curves", "losses", "ranks"]

# The starts whose curves are drawn; all of them would hide each other.
DRAWN = ("kaiming", "orthogonal", "lsuv", "points", "clusters", "model")


def losses(table: pd.DataFrame) -> Figure:
    """Draw the loss of every start minus that of the reference, one panel per kind of data."""
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
        "(mean over starts and activations); the large dot is the mean, the line its 95 % interval, "
        "or the range of fewer than five."
    )
    kind, reference = next(iter(known.items()))
    means = gains(table, kind).drop(columns=reference).mean()
    best, share = ENTRIES[str(means.idxmin())], number(10.0 ** float(means.min()), 2)
    heading = f"{KINDS[kind]}: the start “{best}” ends with {share} times the loss of “{ENTRIES[reference]}”"
    return Figure("starts-losses", heading, to_svg(drawing, "starts-losses"), caption)


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
    # Room for the names below the curves.
    low, high = axes[0].get_ylim()
    axes[0].set_ylim(low - 0.45 * (high - low), high)
    legend(axes[0], "lower left", 2)
    caption = "Loss on new points, mean of its logarithm over data sets, activations and starts."
    return Figure("starts-curves", _ahead(table, kinds), to_svg(drawing, "starts-curves"), caption)


def _ahead(table: pd.DataFrame, kinds: list[str]) -> str:
    """Return a sentence on where the first loss of a start from clusters is below the last loss of the usual start."""
    ahead = 0
    for kind in kinds:
        ends = [matching(table, kind=kind, entry=entry) for entry in ("clusters", "kaiming")]
        first, last = ends[0]["check"].min(), ends[1]["check"].max()
        begins, stops = (
            rows[rows["check"] == at]["log_loss"].mean() for rows, at in zip(ends, (first, last), strict=True)
        )
        ahead += bool(begins < stops)
    one, other = ENTRIES["clusters"], ENTRIES["kaiming"]
    return f"“{one}” begins with a lower loss than “{other}” ends with on {ahead} of {len(kinds)} kinds of data"


def ranks(table: pd.DataFrame, kind: str) -> Figure | None:
    """Draw average ranks by the loss."""
    found = standing(table, kind)
    if found is None:
        return None
    ranking, names = found
    group = f"Average over {len(gains(table, kind))} data sets. Starts"
    titles, score = [ENTRIES[name] for name in names], "the loss on new points"
    return rank_figure(f"starts-{kind}-ranks", f"Ranks of starts: {KINDS[kind]}", ranking, titles, score, group)
