"""Tune and train classifiers on one data set, in a plain loop: Adam with a falling learning rate, mini-batches.

Axes: N points, D features, C classes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope import data
from metriscope.common.threads import one_blas_thread
from metriscope.functional import best_temperature, expected_calibration_error, false_positive_rate, reliability
from metriscope.nn import Abs, AbsReLU, NearestMean, Penalty, abs_to_relu, build_head, init_head_
from metriscope.probes import eigen_recovery, metric_rank
from metriscope.rng import stream
from metriscope.runs import Result, once
from metriscope.studies.heads.offsets import trained
from metriscope.studies.heads.plan import LAYER_SCORES, SCORES, SETS, SOUND, UNSEEN, Contestant, HeadContest, Source

__all__ = ["WORK", "Scoring", "Split", "build_classifier", "contested", "layer_scores", "prepared", "scores"]


@dataclass(frozen=True, eq=False)
class Split:
    """Standardized points and labels for training, validation and test, and points out of distribution."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    strangers: Tensor

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.train[1].max()) + 1

    @cached_property
    def principal(self) -> tuple[Tensor, Tensor]:
        """Variances of the training points along their principal axes, largest first, and the axes as columns."""
        variances, axes = torch.linalg.eigh(self.train[0].double().T.cov())
        return variances.flip(0), axes.flip(1)


def spectrograms(sound: np.ndarray) -> Tensor:
    """Return logarithmic spectrograms, averaged to a fixed size over the length of each recording.

    >>> spectrograms(np.ones((2, 600), np.float32)).shape
    torch.Size([2, 24, 24])
    """
    window, found = torch.hann_window(256), []
    for wave in torch.from_numpy(np.asarray(sound, np.float32)):
        # Recordings are padded with zeros to the length of the longest.
        length = max(512, int(wave.nonzero().max()) + 1 if wave.any() else 0)
        heard = F.pad(wave[:length], (0, max(0, 512 - length)))
        power = torch.stft(heard, 256, 64, window=window, return_complex=True).abs()
        found.append(F.adaptive_avg_pool2d(torch.log(power + 1e-3)[None], SOUND)[0])
    return torch.stack(found)


def _features(source: Source, x: np.ndarray) -> Tensor:
    found = spectrograms(x) if source.kind == "sound" else torch.from_numpy(np.asarray(x, np.float32))
    return found.flatten(1)


@lru_cache(maxsize=1)
def prepared(source: Source, sizes: tuple[int, int], seed: int) -> Split:
    """Return a data set for a contest: at most ``sizes`` points, drawn at random, standardized by the training part."""
    loaded = data.load(source.data)
    parts = []
    for part, name, most in zip((loaded.train, loaded.test), ("train", "test"), sizes, strict=True):
        rows = torch.randperm(len(part), generator=stream(seed, "contest", source.data, name)).numpy()
        if source.strangers != "unseen":
            rows = rows[:most]
        parts.append((_features(source, part.x[rows]), torch.from_numpy(part.y[rows].astype(np.int64))))
    (train, test), strangers = parts, torch.empty(0)
    if source.strangers == "unseen":
        first = int(train[1].max()) + 1 - UNSEEN
        strangers = test[0][test[1] >= first][: sizes[1]]
        kept = [(x[y < first][:most], y[y < first][:most]) for (x, y), most in zip(parts, sizes, strict=True)]
        train, test = kept
    elif source.strangers == "columns":
        order = torch.randperm(test[0].shape[1], generator=stream(seed, "contest", source.data, "columns"))
        strangers = test[0][:, order]
    else:
        other = data.load(source.strangers).test
        strangers = _features(source, other.x[: sizes[1]])
    cut = len(train[0]) // 5
    tuning, rest = [part[:cut] for part in train], [part[cut:] for part in train]
    scale = _scale(source, rest[0])
    points = [(scale(x), y) for x, y in (rest, tuning, test)]
    # Permuted columns are standardized on their own, so that only the dependence between features changes.
    own = scale if source.strangers != "columns" else _scale(source, strangers)
    return Split(points[0], points[1], points[2], own(strangers))


def _scale(source: Source, x: Tensor) -> Any:
    """Return the function that standardizes features: each feature separately in tables, all together elsewhere."""
    mean, spread = (x.mean(0), x.std(0)) if source.kind == "table" else (x.mean(), x.std())
    spread = torch.where(spread > 0, spread, 1.0)
    return lambda points: (points - mean) / spread


