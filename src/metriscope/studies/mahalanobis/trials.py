"""Measure every trained network: one row per network, one column per metric; and compare starts and chance.

Axes: S trials, T recorded epochs, K units, D features. Weights are measured in float64.

Principal axes are compared with randomly rotated whitenings, as whitening is unique only up to a rotation. The null
distribution is that of means over as many rotations as there are trials. Trials that lost a direction are left out,
since no rotated whitening loses one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope import functional, probes
from metriscope.functional import whitening_factor
from metriscope.nn import Mahalanobis, abs_to_relu, activation_row
from metriscope.probes import eigen_recovery
from metriscope.rng import derive, stream
from metriscope.runs import Record, Result, Run
from metriscope.studies.mahalanobis.experiments import Chance
from metriscope.studies.mahalanobis.plan import ACTIVATIONS, METRICS, NAME, DistanceTraining, GaussianTask, Measurement
from metriscope.studies.mahalanobis.train import DistanceProblem, draw_problem
from metriscope.studies.tidy_tables import matching

__all__ = [
    "RANKED", "TITLES", "TrainedDistance", "analytic_error", "axes_beside_chance", "best_trials", "chance", "curve",
    "epochs_saved", "kept_all", "measured", "mse", "networks", "one_lost", "rebuilt", "relative", "relative_error",
    "shares", "starts_compared", "summary", "tables_of", "truth", "truth_row",
]  # fmt: skip

TITLES = {**{name: activation_row(name).title for name in ACTIVATIONS}, "truth": "Ground truth"}
# A sigmoid unit saturates: its weights do not fix a scale of distance, so its metric has no rank.
RANKED = ("abs", "relu", "truth")


@dataclass(frozen=True)
class TrainedDistance:
    """One network after training, with its dimension, start, activation and trial."""

    dim: int
    start: str
    activation: str
    trial: int
    model: Mahalanobis


def networks(run: Run, job: DistanceTraining) -> list[TrainedDistance]:
    """Return the networks of a stored training."""
    return rebuilt(run.tensors(), job)


def rebuilt(tensors: Mapping[str, Tensor], job: DistanceTraining) -> list[TrainedDistance]:
    """Return the networks of a training from their parameters."""
    found = []
    for activation, trial in product(job.activations, job.trials):
        model = Mahalanobis(job.task.dim, job.hidden, activation)
        model.load_state_dict({name: tensors[f"{activation}/{trial}/{name}"] for name in model.state_dict()})
        where = (job.task.dim, job.start_name, activation, trial)
        found.append(TrainedDistance(*where, model.requires_grad_(False)))
    return found


def truth(problem: DistanceProblem) -> TrainedDistance:
    """Return the analytic network of a problem, in the precision that the others are trained in."""
    model = Mahalanobis.from_gaussian(problem.gaussian.mean, problem.gaussian.cov, dtype=torch.float32)
    return TrainedDistance(problem.gaussian.dim, "none", "truth", 0, model)


def measured(spec: Measurement, run: Run) -> Result:
    """Return one row per network, the eigenvalues of its metric, recovered eigenvalues, and errors after rewriting."""
    return Result(tables_of(networks(run, spec.training), draw_problem(spec.training.task), spec))


def tables_of(found: list[TrainedDistance], problem: DistanceProblem, spec: Measurement) -> dict[str, pd.DataFrame]:
    """Return the tables of :func:`measured` for the given networks."""
    rows, spectra, recovery = zip(*(_measured(network, problem, spec) for network in found), strict=True)
    ranked = [table for network, table in zip(found, spectra, strict=True) if network.activation in RANKED]
    rewritten = [_rewritten(network, problem, spec) for network in found if network.activation == "abs"]
    return {
        "trials": pd.DataFrame(rows),
        "spectra": pd.concat(ranked, ignore_index=True) if ranked else pd.DataFrame({"activation": []}),
        "recovery": pd.concat(recovery, ignore_index=True),
        "identities": pd.DataFrame(rewritten, columns=["identity", "trial", "error"]),
    }


def truth_row(spec: Measurement) -> pd.DataFrame:
    """Return the row of the analytic network on the Gaussian of a training."""
    problem = draw_problem(spec.training.task)
    return pd.DataFrame([_measured(truth(problem), problem, spec)[0]])


def analytic_error(task: GaussianTask, points: int) -> float:
    """Return the largest relative error of the analytic network on new points; NaN if any output is NaN."""
    gaussian = draw_problem(task).gaussian
    x = gaussian.sample(points, stream(task.seed, NAME, task.dim, "analytic", task.gaussian))
    centered = x - gaussian.mean
    # Computed by solving, not whitening: the network itself whitens, and comparing it with itself would prove nothing.
    true = (centered * torch.linalg.solve(gaussian.cov, centered.mT).mT).sum(1).sqrt()
    return relative_error(Mahalanobis.from_gaussian(gaussian.mean, gaussian.cov)(x), true)


def relative_error(ours: Tensor, true: Tensor) -> float:
    """Return the largest relative error; NaN if any value is NaN, which ``max`` alone does not guarantee.

    >>> relative_error(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 1.0]))
    nan
    """
    errors = ((ours - true) / true).abs()
    return float("nan") if bool(errors.isnan().any()) else float(errors.max())


def _rewritten(network: TrainedDistance, problem: DistanceProblem, spec: Measurement) -> tuple[str, int, float]:
    """Return the relative error of a trained Abs network rewritten as mirrored ReLU pairs."""
    x = problem.x[: spec.rewritten].double()
    one = copy.deepcopy(network.model).double()
    return "mirrored", network.trial, relative_error(abs_to_relu(one)(x), one(x))


def mse(model: Mahalanobis, x: Tensor, y: Tensor) -> float:
    """Return the mean squared error of a network's distances."""
    with torch.no_grad():
        return float((model(x) - y).double().square().mean())


