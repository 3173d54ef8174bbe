"""Measure every trained network of the Mahalanobis study: one row per network, one column per metric.

Axes: K units, D features. Weights are measured in float64.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope import functional, probes
from metriscope.nn import Mahalanobis, abs_to_relu, activation_row
from metriscope.rng import stream
from metriscope.runs import Result, Run
from metriscope.studies.mahalanobis.plan import ACTIVATIONS, NAME, STARTS, Start, Task, Training
from metriscope.studies.mahalanobis.train import Problem, problem
from metriscope.studies.mahalanobis.trials.plan import METRICS, Analytic, Measurement

__all__ = [
    "RANKED",
    "TITLES",
    "Trained",
    "analytic_error",
    "best_trials",
    "measured",
    "networks",
    "one_lost",
    "relative_error",
    "shares",
    "start_name",
    "summary",
    "training_loss",
    "truth_row",
]

TITLES = {**{name: activation_row(name).title for name in ACTIVATIONS}, "truth": "Ground truth"}
# A sigmoid unit saturates: how much its weights measure has no scale, and so no rank.
RANKED = ("abs", "relu", "truth")


@dataclass(frozen=True)
class Trained:
    """One network after training, and where it comes from."""

    dim: int
    start: str
    activation: str
    trial: int
    model: Mahalanobis


def start_name(start: Start) -> str:
    """Return what a start is called."""
    return next(name for name, known in STARTS.items() if known == start)


def networks(run: Run, job: Training) -> list[Trained]:
    """Return the networks of a stored training."""
    tensors = run.tensors()
    found = []
    for activation in job.activations:
        for trial in job.trials:
            model = Mahalanobis(job.task.dim, activation=activation)
            prefix = f"{activation}/{trial}/"
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            model.load_state_dict(state)
            where = (job.task.dim, start_name(job.start), activation, trial)
            found.append(Trained(*where, model.requires_grad_(False)))
    return found


def truth(task: Problem) -> Trained:
    """Return the analytic network of a problem, in the precision that the others are trained in."""
    model = Mahalanobis.from_gaussian(task.gaussian.mean, task.gaussian.cov, dtype=torch.float32)
    return Trained(task.gaussian.dim, "none", "truth", 0, model)


def measured(spec: Measurement, run: Run) -> Result:
    """Return one row per network, its metric's eigenvalues, recovered eigenvalues, and errors of rewriting."""
    task, found = problem(spec.training.task), networks(run, spec.training)
    read = [(network, _read(network, task, spec)) for network in found]
    spectra = [_spectrum(network, weights) for network, weights in read if network.activation in RANKED]
    rewritten = [_rewritten(network, task, spec) for network in found if network.activation == "abs"]
    tables = {
        "trials": pd.DataFrame([_row(network, task, weights, spec) for network, weights in read]),
        "spectra": _joined(spectra),
        "recovery": _joined([_recovery(network, weights) for network, weights in read]),
        "identities": pd.DataFrame(rewritten, columns=["identity", "trial", "error"]),
    }
    return Result(tables)


def truth_row(spec: Measurement) -> pd.DataFrame:
    """Return the row of the analytic network on the Gaussian of a training."""
    task = problem(spec.training.task)
    network = truth(task)
    return pd.DataFrame([_row(network, task, _read(network, task, spec), spec)])


def analytic_error(spec: Analytic) -> float:
    """Return the largest relative error of the analytic network; NaN if any output is."""
    gaussian = problem(spec.task).gaussian
    x = gaussian.sample(spec.points, stream(spec.task.seed, NAME, spec.task.dim, "analytic", spec.task.gaussian))
    centered = x - gaussian.mean
    # By solving, not by whitening: the same route twice would prove nothing.
    true = (centered * torch.linalg.solve(gaussian.cov, centered.mT).mT).sum(1).sqrt()
    return relative_error(Mahalanobis.from_gaussian(gaussian.mean, gaussian.cov)(x), true)


def relative_error(ours: Tensor, true: Tensor) -> float:
    """Return the largest relative error; NaN if there is one among the values, which max alone would not promise.

    >>> relative_error(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 1.0]))
    nan
    """
    errors = ((ours - true) / true).abs()
    return float("nan") if bool(errors.isnan().any()) else float(errors.max())


def _rewritten(network: Trained, task: Problem, spec: Measurement) -> tuple[str, int, float]:
    """Return how far a trained Abs network is from its own rewriting as mirrored ReLU pairs."""
    x = task.x[: spec.rewritten].double()
    one = copy.deepcopy(network.model).double()
    return "mirrored", network.trial, relative_error(abs_to_relu(one)(x), one(x))


def training_loss(network: Trained, task: Problem) -> float:
    """Return the mean squared error on the points the network was trained on."""
    return _mse(network.model, task.x, task.y)


def _joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame({"activation": []})


def one_lost(dim: int) -> probes.LostDirections:
    """Return what theory says of one lost direction; in one dimension, where none can be lost, of one of two."""
    return probes.lost_directions(max(dim, 2), 1)


@dataclass(frozen=True, eq=False)
class _Weights:
    """What a network's weights show: without mirrored units, matched to the axes, and as a metric."""

    unique: Tensor
    recovery: probes.EigenRecovery
    metric: probes.MetricRank


