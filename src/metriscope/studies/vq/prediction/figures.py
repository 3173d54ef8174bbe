"""The drawing of the experiment with sixty architectures."""

from __future__ import annotations

from metriscope.nn import ACTIVATIONS
from metriscope.report import Figure, mean_interval, to_svg
from metriscope.report.style import COLORS, CYCLE, FAINT, INK, figure, legend, log_axes
from metriscope.studies.vq.prediction.measure import PredictionResults
from metriscope.studies.vq.prediction.plan import REFERENCE, SCORES, USEFUL

__all__ = ["forecasts"]


def forecasts(results: PredictionResults) -> Figure:
    """Draw accuracy over parameters, and each score's correlation with accuracy, plain and partial."""
    drawing, ((left, right),) = figure(9.2, 3.6, 1, 2)
    for activation, rows in results.architectures.groupby("activation", sort=False):
        row = ACTIVATIONS[str(activation)]
        looks = {"color": COLORS[str(activation)], "alpha": 0.7, "markeredgewidth": 0, "label": row.title}
        left.plot(rows["parameters"], 100 * rows["test"], "o", markersize=4.5, **looks)
    log_axes(left, "x")
    left.set(xlabel="parameters", ylabel="final test accuracy, %")
    legend(left, "lower right")
    found, each = results.tables["forecast correlations"].set_index("score"), results.tables["forecasts"]
    titles = {**SCORES, **REFERENCE}
    for row_number, score in enumerate(titles):
        mean, low, high = mean_interval(each[each["score"] == score]["partial"])
        first = {"label": "nothing else known"} if row_number == 0 else {}
        right.plot(
            [found["plain"][score]], [row_number], "D", color="white", markeredgecolor=INK, markersize=6, **first
        )
        right.plot([low, high], [row_number] * 2, color=CYCLE[0], linewidth=2)
        first = {"label": "given parameters and depth"} if row_number == 0 else {}
        right.plot([mean], [row_number], "o", color=CYCLE[0], markersize=7, **first)
    right.axvline(0, color=FAINT, linewidth=1)
    right.axvline(USEFUL, color=INK, linewidth=0.9, dashes=(4, 3))
    right.set_yticks(range(len(titles)), list(titles.values()))
    right.invert_yaxis()
    right.set_xlabel("rank correlation with final accuracy")
    legend(right, "upper left")
    caption = (
        f"Left: each dot is one of {len(results.architectures)} architectures, the mean over {results.part.starts} "
        "starts. Right: hollow diamonds are rank correlations of a score with final accuracy, dots those that remain "
        f"given parameters and depth, with the 95 % jackknife interval over architectures. Dashed: {USEFUL:g}, the "
        "least that counts as useful."
    )
    return Figure("vq-forecasts", "Scores of the kernel and final accuracy", to_svg(drawing, "vq-forecasts"), caption)