class _Moments(nn.Module):
    """A recurrent encoder: features are a sequence of ``steps`` vectors; the output is the last state of a GRU."""

    def __init__(self, features: int, hidden: int, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.cell = nn.GRU(features // steps, hidden, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x.unflatten(1, (-1, self.steps)).mT)[1][0]


def _encoder(entry: Contestant, features: int) -> list[nn.Module]:
    """Return the layers before the head; the last of them has ``entry.hidden`` units."""
    act = {0.0: nn.ReLU, 1.0: Abs}.get(entry.share, lambda: AbsReLU(entry.share))
    if entry.encoder == "recurrent":
        steps = SOUND[1] if features == SOUND[0] * SOUND[1] else features
        return [_Moments(features, entry.hidden, steps)]
    if entry.encoder == "convolution":
        rows = SOUND[0] if features == SOUND[0] * SOUND[1] else 1
        layers = [
            nn.Unflatten(1, (rows, -1)),
            nn.Conv1d(rows, 32, 5, 2, 2),
            act(),
            nn.Conv1d(32, entry.hidden, 5, 2, 2),
        ]
        return [*layers, act(), nn.AdaptiveAvgPool1d(1), nn.Flatten()]
    return [nn.Linear(features, entry.hidden), act()]


def build_classifier(entry: Contestant, features: int, classes: int, seed: int) -> nn.Sequential:
    """Return an entry's network; networks of one seed start with the same encoder."""
    head = "linear" if entry.head == "nearest-mean" else entry.head
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = _encoder(entry, features)
    return nn.Sequential(*encoder, build_head(head, entry.hidden, classes, stream(seed, "head")))


@dataclass(frozen=True)
class _Recipe:
    """How a network is trained: the settings that a contest fixes, and those that are tuned."""

    epochs: int
    batch: int
    rate: float
    penalty: Penalty | None


def descend(model: nn.Module, points: tuple[Tensor, Tensor], recipe: _Recipe, seed: int) -> nn.Module:
    """Train a network in place and return it; the learning rate falls linearly to zero."""
    x, y = points
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], recipe.rate, fused=True)
    batches = list(_batches(len(x), recipe, seed))
    for step, rows in enumerate(batches):
        optimizer.param_groups[0]["lr"] = recipe.rate * (1 - step / len(batches))
        with recipe.penalty.on(model) if recipe.penalty else nullcontext() as extra:
            loss = F.cross_entropy(model(x[rows]), y[rows])
            loss = loss + extra() if extra else loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def _batches(count: int, recipe: _Recipe, seed: int) -> Iterator[Tensor]:
    for epoch in range(recipe.epochs):
        order = torch.randperm(count, generator=stream(seed, "batches", epoch))
        # A last batch of one point has no covariance, which a penalty may need.
        yield from (rows for rows in order.split(recipe.batch) if len(rows) > 1 or count == 1)


