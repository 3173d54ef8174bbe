"""The Mahalanobis study's figures: from measured numbers to inline SVG.

Axes: S trials, T recorded epochs, D directions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from metriscope.probes import lost_directions
from metriscope.report import Figure, to_svg
from metriscope.report.plots import band, identity_scatter, scatter_with_hyperplanes, spectrum, strip
from metriscope.report.style import COLORS, figure, legend, log_axes
from metriscope.studies.mahalanobis.measure import Results
from metriscope.studies.mahalanobis.plan import NAME, Plan
from metriscope.studies.mahalanobis.starts.measure import curve
from metriscope.studies.mahalanobis.trials.measure import TITLES
from metriscope.studies.mahalanobis.trials.plan import METRICS
from metriscope.studies.published import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["curves", "distributions", "eigenvalues", "gaussians", "hyperplanes", "metric_spectra"]


def hyperplanes(results: Results) -> Figure:
    """Draw the 2-D data with learned hyperplanes and contours: the truth, each best run, a failed Abs run."""
    shown = results.panels
    drawing, axes = figure(9.2, 2.9 * -(-len(shown) // 3), -(-len(shown) // 3), 3)
    for ax, panel in zip(axes.flat, shown, strict=False):
        scatter_with_hyperplanes(ax, results.points, panel.weight, panel.bias, panel.distance, panel.title)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    caption = (
        "Training points (gray), their mean (cross), the units' hyperplanes (lines) and where the network's distance "
        "is 1, 2 and 3 (dashed). Abs that has lost a direction measures along one axis only: its contours run along "
        "the other."
    )
    return Figure("hyperplanes-2d", "Hyperplanes and distances in 2-D", to_svg(drawing, "hyperplanes-2d"), caption)


def curves(plan: Plan, results: Results) -> Figure:
    """Draw training losses with bands, one row per dimension, one column per start."""
    dims, starts = list(plan.sizes), plan.starts
    drawing, axes = figure(9.2, 2.6 * len(dims) + 0.2, len(dims), len(starts))
    for i, dim in enumerate(dims):
        for ax, start in zip(axes[i], starts, strict=True):
            for activation in plan.activations:
                epochs, losses = curve(results.tables["history"], dim, start, activation)
                label, color = TITLES[activation], COLORS[activation]
                band(ax, epochs + 1, np.maximum(losses, 1e-12), label, color, log="xy")
            ax.set(title=f"{dim}-D from {start}", xlabel="epoch", ylabel="training MSE")
        low = min(ax.get_ylim()[0] for ax in axes[i])
        high = max(ax.get_ylim()[1] for ax in axes[i])
        for ax in axes[i]:
            ax.set_ylim(max(low, 1e-11), high)
    legend(axes[0, 0], "lower left")
    caption = "Median over trials, the band of the middle 80 %, and the extremes as thin lines. Both axes logarithmic."
    return Figure("loss-curves", "Training losses", to_svg(drawing, "loss-curves"), caption)


def distributions(plan: Plan, results: Results) -> Figure:
    """Draw each metric's distribution over trials, one column per dimension, with the published value."""
    names = ("train_mse", "test_mse", "centering", "sphericity", "data_sphericity", "rank")
    metrics = [m for m in METRICS if m.name in names]
    dims = list(plan.sizes)
    drawing, axes = figure(9.2, 1.55 * len(metrics), len(metrics), len(dims))
    for i, metric in enumerate(metrics):
        for ax, dim in zip(axes[i], dims, strict=True):
            _distribution(ax, plan, results, dim, metric.name)
            if i == 0:
                ax.set_title(f"{dim}-D")
            ax.set_xlabel(metric.title)
    caption = (
        "Each dot is a trial from a random start; the large dot is the mean with its 95 % interval. The hollow diamond "
        "is the published mean, its line the published extremes where they are printed (for new points: the best run)."
    )
    return Figure("distributions", "Every metric over all trials", to_svg(drawing, "distributions"), caption)


def _distribution(ax: Axes, plan: Plan, results: Results, dim: int, metric: str) -> None:
    groups, printed = {}, {}
    for activation in plan.activations:
        values = results.select(dim=dim, start="random", activation=activation)[metric].dropna().to_numpy()
        if len(values):
            groups[TITLES[activation]] = values
            printed[TITLES[activation]] = _printed(dim, activation, metric)
    colors = {TITLES[a]: COLORS[a] for a in plan.activations}
    positive = groups and min(v.min() for v in groups.values()) > 0
    strip(ax, groups, colors, printed)
    if positive and metric in ("train_mse", "test_mse", "centering"):
        log_axes(ax, "x")


