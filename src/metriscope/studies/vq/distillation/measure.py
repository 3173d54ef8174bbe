"""Accuracy and alignment of every student, and the weight of the matching term that validation examples choose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from metriscope.runs import Driver
from metriscope.studies.vq.distillation.plan import Distillation, Distilling, StudentVariant
from metriscope.studies.vq.distillation.train import split, taught
from metriscope.studies.vq.networks.measure import aligned, looked_up
from metriscope.studies.vq.train import accuracy
from metriscope.vq import capture

__all__ = ["DistillationResults", "chosen", "lesson_rows", "measure_distillation"]


def lesson_rows(spec: Distilling) -> Iterator[dict[str, object]]:
    """Yield the teacher and every student: accuracy in percent, and alignment with the teacher on the test part."""
    points = split(spec.examples, spec.seed, spec.number)
    teacher, students = taught(spec, points)
    theirs = capture(teacher, points.test[0])
    known = zip((StudentVariant("teacher"), *spec.variants()), (teacher, *students), strict=True)
    for variant, network in known:
        right = {part: 100 * accuracy(network, *getattr(points, part)) for part in ("validation", "test")}
        alike = aligned(capture(network, points.test[0]), theirs, "debiased")
        yield {"method": variant.method, "weight": variant.weight, **right, "alignment": alike}


def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each data set and method at the weight with the best mean accuracy on validation examples."""
    means = rows.groupby(["data", "method", "weight"], sort=False)["validation"].mean()
    best = means.groupby(["data", "method"], sort=False).idxmax()
    return rows[[key in set(best) for key in zip(rows["data"], rows["method"], rows["weight"], strict=True)]]


@dataclass(frozen=True)
class DistillationResults:
    """One row per data set, seed and variant; without rows nothing was run or recorded."""

    part: Distillation
    rows: pd.DataFrame

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The students with the chosen weights."""
        return {} if self.rows.empty else {"lessons": chosen(self.rows)}


def measure_distillation(part: Distillation, driver: Driver) -> DistillationResults:
    """Run the lessons on the data sets that are computed, and look up the others."""
    found: dict[Distilling, pd.DataFrame] = {}
    for computed in (True, False):
        asked = [spec for spec in part.lessons() if (spec.examples.name in part.computed) == computed]
        found |= looked_up(driver, asked, lesson_rows, "vq: distillation", computed) if asked else {}
    parts = [rows.assign(data=spec.examples.name, seed=spec.number) for spec, rows in found.items()]
    return DistillationResults(part, pd.concat(parts, ignore_index=True) if parts else pd.DataFrame())
