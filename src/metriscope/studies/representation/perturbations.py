"""Measurements of the replayed networks, beside the numbers that Oursland 2024b prints.

Axes: N images. Accuracies are per cent of all training images; a change is the difference, in points, from the same
network without any perturbation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope.functional import summarize
from metriscope.probes import Perturbation, perturbation
from metriscope.probes.perturbation_levels import UnitRanges, definition_of, perturb
from metriscope.runs import Record, Result, Run
from metriscope.studies.representation.accuracy import printed
from metriscope.studies.representation.experiments import ALL, NETWORKS, PROGRAM, PublishedLevels, SingleUnits
from metriscope.studies.representation.plan import RepresentationTraining
from metriscope.studies.representation.train import tagged
from metriscope.studies.tidy_tables import matching

__all__ = ["gather", "gather_units", "harm", "perturbed", "single_units"]

BASELINE = ("train_accuracy", "test_accuracy", "train_loss")
LEVEL = ["network", "kind", "level"]


def perturbed(asked: PublishedLevels, model: nn.Sequential, x: Tensor, y: Tensor, history: pd.DataFrame) -> Result:
    """Return how many images a network classifies correctly at every level, and where its training ended.

    Counts of images are exact, and take little space in a record.
    """
    levels, grid = dict(asked.levels), asked.grid()
    found = {name: perturbation(model, x, y, None, tuple(levels), levels, name) for name in asked.definitions}
    first = found[asked.definitions[0]]

    def counts(**columns: Perturbation) -> pd.DataFrame:
        one = next(iter(columns.values()))
        right = {name: (result.accuracies * len(x)).round().astype(int) for name, result in columns.items()}
        return pd.DataFrame({"kind": one.kinds, "level": one.levels, **right})

    tables = {"levels": counts(**found)}
    if grid:
        fine = perturbation(model, x, y, None, tuple(grid), grid, asked.definitions[0])
        tables["grid"] = counts(right=fine)
    last = history.sort_values("epoch").iloc[-1]
    ends = {name: float(last[name]) for name in BASELINE}
    numbers = {"images": len(x), "right": round(first.baseline * len(x)), "silent": first.silent}
    return Result(tables, record={**numbers, **ends})


@torch.no_grad()
def single_units(asked: SingleUnits, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
    """Return how many images a network classifies correctly at each level with one hidden unit perturbed, and with all.

    One unit adds its change times its column of the second layer to the outputs, which are not computed again.
    """
    first, activation, head = model
    assert isinstance(head, nn.Linear)
    z = first(x)
    ranges = UnitRanges.of([z], definition_of(asked.definition), activation)
    plain = activation(z.clone())
    outputs = head(plain)
    rows = []
    for kind, levels in asked.levels:
        for level in levels:
            moved = activation(perturb(z, ranges.reach, **{kind: level}, ends=ranges.ends))
            changes = (moved - plain).unbind(1)
            answers = [head(moved), *(outputs + c[:, None] * w for c, w in zip(changes, head.weight.T, strict=True))]
            right = [int((answer.argmax(1) == y).sum()) for answer in answers]
            units = np.arange(ALL, len(right) + ALL)
            rows.append(pd.DataFrame({"kind": kind, "level": level, "unit": units, "right": right}))
    record = {"images": len(x), "right": int((outputs.argmax(1) == y).sum())}
    return Result({"units": pd.concat(rows, ignore_index=True)}, record=record)


def gather_units(found: Iterable[tuple[RepresentationTraining, Run | Record]]) -> pd.DataFrame:
    """Return the counts of :func:`single_units`; ``plain`` is the count without any perturbation."""
    parts = ((job, r.table("units").assign(images=r.record["images"], plain=r.record["right"])) for job, r in found)
    return tagged(parts, ("kind", "level", "unit", "right", "images", "plain"))


def gather(found: Sequence[tuple[RepresentationTraining, Run | Record]]) -> dict[str, pd.DataFrame]:
    """Return the tables of replayed networks in the setting nearest to the paper's; empty if there are no networks.

    ``replays``: one row per network. ``replayed levels``: one row per network, definition and printed level.
    ``replayed grid``: one row per network and level of the fine grid. ``harm``: see :func:`harm`. ``replayed
    beside``, ``replayed largest`` and ``replayed baselines``: ours beside the printed.
    """
    if not found:
        return {}
    nearest = max((job.setting for job, _ in found), key=lambda setting: setting.closeness)
    near = [(job, run) for job, run in found if job.setting == nearest]
    found = sorted(near, key=lambda pair: (NETWORKS.index(pair[0].model), pair[0].number))
    runs = tagged(((job, _run(run)) for job, run in found), ("baseline", *BASELINE, "silent", "images", "origin"))
    columns = ("kind", "level", "definition", "accuracy", "change", "origin")
    levels = tagged(((job, _levels(run)) for job, run in found), columns)
    fine = tagged(((job, _grid(run)) for job, run in found), ("kind", "level", "accuracy"))
    differences = _beside(levels)
    return {
        "replays": runs,
        "replayed levels": levels,
        "replayed grid": fine,
        "harm": harm(found),
        "replayed beside": differences,
        "replayed largest": _largest(differences),
        "replayed baselines": _baselines(runs),
    }


def harm(found: Iterable[tuple[RepresentationTraining, Run | Record]]) -> pd.DataFrame:
    """Return the table that C17 is judged by: changes at every printed level, as the author's program defines them."""
    columns = ("kind", "level", "definition", "accuracy", "change", "origin")
    return matching(tagged(((job, _levels(run)) for job, run in found), columns), definition=PROGRAM)


