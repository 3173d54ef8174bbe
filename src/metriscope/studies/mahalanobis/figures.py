"""The Mahalanobis study's figures: from measured numbers to inline SVG.

Axes: S trials, T recorded epochs, D directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pandas as pd

from metriscope.probes import lost_directions
from metriscope.report import Figure, to_svg
from metriscope.report.plots import band, identity_scatter, panels, scatter_with_hyperplanes, spectrum, strip
from metriscope.report.style import COLORS, figure, legend, log_axes
from metriscope.studies.mahalanobis.measure import MahalanobisResults
from metriscope.studies.mahalanobis.plan import METRICS, NAME, MahalanobisPlan, Measurement
from metriscope.studies.mahalanobis.trials import TITLES, curve
from metriscope.studies.tidy_tables import matching, published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["beside_published", "curves", "distributions", "eigenvalues", "gaussians", "hyperplanes", "metric_spectra"]


def hyperplanes(results: MahalanobisResults) -> Figure:
    """Draw the 2-D data with learned hyperplanes and contours: the truth, each best run, a failed Abs run."""
    drawing, axes = panels(len(results.panels), 2.9, 3)
    for ax, panel in zip(axes, results.panels, strict=True):
        scatter_with_hyperplanes(ax, results.points, panel.weight, panel.bias, panel.distance, panel.title)
    caption = (
        "Training points (gray), their mean (cross), the units' hyperplanes (lines) and where the network's distance "
        "is 1, 2 and 3 (dashed). Abs that has lost a direction measures along one axis only: its contours run along "
        "the other."
    )
    abs_trials = results.select(dim=2, start="random", activation="abs")
    lost = int((abs_trials["lost"] > 0).sum())
    heading = (
        f"{lost} of {len(abs_trials)} Abs trials in 2-D lose a direction" if len(abs_trials) else "Distances in 2-D"
    )
    # If a trial failed, the most informative panels are its own and that of the best run.
    row = (1, 2) if lost and len(axes) > 2 else (0,)
    return Figure("hyperplanes-2d", heading, to_svg(drawing, "hyperplanes-2d", focus=row), caption)


def curves(plan: MahalanobisPlan, results: MahalanobisResults) -> Figure:
    """Draw training losses with bands, one row per dimension, one column per start."""
    drawing, axes = figure(9.2, 2.6 * len(plan.sizes) + 0.2, len(plan.sizes), len(plan.starts))
    for row, dim in zip(axes, plan.sizes, strict=True):
        for ax, start in zip(row, plan.starts, strict=True):
            for activation in plan.activations:
                epochs, losses = curve(results.tables["history"], dim, start, activation)
                shown = np.maximum(losses, 1e-12)
                band(ax, epochs + 1, shown, TITLES[activation], COLORS[activation], log="xy")
            ax.set(title=f"{dim}-D from {start}", xlabel="epoch", ylabel="training MSE")
        lows, highs = zip(*(ax.get_ylim() for ax in row), strict=True)
        for ax in row:
            ax.set_ylim(max(min(lows), 1e-11), max(highs))
    legend(axes[0, 0], "lower left")
    caption = "Median over trials, the band of the middle 80 %, and the extremes as thin lines. Both axes logarithmic."
    return Figure("loss-curves", "Training losses", to_svg(drawing, "loss-curves"), caption)


def distributions(plan: MahalanobisPlan, results: MahalanobisResults) -> Figure:
    """Draw each metric's distribution over trials, one column per dimension, with the published value."""
    names = ("train_mse", "test_mse", "centering", "sphericity", "data_sphericity", "rank")
    metrics = [m for m in METRICS if m.name in names]
    drawing, axes = figure(9.2, 1.55 * len(metrics), len(metrics), len(plan.sizes))
    for row, metric in zip(axes, metrics, strict=True):
        for ax, dim in zip(row, plan.sizes, strict=True):
            trials = results.select(dim=dim, start="random")
            found = {a: matching(trials, activation=a)[metric.name].dropna().to_numpy() for a in plan.activations}
            groups = {a: values for a, values in found.items() if len(values)}
            beside_published(ax, groups, dim, metric.name)
            positive = groups and min(v.min() for v in groups.values()) > 0
            if positive and metric.name in ("train_mse", "test_mse", "centering"):
                log_axes(ax, "x")
            ax.set_xlabel(metric.title)
    for ax, dim in zip(axes[0], plan.sizes, strict=True):
        ax.set_title(f"{dim}-D")
    caption = (
        "Each dot is a trial from a random start; the large dot is the mean with its 95 % interval. The hollow diamond "
        "is the published mean, its line the published extremes where they are printed (for new points: the best run)."
    )
    return Figure("distributions", "Every metric over all trials", to_svg(drawing, "distributions"), caption)


