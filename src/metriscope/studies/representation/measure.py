"""From stored runs to the content of the report: tidy tables, and arrays for the figures.

Axes: N images, D pixels. Networks are measured in the setting nearest to the paper's that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Float32, Int64
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from metriscope.data import digest
from metriscope.data.registry import row
from metriscope.nn import architectures
from metriscope.runs import Driver, Finished, Record, Result, Run, once
from metriscope.runs.records import read, shipped
from metriscope.studies.representation import accuracy, centers, collapse, perturbations, prototypes, starts, units
from metriscope.studies.representation import plan as plans
from metriscope.studies.representation.accuracy import Curves, Density
from metriscope.studies.representation.experiments import (
    NETWORKS,
    Centers,
    Identifying,
    Perturbing,
    Prototypes,
    PublishedLevels,
    SingleUnits,
    judged_levels,
    published_runs,
)
from metriscope.studies.representation.plan import PERTURBED, RepresentationComparing, RepresentationTraining, Setting
from metriscope.studies.representation.train import TrainedNetwork, images, tagged
from metriscope.studies.tidy_tables import matching

__all__ = ["Measurer", "RepresentationResults", "compared", "gathered", "measure", "numbered", "ordered", "recorded"]

Points = tuple[Float32[Tensor, "n d"], Int64[Tensor, " n"]]
PLANES = ("output", "class", "mean", "sd", "distance", "inside")


@dataclass(frozen=True, eq=False)
class RepresentationResults:
    """Tidy tables by name, and arrays that the figures show; a table without rows was not measured.

    ``settings`` are ordered from the nearest to the paper's protocol. ``test_sizes`` are the numbers of test images by
    data set. ``shapes`` are the distributions of test accuracies by setting and network. ``beside`` are recorded runs
    by the paper's protocol, if this call has none. ``seen`` are the class means and the prototypes as images, by
    network. ``alphas`` are the weights of the hidden units in each class's distance, by network.
    """

    tables: Mapping[str, pd.DataFrame]
    settings: tuple[Setting, ...] = ()
    deviations: tuple[str, ...] = ()
    test_sizes: Mapping[str, int] = field(default_factory=dict)
    comparing: RepresentationComparing = field(default_factory=RepresentationComparing)
    shapes: Mapping[tuple[str, str], Density] = field(default_factory=dict)
    units: tuple[units.Unit, ...] = ()
    seen: Mapping[str, Mapping[str, Float[np.ndarray, "c d"]]] = field(default_factory=dict)
    alphas: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    beside: RepresentationResults | None = None

    def networks(self, setting: Setting) -> tuple[str, ...]:
        """Return the networks of a setting, in the order of the tables."""
        return accuracy.networks_of(self.tables["runs"], setting)

    def accuracy(self, setting: Setting, network: str) -> pd.Series:
        """Return the test accuracy in percent, indexed by seed."""
        rows = matching(self.tables["runs"], setting=str(setting), network=network)
        return rows.set_index("seed")["test_accuracy"]

    def curve(self, setting: Setting, network: str, name: str) -> Curves:
        """Return observed epochs, and losses or errors, seeds by epochs; an error of 0 becomes that of one image."""
        part, _, what = name.partition("_")
        rows = matching(self.tables["histories"], setting=str(setting), network=network)
        epochs, values = accuracy.by_seed(rows, "epoch", name if what == "loss" else f"{part}_accuracy")
        if what == "loss":
            return epochs, values
        count = setting.train_size if part == "train" else self.test_sizes[setting.data]
        return epochs, np.maximum(1 - values, 1 / count)


def measure(plan: plans.RepresentationPlan, runs: Finished, driver: Driver) -> RepresentationResults:
    """Return what the finished runs show; with a budget, some may be missing.

    Trainings of the plan that were skipped because they are recorded count as runs without weights. If the plan is not
    the paper's protocol, all recorded runs by that protocol are shown beside it, and claims are judged by them if there
    are enough.
    """
    done = [TrainedNetwork(j, runs[j].table("history"), runs[j].table("dead"), runs[j]) for j in runs]
    known = driver.recorded(job for job in plan.asked() if job not in runs)
    kept = [TrainedNetwork(job, record.table("history"), record.table("dead")) for job, record in known.items()]
    found = ordered(compared([*done, *kept]))
    # Replays of the perturbation paper are measured by its definitions, and do not belong to the other paper's tables.
    apart = tuple(run for run in done if run.job.replay == PERTURBED)
    short = f"The budget ended before all was done: {len(done)} of {runs.asked} runs are finished and shown."
    notes = [short] if len(done) < runs.asked else []
    if kept:
        notes.append(f"{len(kept)} runs are shown from records and were not repeated; `--retrain` trains them.")
    # There are thousands of small products: several threads for each cost more time than they save.
    with threadpool_limits(limits=1):
        results = Measurer(plan, found, driver).results((*plan.deviations(), *notes))
        replayed = Measurer(plan, apart, driver).replayed()
    results = replace(results, tables={**results.tables, **replayed})
    return results if any(s.protocol for s in results.settings) else _beside_records(results, driver)


def compared(runs: Iterable[TrainedNetwork]) -> list[TrainedNetwork]:
    """Return the runs that this study compares: those with the perturbation paper's starts are left out."""
    return [run for run in runs if run.job.replay != PERTURBED]