def _run(run: Run | Record) -> pd.DataFrame:
    found = run.record
    shares = {"baseline": found["right"] / found["images"], **{name: found[name] for name in BASELINE}}
    per_cent = {name: value if name == "train_loss" else 100 * value for name, value in shares.items()}
    rest = {"silent": found["silent"], "images": found["images"], "origin": _origin(run)}
    return pd.DataFrame([{**per_cent, **rest}])


def _origin(run: Run | Record) -> str:
    return "record" if isinstance(run, Record) else "run"


def _levels(run: Run | Record) -> pd.DataFrame:
    long = run.table("levels").melt(["kind", "level"], var_name="definition", value_name="accuracy")
    accuracy = 100 * long["accuracy"] / run.record["images"]
    baseline = 100 * run.record["right"] / run.record["images"]
    return long.assign(accuracy=accuracy, change=accuracy - baseline, origin=_origin(run))


def _grid(run: Run | Record) -> pd.DataFrame:
    fine = run.table("grid")
    return fine.assign(accuracy=100 * fine["right"] / run.record["images"])


def _beside(levels: pd.DataFrame) -> pd.DataFrame:
    """Return one row per network, printed level and definition: our mean and deviation, and the printed mean."""
    theirs = printed("perturbation_level").set_index(LEVEL)["mean"]
    rows = []
    for (definition, *level), part in levels.groupby(["definition", *LEVEL], sort=False):
        if tuple(level) in theirs.index:
            ours, known = summarize(part["accuracy"]), float(theirs[tuple(level)])
            rows.append((definition, *level, known, ours.mean, ours.sd, ours.count, ours.mean - known))
    return pd.DataFrame(rows, columns=["definition", *LEVEL, "published", "mean", "sd", "runs", "difference"])


def _largest(differences: pd.DataFrame) -> pd.DataFrame:
    """Return one row per definition, network and kind: largest and mean absolute difference from the printed numbers.

    ``level`` is the level of the largest difference.
    """
    rows = []
    for key, part in differences.groupby(["definition", "network", "kind"], sort=False):
        sizes = part["difference"].abs()
        worst = part.iloc[int(sizes.to_numpy().argmax())]
        rows.append((*key, float(worst["difference"]), float(worst["level"]), float(sizes.mean()), len(part)))
    return pd.DataFrame(rows, columns=["definition", "network", "kind", "largest", "level", "mean", "levels"])


def _baselines(runs: pd.DataFrame) -> pd.DataFrame:
    """Return one row per network and quantity at the end of training: our value beside the printed one."""
    rows = []
    for row in printed("perturbation_baseline").itertuples():
        values = matching(runs, network=row.network)[str(row.quantity)]
        if len(values):
            ours = summarize(values)
            rows.append((row.network, row.quantity, row.mean, row.sd, ours.mean, ours.sd, ours.count))
    names = ["network", "quantity", "published mean", "published sd", "mean", "sd", "runs"]
    return pd.DataFrame(rows, columns=names)