def one_lost(dim: int) -> probes.LostDirections:
    """Return what theory predicts for one lost direction; in 1-D, where none can be lost, the prediction for 2-D."""
    return probes.lost_directions(max(dim, 2), 1)


def _measured(
    network: TrainedDistance, problem: DistanceProblem, spec: Measurement
) -> tuple[dict[str, Any], pd.DataFrame, pd.DataFrame]:
    """Return a network's row, the eigenvalues of its metric, and those matched to the principal axes."""
    task, gaussian, linear = spec.training.task, problem.gaussian, network.model.linear
    # A trial's new points are the same for all activations; those of the main Gaussian have no number in their label.
    further = (task.gaussian,) if task.gaussian else ()
    fresh = problem.fresh(spec.test_samples, stream(task.seed, NAME, task.dim, "test points", network.trial, *further))
    train, test = (mse(network.model, *points) for points in ((problem.x, problem.y), fresh))
    relu = network.activation == "relu"
    # A mirrored pair of ReLU units is one Abs unit, so one unit of each pair is kept.
    unique = functional.deduplicate(linear.weight, linear.bias, spec.mirror)[0] if relu else linear.weight
    recovery = probes.eigen_recovery(unique, gaussian.cov)
    weights = shares(linear, problem.x, network.model.activation_name)
    metric = probes.metric_rank(linear, gaussian.mean, gaussian.cov, weights, spec.lost)
    row: dict[str, Any] = {
        **{name: getattr(network, name) for name in ("dim", "start", "activation", "trial")},
        "train_mse": train,
        "test_mse": test,
        "mirrored": float(len(probes.mirrored_pairs(linear.weight, spec.mirror))) if relu else float("nan"),
        "centering": float(np.mean(probes.centering(linear, gaussian.mean))),
        "sphericity": probes.sphericity(unique, gaussian.cov),
        "eigenvalue_error": recovery.log_error,
        "eigenvector_cosine": recovery.mean_cosine,
        "metric_error": probes.metric_error(unique, gaussian.cov, relative=True),
        **_rank(network, metric),
    }
    row |= {
        **relative(row, network.dim, spec.exact),
        "centering_sd": row["centering"] / float(torch.linalg.eigvalsh(gaussian.cov)[-1]) ** 0.5,
    }
    matched = _long(network, "axis", eigenvalue=recovery.eigenvalues, estimate=recovery.estimates)
    return row, _long(network, "direction", eigenvalue=metric.eigenvalues), matched


