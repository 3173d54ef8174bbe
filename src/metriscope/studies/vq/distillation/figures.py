"""The drawing of the distillation experiment."""

from __future__ import annotations

from metriscope.report import Figure, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, INK, figure
from metriscope.studies.vq.distillation.measure import DistillationResults
from metriscope.studies.vq.distillation.plan import METHODS, WORTH

__all__ = ["lessons"]

COLORS = (INK, CYCLE[0], CYCLE[1], CYCLE[4])


def lessons(results: DistillationResults) -> Figure:
    """Draw each method's gain in test accuracy over logits alone, seed by seed, and its alignment with the teacher."""
    rows = results.tables["lessons"]
    names = list(dict.fromkeys(rows["data"]))
    drawing, axes = figure(9.2, 2.5 * len(names), len(names), 2)
    methods = [name for name in METHODS if name != "logits"]
    colors = dict(zip((METHODS[m].title for m in methods), COLORS, strict=True)) | {METHODS["logits"].title: CYCLE[2]}
    for (left, right), name in zip(axes, names, strict=True):
        part = rows[rows["data"] == name]
        test, alike = (part.pivot(index="seed", columns="method", values=c) for c in ("test", "alignment"))
        strip(left, {METHODS[m].title: (test[m] - test["logits"]).to_numpy() for m in methods}, colors)
        strip(right, {method.title: alike[m].to_numpy() for m, method in METHODS.items()}, colors)
        left.axvline(0, color=INK, linewidth=0.9)
        left.axvline(WORTH, color=INK, linewidth=0.9, dashes=(4, 3))
        left.set(title=name, xlabel="test accuracy − that with logits, points")
        right.set(title=name, xlabel="alignment with the teacher's VQ kernel")
    caption = (
        "Each dot is a seed; the large dot is the mean with its 95 % interval. Left: what a student gains over one "
        f"that learns from labels and logits, from the same start and batches; dashed: {WORTH:g} points. Right: "
        "debiased centered alignment of hard signs on test examples."
    )
    return Figure("vq-lessons", "Students with and without a kernel to match", to_svg(drawing, "vq-lessons"), caption)
