"""Where the prototypes of the distance layer lie, what they look like as images, and what alpha weights.

Axes: N images, D pixels, K hidden units, C classes; mu and alpha are C x K. Measured in float64 on training images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from metriscope.functional import offset_l2
from metriscope.nn import OffsetL2
from metriscope.runs import Result
from metriscope.studies.representation.experiments import Prototypes
from metriscope.studies.representation.plan import RepresentationTraining
from metriscope.studies.representation.train import tagged

__all__ = ["Hidden", "gather", "preimage", "read"]

TABLES = ("places", "weighing", "forms", "alphas")


@dataclass(frozen=True, eq=False)
class Hidden:
    """A network with a distance layer, and the values of its hidden units before and after the activation."""

    model: nn.Sequential
    mu: Float[Tensor, "c k"]
    alpha: Float[Tensor, "c k"]
    pre: Float[Tensor, "n k"]
    post: Float[Tensor, "n k"]
    labels: Int[Tensor, " n"]

    @classmethod
    def of(cls, model: nn.Sequential, x: Tensor, y: Tensor) -> Hidden:
        """Return a network with its hidden units on some images."""
        head = model[2]
        assert isinstance(head, OffsetL2)
        with torch.no_grad():
            pre = model[0](x)
            return cls(model, head.mu.double(), head.alpha.double(), pre.double(), model[1](pre).double(), y)

    @property
    def classes(self) -> range:
        """The classes, which are the outputs."""
        return range(len(self.mu))

    def means(self, values: Float[Tensor, "n k"]) -> Float[Tensor, "c k"]:
        """Return the mean of each class."""
        return torch.stack([values[self.labels == c].mean(0) for c in self.classes])

    def weights(self) -> Iterator[tuple[int, np.ndarray, dict[str, np.ndarray]]]:
        """Yield each class with its alpha and the quantities that alpha may be related to, one value per unit.

        ``compact`` is 1 / sd of the unit within the class, the weight of a Mahalanobis distance along the axes;
        ``quiet`` is 1 / sd over all images; ``own`` is the class's mean minus the mean of the others, in standard
        deviations over all images.
        """
        whole = self.post.std(0)
        for c in self.classes:
            own, rest = self.post[self.labels == c], self.post[self.labels != c]
            weighed = {"compact": 1 / own.std(0), "quiet": 1 / whole, "own": (own.mean(0) - rest.mean(0)) / whole}
            yield c, self.alpha[c].numpy(), {name: values.numpy() for name, values in weighed.items()}


def read(asked: Prototypes, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
    """Return everything that is measured on one network's distance layer; no tables if a class has no image."""
    hidden = Hidden.of(model, x, y)
    if not set(hidden.classes) <= set(y.tolist()):
        return Result(record={"missing": "a class has no image in the sample"})
    tables = {"places": _places(hidden, asked.start), "weighing": _weighing(hidden, asked.fewest)}
    tables |= {"forms": _forms(hidden, asked.training.model), "alphas": _alphas(hidden)}
    return Result(tables, _images(hidden, x) if asked.drawn else {})


def gather(found: Sequence[tuple[RepresentationTraining, Mapping[str, pd.DataFrame]]]) -> dict[str, pd.DataFrame]:
    """Return the tables of many networks, concatenated; each row has the columns of its training."""
    columns = {name: found[0][1][name].columns if found else () for name in TABLES}
    return {name: tagged(((job, tables[name]) for job, tables in found), columns[name]) for name in TABLES}


def _places(hidden: Hidden, start: float) -> pd.DataFrame:
    """Return how far each prototype lies from each class mean: unweighted, and weighted by alpha as in the network."""
    means = hidden.means(hidden.post)
    plain = torch.cdist(hidden.mu, means)
    weighted = offset_l2(means, hidden.mu, hidden.alpha).mT
    output, digit = (axis.ravel() for axis in np.indices(plain.shape))
    return pd.DataFrame({
        "output": output, "class": digit,
        "distance": plain.numpy().ravel(), "weighted": weighted.numpy().ravel(),
        "norm of mu": hidden.mu.norm(dim=1).numpy()[output], "norm of mean": means.norm(dim=1).numpy()[digit],
        "fresh norm": start * math.sqrt(hidden.mu.shape[1]),
    })  # fmt: skip


