"""From stored runs to what the report is made from: tidy tables, and arrays for the figures.

Axes: N images, D pixels. Networks are measured in the setting nearest to the paper's that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float32, Int64
from threadpoolctl import threadpool_limits
from torch import Tensor

from metriscope.data.registry import row
from metriscope.nn import architectures
from metriscope.runs import Driver, Finished, Result, Run, once
from metriscope.studies.records import Record
from metriscope.studies.representation.accuracy import measure as accuracy
from metriscope.studies.representation.contradictions import measure as contradictions
from metriscope.studies.representation.hyperplanes import measure as hyperplanes
from metriscope.studies.representation.perturbation import measure as perturbation
from metriscope.studies.representation.plan import (
    DISTANCES,
    MODELS,
    NAME,
    Comparing,
    Inside,
    Perturbing,
    Plan,
    Prototypes,
    Setting,
    Training,
)
from metriscope.studies.representation.prototypes import measure as prototypes
from metriscope.studies.representation.train import Trained, images, trained
from metriscope.studies.representation.units import measure as units

__all__ = ["Inspection", "Results", "gathered", "measure", "ordered", "recorded"]

Points = tuple[Float32[Tensor, "n d"], Int64[Tensor, " n"]]


@dataclass(frozen=True, eq=False)
class Results:
    """Tidy tables by name, and what the figures show besides; one without rows stands for what was not measured.

    ``settings``: the nearest to the paper's protocol first. ``test_sizes``: the number of test images by data set.
    """

    tables: Mapping[str, pd.DataFrame]
    settings: tuple[Setting, ...] = ()
    deviations: tuple[str, ...] = ()
    test_sizes: Mapping[str, int] = field(default_factory=dict)
    comparing: Comparing = field(default_factory=Comparing)
    shapes: tuple[accuracy.Shape, ...] = ()
    units: tuple[hyperplanes.Unit, ...] = ()
    seen: tuple[prototypes.Seen, ...] = ()
    alphas: tuple[prototypes.Alphas, ...] = ()

    def networks(self, setting: Setting) -> tuple[str, ...]:
        """Return the networks of a setting, in the order of the tables."""
        rows = self.tables["runs"]
        return tuple(dict.fromkeys(rows[rows["setting"] == str(setting)]["network"]))

    def accuracy(self, setting: Setting, network: str) -> pd.Series:
        """Return the test accuracy of each seed, in per cent, by seed."""
        rows = self.tables["runs"]
        mask = (rows["setting"] == str(setting)) & (rows["network"] == network)
        return rows[mask].set_index("seed")["test_accuracy"]

    def curve(
        self, setting: Setting, network: str, column: str
    ) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, "s t"]]:
        """Return observed epochs, and a column of the histories as seeds by epochs."""
        return accuracy.curve(self.tables["histories"], setting, network, column)


def measure(plan: Plan, runs: Finished, driver: Driver) -> Results:
    """Return what the finished runs show; with a budget, some may be missing."""
    found = ordered([trained(job, runs[job]) for job in plan.jobs() if job in runs])
    short = () if len(found) == runs.asked else (_unfinished(len(found), runs.asked),)
    # Thousands of small products: handing each to several threads costs more than it saves, far more on a busy machine.
    with threadpool_limits(limits=1):
        return Inspection(plan, found, driver).results((*plan.deviations(), *short))


def recorded(records: Sequence[Record]) -> Results:
    """Return what records of finished runs show, whose weights were not kept."""
    found = [Trained(_training(r.spec), r.tables["history"], r.tables["dead"]) for r in records if r.kind == "Training"]
    levels = [(_training(r.spec["training"]), r.tables["levels"]) for r in records if r.kind == "Perturbing"]
    layers = [(_training(r.spec["training"]), r.tables) for r in records if r.kind == "Prototypes" and r.tables]
    return Results(**gathered(ordered(found), levels, layers, Comparing()))


def _training(spec: Mapping[str, Any]) -> Training:
    """Return the training that a specification describes; older ones lack fields that have since been added."""
    known = {f.name for f in fields(Training)}
    given = {name: value for name, value in spec.items() if name in known and name != "rare"}
    return Training(**given)


def _unfinished(finished: int, asked: int) -> str:
    return f"The budget ended before all was done: {finished} of {asked} runs are finished and shown."


def ordered(runs: Iterable[Trained]) -> tuple[Trained, ...]:
    """Return runs with the setting nearest to the paper's first, then as architectures are listed, then by seed."""
    order = {name: i for i, name in enumerate(architectures())}
    by_network = sorted(runs, key=lambda run: (order[run.job.model], run.job.number))
    return tuple(sorted(by_network, key=lambda run: run.job.setting.closeness, reverse=True))