def _printed(dim: int, activation: str, metric: str) -> tuple[float, float, float] | None:
    table = published(NAME)
    row = table[(table["dim"] == dim) & (table["activation"] == activation) & (table["metric"] == metric)]
    if row.empty:
        return None
    values = row.iloc[0]
    mean = values["mean"] if not pd.isna(values["mean"]) else values["best"]
    low, high = (values[k] if not pd.isna(values[k]) and values[k] > 0 else mean for k in ("minimum", "maximum"))
    return (float(mean), float(low), float(high)) if mean > 0 else None


def eigenvalues(plan: Plan, results: Results) -> Figure:
    """Draw recovered against true eigenvalues, one column per dimension, all trials from random starts."""
    dims = list(plan.sizes)
    drawing, axes = figure(9.2, 3.2, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        for activation in ("sigmoid", "relu", "abs"):
            part = _part(results.tables["recovery"], dim, "random", activation)
            if len(part):
                truth, estimates = (part.pivot(index="trial", columns="axis", values=k) for k in _RECOVERED)
                label, color = TITLES[activation], COLORS[activation]
                identity_scatter(ax, truth.to_numpy()[0], estimates.to_numpy(), label, color)
        ax.set(title=f"{dim}-D", xlabel="true eigenvalue", ylabel="1 / ‖w‖² of the matched unit")
    legend(axes[0, 0], "upper left")
    caption = "Units matched to principal axes by the best total |cosine|. On the dashed diagonal it is recovered."
    return Figure("eigenvalues", "Eigenvalue recovery", to_svg(drawing, "eigenvalues"), caption)


_RECOVERED = ("eigenvalue", "estimate")


def _part(table: pd.DataFrame, dim: int, start: str, activation: str) -> pd.DataFrame:
    """Return the rows of the main Gaussian of a dimension."""
    main = (table["dim"] == dim) & (table["gaussian"] == 0)
    return table[main & (table["start"] == start) & (table["activation"] == activation)]


def metric_spectra(plan: Plan, results: Results) -> Figure:
    """Draw the eigenvalues of the learned metric in whitened coordinates: 1 is right, 0 is lost."""
    dims, starts = list(plan.sizes), plan.starts[:2]
    drawing, axes = figure(9.2, 2.5 * len(starts), len(starts), len(dims))
    for i, start in enumerate(starts):
        for ax, dim in zip(axes[i], dims, strict=True):
            for activation in ("relu", "abs"):
                part = _part(results.tables["spectra"], dim, start, activation)
                if len(part):
                    values = part.pivot(index="trial", columns="direction", values="eigenvalue").to_numpy()
                    spectrum(ax, values, TITLES[activation], COLORS[activation], np.ones(dim))
            ax.set(title=f"{dim}-D from {start}", xlabel="direction, best measured first", ylabel="eigenvalue")
            ax.set_ylim(-0.08, min(max(2.0, ax.get_ylim()[1]), 4.0))
    legend(axes[0, 0], "lower left")
    caption = (
        "Eigenvalues of the learned metric after whitening with the true covariance: median and middle 80 % over "
        "trials. The dashed line at 1 is the Mahalanobis distance; at 0 is a direction that the network does not see."
    )
    return Figure("metric-spectra", "Which directions are measured", to_svg(drawing, "metric-spectra"), caption)


def gaussians(plan: Plan, results: Results) -> Figure:
    """Draw the mean loss on each further Gaussian beside the published mean."""
    table = results.tables["gaussians"]
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(9.2, 2.2, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        part = table[table["dim"] == dim]
        groups = {TITLES[a]: part[part["activation"] == a]["mse"].to_numpy() for a in plan.activations}
        printed = {TITLES[a]: _printed(dim, a, "train_mse") for a in plan.activations}
        strip(ax, groups, {TITLES[a]: COLORS[a] for a in plan.activations}, printed)
        if dim > 1:
            ax.axvline(lost_directions(dim, 1).loss, color=COLORS["truth"], linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="mean training MSE over the trials of one Gaussian")
    caption = (
        "Each dot is another Gaussian, drawn and trained by the same protocol. Hollow diamonds: the published mean, "
        "with the published extremes over trials. Dashed: the loss that theory gives for one lost direction."
    )
    return Figure("gaussians", "How much depends on the Gaussian", to_svg(drawing, "gaussians"), caption)