def _read(network: Trained, task: Problem, spec: Measurement) -> _Weights:
    gaussian, linear = task.gaussian, network.model.linear
    unique = _unique(network, spec)
    weights = shares(linear, task.x, network.model.activation_name)
    metric = probes.metric_rank(linear, gaussian.mean, gaussian.cov, weights, spec.lost)
    return _Weights(unique, probes.eigen_recovery(unique, gaussian.cov), metric)


def _row(network: Trained, task: Problem, weights: _Weights, spec: Measurement) -> dict[str, object]:
    x, y = task.fresh(spec.test_samples, stream(*_test_points(spec.training.task, network.trial)))
    where = {k: getattr(network, k) for k in ("dim", "start", "activation", "trial")}
    theory = one_lost(network.dim)
    train, test = training_loss(network, task), _mse(network.model, x, y)
    losses = {"train_mse": train, "test_mse": test}
    row = {**where, **losses, **_planes(network, task, weights, spec), **_rank(network, weights.metric)}
    largest = float(torch.linalg.eigvalsh(task.gaussian.cov)[-1]) ** 0.5
    return row | {
        "exact": train < spec.exact * theory.loss,
        "loss_ratio": test / theory.loss,
        "log_test": float(np.log10(test)) if test > 0 else float("nan"),
        "centering_sd": row["centering"] / largest,
        "pair_share": row["mirrored"] / network.dim,
        "whiteness": row["data_sphericity"] / theory.sphericity,
    }


def _test_points(task: Task, trial: int) -> tuple[Any, ...]:
    """Return the address of a trial's new points, which are the same for all activations."""
    further = (task.gaussian,) if task.gaussian else ()
    return task.seed, NAME, task.dim, "test points", trial, *further


def _mse(model: Mahalanobis, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - y).double().square().mean())


def _planes(network: Trained, task: Problem, weights: _Weights, spec: Measurement) -> dict[str, float]:
    linear, gaussian = network.model.linear, task.gaussian
    pairs = probes.mirrored_pairs(linear.weight, spec.mirror)
    return {
        "mirrored": float(len(pairs)) if network.activation == "relu" else float("nan"),
        "centering": float(np.mean(probes.centering(linear, gaussian.mean))),
        "sphericity": probes.sphericity(weights.unique, gaussian.cov),
        "eigenvalue_error": weights.recovery.log_error,
        "eigenvector_cosine": weights.recovery.mean_cosine,
        "metric_error": probes.metric_error(weights.unique, gaussian.cov, relative=True),
    }


def _unique(network: Trained, spec: Measurement) -> Tensor:
    """Return the weights with one unit of each mirrored pair: a pair of ReLU units is one Abs unit."""
    linear = network.model.linear
    if network.activation != "relu":
        return linear.weight
    return functional.deduplicate(linear.weight, linear.bias, spec.mirror)[0]


def shares(linear: nn.Linear, x: Tensor, activation: str) -> Tensor:
    """Return each unit's mean squared slope on points: how much of its square the metric holds on average.

    That is 1 for Abs and, for ReLU, how often the unit is on, so that units which are rarely on do not dominate.
    """
    z = x.double() @ linear.weight.double().mT + linear.bias.double()
    return activation_row(activation).derivative(z).square().mean(0)


def _rank(network: Trained, found: probes.MetricRank) -> dict[str, float]:
    mean = found.eigenvalues.mean()
    white = float(np.linalg.norm(found.eigenvalues / mean - 1)) if mean > 0 else float("nan")
    lost = network.dim - found.rank
    largest = float(found.lost[-1].max()) if lost else float("nan")
    names = ("rank", "lost", "lost_axis", "lost_share", "constant")
    values = (found.rank, lost, found.lost_axis, largest, found.constant)
    ranked = dict(zip(names, values, strict=True))
    if network.activation not in RANKED:
        ranked = dict.fromkeys(names, float("nan"))
    return {"data_sphericity": white, **ranked}


def _spectrum(network: Trained, weights: _Weights) -> pd.DataFrame:
    values = weights.metric.eigenvalues
    columns = {"activation": network.activation, "trial": network.trial, "direction": np.arange(len(values))}
    return pd.DataFrame({**columns, "eigenvalue": values})


def _recovery(network: Trained, weights: _Weights) -> pd.DataFrame:
    found = weights.recovery
    columns = {"activation": network.activation, "trial": network.trial, "axis": np.arange(network.dim)}
    return pd.DataFrame({**columns, "eigenvalue": found.eigenvalues, "estimate": found.estimates})


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return mean, sd, variance, extremes and 95 % interval of each metric, by dimension, start, activation."""
    found = []
    for key, part in rows.groupby(["dim", "start", "activation"], sort=False):
        for metric in METRICS:
            values = part[metric.name].to_numpy(dtype=float)
            if not np.isnan(values).all():
                where = dict(zip(("dim", "start", "activation"), key, strict=True))
                found.append({**where, "metric": metric.name, **functional.summarize(values).to_dict()})
    return pd.DataFrame(found)


def best_trials(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the trial of least training loss for each dimension, start and activation."""
    best = rows.groupby(["dim", "start", "activation"], sort=False)["train_mse"].idxmin()
    return rows.loc[best].reset_index(drop=True)
