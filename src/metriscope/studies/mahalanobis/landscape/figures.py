"""The landscape's figures: losses over Gaussians, lost axes, numbers of units, and predictions.

Axes: G Gaussians, D axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from metriscope.probes import lost_directions
from metriscope.report import Figure, to_svg
from metriscope.report.style import COLORS, CYCLE, MUTED, figure, legend
from metriscope.studies.mahalanobis.figures import beside_published
from metriscope.studies.mahalanobis.landscape.plan import UNITS, LandscapeRule
from metriscope.studies.mahalanobis.trials.measure import TITLES
from metriscope.studies.published import matching

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["exact_shares", "losses", "lost_axes", "predictions"]

Tables = Mapping[str, pd.DataFrame]
WIDTH, HEIGHT = 9.2, 2.6


def losses(tables: Tables) -> Figure:
    """Draw the mean loss on each Gaussian beside the published mean."""
    random = matching(tables["population"], start="random")
    means = random[random["gaussian"] > 0].groupby(["dim", "activation", "gaussian"])["train_mse"].mean().reset_index()
    dims = list(dict.fromkeys(tables["landscape-effects"]["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        groups = {a: matching(means, dim=dim, activation=a)["train_mse"].to_numpy() for a in UNITS}
        beside_published(ax, {a: values for a, values in groups.items() if len(values)}, dim, "train_mse")
        ax.axvline(lost_directions(dim, 1).loss, color=COLORS["truth"], linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="mean training MSE over the trials of one Gaussian")
    caption = (
        "Each dot is a Gaussian; the large dot is the mean over Gaussians with its 95 % interval. Hollow diamonds: the "
        "published mean on one Gaussian, with the published extremes over trials. Dashed: the loss that theory gives "
        "for one lost direction."
    )
    return Figure("landscape-losses", "The loss over Gaussians", to_svg(drawing, "landscape-losses"), caption)


def lost_axes(tables: Tables) -> Figure:
    """Draw how often each principal axis is the one that is lost."""
    table = tables["landscape-lost"]
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        _shares(ax, matching(table, dim=dim), "axis", "Abs", COLORS["abs"])
        ax.set_xticks(range(1, dim + 1))
        ax.axhline(1 / dim, color=MUTED, linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="principal axis, largest variance first", ylabel="share of failed trials")
    caption = (
        "Share of the failed trials of Abs whose last direction lies nearest to each principal axis, with 95 % "
        "bootstrap intervals over Gaussians. Dashed: all axes alike."
    )
    return Figure("landscape-lost-axes", "Which axis is lost", to_svg(drawing, "landscape-lost-axes"), caption)


def exact_shares(tables: Tables) -> Figure:
    """Draw the share of exact trials over the number of units."""
    table = tables["landscape-widths"]
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        for name in dict.fromkeys(table["activation"]):
            part = matching(table, dim=dim, activation=name)
            if len(part):
                _shares(ax, part, "units", TITLES[name], COLORS[name])
        ax.set_xticks(sorted(set(matching(table, dim=dim)["units"])))
        ax.set(title=f"{dim}-D", xlabel="units", ylabel="share of exact trials")
    legend(axes[0, 0], "upper left")
    caption = (
        "Share of trials from random starts that end exact, with 95 % bootstrap intervals over Gaussians. ReLU needs "
        "two units per direction for the exact distance, Abs one."
    )
    return Figure("landscape-units", "More units than directions", to_svg(drawing, "landscape-units"), caption)


def predictions(tables: Tables, rule: LandscapeRule) -> Figure:
    """Draw how often trials on unseen Gaussians end exact, in groups of like predictions."""
    table = matching(tables["landscape-predictions"], target="exact")
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, max(len(dims), 2))
    for ax, dim in zip(axes[0], dims, strict=False):
        part = matching(table, dim=dim).sort_values("predicted", kind="stable")
        for group in np.array_split(np.arange(len(part)), rule.bins):
            some = part.iloc[group]
            ax.plot(some["predicted"].mean(), some["happened"].mean(), "o", color=CYCLE[0], markersize=7)
        ax.axline((0, 0), (1, 1), color=MUTED, linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="predicted probability", ylabel="share that ended exact")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    for ax in axes[0, len(dims) :]:
        ax.set_axis_off()
    caption = (
        f"Trials of Abs on Gaussians that the rule was not fitted on, in {rule.bins} groups of equal size by predicted "
        "probability. Dashed: a calibrated rule."
    )
    title = "Predicted before training, and what happened"
    return Figure("landscape-calibration", title, to_svg(drawing, "landscape-calibration"), caption)


def _shares(ax: Axes, rows: pd.DataFrame, x: str, label: str, color: str) -> None:
    """Draw shares with their intervals over a column."""
    ax.vlines(rows[x], rows["low"], rows["high"], color=color, linewidth=1.4)
    ax.plot(rows[x], rows["share"], "o-", color=color, markersize=5, linewidth=1.0, label=label)
    ax.set_ylim(-0.03, 1.03)
