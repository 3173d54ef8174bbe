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
from metriscope.studies.mahalanobis.axes.measure import axes, chance, kept_all
from metriscope.studies.mahalanobis.axes.plan import Chance
from metriscope.studies.mahalanobis.diagnosis.measure import diagnosed
from metriscope.studies.mahalanobis.diagnosis.plan import Diagnosis
from metriscope.studies.mahalanobis.plan import SHORTEST, Plan, Training
from metriscope.studies.mahalanobis.starts.measure import starts_compared
from metriscope.studies.mahalanobis.train import problem
from metriscope.studies.mahalanobis.trials.measure import (
    TITLES,
    Trained,
    analytic_error,
    best_trials,
    measured,
    networks,
    start_name,
    summary,
    truth_row,
)
from metriscope.studies.mahalanobis.trials.plan import Analytic, Measurement

__all__ = ["Panel", "Results", "measure"]


@dataclass(frozen=True, eq=False)
class Panel:
    """One network in the plane: its hyperplanes, and its distance on the nodes around the training points."""

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
class Results:
    """What was measured, as tables; for the 2-D figure the training points and the networks shown."""

    tables: Mapping[str, pd.DataFrame]
    points: np.ndarray
    panels: tuple[Panel, ...]

    def select(self, **where: object) -> pd.DataFrame:
        """Return the trials on the main Gaussian that match."""
        rows = self.tables["trials"]
        rows = rows[rows["gaussian"] == 0]
        for name, value in where.items():
            rows = rows[rows[name] == value]
        return rows


def measure(plan: Plan, runs: Finished, driver: Driver) -> Results:
    """Measure all networks, and diagnose those on the main Gaussian of each dimension."""
    main = [job for job in plan.jobs() if job.task.gaussian == 0]
    found = _measurements(plan, runs, driver)
    diagnoses = _diagnoses(plan, runs, driver)
    rows = [*_truths(plan), *(_placed(plan, job, run.table("trials")) for job, run in found.items())]
    trials = pd.concat(rows, ignore_index=True).sort_values("dim", kind="stable", ignore_index=True)
    first = trials[trials["gaussian"] == 0]
    history = pd.concat([_named(job, runs[job].table("history")) for job in main], ignore_index=True)
    tables = {
        "trials": trials,
        "summary": summary(first),
        "history": history,
        "diagnoses": pd.concat(diagnoses, ignore_index=True),
        "spectra": _joined(found, "spectra"),
        "recovery": _joined(found, "recovery"),
        "starts": starts_compared(first, history),
        "gaussians": _gaussians(trials),
        "identities": _identities(plan, found),
        "axes": axes(trials, _chances(plan, kept_all(trials), driver)),
    }
    return Results(tables, *_plane(plan, first, runs))


def _measurement(plan: Plan, job: Training) -> Measurement:
    return Measurement(job, plan.size(job.task.dim, job.task.gaussian).test_samples)


def _measurements(plan: Plan, runs: Finished, driver: Driver) -> dict[Training, Run]:
    specs = {job: _measurement(plan, job) for job in plan.jobs()}
    work = once(lambda spec: measured(spec, runs[spec.training]))
    done = driver.perform(specs.values(), work, "mahalanobis: measuring")
    return {job: done[spec] for job, spec in specs.items()}


def _diagnoses(plan: Plan, runs: Finished, driver: Driver) -> list[pd.DataFrame]:
    """Diagnose the trials on the main Gaussians; those that have barely begun are not gone on with."""
    jobs = [job for job in plan.jobs() if job.task.gaussian == 0]
    begun = [plan.length(job.task.dim) >= SHORTEST for job in jobs]
    specs = [
        Diagnosis(job) if trained else Diagnosis(job, iterations=0, large_iterations=0)
        for job, trained in zip(jobs, begun, strict=True)
    ]
    work = once(lambda spec: diagnosed(spec, runs[spec.training]))
    done = driver.perform(specs, work, "mahalanobis: diagnosing")
    return [done[spec].table("diagnosis") for spec in specs]


