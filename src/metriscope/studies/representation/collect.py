"""From a plan to what its report is made from: finished runs as networks, and the images that they saw."""

from __future__ import annotations

import torch

from metriscope.runs import Run, Store
from metriscope.studies.contract import Announce
from metriscope.studies.representation.experiment import compute, images, network
from metriscope.studies.representation.results import Images, Results, Trained
from metriscope.studies.representation.spec import Plan, Training

__all__ = ["collect", "trained"]


def collect(plan: Plan, store: Store, announce: Announce) -> Results:
    """Run or resume a plan, and return what is finished of it."""
    runs = compute(plan, store, announce)
    seen = {training.pixels: training for training in runs}
    return Results(
        tuple(trained(training, run) for training, run in runs.items()),
        {pixels: _images(training) for pixels, training in seen.items()},
        (*plan.deviations(), *_unfinished(plan, len(runs))),
    )


def trained(training: Training, run: Run) -> Trained:
    """Return a finished run as the report reads it."""
    place = (training.pixels, training.epochs, training.data, training.train_size)
    tables = (run.table("history"), run.table("dead"))
    return Trained(training.model, training.number, *place, network(training, run), *tables)


def _images(training: Training) -> Images:
    parts = (torch.from_numpy(array) for part in images(training) for array in (part.x, part.y))
    return Images(*parts)


def _unfinished(plan: Plan, finished: int) -> tuple[str, ...]:
    asked = sum(len(plan.trainings(part)) for part in plan.parts)
    if finished == asked:
        return ()
    return (f"The budget ended before all was done: {finished} of {asked} runs are finished and shown.",)
