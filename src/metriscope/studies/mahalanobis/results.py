"""Collect everything a plan of the Mahalanobis study yields: trained, stored, measured, diagnosed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from metriscope.runs import Run, Store
from metriscope.studies.contract import Announce
from metriscope.studies.mahalanobis.experiment import Problem, compute, problem
from metriscope.studies.mahalanobis.failures import diagnose
from metriscope.studies.mahalanobis.measure import Trained, measure, networks, summary, training_loss, truth
from metriscope.studies.mahalanobis.spec import Group, Plan
from metriscope.train import progress

__all__ = ["Diagnosed", "Results", "collect"]


@dataclass(frozen=True)
class Diagnosed:
    """Why each trial of a group ended as it did: asked for after training, stored beside it."""

    group: Group
    method: int = 1  # raised when the diagnosis would come out otherwise


@dataclass(frozen=True)
class Results:
    """What was measured, as tables; the problems and networks behind them for the figures."""

    plan: Plan
    rows: pd.DataFrame
    summary: pd.DataFrame
    history: pd.DataFrame
    diagnoses: pd.DataFrame
    others: pd.DataFrame
    tasks: dict[int, Problem]
    trained: tuple[Trained, ...]

    def select(self, **where: object) -> pd.DataFrame:
        """Return the measured rows that match."""
        mask = np.logical_and.reduce([self.rows[k] == v for k, v in where.items()])
        return self.rows[mask]

    def curve(self, dim: int, start: str, activation: str) -> tuple[np.ndarray, np.ndarray]:
        """Return recorded epochs, and losses as trials by epochs."""
        part = self.history.query("dim == @dim and start == @start and activation == @activation")
        table = part.pivot(index="trial", columns="epoch", values="loss")
        return table.columns.to_numpy(), table.to_numpy()

    def network(self, dim: int, start: str, activation: str, trial: int) -> Trained:
        """Return one trained network."""
        key = (dim, start, activation, trial)
        return next(t for t in self.trained if (t.dim, t.start, t.activation, t.trial) == key)


def collect(plan: Plan, store: Store, announce: Announce) -> Results:
    """Run or resume every group of the plan, then measure and diagnose all networks."""
    tasks = {dim: problem(dim, size.samples, plan.seed) for dim, size in plan.sizes.items()}
    rows, history, diagnoses, trained = [], [], [], []
    for dim, size in plan.sizes.items():
        known = [truth(tasks[dim])]
        for start in plan.starts:
            groups = plan.groups(dim, start)
            for group, run in zip(groups, _train(groups, start, store, announce), strict=True):
                found = networks(run, group, start)
                known += found
                history.append(run.table("history").assign(dim=dim, start=start))
                diagnoses.append(_diagnose(group, found, tasks[dim], store))
        rows.append(measure(known, tasks[dim], size.test_samples, plan.seed))
        trained += known
    table = pd.concat(rows, ignore_index=True)
    whole = [pd.concat(part, ignore_index=True) for part in (history, diagnoses)]
    others = _others(plan, store, announce)
    return Results(plan, table, summary(table), whole[0], whole[1], others, tasks, tuple(trained))


def _others(plan: Plan, store: Store, announce: Announce) -> pd.DataFrame:
    """Return the mean training loss of each activation on each further Gaussian."""
    rows = []
    for dim, count in plan.others.items():
        for number in range(1, count + 1):
            task = problem(dim, plan.sizes[dim].samples, plan.seed, number)
            groups = plan.groups(dim, "random", number)
            runs = _train(groups, f"random, Gaussian {number} of {count} more", store, announce)
            found = [n for group, run in zip(groups, runs, strict=True) for n in networks(run, group, "random")]
            losses = pd.DataFrame([{"activation": n.activation, "mse": training_loss(n, task)} for n in found])
            for activation, values in losses.groupby("activation", sort=False)["mse"]:
                rows.append({"dim": dim, "gaussian": number, "activation": activation, "mse": values.mean()})
    return pd.DataFrame(rows, columns=["dim", "gaussian", "activation", "mse"])


def _train(groups: tuple[Group, ...], start: str, store: Store, announce: Announce) -> list[Run]:
    runs, fresh = [], 0
    first, epochs = groups[0], groups[0].epochs
    with progress(f"{first.dim}-D from {start}", total=epochs * len(groups)) as show:
        for index, group in enumerate(groups):
            done = store.get(group)
            fresh += done is None
            runs.append(done or compute(group, store, _shifted(show, index * epochs)))
            show((index + 1) * epochs)
    trials, kinds = sum(len(g.trials) for g in groups), ", ".join(first.activations)
    announce(
        f"{first.dim}-D from {start}: {trials} trials of {kinds}, {epochs:,} epochs, "
        f"{first.samples:,} points (groups: {fresh} computed, {len(groups) - fresh} from the store)"
    )
    return runs


def _shifted(show: Callable[[int], None], offset: int) -> Callable[[int], None]:
    return lambda epoch: show(offset + epoch)


def _diagnose(group: Group, found: list[Trained], task: Problem, store: Store) -> pd.DataFrame:
    spec = Diagnosed(group)
    if (run := store.get(spec)) is None:
        with threadpool_limits(limits=1, user_api="blas"):
            table = diagnose(found, task, group.lr * group.epochs)
        run = store.put(spec, {}, {"study": "mahalanobis"}, {"diagnosis": table})
    return run.table("diagnosis")
