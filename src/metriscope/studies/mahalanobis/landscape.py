"""Train and measure networks on many Gaussians: how much depends on the Gaussian, what is lost, what predicts it.

Only numbers are kept, one table row per network. The Gaussian is the unit of replication: intervals are over Gaussians.
Axes: G Gaussians, S trials, K units, D axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import binomtest

from metriscope.common.threads import one_blas_thread
from metriscope.functional import principal_axes, summarize
from metriscope.rng import derive
from metriscope.runs import Driver, Record, Result, Run, Work
from metriscope.studies.mahalanobis.diagnosis import diagnose
from metriscope.studies.mahalanobis.experiments import (
    OUTCOMES,
    POPULATIONS,
    Chance,
    Diagnosis,
    LandscapeRule,
    PopulationTraining,
    population_jobs,
)
from metriscope.studies.mahalanobis.plan import (
    EXACT,
    METRICS,
    NAME,
    PAPER,
    DistanceTraining,
    MahalanobisPlan,
    Measurement,
)
from metriscope.studies.mahalanobis.prediction import choices, predicted
from metriscope.studies.mahalanobis.train import DistanceProblem, cohorts_of, draw_problem, network
from metriscope.studies.mahalanobis.trials import (
    TrainedDistance,
    axes_beside_chance,
    chance,
    kept_all,
    rebuilt,
    relative,
    tables_of,
)
from metriscope.studies.tidy_tables import matching, published
from metriscope.train import Cohort, CohortPass

__all__ = ["WORK", "axes_of", "combined", "effects", "landscape", "share_over_gaussians", "starts_of"]

# What is kept of every network, and what is kept in addition of those with random starts and the usual width.
ALWAYS = ("trial", "train_mse", "test_mse", "lost")
USUAL_METRICS = ("mirrored", "centering_sd", "sphericity", "data_sphericity", "eigenvalue_error", "eigenvector_cosine")
USUAL = (*USUAL_METRICS, "lost_axis", "constant")
Tables = dict[str, pd.DataFrame]


def _begin(jobs: Sequence[PopulationTraining]) -> CohortPass:
    return CohortPass({job: _cohorts(job) for job in jobs}, _finish)


def _cohorts(job: PopulationTraining) -> list[Cohort]:
    found = [(training.task.gaussian, cohort) for training in job.trainings() for cohort in cohorts_of(training)]
    for gaussian, cohort in found:
        cohort.name = f"{gaussian}/{cohort.name}"
    return [cohort for _, cohort in found]


def _finish(job: PopulationTraining, cohorts: Sequence[Cohort]) -> Result:
    """Return the concatenated tables of all Gaussians of a job."""
    own = [list(some) for _, some in groupby(cohorts, lambda cohort: cohort.name.split("/")[0])]
    with one_blas_thread():
        parts = [_measured(job, training, some) for training, some in zip(job.trainings(), own, strict=True)]
    # A table without rows does not determine the types of its columns.
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
    """Return what is kept of Abs networks from random starts, in order to explain their failures."""
    ends = diagnose(trained, problem, Diagnosis(training))[["outcome", "polished", "lost_polished"]]
    spec, placed = Chance(training.task), whole.assign(gaussian=training.task.gaussian, length=1, protocol=True)
    null = {spec: Record({}, {}, chance(spec).tables)} if len(kept_all(placed)) else {}
    return {
        "trials": pd.concat([whole[[*ALWAYS, *USUAL]].drop(columns="mirrored"), ends], axis=1),
        "recovered": axes_beside_chance(placed, null).drop(columns=["dim", "length", "protocol"]),
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
    """Return a table whose numbers are rounded to ``digits`` significant digits, to keep records short."""
    floats = table.select_dtypes("float").columns
    short = {name: [float(f"{value:.{digits}g}") for value in table[name]] for name in floats}
    return table.assign(**short).reset_index(drop=True)


WORK = Work(_begin)


# The metrics whose variation is split, and the columns of the population that hold them.
COLUMNS = {metric.name: metric.name for metric in METRICS} | {"centering": "centering_sd"}
MEASURED = ("mirrored", "data_sphericity", "centering_sd", "sphericity", "eigenvalue_error", "eigenvector_cosine")
FOUND = ("trials", "recovered", "axes", "starts")


def landscape(plan: MahalanobisPlan, driver: Driver) -> Tables:
    """Return the tables of the population, in the quick profile from records; empty if nothing was run."""
    asked = population_jobs(plan)
    quick = plan.profile == "quick"
    runs: Mapping[PopulationTraining, Run | Record] = (
        driver.recorded(asked) if quick else driver.perform(asked, WORK, f"{NAME}: many Gaussians") if asked else {}
    )
    if not any(job.usual and job.activation == "abs" for job in runs):
        return {}
    return _tables([(job, runs[job]) for job in asked if job in runs], "record" if quick else "run")


def _tables(runs: Sequence[tuple[PopulationTraining, Run | Record]], origin: str) -> Tables:
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in FOUND}
    for job, run in runs:
        for name in run.tables:
            parts[name].append(_placed(job, run.table(name)).assign(origin=origin))
    every, recovered, axes, starts = (pd.concat(parts[name], ignore_index=True) for name in FOUND)
    usual = every["hidden"].isna()
    whole = every[usual].reset_index(drop=True)
    rule = LandscapeRule()
    lost, scored = whole[(whole["activation"] == "abs") & (whole["start"] == "random")], (axes, starts, rule)
    found = {
        "landscape-effects": effects(whole, rule),
        "landscape-lost": lost_axes(lost, rule),
        "landscape-choices": choices(lost, *scored),
        "landscape-widths": widths(every, rule),
        "landscape-ends": ends(lost, rule),
        **predicted(lost, *scored),
    }
    known = {"population": whole, "population axes": recovered}
    return known | {name: table.assign(origin=origin) for name, table in found.items()}


def _placed(job: PopulationTraining, table: pd.DataFrame) -> pd.DataFrame:
    """Return a job's table with its dimension, start and width, and columns that are computed from its numbers."""
    full, dim = PAPER[job.task.dim], job.task.dim
    start, length = job.trainings()[0].start_name, job.recipe.epochs / full.epochs
    known = {"dim": dim, "start": start, "activation": job.activation, "units": job.units, "hidden": job.hidden}
    known |= {"length": length, "protocol": length >= 1 and job.task.samples >= full.samples}
    # The length that the start gives an axis is renamed: in all tables of a study, ``length`` is the share of the
    # epochs.
    placed = table.rename(columns={"length": "start_length"}).assign(**known)
    if "train_mse" in table:
        placed = placed.reindex(columns=[*placed.columns, *(name for name in MEASURED if name not in placed)])
        placed = placed.assign(**relative(placed, dim, EXACT))
    return placed


