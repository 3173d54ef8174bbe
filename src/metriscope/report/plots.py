"""Small plots that take numbers and an Axes: bands, strips, hyperplanes, recovered values, spectra.

Axes: ``samples`` is S×T (seeds, then time), ``values`` S×D, ``points`` N×2, ``weight`` K×2, ``bias`` K.
Nothing here makes a legend or a file; a seed without a value is NaN and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from metriscope.report.numbers import mean_interval
from metriscope.report.style import COLORS, CYCLE, FAINT, INK, MUTED, figure, log_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FEW",
    "LABEL_COLORS",
    "band",
    "clip_line",
    "identity_scatter",
    "panels",
    "plane_nodes",
    "quantiles",
    "scatter_with_hyperplanes",
    "spectrum",
    "strip",
]

# Fewer runs than this have neither an interval nor the shape of a distribution in a drawing.
FEW = 5
Array = npt.NDArray[np.float64]
_GOLDEN = (5**0.5 - 1) / 2
_HALO: dict[str, Any] = {"markeredgecolor": "white", "markeredgewidth": 0.8}


def panels(count: int, height: float, columns: int = 2, width: float = 9.2) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels, row by row, each row ``height`` inches high; the rest of the last is blank."""
    rows = -(-count // columns)
    drawing, axes = figure(width, height * rows, rows, columns)
    for ax in axes.flat[count:]:
        ax.set_axis_off()
    return drawing, list(axes.flat[:count])


def quantiles(samples: npt.ArrayLike, levels: tuple[float, ...] = (0.0, 0.1, 0.5, 0.9, 1.0)) -> Array:
    """Return the quantiles over seeds, one row per level; a column without values stays NaN.

    >>> quantiles([[1.0, 5.0], [3.0, np.nan]], (0.5,))
    array([[2., 5.]])
    """
    array = np.atleast_2d(np.asarray(samples, dtype=np.float64))
    result = np.full((len(levels), array.shape[1]), np.nan)
    filled = ~np.isnan(array).all(axis=0)
    result[:, filled] = np.nanquantile(array[:, filled], levels, axis=0)
    return result


def band(ax: Axes, x: npt.ArrayLike, samples: npt.ArrayLike, label: str, color: str, log: str = "") -> None:
    """Draw the median over seeds with its 10–90 % band, and the extremes as thin lines."""
    positions = np.asarray(x, dtype=np.float64)
    low, lower, middle, upper, high = quantiles(samples)
    if len(positions) != len(middle):
        raise ValueError(f"x has {len(positions)} positions, the samples have {len(middle)} columns")
    ax.fill_between(positions, lower, upper, color=color, alpha=0.18, linewidth=0)
    for edge in (low, high):
        ax.plot(positions, edge, color=color, linewidth=0.6, alpha=0.55)
    ax.plot(positions, middle, color=color, linewidth=1.8, label=label, solid_capstyle="round")
    log_axes(ax, log)


def strip(
    ax: Axes,
    groups: Mapping[str, npt.ArrayLike],
    colors: Mapping[str, str] | None = None,
    published: Mapping[str, tuple[float, float, float] | None] | None = None,
) -> None:
    """Draw one row per group: every run, the mean with its 95 % interval, and the published value.

    Fewer than five runs have their range in place of an interval.
    Runs are spread over the height of their row in a fixed order, so equal numbers stay apart.
    """
    for row, (label, values) in enumerate(groups.items()):
        color = (colors or {}).get(label, CYCLE[row % len(CYCLE)])
        runs = np.sort(np.asarray(values, dtype=np.float64).ravel())
        ax.plot(runs, row + _spread(len(runs)), "o", color=color, markersize=4, alpha=0.45, markeredgewidth=0)
        # An interval of two or three runs is wider than anything they show.
        mean, *interval = mean_interval(runs)
        known = runs[~np.isnan(runs)]
        ends = (known[0], known[-1]) if 0 < len(known) < FEW else interval
        _mark(ax, (mean, *ends), row, "o", color)
        printed = (published or {}).get(label)
        if printed is not None:
            _mark(ax, printed, row + 0.36, "D", COLORS["published"])
    ax.set_yticks(range(len(groups)), list(groups))
    ax.set_ylim(len(groups) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.grid(visible=False, axis="y")


def clip_line(weight: npt.ArrayLike, bias: float, bounds: tuple[float, float, float, float]) -> Array | None:
    """Return both ends of the line ``weight · p + bias = 0`` inside the box (x0, x1, y0, y1), or None.

    >>> clip_line([1.0, -1.0], 0.0, (-1.0, 1.0, -2.0, 2.0))
    array([[-1., -1.],
           [ 1.,  1.]])
    """
    normal = np.asarray(weight, dtype=np.float64)
    squared = float(normal @ normal)
    if squared == 0.0:
        return None
    origin, along = -bias * normal / squared, np.array([-normal[1], normal[0]]) / np.sqrt(squared)
    start, end = -np.inf, np.inf
    for place, slope, low, high in zip(origin.tolist(), along.tolist(), bounds[::2], bounds[1::2], strict=True):
        if slope == 0.0 and not low <= place <= high:
            return None
        if slope != 0.0:
            entry, leave = sorted(((low - place) / slope, (high - place) / slope))
            start, end = max(start, entry), min(end, leave)
    if start >= end:
        return None
    ends = origin + np.array([[start], [end]]) * along
    return ends[np.lexsort((ends[:, 1], ends[:, 0]))]


def plane_nodes(points: npt.ArrayLike) -> Array:
    """Return the grid around 2-D data on which :func:`scatter_with_hyperplanes` asks for the distance field.

    >>> plane_nodes([[0.0, 0.0], [1.0, 1.0]]).shape
    (14641, 2)
    """
    xs, ys = _grid(_square_around(np.asarray(points, dtype=np.float64)))
    return np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)


def scatter_with_hyperplanes(
    ax: Axes,
    points: npt.ArrayLike,
    weight: npt.ArrayLike,
    bias: npt.ArrayLike,
    distance_field: Callable[[Array], npt.ArrayLike],
    title: str,
) -> None:
    """Draw 2-D data, its mean, every unit's hyperplane, and where the learned distance is 1, 2 and 3."""
    cloud = np.asarray(points, dtype=np.float64)
    if cloud.ndim != 2 or cloud.shape[1] != 2:
        raise ValueError(f"points on a plane have the shape (N, 2), got {cloud.shape}")
    bounds = _square_around(cloud)
    ax.plot(*cloud.T, "o", color=FAINT, markersize=2.6, markeredgewidth=0, rasterized=len(cloud) > 2000)
    _contours(ax, bounds, np.asarray(distance_field(plane_nodes(cloud)), dtype=np.float64))
    for normal, offset in zip(np.atleast_2d(weight), np.atleast_1d(bias), strict=True):
        ends = clip_line(normal, float(offset), bounds)
        if ends is not None:
            ax.plot(*ends.T, color=INK, linewidth=1.1, alpha=0.85)
    ax.plot(*cloud.mean(axis=0), "X", color=CYCLE[1], markersize=9, zorder=5, **_HALO)
    ax.set(xlim=bounds[:2], ylim=bounds[2:], aspect="equal", title=title)


def identity_scatter(
    ax: Axes, truth: npt.ArrayLike, estimate: npt.ArrayLike, label: str = "", color: str = CYCLE[0]
) -> None:
    """Draw recovered against true values on log axes with the diagonal; values of 0 or less are drawn at the bottom."""
    estimates = np.atleast_2d(np.asarray(estimate, dtype=np.float64))
    truths = np.broadcast_to(np.asarray(truth, dtype=np.float64), estimates.shape).ravel()
    estimates = estimates.ravel()
    shown = (estimates > 0) & (truths > 0)
    lost = (estimates <= 0) & (truths > 0)
    log_axes(ax, "xy")
    reach = np.concatenate([truths[shown], estimates[shown]]) if shown.any() else np.array([0.1, 1.0])
    low, high = float(reach.min()), float(reach.max())
    far = high if high > low else 2 * high
    ax.axline((low, low), (far, far), color=MUTED, linewidth=0.9, dashes=(4, 3), zorder=1)
    ax.plot(truths[shown], estimates[shown], "o", color=color, markersize=4.5, alpha=0.6, label=label, **_HALO)
    if lost.any():
        # Zero has no place on a log axis; leaving it out would hide exactly the directions that were lost.
        floor = np.full(int(lost.sum()), 0.03)
        ax.plot(truths[lost], floor, "v", color=color, markersize=7, transform=ax.get_xaxis_transform(), **_HALO)


def spectrum(ax: Axes, values: npt.ArrayLike, label: str, color: str, reference: npt.ArrayLike | None = None) -> None:
    """Draw eigenvalues in descending order: the median over seeds, its 10–90 % band, and a reference."""
    ordered = -np.sort(-np.atleast_2d(np.asarray(values, dtype=np.float64)), axis=1)
    ranks = np.arange(1, ordered.shape[1] + 1)
    _, lower, middle, upper, _ = quantiles(ordered)
    if reference is not None:
        falling = -np.sort(-np.broadcast_to(np.asarray(reference, dtype=np.float64), ranks.shape))
        ax.plot(ranks, falling, color=COLORS["truth"], linewidth=1.0, dashes=(4, 3), zorder=1)
    ax.fill_between(ranks, lower, upper, color=color, alpha=0.18, linewidth=0)
    marker = "o" if len(ranks) <= 30 else ""
    ax.plot(ranks, middle, color=color, marker=marker, markersize=4.5, linewidth=1.4, label=label, **_HALO)
    if len(ranks) <= 12:
        ax.set_xticks(ranks)


def _spread(count: int) -> Array:
    """Return vertical offsets that spread the points of a row evenly, so that neighbors differ in height."""
    return (np.arange(count, dtype=np.float64) * _GOLDEN % 1.0 - 0.5) * 0.44


def _mark(ax: Axes, summary: tuple[float, float, float], height: float, marker: str, color: str) -> None:
    """Draw a value and its interval; published values are hollow, ours are filled."""
    value, low, high = summary
    ax.plot([low, high], [height, height], color=color, linewidth=1.6, solid_capstyle="round", zorder=3)
    face = "white" if marker == "D" else color
    edge = color if marker == "D" else "white"
    style: dict[str, Any] = {
        "color": face,
        "markeredgecolor": edge,
        "markersize": 5.5 if marker == "D" else 6.5,
    }
    ax.plot([value], [height], marker, markeredgewidth=1.3, zorder=4, **style)


def _square_around(cloud: Array) -> tuple[float, float, float, float]:
    low, high = cloud.min(axis=0), cloud.max(axis=0)
    half = float((high - low).max()) * 0.56 or 1.0
    x, y = (float(value) for value in (low + high) / 2)
    return x - half, x + half, y - half, y + half


def _grid(bounds: tuple[float, float, float, float]) -> tuple[Array, Array]:
    return np.linspace(*bounds[:2], 121), np.linspace(*bounds[2:], 121)


def _contours(ax: Axes, bounds: tuple[float, float, float, float], field: Array) -> None:
    xs, ys = _grid(bounds)
    levels = [level for level in (1.0, 2.0, 3.0) if field.min() < level < field.max()]
    if levels:
        values = field.reshape(len(ys), len(xs))
        lines = ax.contour(xs, ys, values, levels=levels, colors=[CYCLE[0]], linewidths=1.0, linestyles="dashed")
        ax.clabel(lines, fmt="%g", fontsize=8, inline_spacing=2)


# Ten hues that stay apart for color-blind readers as far as ten can; labels beyond them repeat.
LABEL_COLORS = (*CYCLE[:5], "#cc79a7", "#7a5195", "#8c6d1f", "#3d7a5c", "#6b7680")
