"""OffsetL2 with centers mu and weights alpha trained or frozen: what changes, and what distances correlate with.

Axes: N images, D pixels, P principal components, K hidden units, C classes. Measured in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor, nn

from metriscope import data
from metriscope.functional import mahalanobis, offset_l2, principal_axes, whitening_factor
from metriscope.nn import OffsetL2
from metriscope.report import Block, Details, Figure, Prose, Table, mean_text, to_svg
from metriscope.report.plots import panels, strip
from metriscope.report.style import CYCLE, figure
from metriscope.runs import Driver, Finished, Record, Result, Run, once
from metriscope.studies.heads.plan import OffsetReading, Offsets, OffsetTraining
from metriscope.studies.representation.plan import RepresentationTraining, title
from metriscope.studies.representation.prototypes import Hidden
from metriscope.studies.representation.train import images, start
from metriscope.studies.tidy_tables import joined, matching
from metriscope.train.classifiers import Classifier, PackedExamples, advance, examples, measure

__all__ = [
    "PrincipalSpace", "begun", "blocks", "covered", "goes_with", "measure_offsets", "points", "targets", "trained",
]  # fmt: skip


@lru_cache(maxsize=1)
def points(shared: RepresentationTraining) -> tuple[data.Labeled, data.Labeled]:
    """Return training and test images; cached, because many networks use the same."""
    return images(shared)


@lru_cache(maxsize=1)
def _packed(shared: RepresentationTraining) -> tuple[PackedExamples, PackedExamples]:
    train, test = points(shared)
    return examples(train.x, train.y), examples(test.x, test.y, gradient=False)


def targets(
    hidden: Float[Tensor, "n k"], labels: Int[Tensor, " n"], classes: int, negated: bool
) -> Float[Tensor, "c k"]:
    """Return the target of each center: the mean of its class, or of all others where the largest distance wins."""
    own = [labels == c if negated else labels != c for c in range(classes)]
    return torch.stack([hidden[rows].mean(0) for rows in own])


def begun(job: OffsetTraining, number: int) -> nn.Sequential:
    """Return one start's network before training."""
    base = replace(job.base, number=number)
    model = start(base)
    if job.variant.placed:
        train, _ = points(replace(job.base, model="", number=0))
        head = model[2]
        assert isinstance(head, OffsetL2)
        with torch.no_grad():
            hidden = model[:2](torch.from_numpy(train.x))
            head.mu.copy_(targets(hidden, torch.from_numpy(train.y), base.classes, job.negated))
    return model


def trained(job: OffsetTraining) -> Result:
    """Return the weights of every start, and its accuracies."""
    base, factors = job.base, (job.variant.mu, job.variant.alpha)
    train, test = _packed(replace(base, model="", number=0))
    networks = [Classifier(base.model, begun(job, number).state_dict(), factors) for number in job.numbers]
    advance(networks, train, base.epochs, base.lr)
    parts = {"train": measure(networks, train), "test": measure(networks, test)}
    ends = {f"{part}_accuracy": 100 * scores.accuracy for part, scores in parts.items()}
    tensors = {f"{n}/{k}": v for n, w in zip(job.numbers, networks, strict=True) for k, v in w.state().items()}
    return Result({"ends": pd.DataFrame({"seed": job.numbers, **ends})}, tensors)


COLUMNS = ("network", "variant", "negated", "seed", "train_accuracy", "test_accuracy")


def measure_offsets(part: Offsets, runs: Finished | None, driver: Driver) -> pd.DataFrame:
    """Return the table of the experiment, one row per network, variant and start.

    Without runs, the recorded measurements are shown.
    """
    specs = part.readings()
    if runs is None:
        found: Mapping[OffsetReading, Record | Run] = driver.recorded(specs)
    else:
        work = once(lambda spec: read(spec, runs[spec.training]))
        found = driver.perform(specs, work, "heads: offsets")
    origin = {} if runs is not None else {"origin": "record"}
    rows = (run.table("starts").assign(**_where(spec.training), **origin) for spec, run in found.items())
    return joined(rows, COLUMNS)


def _where(job: OffsetTraining) -> dict[str, Any]:
    where = {"network": job.base.model, "variant": job.variant.name}
    return {**where, "negated": job.negated, "protocol": False, "length": job.base.setting.length}