def combined(own: pd.DataFrame, more: pd.DataFrame | None, keys: tuple[str, ...]) -> pd.DataFrame:
    """Return the rows of ``more``, and the rows of ``own`` whose ``keys`` are not in ``more``."""
    if more is None or more.empty:
        return own
    known = set(more[list(keys)].itertuples(index=False, name=None))
    kept = [key not in known for key in own[list(keys)].itertuples(index=False, name=None)]
    return pd.concat([more, own[kept]], ignore_index=True) if any(kept) else more


def _draws(count: int, rule: LandscapeRule) -> np.ndarray:
    """Return rows of Gaussians drawn with replacement; the same for the same number of Gaussians."""
    return np.random.default_rng(derive(0, NAME, "landscape", count)).integers(count, size=(rule.draws, count))


def _interval(values: np.ndarray, rule: LandscapeRule) -> tuple[float, float]:
    if np.isnan(values).all():
        return float("nan"), float("nan")
    low, high = np.nanquantile(values, [(1 - rule.confidence) / 2, (1 + rule.confidence) / 2])
    return float(low), float(high)


def share_over_gaussians(happened: pd.Series, gaussian: pd.Series, rule: LandscapeRule) -> dict[str, float]:
    """Return the share of trials in which something happened, with a bootstrap interval over Gaussians.

    If it happened always or never, a bootstrap would show no variation, so the exact binomial interval for this number
    of Gaussians is returned instead.
    """
    counts = happened.astype(float).groupby(gaussian).agg(["sum", "count"]).to_numpy()
    share = float(happened.mean())
    if share in (0, 1):
        exact = binomtest(len(counts) * int(share), len(counts)).proportion_ci(rule.confidence)
        return {"share": share, "low": float(exact.low), "high": float(exact.high)}
    drawn = counts[_draws(len(counts), rule)].sum(1)
    low, high = _interval(drawn[:, 0] / drawn[:, 1], rule)
    return {"share": share, "low": low, "high": high}