def relative(row: Any, dim: int, exact: float) -> dict[str, Any]:
    """Return whether trials are exact, and their metrics divided by those of one lost direction."""
    theory, test = one_lost(dim), row["test_mse"]
    return {
        "exact": row["train_mse"] < exact * theory.loss,
        "loss_ratio": test / theory.loss,
        "log_test": np.log10(np.where(test > 0, test, np.nan)),
        "pair_share": row["mirrored"] / dim,
        "whiteness": row["data_sphericity"] / theory.sphericity,
    }


def shares(linear: nn.Linear, x: Tensor, activation: str) -> Tensor:
    """Return each unit's mean squared slope on points, its weight in the metric.

    That is 1 for Abs. For ReLU it is the share of points on which the unit is active, so that units that are rarely
    active do not dominate.
    """
    z = x.double() @ linear.weight.double().mT + linear.bias.double()
    return activation_row(activation).derivative(z).square().mean(0)


def _rank(network: TrainedDistance, found: probes.MetricRank) -> dict[str, float]:
    mean, lost = found.eigenvalues.mean(), network.dim - found.rank
    white = float(np.linalg.norm(found.eigenvalues / mean - 1)) if mean > 0 else float("nan")
    ranked = {
        "rank": found.rank,
        "lost": lost,
        "lost_axis": found.lost_axis,
        "lost_share": float(found.lost[-1].max()) if lost else float("nan"),
        "constant": found.constant,
    }
    if network.activation not in RANKED:
        ranked = dict.fromkeys(ranked, float("nan"))
    return {"data_sphericity": white, **ranked}


def _long(network: TrainedDistance, index: str, **columns: np.ndarray) -> pd.DataFrame:
    """Return one row per entry of the columns, numbered by ``index``, with the network's activation and trial."""
    numbers = np.arange(len(next(iter(columns.values()))))
    return pd.DataFrame({"activation": network.activation, "trial": network.trial, index: numbers, **columns})


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, sd, variance, extremes and 95 % interval of each metric, by dimension, start and activation."""
    found = []
    for key, part in rows.groupby(["dim", "start", "activation"], sort=False):
        where = dict(zip(("dim", "start", "activation"), key, strict=True))
        for metric in METRICS:
            values = part[metric.name].to_numpy(dtype=float)
            if not np.isnan(values).all():
                found.append({**where, "metric": metric.name, **functional.summarize(values).to_dict()})
    return pd.DataFrame(found)


def best_trials(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the trial with the smallest training loss for each dimension, start and activation."""
    best = rows.groupby(["dim", "start", "activation"], sort=False)["train_mse"].idxmin()
    return rows.loc[best].reset_index(drop=True)


