"""Figures of the lemmas: one partition and two kernels, and how often the second lemma is strict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from metriscope.report import Figure, to_svg
from metriscope.report.style import COLOURS, CYCLE, figure, legend, log_axes
from metriscope.studies.vq.lemmas import Lemmas, Steps, Tent
from metriscope.vq import linear_regions, vq_kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["same_pieces", "strictness"]

SHOWN = 3


def same_pieces() -> Figure:
    """Return figure 5: two networks with the same pieces of an interval, and the VQ distances of the pieces."""
    drawing, ((*axes,),) = figure(9.2, 2.9, columns=3)
    z = torch.linspace(0, 1, 401, dtype=torch.float64)[:, None]
    axes[0].plot(z.numpy(), Tent(SHOWN)(z).numpy(), color=COLOURS["truth"], linewidth=1.2)
    for cut in np.arange(1, 2**SHOWN) / 2**SHOWN:
        axes[0].axvline(cut, color="0.75", linewidth=0.6)
    axes[0].set(xlabel="input", ylabel="output", title=f"{SHOWN} units make {2**SHOWN} pieces")
    for ax, (title, model) in zip(axes[1:], _networks().items(), strict=True):
        partition = linear_regions(model, bounds=(0.0, 1.0))
        order = np.argsort(partition.centres[:, 0])
        distances = vq_kernel(partition.patterns[order])
        image = ax.imshow(distances, cmap="viridis", vmin=0, vmax=2**SHOWN - 1)
        ax.set(title=title, xlabel="piece", ylabel="piece", xticks=[0, 7], yticks=[0, 7])
        ax.grid(False)
        ax.set_xticklabels(["1", "8"])
        ax.set_yticklabels(["1", "8"])
        drawing.colorbar(image, ax=ax, shrink=0.8, label="VQ distance")
    name = "vq-figure-5"
    caption = (
        "Left: the tent map three times over, and the pieces of the interval on which it is affine. Middle and right: "
        "VQ distances of the eight pieces, in order, for this network and for one hidden layer of seven units that "
        "cuts at the same places. Deep, pieces far apart are near wherever the same units see them alike."
    )
    return Figure(name, "Figure 5: the same pieces, two geometries.", to_svg(drawing, name), caption)


def _networks() -> dict[str, torch.nn.Module]:
    return {"deep: 3 layers of 1": Tent(SHOWN), "shallow: 1 layer of 7": Steps(2**SHOWN)}


def strictness(lemmas: Lemmas) -> Figure:
    """Return how often and by how much the second lemma is strict, by depth, and the tent map's distances."""
    drawing, ((*axes,),) = figure(9.2, 3.2, columns=2)
    _shares(axes[0], lemmas)
    tents = lemmas.tents
    axes[1].plot(tents["layers"], tents["largest graph"], "o-", color=CYCLE[1], label="region graph, 2ᴸ − 1")
    axes[1].plot(tents["layers"], tents["largest VQ"], "s-", color=CYCLE[0], label="VQ")
    log_axes(axes[1], "y")
    axes[1].set(xlabel="layers L, one unit each", ylabel="largest distance", title="Tent map")
    legend(axes[1], "upper left")
    name = "vq-strictness"
    caption = (
        "Left: each dot is a random network, each line a mean; with one hidden layer no pair differs, as lemma 1 says. "
        "Right: the largest distance between two pieces of the unit interval."
    )
    return Figure(name, "Lemma 2: how often the region graph is longer.", to_svg(drawing, name), caption)


def _shares(ax: Axes, lemmas: Lemmas) -> None:
    """Draw the share of strict pairs of every network, by depth, Abs to the right of ReLU."""
    depths = sorted(lemmas.networks["depth"].unique())
    for (depth, activation), some in lemmas.networks.groupby(["depth", "activation"]):
        values, colour = 100 * some["strict"].to_numpy(), COLOURS[str(activation).lower()]
        middle = depths.index(depth) + (0.2 if activation == "Abs" else -0.2)
        across = middle + 0.15 * np.linspace(-1, 1, len(values)) * (len(values) > 1)
        label = str(activation) if depth == depths[0] else None
        ax.plot(across, values, "o", markersize=2.8, color=colour, alpha=0.7, markeredgewidth=0, label=label)
        ax.hlines(values.mean(), middle - 0.18, middle + 0.18, color=colour, linewidth=1.6)
    ax.set_xticks(range(len(depths)), [str(depth) for depth in depths])
    ax.set(xlabel="hidden layers", ylabel="pairs with VQ < graph, %", title="Random networks")
    legend(ax, "upper left")