def read(spec: OffsetReading, run: Run) -> Result:
    """Return one row per start: accuracies, the path of the centers, and correlations of alpha and the distances."""
    job, tensors = spec.training, run.tensors()
    shared = replace(job.base, model="", number=0)
    train, test = (tuple(map(torch.from_numpy, (part.x, part.y))) for part in points(shared))
    spaces = _spaces(shared, spec.components)
    rows = []
    for number in job.numbers:
        model = start(replace(job.base, number=number))
        model.load_state_dict({name: tensors[f"{number}/{name}"] for name in model.state_dict()})
        seen, new = (Hidden.of(model.requires_grad_(False), *part) for part in (train, test))
        before = begun(job, number).state_dict()["2.mu"].double()
        found = {**_way(seen, before, job.negated), **_weighing(seen)}
        for p, space in spaces.items():
            more = "" if p == spec.judged else f" {p}"
            found |= {f"{name}{more}": value for name, value in space.read(seen, new, test[0]).items()}
        rows.append(found)
    return Result({"starts": pd.concat([run.table("ends"), pd.DataFrame(rows)], axis=1)})


@lru_cache(maxsize=1)
def _spaces(shared: RepresentationTraining, components: tuple[int, ...]) -> dict[int, PrincipalSpace]:
    """Return the spaces of the leading principal components; cached, because many networks use the same images."""
    train, _ = points(shared)
    x, y = torch.from_numpy(train.x).double(), torch.from_numpy(train.y)
    _, axes = principal_axes(torch.cov(x.mT))
    return {p: PrincipalSpace(x.mean(0), axes[:p], x, y, shared.classes) for p in components}


def covered(
    before: Float[Tensor, "c k"], after: Float[Tensor, "c k"], target: Float[Tensor, "c k"]
) -> Float[Tensor, " c"]:
    """Return the share of the distance to its target that each center has covered; negative if it moved away.

    >>> covered(torch.zeros(1, 2), torch.tensor([[3.0, 0.0]]), torch.tensor([[4.0, 0.0]]))
    tensor([0.7500])
    """
    return 1 - (after - target).norm(dim=-1) / (before - target).norm(dim=-1)


def _way(seen: Hidden, before: Float[Tensor, "c k"], negated: bool) -> dict[str, float]:
    target = targets(seen.post, seen.labels, len(seen.mu), negated)
    values = {
        "covered": covered(before, seen.mu, target), "moved": (seen.mu - before).norm(dim=1),
        "away": (seen.mu - target).norm(dim=1), "norm": seen.mu.norm(dim=1), "norm before": before.norm(dim=1),
    }  # fmt: skip
    return {name: float(value.mean()) for name, value in values.items()}


def _weighing(seen: Hidden) -> dict[str, float]:
    """Return the mean over classes of the rank correlation of alpha with 1 / sd of the class; NaN if alpha is constant.

    Units without deviation within a class are left out.
    """
    found = []
    for _, alpha, weighed in seen.weights():
        alive = np.isfinite(weighed["compact"])
        constant = np.ptp(alpha[alive]) == 0
        found.append(np.nan if constant else stats.spearmanr(np.abs(alpha[alive]), weighed["compact"][alive]).statistic)
    size = seen.alpha.abs()
    return {
        "alpha rank": float(np.mean(found)),
        "alpha sd": float(seen.alpha.std()),
        "alpha largest": float(size.max()),
    }


def goes_with(
    ours: Float[np.ndarray, "n c"], theirs: Float[np.ndarray, "n c"]
) -> tuple[Float[np.ndarray, " c"], Float[np.ndarray, " c"]]:
    """Return the rank correlation over images of each column with the same column of another table, and the others.

    >>> same, other = goes_with(np.array([[1.0, 3.0], [2.0, 2.0], [3.0, 1.0]]), np.array([[1, 9], [4, 4], [9, 1]]))
    >>> same.tolist(), other.tolist()
    ([1.0, 1.0], [-1.0, -1.0])
    """
    count = ours.shape[1]
    ranks = np.corrcoef(*(stats.rankdata(part, axis=0).T for part in (ours, theirs)))[:count, count:]
    same = ranks.diagonal()
    return same, (ranks.sum(1) - same) / (count - 1)


def metric_cosine(metric: Float[Tensor, "p p"], root: Float[Tensor, "p p"]) -> float:
    """Return the cosine between a metric, in coordinates that whiten the covariance ``rootᵀ root``, and the identity.

    It is 1 for the Mahalanobis metric of that covariance, up to scale.

    >>> root = torch.diag(torch.tensor([1.0, 2.0]))
    >>> round(metric_cosine(torch.linalg.inv(root.mT @ root), root), 6), round(metric_cosine(torch.eye(2), root), 3)
    (1.0, 0.857)
    """
    white = root @ metric @ root.mT
    return float(white.trace() / (white.norm() * len(root) ** 0.5))