def curve(history: pd.DataFrame, dim: int, start: str, activation: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the recorded epochs, and the losses as an array of trials by epochs."""
    part = matching(history, dim=dim, start=start, activation=activation)
    table = part.pivot(index="trial", columns="epoch", values="loss")
    return table.columns.to_numpy(), table.to_numpy()


def epochs_saved(history: pd.DataFrame, dim: int, activation: str, start: str) -> np.ndarray:
    """Return, per trial, the recorded epoch at which the random start first reached the first loss of ``start``.

    Infinity if it did not reach it within the epochs that were run.
    """
    epochs, losses = curve(history, dim, "random", activation)
    _, other = curve(history, dim, start, activation)
    reached = losses <= other[:, :1]
    return np.where(reached.any(1), epochs[reached.argmax(1)], np.inf)


def starts_compared(trials: pd.DataFrame, history: pd.DataFrame) -> pd.DataFrame:
    """Return one row per dimension, activation and start from clusters, each compared with the random start."""
    from scipy.stats import wilcoxon

    rows = []
    trained = trials[~trials["start"].isin(["none", "random"])]
    for (dim, activation, start), part in trained.groupby(["dim", "activation", "start"], sort=False):
        random = matching(trials, dim=dim, activation=activation, start="random")
        before, after = (found["test_mse"].to_numpy() for found in (random, part))
        saved = epochs_saved(history, dim, activation, start)
        _, losses = curve(history, dim, start, activation)
        rows.append({
            "dim": dim, "activation": activation, "start": start,
            "random_mse": before.mean(), "start_mse": after.mean(),
            "p_value": float(wilcoxon(before, after, alternative="greater").pvalue) if len(before) > 1 else np.nan,
            "random_lost": random["lost"].mean(), "start_lost": part["lost"].mean(),
            "first_loss": losses[:, 0].mean(), "never": np.isinf(saved).mean(), "saved": np.median(saved),
        })  # fmt: skip
    return pd.DataFrame(rows)


# What is recovered, and its column among the trials.
QUANTITIES = {"cosine": "eigenvector_cosine", "error": "eigenvalue_error"}
SUFFIXES = ("", "_chance", "_low", "_high", "_share")


def kept_all(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials of Abs from random starts that kept all directions."""
    return matching(trials, activation="abs", start="random", lost=0)


def chance(spec: Chance) -> Result:
    """Return the mean |cosine| and the eigenvalue error of each randomly rotated whitening."""
    task = spec.task
    cov = draw_problem(task).gaussian.cov
    factor = whitening_factor(cov)
    generator = stream(task.seed, NAME, task.dim, "rotations", task.gaussian)
    rows = []
    for _ in range(spec.draws):
        rotation, _ = torch.linalg.qr(torch.randn(task.dim, task.dim, generator=generator, dtype=torch.float64))
        found = eigen_recovery(rotation @ factor, cov)
        rows.append({"cosine": found.mean_cosine, "error": found.log_error})
    return Result({"chance": pd.DataFrame(rows)})


def axes_beside_chance(trials: pd.DataFrame, found: Mapping[Chance, Run | Record]) -> pd.DataFrame:
    """Return one row per Gaussian on which a trial of Abs from a random start kept all directions."""
    every, rows = kept_all(trials), []
    for spec, run in found.items():
        where = {"dim": spec.task.dim, "gaussian": spec.task.gaussian}
        kept = matching(every, **where)
        if len(kept):
            compared = _beside_chance(kept, spec, run.table("chance"))
            ours = {name: kept[name].iloc[0] for name in ("length", "protocol")}
            rows.append({**where, "trials": len(kept), **compared, **ours})
    columns = ["dim", "gaussian", "trials", *(f"{q}{s}" for q in QUANTITIES for s in SUFFIXES), "length", "protocol"]
    return pd.DataFrame(rows, columns=columns)


def _beside_chance(kept: pd.DataFrame, spec: Chance, rotations: pd.DataFrame) -> dict[str, float]:
    """Return the mean over trials, the mean and range of the null, and the share of the way to perfect recovery."""
    task = spec.task
    generator = np.random.default_rng(derive(task.seed, NAME, task.dim, "means", task.gaussian))
    rows = generator.integers(len(rotations), size=(spec.means, len(kept)))
    found: dict[str, float] = {}
    for quantity, perfect in (("cosine", 1.0), ("error", 0.0)):
        ours, means = float(kept[QUANTITIES[quantity]].mean()), rotations[quantity].to_numpy()[rows].mean(1)
        expected = float(rotations[quantity].mean())
        low, high = np.quantile(means, [1 - spec.high, spec.high])
        # In one dimension there is nothing to rotate, and chance is perfect.
        share = (ours - expected) / (perfect - expected) if perfect != expected else float("nan")
        found |= dict(zip((f"{quantity}{s}" for s in SUFFIXES), (ours, expected, low, high, share), strict=True))
    return found