def _beside_records(results: RepresentationResults, driver: Driver) -> RepresentationResults:
    """Return results beside the recorded runs of the paper's protocol, which decide the claims if they suffice."""
    records = [r for r in _of(read(shipped(plans.NAME)), "Training") if _training(r.spec).setting.protocol]
    beside = recorded(records)
    if not beside.settings:
        return results
    driver.shown.update({record.path.stem: record for record in records})
    settings = (*beside.settings, *results.settings)
    rows, dead = (pd.concat([r.tables[name] for r in (beside, results)]) for name in ("runs", "dead"))
    more = {"judged": accuracy.judged(rows, dead, settings), "recorded dead": beside.tables["dead"]}
    return replace(results, tables={**results.tables, **more}, beside=beside)


def recorded(records: Sequence[Record]) -> RepresentationResults:
    """Return the results from records of finished runs, whose weights were not kept."""
    trained = [TrainedNetwork(_training(r.spec), r.table("history"), r.table("dead")) for r in _of(records, "Training")]
    levels = [(_training(r.spec["training"]), r.table("levels")) for r in _of(records, "Perturbing")]
    layers = [(_training(r.spec["training"]), r.frames) for r in _of(records, "Prototypes") if r.tables]
    replays = [(_training(r.spec["training"]), r) for r in _of(records, "PublishedLevels")]
    common = gathered(ordered(compared(trained)), levels, layers, RepresentationComparing())
    places = [(_training(r.spec["training"]), r.frames) for r in _of(records, "Centers")]
    common["tables"] |= perturbations.gather([pair for pair in replays if pair[0].replay == PERTURBED])
    common["tables"] |= centers.gather(places, common["tables"]["runs"])
    common["tables"] |= collapse.gather(collapse.cells_of(_of(records, "CollapseCell")), "record")
    return RepresentationResults(**common)


def _of(records: Iterable[Record], kind: str) -> list[Record]:
    # The first records are of a class that was named Training.
    return [record for record in records if record.kind.removeprefix("Representation") == kind]


def _training(spec: Mapping[str, Any]) -> RepresentationTraining:
    """Return the training that a specification describes; older specifications lack fields that were added later."""
    known = {f.name for f in fields(RepresentationTraining)} - {"rare"}
    return RepresentationTraining(**{name: value for name, value in spec.items() if name in known})


def ordered(runs: Iterable[TrainedNetwork]) -> tuple[TrainedNetwork, ...]:
    """Return runs with the setting nearest to the paper's first, then in the order of architectures, then by seed."""
    order = {name: i for i, name in enumerate(architectures())}
    by_network = sorted(runs, key=lambda run: (order[run.job.model], run.job.number))
    return tuple(sorted(by_network, key=lambda run: run.job.setting.closeness, reverse=True))


