"""What the pages of a network show, as numbers and tables: layers, units, distances, answers, and two compared.

Axes: N points, H bits, C classes. Measures of pairs of points use an even sample of the points if there are many.
Convolutions are counted by channel, tokens by feature.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float64, Int64, Num
from torch import Tensor, nn

from metriscope import vq
from metriscope.common.model_state import Runner, in_eval_mode, random_states_kept
from metriscope.reading.layer_inputs import label_codes
from metriscope.reading.layer_names import LayerName, layer_names, plain_names
from metriscope.reading.layer_reading import LayerReading, read_layer
from metriscope.reading.points import UserPoints
from metriscope.reading.unit_kinds import ClassScores, flat_outputs
from metriscope.vq.capture.batches import Reader
from metriscope.vq.capture.patterns import Layer

__all__ = [
    "PROBED",
    "Answers",
    "Inspection",
    "Places",
    "Subject",
    "answers",
    "centered_places",
    "class_activity",
    "class_distances",
    "inspected",
    "partner_notes",
]

SHOWN = 1_000  # points drawn or compared pair by pair; a picture would not show more
NOVEL = 20
# Points that read_layer reads, and seconds that it may take for all layers.
READ, READ_SECONDS = 1_000, 30.0
# Points on which units are perturbed, as many as time allows; in few steps, so that pages rarely depend on the time.
PROBED = (300, 100, 50)
# Largest number of outputs that are treated as class scores if there are no labels.
_MOST_ANSWERS = 100


@dataclass(frozen=True)
class Subject:
    """A network's patterns, its name on the page, the labels of its points if any, and the network itself if known.

    ``tokens`` says how tokens were pooled, if they were.
    """

    name: str
    patterns: vq.Patterns
    labels: np.ndarray | None = None
    model: nn.Module | None = None
    points: UserPoints | None = None
    batch_size: int = 256
    tokens: str | None = None

    def shown_rows(self, most: int = SHOWN) -> Int64[np.ndarray, " k"]:
        """Return the rows of evenly chosen points, all of them if there are few."""
        return np.unique(np.linspace(0, len(self.patterns) - 1, min(most, len(self.patterns))).round().astype(int))

    @cached_property
    def names(self) -> tuple[LayerName, ...]:
        """Return the name of every captured layer."""
        if self.model is None or self.points is None:
            return plain_names(self.patterns)
        return layer_names(self.model, next(self.points.batches(self.batch_size)), self.patterns)

    def nouns(self) -> list[str]:
        """Return the word for the units of each layer."""
        axes = [layer.channel_axis for layer in self.patterns.layers]
        return [
            "channel" if axis == 0 or "Conv" in name.type else "unit"
            for axis, name in zip(axes, self.names, strict=True)
        ]


class Answers(NamedTuple):
    """The class that a network predicts for each point, as text, and whether it is the label; None without labels."""

    predicted: np.ndarray
    right: Bool[np.ndarray, " n"] | None


def answers(subject: Subject) -> tuple[Answers | None, float]:
    """Return the predictions of a network whose outputs are class scores, and the seconds per point.

    With labels, outputs are class scores if the labels are indices of outputs and more than half of the predictions are
    correct.
    """
    if subject.model is None or subject.points is None:
        return None, np.nan
    start, run = time.perf_counter(), Runner(subject.model, None)
    read, parts = Reader(subject.model, run.device), []
    with random_states_kept(), in_eval_mode(subject.model), torch.no_grad():
        for raw in subject.points.batches(subject.batch_size):
            batch = read(raw)
            found = run(*batch.args, **batch.kwargs)
            scores = getattr(found, "logits", found)
            if not isinstance(scores, Tensor) or scores.ndim != 2 or scores.shape[1] < 2 or len(scores) != batch.points:
                return None, (time.perf_counter() - start) / batch.points
            parts.append(flat_outputs(scores, batch.points))
    return _answered(torch.cat(parts), subject.labels), (time.perf_counter() - start) / len(subject.points)


def _answered(outputs: Float64[Tensor, "n o"], labels: np.ndarray | None) -> Answers | None:
    best = outputs.argmax(1).numpy()
    if labels is None:
        return Answers(best.astype(str), None) if outputs.shape[1] <= _MOST_ANSWERS else None
    classes, codes = label_codes(labels, len(outputs))
    columns = ClassScores.of(outputs, torch.as_tensor(codes), classes).outputs
    if columns is None:
        return None
    names = {int(column): str(name) for column, name in zip(columns, classes, strict=True)}
    predicted = np.array([names.get(int(one), f"output {one}") for one in best])
    if np.isin(best, columns).mean() <= 0.5:
        return None
    return Answers(predicted, predicted == labels.astype(str))


class Places(NamedTuple):
    """Places of points on two axes, and the share of the squared distances that each axis explains."""

    places: Float64[np.ndarray, "n 2"]
    shares: Float64[np.ndarray, " 2"]


def centered_places(kernel: Num[np.ndarray, "n n"]) -> Places | None:
    """Return the classical scaling of distances that are squared Euclidean; None if all of them are 0.

    >>> centered_places(np.array([[0, 4], [4, 0]])).places[:, 0].tolist()
    [1.0, -1.0]
    """
    d = kernel.astype(np.float64)
    means = d.mean(0)
    centered = -0.5 * (d - means - means[:, None] + means.mean())
    total = float(np.trace(centered))
    if len(d) < 2 or not d.any():
        return None
    values, vectors = _leading(centered)
    # An axis whose eigenvalue is rounding has no direction.
    values = np.where(values > 1e-9 * values[0], values, 0.0)
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(0), [0, 1]] < 0, -1, 1)
    return Places(vectors * np.sqrt(values), values / total)


_SMALL = 50


def _leading(matrix: Float64[np.ndarray, "n n"]) -> tuple[Float64[np.ndarray, " 2"], Float64[np.ndarray, "n 2"]]:
    """Return the two largest eigenvalues, not below 0, and their vectors."""
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackError, eigsh

    count, found = len(matrix), None
    if count >= _SMALL:
        try:
            found = eigsh(matrix, k=2, v0=np.cos(np.arange(count)))
        except ArpackError:
            # Where most eigenvalues are equal, the iteration may not settle.
            found = None
    values, vectors = found or eigh(matrix, subset_by_index=(count - 2, count - 1))
    order = np.argsort(-values)
    return values[order].clip(0), vectors[:, order]


class ClassDistances(NamedTuple):
    """Mean distances between points of two classes; within a class, of different points; NaN where there are none."""

    classes: np.ndarray
    means: Float64[np.ndarray, "c c"]


def class_distances(kernel: Num[np.ndarray, "n n"], labels: np.ndarray) -> ClassDistances:
    """Return the mean distance of each class to each, over pairs of different points.

    >>> class_distances(np.array([[0, 1, 5], [1, 0, 7], [5, 7, 0]]), np.array([0, 0, 1])).means.tolist()
    [[1.0, 6.0], [6.0, nan]]
    """
    classes, codes = label_codes(labels, len(labels))
    one = np.eye(len(classes))[codes]
    counts = one.sum(0)
    pairs = np.outer(counts, counts) - np.diag(counts)
    sums = one.T @ kernel @ one
    return ClassDistances(classes, np.divide(sums, pairs, out=np.full(sums.shape, np.nan), where=pairs > 0))


def class_activity(patterns: vq.Patterns, layer: Layer, labels: np.ndarray) -> Float64[np.ndarray, "c k"]:
    """Return the share of points, and positions, of each class at which each unit of a layer is on."""
    _, codes = label_codes(labels, len(labels))
    bits = np.asarray(patterns.layer(layer.name)).reshape(len(labels), -1, layer.bits_per_unit)[:, :, 0]
    means = np.stack([bits[codes == code].mean(0) for code in range(codes.max() + 1)])
    if layer.channel_axis is None:
        return means
    shape = layer.shape[: len(layer.shape) - (layer.bits_per_unit > 1)]
    by_place = np.moveaxis(means.reshape(len(means), *shape), layer.channel_axis + 1, 1)
    return by_place.reshape(len(means), by_place.shape[1], -1).mean(2)


@dataclass(frozen=True)
class Inspection:
    """All measurements that the page of one network shows.

    ``kernel`` holds the distances of the shown ``rows``; ``readings`` are the results of ``read_layer`` by the number
    of the layer, and ``unread`` the reasons why others have none; ``late`` are those that there was no time to read.
    ``novelty`` is the distance of each point to its nearest other point, ``perturbed`` on how many points the units of
    a layer were perturbed.
    """

    subject: Subject
    units: pd.DataFrame
    readings: dict[int, LayerReading]
    unread: dict[int, str]
    answers: Answers | None
    rows: Int64[np.ndarray, " k"]
    kernel: Num[np.ndarray, "k k"]
    regions: int
    novelty: Float64[np.ndarray, " n"] | None
    late: tuple[int, ...] = ()
    perturbed: dict[int, int] = field(default_factory=dict)

    @property
    def labels(self) -> np.ndarray | None:
        """Return the labels of the shown points."""
        return None if self.subject.labels is None else self.subject.labels[self.rows]

    @property
    def novel(self) -> Int64[np.ndarray, " k"]:
        """Return the rows of the most novel points, if any; a point with a duplicate pattern is not novel."""
        if self.novelty is None:
            return np.zeros(0, int)
        order = np.argsort(-self.novelty, kind="stable")[:NOVEL]
        return order[self.novelty[order] > 0]

    def layer_kernel(self, layer: Layer) -> Num[np.ndarray, "k k"]:
        """Return the distances of the shown points in one layer."""
        return vq.vq_kernel(self.subject.patterns[self.rows].layer(layer.name))


def inspected(
    subject: Subject, announce: Callable[[str], None] = lambda line: None, read_seconds: float = READ_SECONDS
) -> Inspection:
    """Return everything that the page of a network shows; layers are read for so many seconds, without limit if 0."""
    patterns = subject.patterns
    announce("running the network for its answers")
    found, seconds = answers(subject)
    # Units are judged by their effect on correct predictions.
    judged = found is not None and found.right is not None
    perturbed: dict[int, int] = {}
    readings, unread, late = _readings(subject, seconds, judged, perturbed, announce, read_seconds)
    announce("measuring distances between points")
    rows = subject.shown_rows()
    novelty = None
    if len(patterns) > 1:
        # The nearest neighbor of a point among all points is itself: the second nearest is another.
        novelty = np.asarray(vq.novelty(patterns, patterns, k=2), np.float64)
    units = _unit_table(subject, readings)
    measured = vq.vq_kernel(patterns[rows]), vq.region_count(patterns), novelty
    return Inspection(subject, units, readings, unread, found, rows, *measured, late, perturbed)


def _readings(
    subject: Subject,
    pace: float,
    judged: bool,
    perturbed: dict[int, int],
    announce: Callable[[str], None],
    read_seconds: float,
) -> tuple[dict[int, LayerReading], dict[int, str], tuple[int, ...]]:
    """Read layers as distances, the cheapest first, until time is used up; ``pace`` is the seconds per point.

    ``perturbed`` receives the number of points on which the units of each layer were perturbed.
    """
    found: dict[int, LayerReading] = {}
    if subject.model is None or subject.points is None:
        why = "the network itself is not known, only its patterns"
        return found, dict.fromkeys(range(len(subject.names)), why), ()
    rows = subject.shown_rows(READ)
    data, labels = subject.points.take(rows), None if subject.labels is None else subject.labels[rows]
    unread = {
        at: "it is not the output of one linear layer" for at, one in enumerate(subject.names) if not one.readable
    }
    order = sorted(set(range(len(subject.names))) - set(unread), key=lambda at: (subject.names[at].outputs, at))
    begun = time.perf_counter()
    for turn, at in enumerate(order):
        left = (read_seconds or np.inf) - (time.perf_counter() - begun)
        if turn and left < 2 * pace * len(rows):
            late = tuple(sorted(order[turn:]))
            return found, unread | dict.fromkeys(late, _LATE.format(read_seconds)), late
        announce(f"reading {subject.names[at].plain}")
        runs = left / (len(order) - turn) / max(pace, 1e-9)
        probed = _probed(subject.patterns.layers[at], runs) if judged else 0
        try:
            reading = read_layer(subject.model, subject.names[at].readable, data, labels, subject.batch_size, probed)
            found[at], perturbed[at] = _moved(reading, rows), min(probed, len(rows))
        except ValueError as error:
            unread[at] = str(error)
    return found, unread, ()


_LATE = "layers are read for {:g} seconds, the cheapest first, and there was no time left (--read-seconds 0: no limit)"


def _probed(layer: Layer, runs: float) -> int:
    """Return the number of points on which to perturb units, if ``runs`` forward passes are allowed; 0 if too few.

    >>> [_probed(Layer("act", 10, "relu"), runs) for runs in (1e9, 14_999, 5_000, 100)]
    [300, 100, 100, 0]
    """
    units = layer.shape[layer.channel_axis] if layer.channel_axis is not None else layer.width
    return next((points for points in PROBED if 5 * max(units, 1) * points <= runs), 0)


def _moved(reading: LayerReading, rows: np.ndarray) -> LayerReading:
    """Return a reading of the chosen ``rows`` whose point indices refer to the whole data set."""
    columns = ("prototype", "above", "below", "strongest")
    moved = {name: [tuple(rows[list(own)].tolist()) for own in reading.units[name]] for name in columns}
    return replace(reading, units=reading.units.assign(**{name: pd.Series(own) for name, own in moved.items()}))


def _unit_table(subject: Subject, readings: dict[int, LayerReading]) -> pd.DataFrame:
    """Return one row per unit or channel: how often it is on, its partners, and what it is used for if it was read."""
    table = vq.utilization(subject.patterns, by="channel").to_pandas()
    table = table.rename(columns={"opposite_of": "mirrored_with"})
    table["by"] = "signs"
    order = {layer.name: at for at, layer in enumerate(subject.patterns.layers)}
    table.insert(0, "at", table["layer"].map(order).astype(int))
    placed = table["at"].map(lambda at: subject.patterns.layers[at].channel_axis is not None)
    few = placed | (np.minimum(table["active"], 1 - table["active"]) * len(subject.patterns) < _FEWEST)
    # Units that are on at a few points only may agree by chance, and so may those that are on at certain positions.
    table.loc[few, ["duplicate_of", "mirrored_with"]] = pd.NA
    table = table.assign(kind="", serves=None, nearest_class=None, prototype=None, strongest=None, offset=np.nan)
    for at, reading in readings.items():
        own = table.index[table["at"] == at]
        if len(own) != len(reading.units):
            continue
        for column in ("duplicate_of", "mirrored_with", "kind", "serves", "nearest_class", "offset"):
            table.loc[own, column] = reading.units[column].to_numpy()
        for column in ("prototype", "strongest"):
            table.loc[own, column] = pd.Series(reading.units[column].tolist(), index=own, dtype=object)
        table.loc[own, "by"] = "values"
        if subject.tokens and subject.names[at].tokens:
            # The signs are of pooled tokens; the values are of all.
            for column in ("active", "status"):
                table.loc[own, column] = reading.units[column].to_numpy()
    return table


def partner_notes(units: pd.DataFrame) -> list[str]:
    """Return the partners of each unit in words, on both sides: a unit's earlier duplicate, and its later ones.

    >>> table = pd.DataFrame({"at": 0, "unit": [0, 1, 2], "duplicate_of": [pd.NA, 0, pd.NA], "mirrored_with": pd.NA})
    >>> partner_notes(table)
    ['duplicate of 1', 'duplicate of 0', '']
    """
    notes: dict[tuple[int, int], dict[str, set[int]]] = {}
    for word, column in (("duplicate of", "duplicate_of"), ("mirrors", "mirrored_with")):
        paired = units[units[column].notna()]
        for at, unit, other in zip(paired["at"], paired["unit"], paired[column].astype(int), strict=True):
            notes.setdefault((at, unit), {}).setdefault(word, set()).add(other)
            notes.setdefault((at, other), {}).setdefault(word, set()).add(unit)
    return [
        "; ".join(f"{word} {', '.join(map(str, sorted(own)))}" for word, own in notes.get(key, {}).items())
        for key in zip(units["at"], units["unit"], strict=True)
    ]


# Points at which a unit must be on, and off, for its signs to be compared with another's.
_FEWEST = 10


def layer_table(subject: Subject) -> pd.DataFrame:
    """Return one row per captured layer."""
    rows: list[dict[str, Any]] = [
        {
            "layer": name.plain,
            "activation": layer.name,
            "kind": layer.kind,
            "signs": layer.width,
            "shape": " × ".join(map(str, layer.shape)),
            "piecewise affine": layer.piecewise_affine,
            "seen by": layer.seen,
        }
        for name, layer in zip(subject.names, subject.patterns.layers, strict=True)
    ]
    return pd.DataFrame(rows)