def gathered(
    runs: Sequence[Trained],
    levels: Sequence[tuple[Training, pd.DataFrame]],
    layers: Sequence[tuple[Training, Mapping[str, pd.DataFrame]]],
    asked: Comparing,
) -> dict[str, Any]:
    """Return the fields of results that need no network."""
    settings = tuple(dict.fromkeys(run.job.setting for run in runs))
    rows, histories, dead = accuracy.accuracies(runs), accuracy.histories(runs), units.dead_units(runs)
    perturbed, tests = perturbation.gather(levels), accuracy.recomputed(asked)
    tables = {
        "runs": rows,
        "histories": histories,
        "dead": dead,
        "summary": accuracy.summary(rows),
        "compared": accuracy.compare(rows),
        "judged": accuracy.judged(rows, dead, settings),
        "placed": contradictions.placements(histories, settings),
        "pixels": contradictions.pixels_compared(histories, settings),
        "columns": contradictions.columns_compared(rows, settings, asked),
        "printed tests": tests,
        "follow": contradictions.follow(tests, asked),
        "perturbed": perturbed,
        "ranges": perturbation.ranges(perturbed, asked),
        "planes": pd.DataFrame(columns=["network"]),
        "crossed": pd.DataFrame(columns=["network"]),
        **prototypes.gather(layers),
    }
    sizes = {setting.data: row(setting.data).test for setting in settings}
    common = {"settings": settings, "test_sizes": sizes, "comparing": asked}
    return {"tables": tables, "shapes": accuracy.shapes(rows, asked), **common}


@dataclass(frozen=True, eq=False)
class Inspection:
    """Everything that is measured on the trained networks themselves."""

    plan: Plan
    runs: tuple[Trained, ...]
    driver: Driver
    views: dict[str, Points] = field(default_factory=dict)

    def results(self, deviations: tuple[str, ...]) -> Results:
        """Return the results."""
        inside = self.plan.inside
        perturbed = self._performed(
            [perturbation.asking(run.job) for run in self._nearest(self.plan.comparing.perturbed)],
            perturbation.perturbed,
            "perturbations",
        )
        layers = self._performed(self._prototypes(inside), prototypes.read, "prototypes")
        levels = [(job.training, run.table("levels")) for job, run in perturbed.items()]
        tables = [(job.training, {n: run.table(n) for n in run.tables}) for job, run in layers.items() if run.tables]
        common = gathered(self.runs, levels, tables, self.plan.comparing)
        planes = self._planes(inside)
        common["tables"] |= {"planes": planes, "crossed": hyperplanes.crossed(planes)} if len(planes) else {}
        drawn = {job.training.model: run for job, run in layers.items() if job.drawn and run.tables}
        return Results(
            **common,
            deviations=deviations,
            units=self._units(inside),
            seen=tuple(prototypes.seen(name, drawn[name].tensors()) for name in inside.images if name in drawn),
            alphas=_alphas(tables, inside),
        )

    def _nearest(self, names: Iterable[str]) -> list[Trained]:
        """Return the runs of each network in the setting nearest to the paper's that has any, in order of seed."""
        found = []
        for name in names:
            runs = [run for run in self.runs if run.job.model == name]
            found += [run for run in runs if run.job.setting == runs[0].job.setting]
        return found

    def view(self, job: Training, most: int | None) -> Points:
        """Return the training images of a form of pixels: all, or at most so many of them, evenly spaced."""
        if job.pixels not in self.views:
            train, _ = images(job)
            self.views[job.pixels] = torch.from_numpy(train.x), torch.from_numpy(train.y)
        x, y = self.views[job.pixels]
        if most is None or most >= len(x):
            return x, y
        # Data may be in the order of its labels.
        rows = torch.linspace(0, len(x) - 1, most, dtype=torch.float64).round().long()
        return x[rows], y[rows]

    def _performed(self, specs: Sequence[Any], compute: Callable[..., Result], label: str) -> Mapping[Any, Run]:
        """Return stored measurements of trained networks, after computing those that are missing."""
        models = {run.job: run for run in self.runs}

        def work(spec: Perturbing | Prototypes) -> Result:
            return compute(spec, models[spec.training].model, *self.view(spec.training, spec.sample))

        return self.driver.perform(specs, once(work), f"{NAME}: {label}")

    def _prototypes(self, asked: Inside) -> list[Prototypes]:
        """Return the measurements of distance layers; the first seed of those that are shown is drawn too."""
        order = [name for name in architectures() if name in DISTANCES]
        first = {run.job.model: run.job for run in reversed(self._nearest(order))}
        drawn = {first[name] for name in asked.images if name in first}
        return [Prototypes(run.job, run.job in drawn, asked.sample) for run in self._nearest(order)]

    def _planes(self, asked: Inside) -> pd.DataFrame:
        order = [name for name in architectures() if name in MODELS]
        parts = [hyperplanes.hyperplanes(r, *self.view(r.job, asked.sample), asked) for r in self._nearest(order)]
        kept = [part for part in parts if len(part)]
        return pd.concat(kept, ignore_index=True) if kept else pd.DataFrame()

    def _units(self, asked: Inside) -> tuple[hyperplanes.Unit, ...]:
        firsts = [runs[0] for name in asked.units if (runs := self._nearest((name,)))]
        return tuple(u for r in firsts for u in hyperplanes.units_shown(r, *self.view(r.job, asked.sample), asked))


def _alphas(
    found: Sequence[tuple[Training, Mapping[str, pd.DataFrame]]], asked: Inside
) -> tuple[prototypes.Alphas, ...]:
    """Return the weights of the first seed of the networks that are shown; of any one where there is none of these."""
    first = {job.model: tables["alphas"] for job, tables in reversed(found)}
    names = [name for name in asked.alphas if name in first] or list(first)[-1:]
    return tuple(prototypes.Alphas(name, first[name]) for name in names)
