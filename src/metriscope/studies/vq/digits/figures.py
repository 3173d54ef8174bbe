"""The drawing of all starts on digits."""

from __future__ import annotations

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, INK, figure, legend, log_axes
from metriscope.studies.vq.digits.measure import StartsResults
from metriscope.studies.vq.digits.plan import FORMS, INITIAL, TRAINED, name_of

__all__ = ["starts"]


def starts(results: StartsResults) -> Figure:
    """Draw the alignment of both architectures at every start, and what training changes at each scale."""
    drawing, ((left, right),) = figure(9.2, 3.0, 1, 2)
    rows, band = results.tables["alignment"], results.tables["heat band"]
    pairs = {name_of(TRAINED): "trained", name_of(INITIAL): "before training"}
    strip(left, {text: rows[rows["pair"] == pair]["alignment"].to_numpy() for pair, text in pairs.items()})
    left.set(xlabel="centered alignment of 4 with 6 layers")
    for (form, title), color in zip(FORMS.items(), CYCLE, strict=False):
        part = band[band["form"] == form]
        right.fill_between(part["sigma2"], part["low"], part["high"], color=color, alpha=0.2, linewidth=0)
        right.plot(part["sigma2"], part["change"], color=color, linewidth=1.8, label=title)
    right.axhline(0, color=INK, linewidth=0.9)
    log_axes(right, "x")
    right.set(xlabel="σ²", ylabel="cosine, trained − initial")
    legend(right, "lower right")
    caption = (
        "Left: each dot is a start; the large dot is the mean with its 95 % interval. Right: mean change of the cosine "
        "of heat kernels by training, with a band that holds the true curve at all scales at once."
    )
    return Figure("vq-starts", "Every start on full MNIST", to_svg(drawing, "vq-starts"), caption)
