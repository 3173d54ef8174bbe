"""Interactive figures made from numbers that a study measured: they show in a browser what its claims are about.

A panel holds its data as JSON, one instruction, and a description in words for readers who cannot use the figure.
Axes: N points, K units, L levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np
from jaxtyping import Float, Int

from metriscope.report.document import Panel
from metriscope.report.explorer.web_page import encode

__all__ = [
    "Cloud", "CountedPair", "PerturbedNetwork", "StartInPlane", "kernel_scale", "lost_direction", "perturbation",
    "script", "style",
]  # fmt: skip

_PARTS = ("shared.js", "lost_direction.js", "kernel_scale.js", "perturbation.js", "start.js")


@cache
def script() -> str:
    """Return the script of all panels, inside one scope; it does nothing for those that a page does not have."""
    parts = "\n".join(_read(name) for name in _PARTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


@cache
def style() -> str:
    """Return the style of all panels, which uses the colors of the page."""
    return _read("theory.css")


def _read(name: str) -> str:
    return (files("metriscope.report") / "theory" / name).read_text("utf-8")


def _panel(name: str, texts: tuple[str, str, str], data: Mapping[str, object]) -> Panel:
    from markupsafe import escape

    title, instruction, words = texts
    html = (
        f'<div class="theory" data-theory="{name}"><noscript><p>This figure needs its script, which the browser does '
        f'not run.</p></noscript></div><p class="in-words"><b>In words.</b> {escape(words)}</p>'
    )
    return Panel(name, title, html, instruction, data)


@dataclass(frozen=True)
class Cloud:
    """A Gaussian in the plane, and training points ``whitened`` along its principal axes."""

    mean: Float[np.ndarray, 2]
    deviations: Float[np.ndarray, 2]
    angle: float
    whitened: Float[np.ndarray, "n 2"]

    @classmethod
    def of(cls, mean: Float[np.ndarray, 2], cov: Float[np.ndarray, "2 2"], points: Float[np.ndarray, "n 2"]) -> Cloud:
        """Return the cloud of points around a mean.

        >>> cloud = Cloud.of(np.ones(2), np.diag([4.0, 1.0]), np.array([[3.0, 1.0]]))
        >>> cloud.deviations.tolist(), cloud.whitened.round(12).tolist()
        ([2.0, 1.0], [[1.0, 0.0]])
        """
        values, axes = np.linalg.eigh(cov)
        first = axes[:, 1] * np.sign(axes[0, 1] or 1.0)
        second = np.array([-first[1], first[0]])
        deviations = np.sqrt(values[::-1])
        whitened = (points - mean) @ np.column_stack([first, second]) / deviations
        return cls(mean, deviations, float(np.arctan2(first[1], first[0])), whitened)


@dataclass(frozen=True)
class StartInPlane:
    """The weights and biases with which a trial of two Abs units begins, under a name."""

    name: str
    weight: Float[np.ndarray, "2 2"]
    bias: Float[np.ndarray, 2]


def lost_direction(
    cloud: Cloud, starts: Sequence[StartInPlane], recipe: Mapping[str, object], bounds: Mapping[str, float], words: str
) -> Panel:
    """Return the panel in which two Abs units learn a distance, or lose a direction.

    ``recipe``: epochs, lr, betas and eps of Adam. ``bounds``: ``theory``, the loss of one lost direction; ``exact``,
    the share of it below which the distance is learned; ``lost``, the measure below which a direction is lost.
    """
    data = {
        "mean": cloud.mean.tolist(),
        "deviations": cloud.deviations.tolist(),
        "angle": cloud.angle,
        "points": encode(cloud.whitened, "f4"),
        "starts": [{"name": s.name, "weight": s.weight.tolist(), "bias": s.bias.tolist()} for s in starts],
        "recipe": dict(recipe),
        **bounds,
    }
    instruction = (
        "Drag the gray dots to move the Gaussian and the orange ones to move the two units' starting lines, then press "
        "Train. A hollow dot is where its unit reads 1; solid rings are the true distances 1, 2 and 3, dashed ones "
        "what the network has learned. Arrow keys move a dot too."
    )
    return _panel("lost-direction", ("Watch a network lose a direction", instruction, words), data)


@dataclass(frozen=True)
class CountedPair:
    """Two networks on the same points: ``counts[d1, d2]`` pairs of points are d1 apart in one and d2 in the other."""

    title: str
    short: str
    counts: Int[np.ndarray, "h1 h2"]
    alignment: float


def kernel_scale(
    pairs: Sequence[CountedPair],
    depths: Sequence[str],
    forms: Mapping[str, tuple[str, float, float]],
    words: str,
) -> Panel:
    """Return the panel in which a slider sets the scale of heat kernels.

    ``depths`` names the networks of a pair; ``forms`` maps a form of kernel to its formula and its range of scales.
    """
    rows = []
    for pair in pairs:
        first, second = np.nonzero(pair.counts)
        named = {"first": first, "second": second, "count": pair.counts[first, second]}
        packed = {name: encode(values) for name, values in named.items()}
        rows.append({"title": pair.title, "short": pair.short, "alignment": pair.alignment, **packed})
    data = {
        "pairs": rows,
        "depths": list(depths),
        "forms": {name: formula for name, (formula, _, _) in forms.items()},
        "scales": {name: [low, high] for name, (_, low, high) in forms.items()},
        "position": 0.5,
    }
    instruction = (
        "Slide σ²: the black kernel widens over the distances of pairs of images, and the cosine of the two networks' "
        "kernels follows it."
    )
    return _panel("kernel-scale", ("Slide σ² and watch the cosine reverse its answer", instruction, words), data)


@dataclass(frozen=True)
class PerturbedNetwork:
    """How many images a network classifies correctly at each level: with one unit perturbed, and with all units.

    ``one`` and ``every`` are by kind of perturbation; ``published`` holds printed levels and accuracies in per cent.
    """

    name: str
    title: str
    activation: str
    right: int
    one: Mapping[str, Int[np.ndarray, "k l"]]
    every: Mapping[str, Int[np.ndarray, " l"]]
    published: Mapping[str, Sequence[tuple[float, float]]]


def perturbation(
    networks: Sequence[PerturbedNetwork], levels: Mapping[str, Sequence[float]], images: int, words: str
) -> Panel:
    """Return the panel in which one unit, or all of them, are scaled, clipped or shifted."""
    rows = {
        each.name: {
            "title": each.title, "activation": each.activation, "right": each.right,
            "units": len(next(iter(each.one.values()))),
            "one": {kind: encode(counts.ravel()) for kind, counts in each.one.items()},
            "all": {kind: counts.tolist() for kind, counts in each.every.items()},
        }
        for each in networks
    }  # fmt: skip
    data = {
        "networks": rows,
        "kinds": {kind: {"levels": list(some), "log": kind != "offset"} for kind, some in levels.items()},
        "published": {each.name: {kind: list(pairs) for kind, pairs in each.published.items()} for each in networks},
        "images": images,
    }
    instruction = (
        "Choose a perturbation of all hidden units or of one, and slide its level: the left drawing shows the "
        "unit, the right one the accuracy. Hollow diamonds are the published values, for all units at once."
    )
    return _panel("perturbation", ("Perturb units and watch accuracy", instruction, words), data)