def _weighing(hidden: Hidden, fewest: int) -> pd.DataFrame:
    """Return rank correlations of alpha with the quantities of ``Hidden.weights`` over units, one row per output.

    Units with the same value for a whole class are left out of the ranks.
    """
    rows = []
    for c, alpha, weighed in hidden.weights():
        alive = np.isfinite(weighed["compact"])
        line = {k: _rank_correlation(alpha, v, alive, fewest) for k, v in weighed.items()}
        line |= {"mean alpha": alpha.mean(), "sd alpha": alpha.std(), "negative": float((alpha < 0).mean())}
        rows.append({"output": c, **line})
    return pd.DataFrame(rows)


def _rank_correlation(a: np.ndarray, b: np.ndarray, kept: Bool[np.ndarray, " k"], fewest: int) -> float:
    from scipy.stats import spearmanr

    a, b = a[kept], b[kept]
    if len(a) < fewest or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def _alphas(hidden: Hidden) -> pd.DataFrame:
    """Return every weight with the unit's inverse deviation within the class and the class's mean, in sd."""
    parts = []
    for c, alpha, weighed in hidden.weights():
        alive = np.flatnonzero(np.isfinite(weighed["compact"]))
        columns = {"alpha": alpha, "1 / sd": weighed["compact"], "lean": weighed["own"]}
        parts.append(pd.DataFrame({"class": c, "unit": alive, **{k: v[alive] for k, v in columns.items()}}))
    return pd.concat(parts, ignore_index=True)


def preimage(
    goal: Float[Tensor, " k"],
    weight: Float[Tensor, "k d"],
    bias: Float[Tensor, " k"],
    start: Float[Tensor, " d"],
    cov: Float[Tensor, "d d"] | None = None,
) -> Float[Tensor, " d"]:
    """Return the point nearest to ``start`` with ``weight x + bias = goal``, in the sense of least squares.

    The distance is Euclidean, or with ``cov`` the Mahalanobis distance of that covariance: then it is the most likely
    solution under a Gaussian around ``start``.

    >>> preimage(torch.tensor([2.0]), torch.tensor([[1.0, 1.0]]), torch.zeros(1), torch.zeros(2))
    tensor([1., 1.])
    """
    spread = weight.mT if cov is None else cov @ weight.mT
    missing = goal - (weight @ start + bias)
    return start + spread @ (torch.linalg.pinv(weight @ spread, hermitian=True) @ missing)


def _images(hidden: Hidden, x: Tensor) -> dict[str, Tensor]:
    """Return class means, and the prototypes mapped back through the first layer.

    The activation is inverted with the sign pattern of the class's mean pre-activation. With Abs each unit takes that
    sign. With ReLU only the units that are on for the class mean are fitted, since values below zero are lost.
    """
    points = x.double()
    means = hidden.means(points)
    parts = {"nearest": None, "likeliest": torch.cov(points.mT)}
    drawn = {k: torch.stack([_back(hidden, c, means[c], cov) for c in hidden.classes]) for k, cov in parts.items()}
    return {"means": means, **drawn}


def _back(hidden: Hidden, c: int, start: Float[Tensor, " d"], cov: Tensor | None) -> Float[Tensor, " d"]:
    weight, bias = (parameter.detach().double() for parameter in hidden.model[0].parameters())
    signs = hidden.pre[hidden.labels == c].mean(0).sign()
    relu = isinstance(hidden.model[1], nn.ReLU)
    units = signs > 0 if relu else torch.ones_like(signs, dtype=torch.bool)
    goal = hidden.mu[c] if relu else signs * hidden.mu[c]
    return preimage(goal[units], weight[units], bias[units], start, cov)


def _forms(hidden: Hidden, name: str) -> pd.DataFrame:
    """Return what both forms of OffsetL2 compute on the same weights and images, one row.

    ``agree`` is the share of images for which both forms predict the same class. ``undefined`` is the share of
    distances that have no real root because of negative weights. ``rewritten`` is the largest relative difference
    between the formula and the other form with every weight squared, which are the same function.
    """
    pick = torch.argmin if name.endswith("-neg") else torch.argmax
    formula = offset_l2(hidden.post, hidden.mu, hidden.alpha)
    other = offset_l2(hidden.post, hidden.mu, hidden.alpha, "squared-weights")
    again = offset_l2(hidden.post, hidden.mu, hidden.alpha.square(), "squared-weights")
    defined = ~other.isnan().any(1)
    same = pick(formula[defined], dim=1) == pick(other[defined], dim=1)
    return pd.DataFrame([{
        "agree": float(same.double().mean()), "undefined": float(other.isnan().double().mean()),
        "rewritten": float(((again - formula).abs() / formula).max()),
    }])  # fmt: skip