def effects(trials: pd.DataFrame, rule: LandscapeRule) -> pd.DataFrame:
    """Return a random-effects summary per dimension, activation and metric, of trials from random starts.

    Variance components are those of the one-way analysis of variance. ``icc`` is the share of the variance of single
    trials that is between Gaussians; ``q_low`` and ``q_high`` bound the means of the middle 95 % of Gaussians.
    """
    rows = []
    random, printed = matching(trials, start="random"), published(NAME)
    for (dim, activation), part in random.groupby(["dim", "activation"], sort=False):
        for metric, column in COLUMNS.items():
            if column in part and not part[column].isna().any():
                wide = part.pivot(index="gaussian", columns="trial", values=column).dropna().to_numpy(dtype=float)
                theirs = matching(printed, dim=dim, activation=activation, metric=metric)["mean"].dropna()
                known = float(theirs.iloc[0]) if len(theirs) else float("nan")
                rows.append({"dim": dim, "activation": activation, "metric": metric, **_components(wide, rule)})
                below = float((wide.mean(1) < known).mean()) if len(theirs) else float("nan")
                rows[-1] |= {"published": known, "below": below}
    return pd.DataFrame(rows)


def _components(wide: Float[np.ndarray, "g t"], rule: LandscapeRule) -> dict[str, float]:
    """Return mean, interval and variance components of trials on Gaussians."""
    means, inside = wide.mean(1), wide.var(1, ddof=1)
    drawn = _draws(len(wide), rule)
    between, within = _split(means, inside, wide.shape[1])
    found = summarize(means, rule.confidence)
    low, high = _interval(_icc(*_split(means[drawn], inside[drawn], wide.shape[1])), rule)
    q_low, q_high = _interval(means, rule)
    return {
        "gaussians": len(wide), "trials": wide.shape[1], "mean": found.mean, "low": found.low, "high": found.high,
        "between_sd": float(between) ** 0.5, "within_sd": float(within) ** 0.5, "icc": float(_icc(between, within)),
        "icc_low": low, "icc_high": high, "q_low": q_low, "q_high": q_high,
    }  # fmt: skip


def _split(means: np.ndarray, inside: np.ndarray, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the variance between Gaussians and that of trials within one, over the last axis."""
    within = inside.mean(-1)
    return np.maximum(means.var(-1, ddof=1) - within / trials, 0), within


def _icc(between: np.ndarray, within: np.ndarray) -> np.ndarray:
    whole = np.asarray(between + within)
    return np.divide(between, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def lost_axes(trials: pd.DataFrame, rule: LandscapeRule) -> pd.DataFrame:
    """Return, per principal axis, how often a failed trial of Abs has lost this axis."""
    rows = []
    for dim, part in trials[trials["lost"] > 0].groupby("dim", sort=False):
        for axis in range(int(dim)):
            found = share_over_gaussians(part["lost_axis"] == axis, part["gaussian"], rule)
            rows.append({"dim": dim, "axis": axis + 1, "trials": len(part), **found, "chance": 1 / dim})
    return pd.DataFrame(rows, columns=["dim", "axis", "trials", "share", "low", "high", "chance"])


def widths(every: pd.DataFrame, rule: LandscapeRule) -> pd.DataFrame:
    """Return the share of exact trials by number of units, on the Gaussians on which all widths are trained."""
    rows = []
    few = every[every["gaussian"] <= every["dim"].map({dim: size.widened for dim, size in POPULATIONS.items()})]
    few = few[(few["start"] == "random") & few["activation"].isin(["abs", "relu"])]
    for (dim, activation, units), part in few.groupby(["dim", "activation", "units"]):
        found = share_over_gaussians(part["exact"], part["gaussian"], rule)
        counts = {"gaussians": part["gaussian"].nunique(), "trials": len(part)}
        where = {"dim": dim, "activation": activation, "units": units, **counts}
        rows.append({**where, **found, "lost": part["lost"].mean(), "median_mse": part["train_mse"].median()})
    return pd.DataFrame(rows)


def ends(trials: pd.DataFrame, rule: LandscapeRule) -> pd.DataFrame:
    """Return, per outcome of Abs, the number of trials, and of Gaussians on which some or all failed trials end so."""
    rows = []
    for dim, part in trials.groupby("dim", sort=False):
        failed = part[part["outcome"] != "exact"]
        for outcome in OUTCOMES:
            here = part["outcome"] == outcome
            some = part[here]["gaussian"].nunique()
            alone = (failed["outcome"] == outcome).groupby(failed["gaussian"]).all()
            counts = {"trials": int(here.sum()), "of": len(part), "gaussians": some, "alone": int(alone.sum())}
            found = share_over_gaussians(here, part["gaussian"], rule)
            rows.append({"dim": dim, "outcome": outcome, **counts, **found})
    return pd.DataFrame(rows)
