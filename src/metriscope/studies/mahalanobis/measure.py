"""Measure and diagnose every trained network of the Mahalanobis study: stored runs to tidy tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from metriscope.nn import Mahalanobis
from metriscope.report.plots import plane_nodes
from metriscope.runs import Driver, Finished, Run, once
from metriscope.studies.mahalanobis import plan as planned
from metriscope.studies.mahalanobis import replay
from metriscope.studies.mahalanobis import trials as trial
from metriscope.studies.mahalanobis.diagnosis import diagnosed
from metriscope.studies.mahalanobis.experiments import Chance, Diagnosis, SecondLayers
from metriscope.studies.mahalanobis.landscape import combined, landscape
from metriscope.studies.mahalanobis.plan import DistanceTraining, MahalanobisPlan, Measurement
from metriscope.studies.mahalanobis.second_layer import measure_second_layer
from metriscope.studies.mahalanobis.train import draw_problem, network
from metriscope.studies.mahalanobis.trials import axes_beside_chance, chance, kept_all
from metriscope.studies.tidy_tables import matching

__all__ = ["MahalanobisResults", "measure"]


@dataclass(frozen=True, eq=False)
class TriedInPlane:
    """A 2-D Gaussian, its training points, and by trial the weights and biases with which Abs began."""

    job: DistanceTraining
    mean: np.ndarray
    cov: np.ndarray
    points: np.ndarray
    starts: Mapping[int, tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class PlanePanel:
    """One 2-D network: its hyperplanes, and its distance on a grid of nodes around the training points."""

    title: str
    weight: np.ndarray
    bias: np.ndarray
    field: np.ndarray

    def distance(self, nodes: np.ndarray) -> np.ndarray:
        """Return the distance on the nodes that it was measured on."""
        if len(nodes) != len(self.field):
            raise ValueError(f"the distance was measured on {len(self.field)} nodes, not on {len(nodes)}")
        return self.field


@dataclass(frozen=True, eq=False)
class MahalanobisResults:
    """What was measured, as tables; for the 2-D figure the training points and the networks shown.

    ``tried``: the 2-D Gaussian with the starts of two Abs trials, of which one lost a direction if any did.
    """

    tables: Mapping[str, pd.DataFrame]
    points: np.ndarray
    panels: tuple[PlanePanel, ...]
    tried: TriedInPlane | None = None

    def select(self, **where: object) -> pd.DataFrame:
        """Return the trials on the main Gaussian that match."""
        return matching(self.tables["trials"], gaussian=0, **where)


def measure(plan: MahalanobisPlan, runs: Finished, driver: Driver) -> MahalanobisResults:
    """Measure all networks, and diagnose those on the main Gaussian of each dimension."""
    jobs = plan.jobs()
    main = [job for job in jobs if job.task.gaussian == 0]
    specs = {job: _measurement(plan, job) for job in jobs}
    work = once(lambda spec: trial.measured(spec, runs[spec.training]))
    done = driver.perform(specs.values(), work, "mahalanobis: measuring")
    found = {job: done[spec] for job, spec in specs.items()}
    diagnoses = _diagnoses(plan, main, runs, driver)
    rows = [*_truths(plan), *(_placed(plan, job, run.table("trials")) for job, run in found.items())]
    trials = pd.concat(rows, ignore_index=True).sort_values("dim", kind="stable", ignore_index=True)
    first = matching(trials, gaussian=0)
    history = _joined({job: runs[job] for job in main}, "history")
    again = replay.replayed(plan, first, driver)
    tables = {
        "trials": trials,
        "summary": trial.summary(first),
        "history": history,
        "diagnoses": diagnoses,
        "spectra": _joined(found, "spectra"),
        "recovery": _joined(found, "recovery"),
        "starts": trial.starts_compared(first, history),
        "gaussians": _gaussians(trials),
        "identities": _identities(plan, found),
        "axes": axes_beside_chance(trials, _chances(plan, trials, driver)),
        "replayed trials": again,
        "replay": replay.compared(again),
        "early ranks": replay.ranked(plan, history, driver),
        "second layer": measure_second_layer(SecondLayers(seed=plan.seed), driver, recorded=plan.profile == "quick"),
    }
    many = landscape(plan, driver)
    tables |= many | {
        "population": combined(trials, many.get("population"), ("dim", "start", "activation")),
        "population axes": combined(tables["axes"], many.get("population axes"), ("dim",)),
    }
    if not plan.others:
        tables["gaussians"] = _gaussians(matching(tables["population"], start="random"))
    return MahalanobisResults(tables, *_plane(plan, first, runs), _tried(plan, first))


def _measurement(plan: MahalanobisPlan, job: DistanceTraining) -> Measurement:
    return Measurement(job, plan.size(job.task.dim, job.task.gaussian).test_samples)


def _diagnoses(plan: MahalanobisPlan, jobs: list[DistanceTraining], runs: Finished, driver: Driver) -> pd.DataFrame:
    """Diagnose trials; the second optimizer is not used on trials that have barely begun."""
    begun = {job: plan.length(job.task.dim) >= planned.SHORTEST for job in jobs}
    specs = [Diagnosis(job) if begun[job] else Diagnosis(job, iterations=0, large_iterations=0) for job in jobs]
    work = once(lambda spec: diagnosed(spec, runs[spec.training]))
    done = driver.perform(specs, work, "mahalanobis: diagnosing")
    return pd.concat([done[spec].table("diagnosis") for spec in specs], ignore_index=True)


def _truths(plan: MahalanobisPlan) -> list[pd.DataFrame]:
    first = [plan.group(dim, "random")[0] for dim in plan.sizes]
    return [_placed(plan, job, trial.truth_row(_measurement(plan, job))) for job in first]


def _placed(plan: MahalanobisPlan, job: DistanceTraining, table: pd.DataFrame) -> pd.DataFrame:
    where = (job.task.dim, job.task.gaussian)
    return table.assign(gaussian=where[1], length=plan.length(*where), protocol=plan.protocol(*where))


def _joined(found: Mapping[DistanceTraining, Run], name: str) -> pd.DataFrame:
    """Return one table of several runs, with the dimension, Gaussian and start of each."""
    named = [
        run.table(name).assign(dim=job.task.dim, gaussian=job.task.gaussian, start=job.start_name)
        for job, run in found.items()
    ]
    return pd.concat(named, ignore_index=True)


def _identities(plan: MahalanobisPlan, found: Mapping[DistanceTraining, Run]) -> pd.DataFrame:
    """Return the errors of the analytic networks, and of trained Abs networks rewritten with ReLU."""
    tasks, points = dict.fromkeys(job.task for job in plan.jobs()), planned.ANALYTIC_POINTS
    rows = [{"dim": t.dim, "gaussian": t.gaussian, "error": trial.analytic_error(t, points)} for t in tasks]
    analytic = pd.DataFrame(rows).assign(identity="analytic", start="none", trial=0)
    return pd.concat([analytic, _joined(found, "identities")], ignore_index=True).assign(protocol=True)


def _gaussians(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the mean training loss of each activation on each further Gaussian."""
    further = trials[trials["gaussian"] > 0]
    means = further.groupby(["dim", "gaussian", "activation"], sort=False)["train_mse"].mean()
    return means.rename("mse").reset_index()