def _truths(plan: Plan) -> list[pd.DataFrame]:
    first = [plan.group(dim, "random")[0] for dim in plan.sizes]
    return [_placed(plan, job, truth_row(_measurement(plan, job))) for job in first]


def _placed(plan: Plan, job: Training, table: pd.DataFrame) -> pd.DataFrame:
    dim, gaussian = job.task.dim, job.task.gaussian
    shares = {"length": plan.length(dim, gaussian), "protocol": plan.protocol(dim, gaussian)}
    return table.assign(gaussian=gaussian, **shares)


def _named(job: Training, table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(dim=job.task.dim, gaussian=job.task.gaussian, start=start_name(job.start))


def _joined(found: Mapping[Training, Run], name: str) -> pd.DataFrame:
    return pd.concat([_named(job, run.table(name)) for job, run in found.items()], ignore_index=True)


def _chances(plan: Plan, kept: pd.DataFrame, driver: Driver) -> dict[Chance, Run]:
    """Return what chance recovers on the Gaussians on which there is something to compare with it."""
    asked = set(zip(kept["dim"], kept["gaussian"], strict=True))
    tasks = dict.fromkeys(job.task for job in plan.jobs())
    specs = [Chance(task) for task in tasks if (task.dim, task.gaussian) in asked]
    done = driver.perform(specs, once(chance), "mahalanobis: what chance recovers")
    return {spec: done[spec] for spec in specs}


def _identities(plan: Plan, found: Mapping[Training, Run]) -> pd.DataFrame:
    """Return the errors of the analytic networks, and of trained Abs networks rewritten with ReLU."""
    tasks = dict.fromkeys(job.task for job in plan.jobs())
    rows = [{"dim": t.dim, "gaussian": t.gaussian, "error": analytic_error(Analytic(t))} for t in tasks]
    analytic = pd.DataFrame(rows).assign(identity="analytic", start="none", trial=0)
    return pd.concat([analytic, _joined(found, "identities")], ignore_index=True).assign(protocol=True)


def _gaussians(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the mean training loss of each activation on each further Gaussian."""
    further = trials[trials["gaussian"] > 0]
    means = further.groupby(["dim", "gaussian", "activation"], sort=False)["train_mse"].mean()
    return means.rename("mse").reset_index()


def _plane(plan: Plan, trials: pd.DataFrame, runs: Finished) -> tuple[np.ndarray, tuple[Panel, ...]]:
    """Return the 2-D training points and what to draw over them: the truth, each best run, a failed Abs run."""
    if 2 not in plan.sizes:
        return np.empty((0, 2)), ()
    rows = trials[(trials["dim"] == 2) & (trials["start"] == "random")]
    known = list(chain.from_iterable(networks(runs[job], job) for job in plan.group(2, "random")))
    task = problem(plan.group(2, "random")[0].task)
    points = task.x.double().numpy()
    nodes = torch.from_numpy(plane_nodes(points)).float()
    exact = Mahalanobis.from_gaussian(task.gaussian.mean, task.gaussian.cov, dtype=torch.float32)
    panels = [_panel(TITLES["truth"], exact, nodes)]
    best = best_trials(rows).itertuples()
    panels += [_panel(f"{TITLES[str(row.activation)]}, best run", _find(known, row), nodes) for row in best]
    failed = rows[(rows["activation"] == "abs") & (rows["lost"] > 0)].nlargest(1, "train_mse")
    panels += [_panel(f"{TITLES['abs']}, a direction lost", _find(known, row), nodes) for row in failed.itertuples()]
    return points, tuple(panels)


def _find(known: list[Trained], row: Any) -> Mahalanobis:
    return next(n.model for n in known if (n.activation, n.trial) == (row.activation, row.trial))


def _panel(title: str, model: Mahalanobis, nodes: Tensor) -> Panel:
    with torch.no_grad():
        field = model(nodes).numpy()
    linear = model.linear
    return Panel(title, linear.weight.detach().double().numpy(), linear.bias.detach().double().numpy(), field)