def _trained(contest: HeadContest, entry: Contestant, split: Split, tuned: tuple[float, float], seed: int) -> nn.Module:
    rate, strength = tuned
    penalty = Penalty(entry.penalty, strength) if entry.penalty else None  # type: ignore[arg-type]
    recipe = _Recipe(contest.epochs, contest.batch, rate, penalty)
    model: nn.Module = build_classifier(entry, split.train[0].shape[1], split.classes, seed)
    if entry.started:
        _start_head(model, split)
    if entry.rewritten:
        half = _Recipe(contest.epochs // 2, contest.batch, rate, penalty)
        model = descend(abs_to_relu(descend(model, split.train, half, seed)), split.train, half, seed + 1)
    else:
        descend(model, split.train, recipe, seed)
    if entry.head == "nearest-mean":
        model = _with_means(model, split)
    return model.eval()


def _start_head(model: nn.Module, split: Split) -> None:
    assert isinstance(model, nn.Sequential)
    with torch.no_grad():
        features = model[:-1](split.train[0])
    init_head_(model[-1], features, split.train[1].numpy())


def _with_means(model: nn.Module, split: Split) -> nn.Module:
    """Replace the trained linear head by the class means of its input features."""
    assert isinstance(model, nn.Sequential)
    with torch.no_grad():
        features = model[:-1](split.train[0])
    head = init_head_(NearestMean(features.shape[1], split.classes), features, split.train[1].numpy())
    return nn.Sequential(*copy.deepcopy(list(model)[:-1]), head)


def _few(split: Split, per_class: int, seed: int) -> Split:
    """Return the same split with few training points per class."""
    x, y = split.train
    order = torch.randperm(len(y), generator=stream(seed, "few"))
    kept = torch.cat([order[y[order] == c][:per_class] for c in range(split.classes)])
    return Split((x[kept], y[kept]), split.validation, split.test, split.strangers)


def contested(contest: HeadContest) -> Result:
    """Return the scores of every entry and start, and the validation losses of all settings that were tried."""
    whole = prepared(SETS[contest.data], contest.sizes, contest.seed)
    found, tried, binned = [], [], []
    with one_blas_thread():
        for entry in contest.entries:
            grid = [(rate, strength) for rate in contest.rates for strength in entry.strengths]
            losses = [_validation(contest, entry, whole, tuned) for tuned in grid]
            tried += [
                {"entry": entry.name, "rate": r, "strength": s, "loss": loss}
                for (r, s), loss in zip(grid, losses, strict=True)
            ]
            best = grid[int(np.nanargmin([*losses]))] if np.isfinite(losses).any() else grid[0]
            for start in range(contest.starts):
                split = _few(whole, contest.per_class, start) if contest.per_class else whole
                model = _trained(contest, entry, split, best, _seed(contest, start))
                scoring = Scoring(split.validation, split.test, split.strangers, contest.noise, contest.seed)
                own = scores(model, scoring)
                layer = {} if contest.per_class else layer_scores(model, split, contest.varied)
                found.append({"entry": entry.name, "start": start, **own, **layer})
                binned.append(_binned(model, split.test, own["temperature"], contest.bins).assign(entry=entry.name))
    bins = pd.concat(binned).groupby(["entry", "scaled", "bin"], sort=False, as_index=False).sum()
    return Result({"scores": pd.DataFrame(found), "tuning": pd.DataFrame(tried), "reliability": bins})


def _seed(contest: HeadContest, start: int) -> int:
    return contest.seed * 1_000 + start


def _validation(contest: HeadContest, entry: Contestant, whole: Split, tuned: tuple[float, float]) -> float:
    """Return the validation loss of a start that is used for tuning only."""
    split = _few(whole, contest.per_class, -1) if contest.per_class else whole
    model = _trained(contest, entry, split, tuned, _seed(contest, 999))
    with torch.no_grad():
        return float(F.cross_entropy(model(split.validation[0]), split.validation[1]))


@dataclass(frozen=True, eq=False)
class Scoring:
    """The points on which a classifier is scored, and the noise that is added to the test points."""

    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    strangers: Tensor
    noise: float
    seed: int


def _auroc(known: Float[np.ndarray, " n"], strange: Float[np.ndarray, " m"]) -> float:
    return float(roc_auc_score(np.r_[np.ones(len(known)), np.zeros(len(strange))], np.r_[known, strange]))


@torch.no_grad()
def scores(model: nn.Module, points: Scoring) -> dict[str, float]:
    """Return every score of a classifier; if a logit is NaN, only the accuracy, where NaN counts as the smallest logit.

    Points out of distribution are detected by the largest logit (for distance heads, minus the distance to the nearest
    prototype), and in ``sure_auroc`` by the largest probability.
    """
    (x, y), (tuning, labels) = points.test, points.validation
    noise = points.noise * torch.randn(x.shape, generator=stream(points.seed, "contest", "noise"))
    logits, strange, noisy, tuned = (model(part).double() for part in (x, points.strangers, x + noise, tuning))
    accuracy = _percent(logits, y)
    if not all(bool(torch.isfinite(part).all()) for part in (logits, strange, noisy, tuned)):
        return {**dict.fromkeys(SCORES, np.nan), "accuracy": accuracy}
    heat = best_temperature(tuned, labels)
    largest = [part.amax(1).numpy() for part in (logits, strange)]
    sure = [part.softmax(1).amax(1).numpy() for part in (logits, strange)]
    plain, scaled = (part.softmax(1).numpy() for part in (logits, logits / heat))
    found = (
        accuracy, float(F.cross_entropy(logits, y)), expected_calibration_error(plain, y), heat,
        float(F.cross_entropy(logits / heat, y)), expected_calibration_error(scaled, y), _auroc(*largest),
        false_positive_rate(*largest), _auroc(*sure), _percent(noisy, y),
    )  # fmt: skip
    return dict(zip(SCORES, found, strict=True))


@torch.no_grad()
def _binned(model: nn.Module, points: tuple[Tensor, Tensor], temperature: float, bins: int) -> pd.DataFrame:
    """Return, per bin of confidence, the number of test points, the sum of their confidences, and how many are correct.

    ``scaled`` says whether logits were divided by the temperature. Empty if a logit is NaN.
    """
    logits, rows = model(points[0]).double(), []
    for scaled in (False, True) if bool(torch.isfinite(logits).all()) else ():
        found = reliability((logits / temperature if scaled else logits).softmax(1).numpy(), points[1].numpy(), bins)
        for place in np.flatnonzero(found.count):
            count = int(found.count[place])
            sums = (float(count * found.confidence[place]), round(count * float(found.accuracy[place])))
            rows.append((scaled, int(place), count, *sums))
    return pd.DataFrame(rows, columns=["scaled", "bin", "count", "confidence", "right"])


def layer_scores(model: nn.Module, split: Split, varied: float) -> dict[str, float]:
    """Return how a first linear layer is aligned with the points' principal axes; empty for other layers.

    ``axes``: the mean absolute cosine between units and the axes that they are matched to. ``directions``: the
    share that is not lost of all directions that this number of units can measure
    (:func:`metriscope.probes.metric_rank`), with weights scaled so that the mean eigenvalue of the metric is 1.
    """
    first = next(iter(model.children()))
    if not isinstance(first, nn.Linear):
        return {}
    variances, axes = split.principal
    kept = int((variances >= varied * variances[0]).sum())
    most = min(first.out_features, kept)
    weight, cov = first.weight.detach().double() @ axes[:, :kept], torch.diag(variances[:kept])
    white = weight * variances[:kept].sqrt()
    scale = float((white.square().sum() / most).sqrt())
    rank = metric_rank(weight / scale, torch.zeros(kept), cov).rank
    return dict(zip(LAYER_SCORES, (eigen_recovery(weight, cov).mean_cosine, rank / most), strict=True))


def _percent(logits: Tensor, labels: Tensor) -> float:
    return 100 * float((logits.nan_to_num(-torch.inf).argmax(1) == labels).double().mean())


WORK = once(trained)
