"""The drawings of the study: accuracies of constrained networks, by data set and by activation."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, figure
from metriscope.studies.published import matching
from metriscope.studies.representation.plan import title
from metriscope.studies.transfer.plan import ACTIVATIONS, IMAGES, REFERENCE, SUFFIXES

__all__ = ["by_activation", "by_data", "named"]


def named(network: str) -> str:
    """Return the name of a network as pages write it.

    >>> named("gelu2-neg"), named("abs2")
    ('GELU2-Neg', 'Abs2')
    """
    for name, word in ACTIVATIONS.items():
        if network.startswith(name):
            return word + network.removeprefix(name).replace("neg", "Neg")
    return title(network)


def _panels(name: str, heading: str, panels: dict[str, dict[str, pd.Series]], caption: str) -> Figure:
    drawing, axes = figure(9.2, 2.2 * -(-len(panels) // 2), -(-len(panels) // 2), 2)
    for ax, (text, groups) in zip(axes.flat, panels.items(), strict=False):
        strip(ax, groups, dict(zip(groups, CYCLE, strict=False)))
        ax.set(title=text, xlabel="test accuracy, %")
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    return Figure(name, heading, to_svg(drawing, name), caption)


def by_data(table: pd.DataFrame) -> Figure:
    """Draw the six networks of the paper on each data set."""
    panels = {}
    for data in IMAGES:
        rows = matching(table, data=data)
        groups = {n: matching(rows, network=n)["test_accuracy"] for n in dict.fromkeys(rows["network"])}
        kept = {named(n): values for n, values in groups.items() if n.startswith(("relu", "abs"))}
        if kept:
            panels[data] = kept
    caption = "Each dot is a start; the large dot is the mean with its 95 % interval."
    return _panels("transfer-data", "The networks of the paper on other images", panels, caption)


def by_activation(table: pd.DataFrame) -> Figure:
    """Draw the three constraints of each activation."""
    rows, panels = matching(table, data=REFERENCE), {}
    for name, word in {"relu": "ReLU", **ACTIVATIONS}.items():
        groups = {named(f"{name}{s}"): matching(rows, network=f"{name}{s}")["test_accuracy"] for s in SUFFIXES}
        if all(len(values) for values in groups.values()):
            panels[word] = groups
    caption = f"On {REFERENCE}. Each dot is a start; the large dot is the mean with its 95 % interval."
    return _panels("transfer-activations", "The constraints with other activations", panels, caption)