def _chances(plan: MahalanobisPlan, trials: pd.DataFrame, driver: Driver) -> dict[Chance, Run]:
    """Return what random rotations recover on the Gaussians on which some trial kept all directions."""
    kept = kept_all(trials)
    asked = set(zip(kept["dim"], kept["gaussian"], strict=True))
    tasks = dict.fromkeys(job.task for job in plan.jobs())
    specs = [Chance(task) for task in tasks if (task.dim, task.gaussian) in asked]
    done = driver.perform(specs, once(chance), "mahalanobis: what chance recovers")
    return {spec: done[spec] for spec in specs}


def _plane(plan: MahalanobisPlan, trials: pd.DataFrame, runs: Finished) -> tuple[np.ndarray, tuple[PlanePanel, ...]]:
    """Return the 2-D training points and what to draw over them: the truth, each best run, a failed Abs run."""
    if 2 not in plan.sizes:
        return np.empty((0, 2)), ()
    jobs, titles = plan.group(2, "random"), trial.TITLES
    known = list(chain.from_iterable(trial.networks(runs[job], job) for job in jobs))
    problem = draw_problem(jobs[0].task)
    points = problem.x.double().numpy()
    nodes = torch.from_numpy(plane_nodes(points)).float()
    rows = matching(trials, dim=2, start="random")
    best = list(trial.best_trials(rows).itertuples())
    failed = rows[(rows["activation"] == "abs") & (rows["lost"] > 0)].nlargest(1, "train_mse").itertuples()
    shown = [
        (titles["truth"], trial.truth(problem).model),
        *((f"{titles[str(row.activation)]}, best run", _find(known, row)) for row in best if row.activation == "abs"),
        *((f"{titles['abs']}, a direction lost", _find(known, row)) for row in failed),
        *((f"{titles[str(row.activation)]}, best run", _find(known, row)) for row in best if row.activation != "abs"),
    ]
    return points, tuple(_panel(title, model, nodes) for title, model in shown)


def _tried(plan: MahalanobisPlan, trials: pd.DataFrame) -> TriedInPlane | None:
    """Return the starts of the best Abs trial in 2-D and of the worst that lost a direction."""
    rows = matching(trials, dim=2, start="random", activation="abs")
    if rows.empty:
        return None
    job = plan.group(2, "random")[0]
    problem = draw_problem(job.task)
    chosen = [*rows.nsmallest(1, "train_mse")["trial"], *rows[rows["lost"] > 0].nlargest(1, "train_mse")["trial"]]
    starts = {}
    for number in dict.fromkeys(map(int, chosen)):
        linear = network(job, "abs", number, problem.x).linear
        starts[number] = linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy()
    mean, cov = (part.double().numpy() for part in (problem.gaussian.mean, problem.gaussian.cov))
    return TriedInPlane(job, mean, cov, problem.x.double().numpy(), starts)


def _find(known: list[trial.TrainedDistance], row: Any) -> Mahalanobis:
    return next(n.model for n in known if (n.activation, n.trial) == (row.activation, row.trial))


def _panel(title: str, model: Mahalanobis, nodes: Tensor) -> PlanePanel:
    with torch.no_grad():
        field = model(nodes).numpy()
    linear = model.linear
    return PlanePanel(title, linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy(), field)
