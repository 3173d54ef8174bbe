"""The drawings of the study: accuracies of constrained networks, by data set and by activation."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metriscope.report import Figure, to_svg
from metriscope.report.plots import panels, strip
from metriscope.report.style import CYCLE
from metriscope.studies.representation.plan import title
from metriscope.studies.tidy_tables import matching
from metriscope.studies.transfer.plan import ACTIVATIONS, BODIES, PAPER, REFERENCE, SHALLOW, SUFFIXES

__all__ = ["by_activation", "by_body", "by_data", "named"]

DOTS = "Each dot is a start; the large dot is the mean, the line its 95 % interval, or the range of fewer than five."


def named(network: str) -> str:
    """Return the name of a network as pages write it.

    >>> named("gelu2-neg"), named("abs2")
    ('GELU2-Neg', 'Abs2')
    """
    for name, word in ACTIVATIONS.items():
        if network.startswith(name):
            return word + network.removeprefix(name).replace("neg", "Neg")
    return title(network)


def _panels(name: str, heading: str, parts: dict[str, dict[str, pd.Series]], caption: str) -> Figure:
    drawing, axes = panels(len(parts), 2.2)
    for ax, (text, groups) in zip(axes, parts.items(), strict=True):
        strip(ax, groups, dict(zip(groups, CYCLE, strict=False)))
        ax.set(title=text, xlabel="test accuracy, %")
    return Figure(name, heading, to_svg(drawing, name), caption)


def _of_paper(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the accuracies of the networks of the paper, by their names on pages."""
    groups = {named(n): matching(rows, network=n)["test_accuracy"] for n in PAPER}
    return {name: values for name, values in groups.items() if len(values)}


def by_data(table: pd.DataFrame) -> Figure:
    """Draw the six networks of the paper on each data set."""
    rows = matching(table, body=SHALLOW)
    found = {data: _of_paper(matching(rows, data=data)) for data in dict.fromkeys(rows["data"])}
    panels = {Path(data).name: groups for data, groups in found.items() if groups}
    costs = {data: g["ReLU2"].mean() - g["ReLU"].mean() for data, g in panels.items() if {"ReLU", "ReLU2"} <= set(g)}
    texts = ", ".join(f"{cost:+.0f} on {data}".replace("-", "−", 1) for data, cost in costs.items())
    heading = f"ReLU2 less ReLU, in points: {texts}" if texts else "The networks of the paper on other images"
    return _panels("transfer-data", heading, panels, DOTS)


def by_body(table: pd.DataFrame) -> Figure | None:
    """Draw the same with more layers, and behind convolutions; None where no such network was trained."""
    found = {row.title: _of_paper(matching(table, body=name)) for name, row in BODIES.items() if name != SHALLOW}
    panels = {title.capitalize(): groups for title, groups in found.items() if groups}
    caption = f"On {REFERENCE}. {DOTS}"
    return _panels("transfer-bodies", "The same constraints on deeper networks", panels, caption) if panels else None


def by_activation(table: pd.DataFrame) -> Figure:
    """Draw the three constraints of each activation."""
    rows, panels = matching(table, data=REFERENCE, body=SHALLOW), {}
    for name, word in {"relu": "ReLU", **ACTIVATIONS}.items():
        groups = {named(f"{name}{s}"): matching(rows, network=f"{name}{s}")["test_accuracy"] for s in SUFFIXES}
        if all(len(values) for values in groups.values()):
            panels[word] = groups
    caption = f"On {REFERENCE}. {DOTS}"
    costs = [values[1] - values[0] for groups in panels.values() if (values := [g.mean() for g in groups.values()])]
    heading = f"A second activation costs accuracy with {sum(c < 0 for c in costs)} of {len(costs)} activations"
    heading += f", at most {-min(costs):.0f} points" if costs else ""
    return _panels("transfer-activations", heading, panels, caption)
