"""Public functions with valid arguments, of which one array at a time is replaced by an odd one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

import metriscope as ms
from metriscope import data, functional, probes
from metriscope.rng import stream
from metriscope.sklearn.unsupervised import moments
from metriscope.vq import Layer, Partition, Patterns


def _drawn(*shape: int) -> np.ndarray:
    return torch.randn(*shape, generator=stream(0, "odd", *shape), dtype=torch.float64).numpy()


POINTS, MEAN, WEIGHT, BIAS = _drawn(12, 3), _drawn(3), _drawn(4, 3), _drawn(4)
COV = np.array([[2.0, 0.5, 0.0], [0.5, 1.5, 0.25], [0.0, 0.25, 1.0]])
LABELS = np.arange(12) % 2
PLANE = np.array([[0.5, -0.5], [0.0, 0.25], [-0.75, 0.5]])


def linear(features: int = 3) -> nn.Linear:
    layer = nn.Linear(features, 4).double()
    weight = torch.tensor(_drawn(4, features))
    layer.load_state_dict({"weight": weight, "bias": torch.tensor(BIAS)})
    return layer


def network(features: int = 3) -> nn.Sequential:
    last = nn.Linear(4, 2).double()
    last.load_state_dict({"weight": torch.tensor(_drawn(2, 4)), "bias": torch.tensor(_drawn(2))})
    return nn.Sequential(linear(features), nn.ReLU(), last)


def patterns(rows: int = 12) -> Patterns:
    return ms.capture(network(), POINTS[:rows])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


PATTERNS = patterns()
REGIONS = ms.linear_regions(network(2), bounds=((-1, 1), (-1, 1)))


@dataclass(frozen=True)
class Case:
    """A public function and its arrays by argument.

    ``carries``: NaN goes in and comes out, as in forward passes and statistics of runs. ``own_words``: sentences are
    scikit-learn's. ``tensors``: a forward pass, which takes tensors alone and leaves devices and precision to PyTorch.
    ``shapes``: any number of axes is fine. ``optional``: None is a valid answer. ``also``: other names of an argument.
    """

    name: str
    call: Callable[..., Any]
    arrays: dict[str, np.ndarray] = field(repr=False)
    carries: bool = False
    own_words: bool = False
    tensors: bool = False
    shapes: bool = False
    optional: bool = False
    also: tuple[str, ...] = ()


def _novelty_fit(X):
    return ms.sklearn.MahalanobisNovelty().fit(X).covariance_


def _novelty_part(X):
    return ms.sklearn.MahalanobisNovelty().partial_fit(X).covariance_


def _novelty_of(X):
    return ms.sklearn.MahalanobisNovelty().fit(POINTS).novelty(X)


def _classify(X, y):
    return ms.sklearn.DistanceClassifier(max_iter=1).fit(X, y).predict_proba(POINTS)


def _regress(X, targets):
    return ms.sklearn.DistanceRegressor(max_iter=1).fit(X, targets).predict(POINTS)


def _signs(X):
    return ms.sklearn.PatternTransformer(n_hyperplanes=4).fit(X).transform(POINTS)


def _embedded(X):
    return ms.VQMDS(1).fit(X).embedding_


def _classes_of(X):
    return CLASSIFIER.predict_proba(X)


CLASSIFIER = ms.sklearn.DistanceClassifier(max_iter=1).fit(POINTS, LABELS)

CASES = [
    # Probes
    Case("centering", lambda mean: probes.centering(linear(), mean), {"mean": MEAN}),
    Case(
        "probes.mirrored_pairs",
        probes.mirrored_pairs,
        {"layer": np.concatenate([WEIGHT, -WEIGHT[:1]])},
        also=("weight",),
    ),
    Case("probes.sphericity", probes.sphericity, {"layer": WEIGHT, "cov": COV}, also=("weight",)),
    Case("eigen_recovery", probes.eigen_recovery, {"layer": WEIGHT, "cov": COV}, also=("weight",)),
    Case("metric_error", probes.metric_error, {"layer": WEIGHT, "cov": COV}, also=("weight",)),
    Case("metric_rank", probes.metric_rank, {"layer": WEIGHT, "mean": MEAN, "cov": COV}, also=("weight",)),
    Case(
        "perturbation",
        lambda x, y: probes.perturbation(network(), x, y, kinds=("scale",), levels={"scale": (0.5, 1.0)}),
        {"x": POINTS, "y": LABELS},
    ),
    Case(
        "perturbation by levels",
        lambda levels: probes.perturbation(network(), POINTS, LABELS, kinds=("scale",), levels={"scale": levels}),
        {"levels": np.array([0.5, 1.0])},
    ),
    Case(
        "holding_range",
        lambda levels, values: probes.holding_range(levels, values, 0.5, 0.0),
        {"levels": np.array([-1.0, 0.0, 1.0]), "values": np.array([0.0, 1.0, 0.75])},
    ),
    Case("perturb", probes.perturb, {"z": POINTS, "reach": np.abs(MEAN)}, carries=True, tensors=True, shapes=True),
    # Pure functions
    Case("norm", functional.norm, {"z": POINTS}, carries=True, tensors=True, shapes=True),
    Case(
        "mahalanobis",
        functional.mahalanobis,
        {"x": POINTS, "mean": MEAN, "factor": WEIGHT},
        carries=True,
        tensors=True,
        shapes=True,
    ),
    Case(
        "offset_l2",
        functional.offset_l2,
        {"x": POINTS, "mu": WEIGHT, "alpha": np.abs(WEIGHT)},
        carries=True,
        tensors=True,
        shapes=True,
    ),
    Case("bias_through", functional.bias_through, {"weight": WEIGHT, "points": POINTS[:4]}, shapes=True),
    Case("signed_distance", functional.signed_distance, {"x": POINTS, "weight": WEIGHT, "bias": BIAS}, shapes=True),
    Case(
        "distance_to_point", functional.distance_to_point, {"point": MEAN, "weight": WEIGHT, "bias": BIAS}, shapes=True
    ),
    Case("mirrored_pairs", functional.mirrored_pairs, {"weight": np.concatenate([WEIGHT, -WEIGHT[:1]])}),
    Case("deduplicate", functional.deduplicate, {"weight": WEIGHT, "bias": BIAS}),
    Case("learned_covariance", functional.learned_covariance, {"weight": WEIGHT, "cov": COV}, shapes=True),
    Case("sphericity", functional.sphericity, {"weight": WEIGHT, "cov": COV}, shapes=True),
    Case("principal_axes", functional.principal_axes, {"cov": COV}, shapes=True),
    Case("whitening_factor", functional.whitening_factor, {"cov": COV}, shapes=True),
    Case("summarize", functional.summarize, {"values": MEAN}, carries=True),
    Case("moments", functional.moments, {"values": MEAN}, carries=True),
    Case("paired_test", functional.paired_test, {"a": BIAS, "b": BIAS[::-1] + 1}, carries=True),
    Case("holm", functional.holm, {"p_values": np.array([0.25, 0.5, 0.125])}, carries=True),
    # Layers and their beginnings
    Case("from_gaussian", ms.Mahalanobis.from_gaussian, {"mean": MEAN, "cov": COV}),
    Case("init_through_points_", lambda x: ms.init_through_points_(linear(), x, generator()), {"x": POINTS}),
    Case("init_from_clusters_", lambda x: ms.init_from_clusters_(linear(), x, 2, generator()), {"x": POINTS}),
    Case("init_model_", lambda x: ms.init_model_(network(), x, generator(), n_clusters=2), {"x": POINTS}, shapes=True),
    Case("init_lsuv_", lambda x: ms.init_lsuv_(network(), x, generator()), {"x": POINTS}, shapes=True),
    Case(
        "OffsetL2.forward",
        lambda x: ms.OffsetL2(3, 2, generator=generator(), dtype=torch.float64)(x),
        {"x": POINTS},
        carries=True,
        tensors=True,
        shapes=True,
    ),
    Case(
        "Mahalanobis.forward",
        lambda x: ms.Mahalanobis.from_gaussian(torch.tensor(MEAN), torch.tensor(COV))(x),
        {"x": POINTS},
        carries=True,
        tensors=True,
        shapes=True,
    ),
    # Patterns
    Case("capture", lambda data: ms.capture(network(), data), {"data": POINTS}, shapes=True),
    Case("describe", lambda batch: ms.describe(network(), batch), {"batch": POINTS}, shapes=True, also=("data",)),
    Case(
        "capture by ids", lambda ids: ms.capture(network(), POINTS, ids=ids).ids, {"ids": np.arange(12)}, optional=True
    ),
    Case(
        "vq_kernel by weights",
        # Products on a device need no compiled loops, which take longer to build than all of this to run.
        lambda weights: ms.vq_kernel(PATTERNS, weights=weights, device="cpu"),
        {"weights": np.array([2.0])},
        optional=True,
    ),
    Case(
        "heat_cosine",
        lambda sigma2: ms.heat_cosine(PATTERNS, PATTERNS, sigma2),
        {"sigma2": np.array([1.0, 2.0])},
        shapes=True,
    ),
    Case(
        "novelty by labels",
        lambda train_labels, test_labels: ms.novelty(
            PATTERNS, PATTERNS, train_labels=train_labels, test_labels=test_labels
        ),
        {"train_labels": LABELS, "test_labels": LABELS},
    ),
    Case(
        "local_complexity",
        lambda point: ms.local_complexity(network(), point, 1.0),
        {"point": MEAN},
        shapes=True,
        also=("data",),
    ),
    Case(
        "Patterns",
        lambda packed: Patterns((Layer("act", 16, "relu"),), packed),
        {"packed": np.array([[3, 5], [7, 255], [0, 1]], np.uint8)},
    ),
    Case(
        "linear_regions by plane",
        lambda origin, u: ms.linear_regions(network(), (origin, u, [0.0, 0.0, 1.0])),
        {"origin": MEAN, "u": np.array([1.0, 0.5, 0.0])},
        also=("plane",),
    ),
    Case(
        "linear_regions by bounds",
        lambda bounds: ms.linear_regions(network(2), bounds=bounds),
        {"bounds": np.array([[-1.0, 1.0], [-0.5, 0.5]])},
    ),
    Case("Partition.locate", REGIONS.locate, {"points": PLANE}),
    Case("Partition.evaluate", REGIONS.evaluate, {"points": PLANE}),
    Case("Partition.distance", lambda i: REGIONS.distance(i, 0), {"i": np.array([0, 1])}, shapes=True),
    # Data
    Case("rotate", lambda x: data.rotate(x, 0.5), {"x": POINTS}),
    Case("sphere_moons", lambda x: data.sphere_moons(x, generator(), dim=4), {"x": PLANE}),
    Case("Gaussian", lambda mean, cov: data.Gaussian(mean, cov).sample(3, generator()), {"mean": MEAN, "cov": COV}),
    Case(
        "Gaussian.distance",
        lambda x: data.Gaussian(torch.tensor(MEAN), torch.tensor(COV)).distance(x),
        {"x": POINTS},
    ),
    Case(
        "pixels",
        lambda images, train: data.pixels(images, "normalized", train),
        {
            "images": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
            "train": np.arange(12, dtype=np.uint8).reshape(3, 2, 2),
        },
        shapes=True,
    ),
    # Estimators
    Case("MahalanobisNovelty.fit", _novelty_fit, {"X": POINTS}, own_words=True),
    Case("MahalanobisNovelty.partial_fit", _novelty_part, {"X": POINTS}, own_words=True),
    Case("MahalanobisNovelty.novelty", _novelty_of, {"X": POINTS}, own_words=True),
    Case("DistanceClassifier.fit", _classify, {"X": POINTS, "y": LABELS}, own_words=True),
    Case("DistanceClassifier.predict_proba", _classes_of, {"X": POINTS}, own_words=True),
    Case("DistanceRegressor.fit", _regress, {"X": POINTS, "targets": POINTS[:, 0]}, own_words=True),
    Case("PatternTransformer.fit", _signs, {"X": POINTS}, own_words=True),
    Case("VQMDS.fit", _embedded, {"X": POINTS}, own_words=True),
    Case("sklearn.moments", moments, {"x": POINTS}),
]


def numbers(result: Any) -> list[np.ndarray]:
    """Return every number of a result, whatever it is made of."""
    if isinstance(result, Tensor):
        return [] if result.device.type == "meta" else [result.detach().cpu().double().numpy()]
    if isinstance(result, nn.Module):
        return [part for value in result.state_dict().values() for part in numbers(value)]
    if isinstance(result, Patterns):
        return [result.signs().astype(np.float64)]
    if isinstance(result, Partition):
        return [result.areas]
    if isinstance(result, pd.DataFrame):
        return numbers(result.select_dtypes("number").to_numpy())
    if is_dataclass(result):
        return [part for one in fields(result) for part in numbers(getattr(result, one.name))]
    if isinstance(result, (tuple, list)):
        return [part for one in result for part in numbers(one)]
    if isinstance(result, (int, float, np.ndarray, np.number)) and not isinstance(result, bool):
        return [np.asarray(result, np.float64)] if np.asarray(result).dtype.kind in "fiub" else []
    return []
