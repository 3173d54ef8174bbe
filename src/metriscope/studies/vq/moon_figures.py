"""Figures of the moons, in the plane and on the sphere: from networks and numbers to inline SVG.

Axes: N points, G x G cells of the grid, K components.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from metriscope.data import turn
from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, INK, figure
from metriscope.studies.vq.experiment import Networks, sample
from metriscope.studies.vq.measures import COMPONENTS, disc, euclidean_scaling
from metriscope.studies.vq.spec import ANGLE
from metriscope.vq import VQMDS, capture, vq_kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from metriscope.studies.vq.moons import Moons
    from metriscope.studies.vq.spheres import Spheres

__all__ = ["eigenvectors", "kernel_image", "scalings", "turning"]

CLASSES = (CYCLE[0], CYCLE[1])
PANELS = {"overlap": "Leading eigenspaces", "cosine": "Single eigenvectors", "alignment": "Whole kernels"}


def bare(ax: Axes) -> None:
    """Take grid, ticks and frame away: what is drawn speaks for itself."""
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)


def kernel_image(ax: Axes, distances: np.ndarray) -> None:
    """Draw distances between points in label order; darker is nearer."""
    ax.imshow(distances, cmap="viridis", interpolation="nearest")
    bare(ax)


def _scatter(ax: Axes, points: np.ndarray, labels: np.ndarray, size: float = 3.4) -> None:
    for label, colour in enumerate(CLASSES):
        chosen = points[labels == label]
        ax.plot(*chosen.T, "o", color=colour, markersize=size, alpha=0.8, markeredgewidth=0)


def _fields(networks: Networks, role: str, grid: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return eigenvectors on the disc, on the disc turned as the role's data is, and relative eigenvalues."""
    points = torch.from_numpy(disc(grid)[0])
    model = networks.network(networks.group.seeds[0], role)
    found = VQMDS(n_components=COMPONENTS).fit(capture(model, points.float()))
    # The same components on turned points, by projection, tell which sign corresponds to the first network's.
    back = found.transform(capture(model, turn(points, ANGLE if role == "turned" else 0.0).float()))
    return found.eigenvectors_, back, found.eigenvalues_ / found.eigenvalues_[0]


def eigenvectors(moons: Moons) -> Figure:
    """Draw data, leading eigenvectors and training kernel of one seed, as it is and turned."""
    networks, grid = moons.networks[0], moons.plan.grid
    inside = disc(grid)[1]
    drawing, axes = figure(9.2, 4.1, 2, COMPONENTS + 2)
    reference = _fields(networks, "first", grid)[1]
    for row, role, name in zip(axes, ("first", "turned"), ("Moons", "Turned by π/6"), strict=True):
        points = sample(networks.group, networks.group.seeds[0], role)
        _scatter(row[0], points.x.numpy(), points.y.numpy(), 2.4)
        row[0].set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), aspect="equal", title=name)
        vectors, back, shares = _fields(networks, role, grid)
        for k, ax in enumerate(row[1:-1]):
            image = np.full(inside.shape, np.nan)
            image[inside] = vectors[:, k] * np.sign(back[:, k] @ reference[:, k])
            reach = np.nanmax(np.abs(image))
            ax.imshow(image, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
            ax.set_title(f"λ{'₁₂₃'[k]} / λ₁ = {shares[k]:.2f}")
        model = networks.network(networks.group.seeds[0], role)
        kernel_image(row[-1], vq_kernel(capture(model, points.x)))
        row[-1].set_title("Kernel")
        for ax in row:
            bare(ax)
    caption = (
        "Seed 0. Left: training points. Middle: the three leading eigenvectors of the centred VQ kernel on the unit "
        "disc, each with its eigenvalue relative to the first; red and blue are opposite signs. Right: VQ distances "
        "between the training points in label order, dark where they are near."
    )
    return Figure("vq-eigenvectors", "Figure 1, repeated", to_svg(drawing, "vq-eigenvectors"), caption)


def turning(moons: Moons) -> Figure:
    """Draw every seed of every comparison, one panel a measure."""
    from metriscope.studies.vq.moons import COMPARISONS, MEASURES

    drawing, axes = figure(9.2, 2.7, 1, len(MEASURES))
    colours = dict(zip(COMPARISONS.values(), (CYCLE[0], INK, CYCLE[1], CYCLE[4], CYCLE[3]), strict=True))
    for ax, (measure, title) in zip(axes[0], MEASURES.items(), strict=True):
        strip(ax, {text: moons.values(name, measure) for name, text in COMPARISONS.items()}, colours)
        ax.set(title=PANELS[measure], xlabel=title)
        if ax is not axes[0, 0]:
            ax.set_yticklabels([])
    caption = "Each dot is a seed; the large dot is the mean with its 95 % interval. 1 is perfect agreement."
    return Figure("vq-turning-strip", "What turning back is worth", to_svg(drawing, "vq-turning-strip"), caption)


def scalings(spheres: Spheres) -> Figure:
    """Draw the scalings and kernels of one seed: VQ, turned VQ, random labels, Euclid; training and new points."""
    networks = spheres.networks[0]
    number = networks.group.seeds[0]
    columns = {"first": "VQ", "turned": "VQ, turned data", "shuffled": "VQ, random labels", "": "Euclid"}
    drawing, axes = figure(9.2, 6.6, 3, len(columns))
    for place, (role, name) in enumerate(columns.items()):
        points = sample(networks.group, number, role or "first")
        sets = {"training points": (points.x, points.y), "new points": (points.test_x, points.test_y)}
        for ax, (part, (x, y)) in zip(axes[:2, place], sets.items(), strict=True):
            _scatter(ax, _plane(networks, number, role, x), y.numpy())
            bare(ax)
            ax.set_title(f"{name}: {part}" if place == 0 else name)
            ax.set_box_aspect(1)
        order = np.argsort(points.y.numpy(), kind="stable")
        kernel_image(axes[2, place], _distances(networks, number, role, points.x)[np.ix_(order, order)])
        axes[2, place].set_title("Kernel, training points" if place == 0 else "Kernel")
    caption = (
        "Seed 0. Top: classical scaling of the training points, coloured by the labels that the network was given. "
        "Middle: the same for as many new points, true labels. Bottom: distances in label order, dark where near. The "
        "third network was given random labels, and its training points come apart all the same."
    )
    return Figure("vq-scalings", "Figure 2, repeated, with controls", to_svg(drawing, "vq-scalings"), caption)


def _plane(networks: Networks, number: int, role: str, x: torch.Tensor) -> np.ndarray:
    if not role:
        return euclidean_scaling(x.double().numpy())[0][:, :2]
    return VQMDS(n_components=2).fit(capture(networks.network(number, role), x)).embedding_


def _distances(networks: Networks, number: int, role: str, x: torch.Tensor) -> np.ndarray:
    if not role:
        return torch.cdist(x.double(), x.double()).numpy()
    return vq_kernel(capture(networks.network(number, role), x))
