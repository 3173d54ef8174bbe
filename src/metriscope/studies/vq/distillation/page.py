"""The section on distillation."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Prose, Section, Table, mean_text, number
from metriscope.studies.vq.distillation.figures import lessons
from metriscope.studies.vq.distillation.judge import gain_text
from metriscope.studies.vq.distillation.measure import DistillationResults
from metriscope.studies.vq.distillation.plan import METHODS

__all__ = ["section"]

TITLE = "Does matching VQ kernels distill a network?"


def section(results: DistillationResults) -> Section:
    """Return what was asked, the figure and the table; without rows, that nothing was run."""
    if results.rows.empty:
        return Section(TITLE, (Prose(f"{_text(results)}\n\nNot run in this profile, and there is no record of it."),))
    return Section(TITLE, (Prose(_text(results)), lessons(results), _table(results)))


def _text(results: DistillationResults) -> str:
    part, spec = results.part, results.part.lessons()[0]
    (deep, wide), (flat, narrow) = spec.teacher, spec.student
    sizes = ", ".join(f"{e.train:,} / {e.validation:,} / {e.test:,} examples of `{e.name}`" for e in part.examples)
    return (
        "Roddenberry et al. name distillation as future work. Here a teacher of "
        f"{deep} × {wide} units teaches students of {flat} × {narrow}. All students of a seed have the same start, "
        "batches and epochs. They learn from labels only; from labels and the teacher's logits (Hinton et al. 2015, "
        f"temperature {spec.temperature:g}, weight {spec.share:g}); and from these and one more term: 1 minus the "
        "centered alignment (CKA) of the student's kernel with the teacher's on each batch.\n\n"
        "Signs have no gradient, so that a VQ kernel cannot be matched by gradient descent. The surrogate replaces "
        f"each sign by tanh(βz), with β = {spec.beta:g} and z in units of its layer's root mean square. As β grows, "
        "the alignment of these kernels tends to that of the VQ kernels. The control matches the kernel of plain "
        f"activations. The weight of the matching term ({', '.join(f'{w:g}' for w in spec.weights)}) is the one with "
        f"the best mean accuracy on validation examples, not on test examples. Training, validation and test: {sizes}, "
        "drawn anew for each seed."
    )


def _table(results: DistillationResults) -> Table:
    titles = {"teacher": "teacher", **{name: method.title for name, method in METHODS.items()}}
    lines: list[dict[str, object]] = []
    for (name, method), rows in results.tables["lessons"].groupby(["data", "method"], sort=False):
        everything = results.tables["lessons"]
        gain = gain_text(everything[everything["data"] == name], str(method), "logits")
        lines.append(
            {
                "data": name,
                "learns from": titles[str(method)],
                "seeds": len(rows),
                "weight": number(rows["weight"].iloc[0], 2) if rows["weight"].iloc[0] else "–",
                "test accuracy, %": mean_text(rows["test"]),
                "gain over logits, points": "–" if method == "logits" else gain,
                "alignment with the teacher": mean_text(rows["alignment"]),
            }
        )
    note = (
        f"Mean [95 % t interval] over {results.part.seeds} seeds; gains are paired. All students also see the labels."
    )
    return Table("vq-lessons", "Teacher and students", pd.DataFrame(lines), note)