def numbered(runs: Sequence[TrainedNetwork]) -> list[TrainedNetwork]:
    """Return one run per setting, network and number; replays are preferred to our own starts, and runs to records."""
    first: dict[tuple[Setting, str, int], TrainedNetwork] = {}
    for run in sorted(runs, key=lambda run: (not run.job.replay, run.origin != "run")):
        first.setdefault((run.job.setting, run.job.model, run.job.number), run)
    chosen = set(map(id, first.values()))
    return [run for run in runs if id(run) in chosen]


def firsts(runs: Iterable[TrainedNetwork]) -> list[TrainedNetwork]:
    """Return the first run of each network."""
    found: dict[str, TrainedNetwork] = {}
    for run in runs:
        found.setdefault(run.job.model, run)
    return list(found.values())


def gathered(
    runs: Sequence[TrainedNetwork],
    levels: Sequence[tuple[RepresentationTraining, pd.DataFrame]],
    layers: Sequence[tuple[RepresentationTraining, Mapping[str, pd.DataFrame]]],
    asked: RepresentationComparing,
) -> dict[str, Any]:
    """Return those fields of the results that need no network."""
    every, runs = runs, numbered(runs)
    settings = tuple(dict.fromkeys(run.job.setting for run in runs))
    rows, histories, dead = accuracy.accuracies(runs), accuracy.histories(runs), units.dead_units(runs)
    perturbed, tests = units.gather(levels), accuracy.recomputed(asked)
    tables = {
        "runs": rows,
        "histories": histories,
        "dead": dead,
        "summary": accuracy.summary(rows),
        "compared": accuracy.compare(rows),
        "judged": accuracy.judged(rows, dead, settings),
        "placed": accuracy.placements(histories, settings),
        "pixels": accuracy.pixels_compared(every, settings),
        "columns": accuracy.columns_compared(rows, settings, asked),
        "printed tests": tests,
        "follow": accuracy.follow(tests, asked),
        "perturbed": perturbed,
        "ranges": units.ranges(perturbed, asked),
        "planes": tagged((), PLANES),
        "crossed": pd.DataFrame(columns=["network"]),
        **centers.gather((), rows),
        "single units": perturbations.gather_units(()),
        **collapse.gather({}, ""),
        "starts": starts.starts(every, Identifying()),
        **prototypes.gather(layers),
    }
    sizes = {setting.data: row(setting.data).test for setting in settings}
    common = {"settings": settings, "test_sizes": sizes, "comparing": asked}
    return {"tables": tables, "shapes": accuracy.shapes(rows, asked), **common}


