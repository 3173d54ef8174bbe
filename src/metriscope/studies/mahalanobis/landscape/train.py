"""Train and measure networks on many Gaussians: only numbers are kept, a table row per network.

Axes: S trials, K units, D axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import pandas as pd

from metriscope.common.threads import one_blas_thread
from metriscope.functional import principal_axes
from metriscope.runs import Record, Result, Work
from metriscope.studies.mahalanobis.diagnosis.measure import diagnose
from metriscope.studies.mahalanobis.diagnosis.plan import Diagnosis
from metriscope.studies.mahalanobis.landscape.plan import PopulationTraining
from metriscope.studies.mahalanobis.plan import DistanceTraining, Measurement
from metriscope.studies.mahalanobis.recovery.measure import axes, chance, kept_all
from metriscope.studies.mahalanobis.recovery.plan import Chance
from metriscope.studies.mahalanobis.train import DistanceProblem, cohorts_of, draw_problem, network
from metriscope.studies.mahalanobis.trials.measure import TrainedDistance, rebuilt, tables_of
from metriscope.train import Cohort, CohortPass

__all__ = ["WORK", "axes_of", "starts_of"]

# What is kept of every network, and what more of those from random starts with the usual number of units.
ALWAYS = ("trial", "train_mse", "test_mse", "lost")
METRICS = ("mirrored", "centering_sd", "sphericity", "data_sphericity", "eigenvalue_error", "eigenvector_cosine")
USUAL = (*METRICS, "lost_axis", "constant")
Tables = dict[str, pd.DataFrame]


def _begin(jobs: Sequence[PopulationTraining]) -> CohortPass:
    return CohortPass({job: _cohorts(job) for job in jobs}, _finish)


def _cohorts(job: PopulationTraining) -> list[Cohort]:
    found = [(training.task.gaussian, cohort) for training in job.trainings() for cohort in cohorts_of(training)]
    for gaussian, cohort in found:
        cohort.name = f"{gaussian}/{cohort.name}"
    return [cohort for _, cohort in found]


def _finish(job: PopulationTraining, cohorts: Sequence[Cohort]) -> Result:
    """Return the tables of all Gaussians of a job, one below the other."""
    own = [list(some) for _, some in groupby(cohorts, lambda cohort: cohort.name.split("/")[0])]
    with one_blas_thread():
        parts = [_measured(job, training, some) for training, some in zip(job.trainings(), own, strict=True)]
    # A table without rows has no types of its own.
    joined = {
        name: pd.concat([part[name] for part in parts if len(part[name])] or [parts[0][name]]) for name in parts[0]
    }
    return Result({name: _rounded(table, job.digits) for name, table in joined.items()})


def _measured(job: PopulationTraining, training: DistanceTraining, cohorts: Sequence[Cohort]) -> Tables:
    """Return what is kept of the networks of one Gaussian."""
    named = ((cohort.name.split("/", 1)[1], cohort) for cohort in cohorts)
    tensors = {f"{name}/{key}": value[0] for name, cohort in named for key, value in cohort.parameters.items()}
    trained, problem = rebuilt(tensors, training), draw_problem(training.task)
    whole = tables_of(trained, problem, Measurement(training, job.test_samples))["trials"]
    trials = whole[[*ALWAYS, *(USUAL if job.usual else ())]].dropna(axis=1, how="all")
    tables = {"trials": trials}
    if job.usual and job.activation == "abs":
        tables = _of_abs(training, trained, problem, whole)
    return {name: table.assign(gaussian=training.task.gaussian) for name, table in tables.items()}


def _of_abs(
    training: DistanceTraining, trained: list[TrainedDistance], problem: DistanceProblem, whole: pd.DataFrame
) -> Tables:
    """Return what is kept of Abs networks from random starts, whose failures are explained."""
    ends = diagnose(trained, problem, Diagnosis(training))[["outcome", "polished", "lost_polished"]]
    spec, placed = Chance(training.task), whole.assign(gaussian=training.task.gaussian, length=1, protocol=True)
    null = {spec: Record({}, {}, chance(spec).tables)} if len(kept_all(placed)) else {}
    return {
        "trials": pd.concat([whole[[*ALWAYS, *USUAL]].drop(columns="mirrored"), ends], axis=1),
        "recovered": axes(placed, null).drop(columns=["dim", "length", "protocol"]),
        "axes": axes_of(problem),
        "starts": starts_of(training, problem),
    }


def axes_of(problem: DistanceProblem) -> pd.DataFrame:
    """Return, per principal axis, its variance and how far the mean lies from the origin along it."""
    variances, directions = principal_axes(problem.gaussian.cov)
    along = (directions @ problem.gaussian.mean).abs()
    return pd.DataFrame({"axis": range(len(variances)), "variance": variances.numpy(), "mean": along.numpy()})


def starts_of(training: DistanceTraining, problem: DistanceProblem) -> pd.DataFrame:
    """Return, per trial and axis, the squared length that the units give an axis before training; 1 is right."""
    variances, directions = principal_axes(problem.gaussian.cov)
    frames = []
    for trial in training.trials:
        weight = network(training, "abs", trial, problem.x).linear.weight.detach().double()
        lengths = (weight @ directions.mT).square().sum(0) * variances
        frames.append(pd.DataFrame({"trial": trial, "axis": range(len(lengths)), "length": lengths.numpy()}))
    return pd.concat(frames, ignore_index=True)


def _rounded(table: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Return a table whose numbers have so many significant digits, which keeps records short."""
    floats = table.select_dtypes("float").columns
    short = {name: [float(f"{value:.{digits}g}") for value in table[name]] for name in floats}
    return table.assign(**short).reset_index(drop=True)


WORK = Work(_begin)
