"""A row for every public function: a case with arrays, calls with plain values, or the reason why it needs neither."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

import metriscope as ms
from common.cases import CASES, LABELS, MEAN, POINTS, WEIGHT, Case, generator, linear, network
from metriscope import data, functional, probes, rng, sklearn, vq
from metriscope import nn as layers

SHARES = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.25, 0.25, 0.5], [0.5, 0.5, 0.0]])
CLASSES = np.array([0, 1, 2, 1])
SCORES = np.array([[0.5, 0.25, 0.75], [0.5, 0.125, 0.25], [0.75, 0.25, 0.5], [1.0, 0.5, 0.25]])
COUNTER = np.arange(8, dtype=np.int64).reshape(2, 4)


def _head(name: str) -> nn.Module:
    return layers.build_head(name, 3, 2, generator()).double()


def _stacked(x: Any) -> Any:
    one, two = linear(), linear()
    return layers.stacked_forward(one)(layers.stack_state([one, two]), x)


def _shards(data: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return vq.capture_shards(network(), [lambda: data], Path(folder) / "shards").signs()


def _tracked(x: Any) -> Any:
    tracker = ms.UtilizationTracker(network(), x)
    tracker(0)
    return tracker.to_pandas()


def _trained(data: Any) -> Any:
    tracker = ms.TrainingTracker(network(), data)
    tracker(0)
    return tracker.to_pandas()


def _novelty(points: Any = POINTS, labels: Any = LABELS, held_out: Any = POINTS) -> Any:
    return ms.LayerNovelty(network()).partial_fit(points, labels).calibrate(held_out)


def _forward(name: str, make: Callable[[], nn.Module]) -> Case:
    return Case(f"{name}.forward", lambda x: make()(x), {"x": POINTS}, carries=True, tensors=True, shapes=True)


# What functions that run a model call the points that it does not take.
POINTS_OF = ("points", "pre-activations", "outputs", "data")

MORE = [
    Case("best_temperature", functional.best_temperature, {"logits": SCORES, "labels": CLASSES}),
    Case(
        "expected_calibration_error",
        functional.expected_calibration_error,
        {"probabilities": SHARES, "labels": CLASSES},
    ),
    Case("reliability", functional.reliability, {"probabilities": SHARES, "labels": CLASSES}, carries=True),
    Case("false_positive_rate", functional.false_positive_rate, {"known": MEAN, "strange": MEAN + 1}),
    Case("rank_methods", functional.rank_methods, {"scores": SCORES}),
    Case("sharpness", lambda x, y: probes.sharpness(network(), x, y), {"x": POINTS, "y": LABELS}, also=POINTS_OF),
    Case(
        "read_layer",
        lambda data, labels: ms.read_layer(network(), "0", data, labels),
        {"data": POINTS, "labels": LABELS},
        optional=True,
        also=POINTS_OF,
    ),
    Case(
        "LayerState.update",
        lambda data, labels: ms.LayerState(network(), "0", np.unique(LABELS)).update(data, labels).compute().units,
        {"data": POINTS, "labels": LABELS},
        also=POINTS_OF,
    ),
    Case(
        "similarity",
        lambda data: ms.similarity(network(), network(), data, permutations=3),
        {"data": POINTS},
        also=POINTS_OF,
    ),
    Case(
        "LayerNovelty.partial_fit",
        lambda data, labels: _novelty(data, labels).score(POINTS),
        {"data": POINTS, "labels": LABELS},
        also=POINTS_OF,
    ),
    Case("LayerNovelty.score", lambda data: _novelty().score(data), {"data": POINTS}, also=POINTS_OF),
    Case(
        "LayerNovelty.calibrate", lambda data: _novelty(held_out=data).score(POINTS), {"data": POINTS}, also=POINTS_OF
    ),
    Case("UtilizationTracker", _tracked, {"x": POINTS}, shapes=True, also=POINTS_OF),
    Case("TrainingTracker", _trained, {"data": POINTS}, shapes=True, also=(*POINTS_OF, "alignment")),
    Case("capture_shards", _shards, {"data": POINTS}, shapes=True),
    Case(
        "init_head_",
        lambda features, labels: layers.init_head_(_head("nearest-mean"), features, labels),
        {"features": POINTS, "labels": LABELS},
    ),
    Case("stacked_forward", _stacked, {"x": POINTS}, carries=True, tensors=True, shapes=True, also=POINTS_OF),
    Case("philox", lambda counter: rng.philox(counter, (1, 2)), {"counter": COUNTER}, shapes=True),
    *[
        Case(name, getattr(layers, name), {"weight": WEIGHT}, carries=True, tensors=True)
        for name in ("double_soft_orthogonality", "hyperplane_spread", "soft_orthogonality", "srip")
    ],
    Case("whitening", layers.whitening, {"z": POINTS}, carries=True, tensors=True),
    *[_forward(name, lambda name=name: _head(name)) for name in layers.HEADS if name != "linear"],
    _forward("Abs", ms.Abs),
    _forward("Neg", ms.Neg),
    _forward("AbsReLU", layers.AbsReLU),
]

EVERY_CASE = [*CASES, *MORE]

ONE = functional.Moments(1.0, 1.0, 3)
STATE = layers.stack_state([linear(), linear()])

# Functions of plain values: each call takes an odd one in place of the argument that comes first.
VALUES: dict[str, Callable[[Any], Any]] = {
    "Abs": lambda value: ms.Abs()(value),
    "Mahalanobis": ms.Mahalanobis,
    "OffsetL2": lambda value: ms.OffsetL2(value, 2),
    "abs_to_relu": ms.abs_to_relu,
    "relu_to_abs": ms.relu_to_abs,
    "architectures": lambda value: ms.architectures(),
    "build": lambda value: ms.build(value, 3, 2, 1),
    "Neg": lambda value: ms.Neg()(value),
    "data.available": data.available,
    "data.digest": data.digest,
    "data.fetch": data.fetch,
    "data.load": data.load,
    "data.mnist_5k": lambda value: 0,
    "data.names": lambda value: data.names(),
    "data.random_gaussian": lambda value: data.random_gaussian(value, generator()).cov,
    "data.read_idx": lambda value: data.read_idx(Path(str(value)[:100])),
    "data.two_moons": lambda value: data.two_moons(value, generator()),
    "functional.cohens_d": lambda value: functional.cohens_d(functional.Moments(value, 1.0, 3), ONE),
    "functional.expected_sphericity": lambda value: functional.expected_sphericity(value, 3),
    "functional.student_test": lambda value: functional.student_test(functional.Moments(value, 1.0, 3), ONE),
    "functional.welch_test": lambda value: functional.welch_test(ONE, functional.Moments(1.0, value, 3)),
    "nn.AbsReLU": layers.AbsReLU,
    "nn.CosineHead": lambda value: layers.CosineHead(value, 2),
    "nn.MahalanobisHead": lambda value: layers.MahalanobisHead(value, 2),
    "nn.NearestMean": lambda value: layers.NearestMean(2, value),
    "nn.RBFHead": lambda value: layers.RBFHead(2, value),
    "nn.activation_row": layers.activation_row,
    "nn.build_head": lambda value: layers.build_head(value, 2, 2),
    "nn.stack_state": layers.stack_state,
    "nn.unstack": lambda value: layers.unstack(linear(), STATE, value),
    "probes.lost_directions": lambda value: probes.lost_directions(value, 1),
    "rng.cuda_advance": rng.cuda_advance,
    "rng.cuda_integers": lambda value: rng.cuda_integers(4, 0, high=value),
    "rng.cuda_normal": lambda value: rng.cuda_normal(4, value),
    "rng.cuda_uniform": lambda value: rng.cuda_uniform(4, 0, value),
    "rng.derive": rng.derive,
    "rng.stream": rng.stream,
}

# Functions of patterns, which may hold no points, one point, or the same signs at every point.
OF_PATTERNS: dict[str, Callable[[vq.Patterns], Any]] = {
    "alignment": lambda p: ms.alignment(p, p).value,
    "heat_cosine": lambda p: ms.heat_cosine(p, p, [0.5, 2.0]),
    "naswot_score": ms.naswot_score,
    "novelty": lambda p: ms.novelty(p, p),
    "region_count": ms.region_count,
    "utilization": lambda p: ms.utilization(p).active,
    "vq_blocks": lambda p: [block for _, block in ms.vq_blocks(p)],
    "vq_kernel": ms.vq_kernel,
    "VQMDS": lambda p: ms.VQMDS(1).fit(p).embedding_,
    "vq.AlignmentState": lambda p: _updated(vq.AlignmentState(), p, p).value,
    "vq.MDSState": lambda p: _updated(vq.MDSState(), p, 1).transform(p),
    "vq.PairState": lambda p: _updated(vq.PairState(), p, p, 1.0),
    "vq.UtilizationState": lambda p: _updated(vq.UtilizationState(), p).active,
    "vq.check_same_points": lambda p: vq.check_same_points(p, p),
    "vq.pair_counts": lambda p: vq.pair_counts(p, p),
    "vq.pattern_multiplicities": vq.pattern_multiplicities,
}


def _updated(state: Any, *given: Any) -> Any:
    state.update(*(one for one in given if isinstance(one, vq.Patterns)))
    return state.compute(*(one for one in given if not isinstance(one, vq.Patterns)))


MODULES = {"": ms, "data": data, "functional": functional, "nn": layers, "probes": probes}
MODULES |= {"rng": rng, "sklearn": sklearn, "vq": vq}


def without_row() -> list[str]:
    """Return the public functions and classes that no row of the tables above calls."""
    cases = {case.name for case in EVERY_CASE}
    found = []
    for module, held in MODULES.items():
        for name in held.__all__:
            thing, full = getattr(held, name), f"{module}.{name}".lstrip(".")
            known = {full, name} if module in ("", "functional") or name not in functional.__all__ else {full}
            called = any(case in known or case.split(" by ")[0].split(".")[0] in known for case in cases)
            elsewhere = any(getattr(ms, one, None) is thing for one in ms.__all__ if module)
            if not (called or elsewhere or known & {*VALUES, *OF_PATTERNS} or _holds_values(thing)):
                found.append(full)
    return found


def _holds_values(thing: Any) -> bool:
    """Return whether something public computes nothing: a module, a table, an error, or a record of a result."""
    if not callable(thing) or (not inspect.isfunction(thing) and not inspect.isclass(thing)):
        return True
    return inspect.isclass(thing) and (is_dataclass(thing) or issubclass(thing, (Exception, tuple)))
