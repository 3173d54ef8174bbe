"""The drawings of the contests: ranks with their critical difference, and one score against another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from metriscope.functional import Ranking
from metriscope.report import Figure, to_svg
from metriscope.report.plots import panels
from metriscope.report.style import CYCLE, figure, legend
from metriscope.studies.heads.measure import means, standing
from metriscope.studies.heads.plan import CONTESTS, HEADINGS
from metriscope.studies.tidy_tables import matching

__all__ = ["few_points", "named", "rank_figure", "ranks", "reliability_diagram", "shares"]

# Points that a bin of confidence must hold to be drawn.
LEAST = 50
# Heads whose confidence and accuracy with few points are drawn: a line each, so not all of them.
SHOWN = ("linear", "offset-l2", "mahalanobis", "mahalanobis-shared", "cosine", "nearest-mean")


def named(entry: str) -> str:
    """Return the title of an entry.

    >>> named("offset-l2, from data")
    'OffsetL2, from data'
    """
    head, comma, rest = entry.partition(",")
    return HEADINGS.get(head, head) + comma + rest


def rank_figure(name: str, heading: str, ranking: Ranking, titles: Sequence[str], score: str, group: str) -> Figure:
    """Draw average ranks; whatever is within the critical difference of the best shares its band.

    ``score``: what is ranked by; ``group``: how the caption begins, on what and over how many data sets.
    """
    order = ranking.ranks.argsort()[::-1]
    drawing, axes = figure(5.4, 0.8 + 0.22 * len(titles))
    ax, best = axes[0, 0], float(ranking.ranks.min())
    ax.axvspan(best, best + ranking.critical_difference, color=CYCLE[0], alpha=0.12, linewidth=0)
    ax.plot(ranking.ranks[order], np.arange(len(titles)), "o", color=CYCLE[0])
    ax.set_yticks(np.arange(len(titles)), [titles[place] for place in order])
    ax.set(xlabel=f"average rank by {score} (1 is best)")
    caption = (
        f"{group} in the band do not differ significantly from the best by Nemenyi's test at the level "
        f"{ranking.alpha:.0%} (critical difference {ranking.critical_difference:.2f}; "
        f"Friedman's p = {ranking.p_value:.2g})."
    )
    return Figure(name, heading, to_svg(drawing, name), caption)


def ranks(table: pd.DataFrame, contest: str) -> Figure | None:
    """Draw average ranks by accuracy."""
    found = standing(table, contest, "accuracy")
    if found is None:
        return None
    ranking, names = found
    count = len(means(table[table["counted"]], contest, "accuracy"))
    tied = int((ranking.ranks <= ranking.ranks.min() + ranking.critical_difference).sum())
    best = named(names[int(ranking.ranks.argmin())])
    heading = f"{CONTESTS[contest].title}: {tied} of {len(names)} do not differ significantly from the best, {best}"
    group = f"Average over {count} data sets. Entries"
    return rank_figure(
        f"contest-{contest}-ranks", heading, ranking, [named(name) for name in names], "test accuracy", group
    )


def shares(table: pd.DataFrame) -> Figure | None:
    """Draw the accuracy minus that of ReLU alone against the share of Abs units, one line per data set."""
    rows = matching(table, contest="mixtures")
    pure = {e.name: e.share for e in CONTESTS["mixtures"].entries if e.hidden == 64 and not e.rewritten}
    if rows.empty or not set(pure) <= set(rows["entry"]):
        return None
    wide = means(table, "mixtures", "accuracy")[list(pure)]
    drawing, axes = figure(7.5, 3.2)
    ax = axes[0, 0]
    for place, (data, values) in enumerate(wide.iterrows()):
        gain = values.to_numpy() - values.iloc[0]
        ax.plot(list(pure.values()), gain, "o-", color=CYCLE[place % len(CYCLE)], alpha=0.8, linewidth=1, markersize=3)
        ax.annotate(str(data), (1.01, gain[-1]), fontsize=7, va="center")
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.set(xlabel="share of units that are Abs", ylabel="points above ReLU alone", xlim=(-0.03, 1.25))
    caption = "Mean over starts, on equal numbers of units, parameters and hyperplanes. The rest of the units is ReLU."
    return Figure("contest-shares", "Replacing ReLU by Abs, unit by unit", to_svg(drawing, "contest-shares"), caption)


def few_points(table: pd.DataFrame) -> Figure | None:
    """Draw the accuracy with 5, 20 and 100 training points per class, one panel per data set."""
    rows = matching(table, contest="few")
    if rows.empty:
        return None
    sets = list(dict.fromkeys(rows["data"]))
    drawing, axes = panels(len(sets), 2.6)
    for ax, data in zip(axes, sets, strict=True):
        for color, entry in zip(CYCLE, SHOWN, strict=True):
            part = matching(rows, data=data, entry=entry).groupby("per_class")["accuracy"].mean()
            ax.plot(part.index, part, "o-", color=color, label=named(entry), linewidth=1.2, markersize=3)
        ax.set(title=data, xlabel="training points per class", ylabel="test accuracy, %", xscale="log")
        ax.set_xticks(sorted(set(rows["per_class"])), [str(n) for n in sorted(set(rows["per_class"]))])
    legend(axes[0])
    caption = "Mean over five starts, each with training points of its own."
    return Figure("contest-few", "Heads with few training points", to_svg(drawing, "contest-few"), caption)


def reliability_diagram(bins: pd.DataFrame) -> Figure | None:
    """Draw accuracy against confidence, as trained and after temperature scaling; None without records of bins."""
    rows = matching(bins, contest="heads", per_class=0, counted=True) if len(bins) else bins
    if rows.empty:
        return None
    drawing, axes = figure(9.2, 3.6, 1, 2)
    for ax, (scaled, title) in zip(
        axes.flat, {False: "As trained", True: "After temperature scaling"}.items(), strict=True
    ):
        ax.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
        for color, entry in zip(CYCLE, SHOWN, strict=True):
            sums = matching(rows, scaled=scaled, entry=entry).groupby("bin")[["count", "confidence", "right"]].sum()
            sums = sums[sums["count"] >= LEAST]
            x, y = (sums[name] / sums["count"] for name in ("confidence", "right"))
            ax.plot(x, y, "o-", color=color, label=named(entry), linewidth=1.2, markersize=3)
        ax.set(title=title, xlabel="confidence", ylabel="share classified correctly")
    legend(axes.flat[0], "upper left")
    caption = (
        f"Test points of {rows['data'].nunique()} data sets and all starts in bins of confidence, of at least {LEAST} "
        "points. On the gray line confidence equals accuracy; below it a classifier is overconfident."
    )
    name, off = "contest-reliability", {}
    for scaled, part in rows[rows["entry"].isin(SHOWN)].groupby("scaled"):
        sums = part.groupby(["entry", "bin"])[["count", "confidence", "right"]].sum()
        off[scaled] = float((sums["confidence"] - sums["right"]).abs().sum() / sums["count"].sum())
    heading = f"Confidence is off by {off[False]:.3f} as trained, by {off[True]:.3f} after temperature scaling"
    return Figure(name, heading, to_svg(drawing, name), caption)