@dataclass(frozen=True, eq=False)
class Measurer:
    """Everything that is measured on the trained networks themselves."""

    plan: plans.RepresentationPlan
    runs: tuple[TrainedNetwork, ...]
    driver: Driver
    views: dict[str, Points] = field(default_factory=dict)

    def results(self, deviations: tuple[str, ...]) -> RepresentationResults:
        """Return the results."""
        inside, asked = self.plan.inside, self.plan.comparing
        perturbing = [units.asking(run.job) for run in self._nearest(asked.perturbed)]
        perturbed = self._performed(perturbing, units.perturbed, "perturbations")
        layers = self._performed(self._prototypes(), prototypes.read, "prototypes")
        levels = [(job.training, run.table("levels")) for job, run in perturbed.items()]
        tables = [(job.training, {n: run.table(n) for n in run.tables}) for job, run in layers.items() if run.tables]
        common = gathered(self.runs, levels, tables, asked)
        judged = self._published([judged_levels(run.job) for run in self._nearest(NETWORKS)], "published levels")
        tried = [SingleUnits(run.job) for run in firsts(self._nearest(NETWORKS))]
        single = self._performed(tried, perturbations.single_units, "single units").items()
        common["tables"]["single units"] = perturbations.gather_units((job.training, run) for job, run in single)
        common["tables"]["harm"] = perturbations.harm((job.training, run) for job, run in judged.items())
        if len(planes := self._planes()):
            common["tables"] |= {"planes": planes, "crossed": units.crossed(planes)}
        common["tables"] |= centers.gather(self._centers(), common["tables"]["runs"])
        common["tables"] |= collapse.gather(*collapse.find(self.plan, self.driver))
        drawn = {job.training.model: run.tensors() for job, run in layers.items() if job.drawn and run.tables}
        first = {job.model: found["alphas"] for job, found in reversed(tables)}
        # If none of the networks asked for was run, any other one is shown.
        names = [name for name in inside.alphas if name in first] or list(first)[-1:]
        return RepresentationResults(
            **common,
            deviations=deviations,
            units=self._units(),
            seen={name: {k: v.numpy() for k, v in drawn[name].items()} for name in inside.images if name in drawn},
            alphas={name: first[name] for name in names},
        )

    def replayed(self) -> dict[str, pd.DataFrame]:
        """Return the tables of replayed networks: these runs, and the recorded ones of the published runs."""
        found = self._published([PublishedLevels(run.job) for run in self.runs], "perturbed replays")
        models = {model for part in self.plan.parts for model in part.models}
        rest = [job for job in published_runs(models, digest(plans.PAPER.data)) if job not in found]
        every: dict[PublishedLevels, Run | Record] = {**found, **self.driver.recorded(rest)}
        return perturbations.gather([(job.training, measured) for job, measured in every.items()])

    def _published(self, asked: Sequence[PublishedLevels], label: str) -> Mapping[PublishedLevels, Run]:
        """Return the accuracies of trained networks at the levels that the perturbation paper prints."""
        histories = {run.job: run.history for run in self.runs}

        def compute(spec: PublishedLevels, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
            return perturbations.perturbed(spec, model, x, y, histories[spec.training])

        return self._performed(asked, compute, label) if asked else {}

    def _nearest(self, names: Iterable[str]) -> list[TrainedNetwork]:
        """Return the runs of each network in the setting nearest to the paper's that has any, in order of seed."""
        found = []
        for name in names:
            runs = [run for run in self.runs if run.job.model == name and run.run is not None]
            found += [run for run in runs if run.job.setting == runs[0].job.setting]
        return found

    def view(self, job: RepresentationTraining, most: int | None) -> Points:
        """Return the training images of a form of pixels: all, or at most ``most`` of them, evenly spaced."""
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
        if not specs:
            return {}
        models = {run.job: run for run in self.runs}

        def work(spec: Perturbing | Prototypes | PublishedLevels | SingleUnits | Centers) -> Result:
            return compute(spec, models[spec.training].model, *self.view(spec.training, spec.sample))

        return self.driver.perform(specs, once(work), f"{plans.NAME}: {label}")

    def _prototypes(self) -> list[Prototypes]:
        """Return the measurements of distance layers; for networks that are shown, also the first seed's images."""
        asked = self.plan.inside
        runs = self._nearest(name for name in architectures() if name in plans.DISTANCES)
        first = {run.job.model: run.job for run in reversed(runs)}
        drawn = {first[name] for name in asked.images if name in first}
        return [Prototypes(run.job, run.job in drawn, asked.sample) for run in runs]

    def _centers(self) -> list[tuple[RepresentationTraining, Mapping[str, pd.DataFrame]]]:
        """Return the centers of the outputs of every network."""
        runs = self._nearest(name for name in architectures() if name in plans.MODELS)
        asked = [Centers(run.job, self.plan.inside.sample) for run in runs]
        found = self._performed(asked, centers.read, "centers")
        return [(job.training, {name: run.table(name) for name in run.tables}) for job, run in found.items()]

    def _planes(self) -> pd.DataFrame:
        asked = self.plan.inside
        runs = self._nearest(name for name in architectures() if name in plans.MODELS)
        found = ((r.job, units.hyperplanes(r, *self.view(r.job, asked.sample), asked)) for r in runs)
        return tagged(((job, table) for job, table in found if table is not None), PLANES)

    def _units(self) -> tuple[units.Unit, ...]:
        asked = self.plan.inside
        shown = firsts(self._nearest(asked.units))
        return tuple(u for r in shown for u in units.units_shown(r, *self.view(r.job, asked.sample), asked))
