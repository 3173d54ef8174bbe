"""Measure every trained network of the Mahalanobis study: one row a network, one column a metric.

Axes: K units, D features. Weights are measured in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from metriscope import functional, probes
from metriscope.nn import Mahalanobis
from metriscope.rng import stream
from metriscope.runs import Run
from metriscope.studies.mahalanobis.experiment import Problem
from metriscope.studies.mahalanobis.spec import NAME, Group

__all__ = [
    "METRICS",
    "Metric",
    "Trained",
    "best_trials",
    "measure",
    "networks",
    "recovered",
    "spectra",
    "summary",
    "training_loss",
    "truth",
]

MIRROR_THRESHOLD = 0.999

# What part of WᵀW each activation's distance is on average: a ReLU unit sees one side of its hyperplane.
METRIC_SHARE = {"abs": 1.0, "relu": 0.5, "truth": 1.0}


@dataclass(frozen=True)
class Metric:
    """One measured quantity: its column, what people read, and whether S1 prints it."""

    name: str
    title: str
    published: bool = True


METRICS = (
    Metric("train_mse", "MSE, training points"),
    Metric("test_mse", "MSE, new points"),
    Metric("mirrored", "mirrored pairs"),
    Metric("centering", "distance of hyperplanes to the mean"),
    Metric("sphericity", "sphericity norm"),
    Metric("eigenvalue_error", "eigenvalue error, |log10 ratio|", published=False),
    Metric("eigenvector_cosine", "eigenvector |cosine|", published=False),
    Metric("metric_error", "relative error of the Mahalanobis matrix", published=False),
    Metric("data_sphericity", "sphericity on the data side", published=False),
    Metric("rank", "rank of the metric", published=False),
    Metric("constant", "standing-in constant", published=False),
)


@dataclass(frozen=True)
class Trained:
    """One network after training, and where it comes from."""

    dim: int
    start: str
    activation: str
    trial: int
    model: Mahalanobis


def networks(run: Run, group: Group, start: str) -> list[Trained]:
    """Return the networks of a stored group."""
    tensors = run.tensors()
    found = []
    for activation in group.activations:
        for trial in group.trials:
            model = Mahalanobis(group.dim, activation=activation)
            prefix = f"{activation}/{trial}/"
            state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            model.load_state_dict(state)
            found.append(Trained(group.dim, start, activation, trial, model.requires_grad_(False)))
    return found


def truth(task: Problem) -> Trained:
    """Return the analytic network of a problem, in the precision that the others are trained in."""
    model = Mahalanobis.from_gaussian(task.gaussian.mean, task.gaussian.cov, dtype=torch.float32)
    return Trained(task.gaussian.dim, "none", "truth", 0, model)


def measure(trained: Iterable[Trained], task: Problem, test_samples: int, seed: int) -> pd.DataFrame:
    """Return one row a network; each trial has new points of its own, the same for all activations."""
    return pd.DataFrame([_row(network, task, test_samples, seed) for network in trained])


def training_loss(network: Trained, task: Problem) -> float:
    """Return the mean squared error on the points the network was trained on."""
    return _mse(network.model, task.x, task.y)


def _row(network: Trained, task: Problem, test_samples: int, seed: int) -> dict[str, object]:
    generator = stream(seed, NAME, network.dim, "test points", network.trial)
    x, y = task.fresh(test_samples, generator)
    where = {k: getattr(network, k) for k in ("dim", "start", "activation", "trial")}
    losses = {"train_mse": training_loss(network, task), "test_mse": _mse(network.model, x, y)}
    return {**where, **losses, **_weights(network, task), **_rank(network, task)}


def _mse(model: Mahalanobis, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model(x) - y).double().square().mean())


def _weights(network: Trained, task: Problem) -> dict[str, float]:
    linear, gaussian = network.model.linear, task.gaussian
    pairs = probes.mirrored_pairs(linear.weight, MIRROR_THRESHOLD)
    unique = _unique(network)
    recovery = probes.eigen_recovery(unique, gaussian.cov)
    return {
        "mirrored": float(len(pairs)) if network.activation == "relu" else float("nan"),
        "centering": float(np.mean(probes.centering(linear, gaussian.mean))),
        "sphericity": probes.sphericity(unique, gaussian.cov),
        "eigenvalue_error": recovery.log_error,
        "eigenvector_cosine": recovery.mean_cosine,
        "metric_error": probes.metric_error(unique, gaussian.cov, relative=True),
    }


def _unique(network: Trained) -> Tensor:
    """Return the weights with one unit of each mirrored pair: a pair of ReLU units is one Abs unit."""
    linear = network.model.linear
    if network.activation != "relu":
        return linear.weight
    return functional.deduplicate(linear.weight, linear.bias, MIRROR_THRESHOLD)[0]


def _rank(network: Trained, task: Problem) -> dict[str, float]:
    names = ("data_sphericity", "rank", "lost", "lost_axis", "lost_share", "constant")
    share = METRIC_SHARE.get(network.activation)
    if share is None:  # a sigmoid unit saturates: its weights define no metric
        return dict.fromkeys(names, float("nan"))
    gaussian = task.gaussian
    found = probes.metric_rank(network.model.linear, gaussian.mean, gaussian.cov, share)
    mean = found.eigenvalues.mean()
    white = float(np.linalg.norm(found.eigenvalues / mean - 1)) if mean > 0 else float("nan")
    lost = network.dim - found.rank
    largest = float(found.lost[-1].max()) if lost else float("nan")
    return dict(zip(names, (white, found.rank, lost, found.lost_axis, largest, found.constant), strict=True))


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


def spectra(trained: Iterable[Trained], tasks: Mapping[int, Problem]) -> dict[tuple[int, str, str], np.ndarray]:
    """Return the eigenvalues of each learned metric, trials by directions, by dimension, start, activation."""
    found: dict[tuple[int, str, str], list[np.ndarray]] = {}
    for network in trained:
        if (share := METRIC_SHARE.get(network.activation)) is not None:
            gaussian = tasks[network.dim].gaussian
            rank = probes.metric_rank(network.model.linear, gaussian.mean, gaussian.cov, share)
            found.setdefault((network.dim, network.start, network.activation), []).append(rank.eigenvalues)
    return {key: np.array(values) for key, values in found.items()}


def recovered(trained: Iterable[Trained], task: Problem, activation: str) -> np.ndarray:
    """Return the eigenvalue each matched unit stands for, trials from random starts by principal axes."""
    wanted = (task.gaussian.dim, "random", activation)
    chosen = [n for n in trained if (n.dim, n.start, n.activation) == wanted]
    return np.array([probes.eigen_recovery(_unique(n), task.gaussian.cov).estimates for n in chosen])
