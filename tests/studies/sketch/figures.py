"""One drawing: every coin."""

from __future__ import annotations

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import figure
from studies.sketch.measure import SketchResults


def coins(results: SketchResults) -> Figure:
    """Draw the share of heads of every coin."""
    drawing, axes = figure(6, 1.6)
    strip(axes[0, 0], {"coins": results.tables["coins"]["heads"].to_numpy()}, {})
    return Figure("coins", "Coins", to_svg(drawing, "coins"))
