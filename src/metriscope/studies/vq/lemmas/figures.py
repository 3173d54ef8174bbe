"""Figures of the lemmas: one partition and two kernels, and how often the second lemma is strict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from metriscope.report import Figure, to_svg
from metriscope.report.style import COLORS, CYCLE, figure, legend, log_axes
from metriscope.studies.vq.lemmas.measure import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["same_pieces", "strictness"]


def same_pieces(results: Results) -> Figure:
    """Return figure 5: two networks with the same pieces of an interval, and the VQ distances of the pieces."""
    pieces = results.pieces
    count = 2**pieces.layers
    drawing, ((*axes,),) = figure(9.2, 2.9, columns=1 + len(pieces.distances))
    axes[0].plot(pieces.z, pieces.value, color=COLORS["truth"], linewidth=1.2)
    for cut in np.arange(1, count) / count:
        axes[0].axvline(cut, color="0.75", linewidth=0.6)
    axes[0].set(xlabel="input", ylabel="output", title=f"{pieces.layers} units make {count} pieces")
    for ax, (title, distances) in zip(axes[1:], pieces.distances.items(), strict=True):
        image = ax.imshow(distances, cmap="viridis", vmin=0, vmax=count - 1)
        ax.set(title=title, xlabel="piece", ylabel="piece", xticks=[0, count - 1], yticks=[0, count - 1])
        ax.grid(False)
        ax.set_xticklabels(["1", str(count)])
        ax.set_yticklabels(["1", str(count)])
        drawing.colorbar(image, ax=ax, shrink=0.8, label="VQ distance")
    name = "vq-figure-5"
    caption = (
        "Left: the tent map three times over, and the pieces of the interval on which it is affine. Middle and right: "
        "VQ distances of the eight pieces, in order, for this network and for one hidden layer of seven units that "
        "cuts at the same places. Deep, pieces far apart are near wherever the same units see them alike."
    )
    return Figure(name, "Figure 5: the same pieces, two geometries.", to_svg(drawing, name), caption)


def strictness(results: Results) -> Figure:
    """Return how often and by how much the second lemma is strict, by depth, and the tent map's distances."""
    drawing, ((*axes,),) = figure(9.2, 3.2, columns=2)
    _shares(axes[0], results)
    tents = results.tents
    axes[1].plot(tents["layers"], tents["largest graph"], "o-", color=CYCLE[1], label="region graph, 2ᴸ − 1")
    axes[1].plot(tents["layers"], tents["largest VQ"], "s-", color=CYCLE[0], label="VQ")
    log_axes(axes[1], "y")
    axes[1].set(xlabel="layers L, one unit each", ylabel="largest distance", title="Tent map")
    legend(axes[1], "upper left")
    name = "vq-strictness"
    caption = (
        "Left: each dot is a random network, each line a mean. "
        "Right: the largest distance between two pieces of the unit interval."
    )
    return Figure(name, "Lemma 2: how often the region graph is longer.", to_svg(drawing, name), caption)


def _shares(ax: Axes, results: Results) -> None:
    """Draw the share of strict pairs of every network, by depth, Abs to the right of ReLU."""
    depths = sorted(results.networks["depth"].unique())
    for (depth, activation), some in results.networks.groupby(["depth", "activation"]):
        values, color = 100 * some["strict"].to_numpy(), COLORS[str(activation).lower()]
        middle = depths.index(depth) + (0.2 if activation == "Abs" else -0.2)
        across = middle + 0.15 * np.linspace(-1, 1, len(values)) * (len(values) > 1)
        label = str(activation) if depth == depths[0] else None
        ax.plot(across, values, "o", markersize=2.8, color=color, alpha=0.7, markeredgewidth=0, label=label)
        ax.hlines(values.mean(), middle - 0.18, middle + 0.18, color=color, linewidth=1.6)
    ax.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    ax.set(xlabel="hidden layers", ylabel="pairs with VQ < graph, %", title="Random networks")
    legend(ax, "upper left")