def beside_published(ax: Axes, groups: Mapping[str, npt.ArrayLike], dim: int, metric: str) -> None:
    """Draw values by activation beside the published ones."""
    printed = {TITLES[a]: _printed(dim, a, metric) for a in groups}
    strip(ax, {TITLES[a]: v for a, v in groups.items()}, {TITLES[a]: COLORS[a] for a in groups}, printed)


def _printed(dim: int, activation: str, metric: str) -> tuple[float, float, float] | None:
    row = matching(published(NAME), dim=dim, activation=activation, metric=metric)
    if row.empty:
        return None
    values = row.iloc[0]
    mean = values["mean"] if not pd.isna(values["mean"]) else values["best"]
    low, high = (values[k] if not pd.isna(values[k]) and values[k] > 0 else mean for k in ("minimum", "maximum"))
    return (float(mean), float(low), float(high)) if mean > 0 else None


def eigenvalues(plan: MahalanobisPlan, results: MahalanobisResults) -> Figure:
    """Draw recovered against true eigenvalues, one column per dimension, all trials from random starts."""
    drawing, axes = figure(9.2, 3.2, 1, len(plan.sizes))
    for ax, dim in zip(axes[0], plan.sizes, strict=True):
        for activation in ("sigmoid", "relu", "abs"):
            where = {"dim": dim, "gaussian": 0, "start": "random", "activation": activation}
            part = matching(results.tables["recovery"], **where)
            if len(part):
                wide = part.pivot(index="trial", columns="axis", values=["eigenvalue", "estimate"])
                truth, found = (wide[name].to_numpy() for name in ("eigenvalue", "estimate"))
                identity_scatter(ax, truth[0], found, TITLES[activation], COLORS[activation])
        ax.set(title=f"{dim}-D", xlabel="true eigenvalue", ylabel="1 / ‖w‖² of the matched unit")
    legend(axes[0, 0], "upper left")
    caption = "Units are matched to principal axes by the best total |cosine|. Dashed diagonal: perfect recovery."
    return Figure("eigenvalues", "Eigenvalue recovery", to_svg(drawing, "eigenvalues"), caption)


def metric_spectra(plan: MahalanobisPlan, results: MahalanobisResults) -> Figure:
    """Draw the eigenvalues of the learned metric in whitened coordinates: 1 is right, 0 is lost."""
    starts = plan.starts[:2]
    drawing, axes = figure(9.2, 2.5 * len(starts), len(starts), len(plan.sizes))
    for row, start in zip(axes, starts, strict=True):
        for ax, dim in zip(row, plan.sizes, strict=True):
            for activation in ("relu", "abs"):
                where = {"dim": dim, "gaussian": 0, "start": start, "activation": activation}
                part = matching(results.tables["spectra"], **where)
                if len(part):
                    values = part.pivot(index="trial", columns="direction", values="eigenvalue").to_numpy()
                    spectrum(ax, values, TITLES[activation], COLORS[activation], np.ones(dim))
            ax.set(title=f"{dim}-D from {start}", xlabel="direction, best measured first", ylabel="eigenvalue")
            ax.set_ylim(-0.08, min(max(2.0, ax.get_ylim()[1]), 4.0))
    legend(axes[0, min(1, len(plan.sizes) - 1)], "lower left")
    caption = (
        "Eigenvalues of the learned metric after whitening with the true covariance: median and middle 80 % over "
        "trials. The dashed line at 1 is the Mahalanobis distance; 0 is a direction that the network does not measure."
    )
    own = results.tables["spectra"]
    own = own[(own["activation"] == "abs") & (own["start"] == "random") & (own["gaussian"] == 0)]
    shares = [
        f"{100 * (part['eigenvalue'] < Measurement.lost).mean():.0f} % in {d}-D" for d, part in own.groupby("dim")
    ]
    heading = f"Abs loses directions: {', '.join(shares)}" if shares else "Which directions are measured"
    return Figure(
        "metric-spectra", heading, to_svg(drawing, "metric-spectra", focus=(min(1, len(plan.sizes) - 1),)), caption
    )


def gaussians(plan: MahalanobisPlan, results: MahalanobisResults) -> Figure:
    """Draw the mean loss on each further Gaussian beside the published mean."""
    table = results.tables["gaussians"]
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(9.2, 2.2, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        groups = {a: matching(table, dim=dim, activation=a)["mse"].to_numpy() for a in plan.activations}
        beside_published(ax, groups, dim, "train_mse")
        if dim > 1:
            ax.axvline(lost_directions(dim, 1).loss, color=COLORS["truth"], linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="mean training MSE over the trials of one Gaussian")
    caption = (
        "Each dot is another Gaussian, drawn and trained by the same protocol. Hollow diamonds: the published mean, "
        "with the published extremes over trials. Dashed: the loss that theory gives for one lost direction."
    )
    return Figure("gaussians", "How much depends on the Gaussian", to_svg(drawing, "gaussians"), caption)
