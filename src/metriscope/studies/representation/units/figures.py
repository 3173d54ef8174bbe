"""When units fall silent, over epochs."""

from __future__ import annotations

from metriscope.report import Figure, to_svg
from metriscope.report.plots import band
from metriscope.report.style import COLORS, CYCLE, INK, figure, legend
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import Setting, title

__all__ = ["dying"]

# Where ReLU units can die: both outputs, and the hidden layer of the baseline. With a bias the picture is the same.
PANELS = (("relu2", "output"), ("relu2-neg", "output"), ("relu", "hidden"))
THRESHOLDS = {"never": "never active", "under_1": "under 1 % of images", "under_5": "under 5 % of images"}


def dying(results: Results, setting: Setting, name: str) -> Figure | None:
    """Draw the share of inactive units over epochs, where units can die."""
    dead = results.tables["dead"]
    table = dead[(dead["setting"] == str(setting)) & (dead["part"] == "train")]
    panels = [p for p in PANELS if len(table[(table["network"] == p[0]) & (table["layer"] == p[1])])]
    if not panels:
        return None
    drawing, axes = figure(9.2, 2.9, 1, len(panels))
    for ax, (network, layer) in zip(axes[0], panels, strict=True):
        part = table[(table["network"] == network) & (table["layer"] == layer)]
        for (key, text), shade in zip(THRESHOLDS.items(), (INK, COLORS["relu"], CYCLE[3]), strict=True):
            wide = part.pivot(index="seed", columns="epoch", values=key)
            band(ax, wide.columns.to_numpy(dtype=float) + 1, wide.to_numpy(dtype=float), text, shade, log="x")
        ax.set(title=f"{title(network)}, {layer} units", xlabel="epoch + 1", ylabel="% of units", ylim=(-4, 104))
    legend(axes[0, -1], "upper right")
    caption = (
        f"{setting}. Share of units active (|activation| > 10⁻⁶) for no training image, for under 1 % and for under "
        "5 % of them: median over seeds, the band of the middle 80 %, extremes as thin lines."
    )
    return Figure(name, "When units die", to_svg(drawing, name), caption)
