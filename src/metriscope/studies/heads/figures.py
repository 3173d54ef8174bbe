"""The drawings of the study: accuracies by variant, and what distances go with."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, figure
from metriscope.studies.published import matching
from metriscope.studies.representation.plan import title

__all__ = ["TITLES", "accuracies", "distances"]

TITLES = {
    "trained": "μ trained",
    "frozen": "μ frozen at its start",
    "placed": "μ from its target, trained",
    "fast": "μ at 100,000 times the rate",
    "flat": "μ trained, α frozen",
    "fast flat": "μ at 100,000 times the rate, α frozen",
}
REFERENCES = {"own": "Mahalanobis, own class", "euclid": "Euclid, own class", "other": "Mahalanobis, other classes"}


def accuracies(table: pd.DataFrame) -> Figure:
    """Draw the test accuracy of every run, one panel per network, one row per variant."""
    networks = list(dict.fromkeys(table["network"]))
    drawing, axes = figure(9.2, 2.3 * -(-len(networks) // 2), -(-len(networks) // 2), 2)
    colors = dict(zip(TITLES.values(), CYCLE * 2, strict=False))
    for ax, network in zip(axes.flat, networks, strict=False):
        parts = {v: matching(table, network=network, variant=v)["test_accuracy"].to_numpy() for v in TITLES}
        strip(ax, {TITLES[v]: values for v, values in parts.items() if len(values)}, colors)
        ax.set(title=title(network), xlabel="test accuracy, %")
    for ax in axes.flat[len(networks) :]:
        ax.set_axis_off()
    caption = "Each dot is a start; the large dot is the mean with its 95 % interval."
    return Figure("offset-accuracies", "What training μ and α changes", to_svg(drawing, "offset-accuracies"), caption)


def distances(table: pd.DataFrame) -> Figure:
    """Draw the rank correlations of outputs with distances, for the networks whose smallest distance wins."""
    rows = matching(table, negated=True)
    shown = [v for v in ("trained", "fast") if v in set(rows["variant"])]
    networks = list(dict.fromkeys(rows["network"]))
    drawing, axes = figure(9.2, 1.9 * len(shown), len(shown), len(networks))
    colors = dict(zip(REFERENCES.values(), CYCLE, strict=False))
    for line, variant in zip(axes, shown, strict=True):
        for ax, network in zip(line, networks, strict=True):
            part = matching(rows, network=network, variant=variant)
            strip(ax, {text: part[name].to_numpy() for name, text in REFERENCES.items()}, colors)
            ax.set(title=f"{title(network)}, {TITLES[variant]}", xlabel="rank correlation over test images")
    caption = (
        "How far each output, the distance to the center of a class, orders test images as other distances do: the "
        "Mahalanobis distance of the class in principal components of the training images, the Euclidean distance to "
        "the class mean, and the Mahalanobis distances of the other classes. Mean over classes; each dot is a start."
    )
    return Figure("offset-distances", "What the outputs measure", to_svg(drawing, "offset-distances"), caption)