class PrincipalSpace:
    """The leading principal components of the training images, and the mean and covariance of each class in them."""

    def __init__(self, mean: Tensor, axes: Float[Tensor, "p d"], x: Tensor, y: Int[Tensor, " n"], classes: int) -> None:
        self.mean, self.axes = mean, axes
        own = [self.project(x[y == c]) for c in range(classes)]
        self.means, self.factors = [part.mean(0) for part in own], [whitening_factor(torch.cov(p.mT)) for p in own]
        # The inverse transposed, since the factor is V scaled: its rows are orthogonal.
        self.roots = [torch.linalg.inv(factor).mT for factor in self.factors]

    def project(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n p"]:
        """Return images in these coordinates."""
        return (x.double() - self.mean) @ self.axes.mT

    def read(self, seen: Hidden, new: Hidden, x: Float[Tensor, "n d"]) -> dict[str, float]:
        """Return what a network's distances to its centers correlate with over new images, averaged over classes.

        ``own``: the Mahalanobis distance of the class; ``other``: those of the other classes; ``euclid``: the Euclidean
        distance to the class mean; ``inside``: as ``own``, over images of the class only. ``metric``, ``metric euclid``
        and ``metric other``: :func:`metric_cosine` of the learned metric, of the identity, and of the metrics learned
        for other classes.
        """
        z, distances = self.project(x), offset_l2(new.post, new.mu, new.alpha).numpy()
        white = [mahalanobis(z, m, factor) for m, factor in zip(self.means, self.factors, strict=True)]
        theirs, plain = torch.stack(white, 1).numpy(), torch.cdist(z, torch.stack(self.means)).numpy()
        own, other = goes_with(distances, theirs)
        labels = new.labels.numpy()
        inside = [stats.spearmanr(distances[labels == c, c], theirs[labels == c, c]).statistic for c in new.classes]
        found: dict[str, Any] = {"own": own, "other": other, "euclid": goes_with(distances, plain)[0], "inside": inside}
        found |= dict(
            zip(("metric", "metric euclid", "metric other"), zip(*self._metrics(seen), strict=True), strict=True)
        )
        return {name: float(np.mean(values)) for name, values in found.items()}

    def _metrics(self, seen: Hidden) -> Iterator[tuple[float, float, float]]:
        """Yield :func:`metric_cosine` for each class: of its own metric, of the identity, and of the others' metrics.

        While no unit changes sign, the squared distance to a center is a quadratic form of the image, with the matrix
        ``Wᵀ diag(alpha²) W``; a ReLU unit is weighted by how often it is on within the class.
        """
        first, relu = seen.model[0], isinstance(seen.model[1], nn.ReLU)
        assert isinstance(first, nn.Linear)
        planes = first.weight.double() @ self.axes.mT
        learned = []
        for c in seen.classes:
            on = (seen.pre[seen.labels == c] > 0).double().mean(0) if relu else torch.ones(len(planes)).double()
            learned.append(planes.mT @ (planes * (on * seen.alpha[c].square())[:, None]))
        plain = torch.eye(len(self.axes), dtype=torch.float64)
        for c, root in enumerate(self.roots):
            others = [metric_cosine(metric, root) for i, metric in enumerate(learned) if i != c]
            yield metric_cosine(learned[c], root), metric_cosine(plain, root), float(np.mean(others))


TITLES = {
    "trained": "μ trained",
    "frozen": "μ frozen at its start",
    "placed": "μ from its target, trained",
    "fast": "μ at 100,000 times the rate",
    "flat": "μ trained, α frozen",
    "fast flat": "μ at 100,000 times the rate, α frozen",
}
REFERENCES = {"own": "Mahalanobis, own class", "euclid": "Euclid, own class", "other": "Mahalanobis, other classes"}


def accuracies(table: pd.DataFrame) -> Figure:
    """Draw the test accuracy of every run, one panel per network, one row per variant."""
    networks = list(dict.fromkeys(table["network"]))
    drawing, axes = panels(len(networks), 2.3)
    colors = dict(zip(TITLES.values(), CYCLE * 2, strict=False))
    for ax, network in zip(axes, networks, strict=True):
        parts = {v: matching(table, network=network, variant=v)["test_accuracy"].to_numpy() for v in TITLES}
        strip(ax, {TITLES[v]: values for v, values in parts.items() if len(values)}, colors)
        ax.set(title=title(network), xlabel="test accuracy, %")
    caption = (
        "Each dot is a start; the large dot is the mean, the line its 95 % interval, or the range of fewer than five."
    )
    return Figure("offset-accuracies", "What training μ and α changes", to_svg(drawing, "offset-accuracies"), caption)


def distances(table: pd.DataFrame) -> Figure:
    """Draw the rank correlations of outputs with distances, for the networks whose smallest distance wins."""
    rows = matching(table, negated=True)
    shown = [v for v in ("trained", "fast") if v in set(rows["variant"])]
    networks = list(dict.fromkeys(rows["network"]))
    drawing, axes = figure(9.2, 1.9 * len(shown), len(shown), len(networks))
    colors = dict(zip(REFERENCES.values(), CYCLE, strict=False))
    for line, variant in zip(axes, shown, strict=True):
        for ax, network in zip(line, networks, strict=True):
            part = matching(rows, network=network, variant=variant)
            strip(ax, {text: part[name].to_numpy() for name, text in REFERENCES.items()}, colors)
            ax.set(title=f"{title(network)}, {TITLES[variant]}", xlabel="rank correlation over test images")
    caption = (
        "How far each output, the distance to the center of a class, orders test images as other distances do: the "
        "Mahalanobis distance of the class in principal components of the training images, the Euclidean distance to "
        "the class mean, and the Mahalanobis distances of the other classes. Mean over classes; each dot is a start."
    )
    return Figure("offset-distances", "What the outputs measure", to_svg(drawing, "offset-distances"), caption)


TEXT = (
    "OffsetL2 measures ‖α ⊙ (h − μ)‖, with one center μ and one vector of weights α per class, of the hidden "
    "activations h. Oursland (2025) reads μ as the ideal prototype of the class and α as its scaling, and the whole "
    "as a Mahalanobis distance in principal components. Here μ is frozen at its start, trained at the paper's rate, "
    "trained at 100,000 times that rate, or placed at its target before training; α is trained or frozen at "
    "1. The target of a center is the mean of its class; where the largest distance wins (no Neg), it is the mean of "
    "all other classes. If μ is zero, Abs changes nothing: ‖α ⊙ |W x + b|‖ = ‖α ⊙ (W x + b)‖, a quadratic form "
    "whose center W x + b = 0 all classes share."
)


def blocks(table: pd.DataFrame) -> tuple[Block, ...]:
    """Return the experiment's part of the page."""
    if table.empty:
        return (Prose(f"{TEXT}\n\nNo run of this experiment is recorded with these options."),)
    tables = (_changes(table), accuracies(table), _followed(table), distances(table))
    return (Prose(TEXT), *tables, Details("One row per start", (Table("offsets", "Every start", table),)))


def _changes(table: pd.DataFrame) -> Table:
    """Return accuracies, their difference from those with frozen centers, and the path of the centers."""
    rows = []
    for (network, variant), part in table.groupby(["network", "variant"], sort=False):
        frozen = matching(table, network=network, variant="frozen").set_index("seed")["test_accuracy"]
        rows.append({
            "network": title(str(network)), "head": TITLES[str(variant)],
            "starts": len(part), "accuracy": mean_text(part["test_accuracy"]),
            "difference": mean_text(part.set_index("seed")["test_accuracy"] - frozen),
            "before": part["norm before"].mean(), "after": part["norm"].mean(), "moved": part["moved"].mean(),
            "away": part["away"].mean(), "covered": mean_text(part["covered"]),
        })  # fmt: skip
    labels = {
        "accuracy": "test accuracy, %", "difference": "less μ frozen", "before": "‖μ‖ before", "after": "‖μ‖ after",
        "moved": "moved by", "away": "then from its target", "covered": "share of the way",
    }  # fmt: skip
    note = "Mean [95 % t interval] over starts; μ: means over classes, in the space of hidden activations."
    return Table("offset-changes", "What training μ and α changes", pd.DataFrame(rows), note, labels=labels)


def _followed(table: pd.DataFrame) -> Table:
    """Return what distances and weights correlate with, in the networks whose smallest distance wins."""
    ranks = {"own": "own class", "euclid": "Euclid", "other": "other classes", "inside": "own class, its images"}
    ranks |= {"own 20": "20 components", "own 100": "100 components"}
    metrics = {"metric": "learned", "metric euclid": "Euclid", "metric other": "of other classes"}
    names = [name for name in (*ranks, *metrics, "alpha rank") if name in table]
    rows = []
    for (network, variant), part in matching(table, negated=True).groupby(["network", "variant"], sort=False):
        where = {"network": title(str(network)), "head": TITLES[str(variant)]}
        rows.append({**where, **{name: mean_text(part[name]) for name in names}})
    groups = {
        "rank correlation with the Mahalanobis distance": tuple(n for n in ranks if n in names),
        "cosine with the Mahalanobis metric": tuple(metrics),
    }
    labels = {
        name: text for name, text in {**ranks, **metrics, "alpha rank": "|α| with 1 / sd"}.items() if name in names
    }
    note = (
        "Rank correlations of the outputs over test images, mean over classes: with the Mahalanobis distance of their "
        "class in 50 principal components of the training images, with the Euclidean distance to the mean of their "
        "class, with the Mahalanobis distances of the other classes; over images of the class alone; with 20 and 100 "
        "components. Cosines: of Wᵀ diag(α²) W with the identity after whitening by the covariance of the class, where "
        "1 is the Mahalanobis metric. Last: the rank correlation of |α| with 1 / sd of the class along hidden units."
    )
    return Table("offset-distances", "What the outputs measure", pd.DataFrame(rows), note, groups=groups, labels=labels)
