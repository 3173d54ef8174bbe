"""Where the prototypes of the distance layer lie, what they look like as images, and what alpha weighs.

Axes: N images, D pixels, K hidden units, C classes; mu and alpha are C x K. Measured in float64 on training images.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from metriscope.functional import offset_l2
from metriscope.nn import OffsetL2
from metriscope.runs import Result
from metriscope.studies.representation.plan import Prototypes, Training

__all__ = ["TABLES", "Alphas", "Hidden", "Seen", "alphas", "gather", "observe", "preimage", "read", "seen"]

TABLES = ("places", "weighing", "forms", "alphas")
WHERE = ("setting", "network", "seed")


@dataclass(frozen=True, eq=False)
class Hidden:
    """A network with a distance layer, and where the classes lie in front of it."""

    model: nn.Sequential
    mu: Float[Tensor, "c k"]
    alpha: Float[Tensor, "c k"]
    pre: Float[Tensor, "n k"]
    post: Float[Tensor, "n k"]
    labels: Int[Tensor, " n"]

    @property
    def classes(self) -> range:
        """The classes, which are the outputs."""
        return range(len(self.mu))

    def means(self, values: Float[Tensor, "n k"]) -> Float[Tensor, "c k"]:
        """Return the mean of each class."""
        return torch.stack([values[self.labels == c].mean(0) for c in self.classes])


@dataclass(frozen=True, eq=False)
class Seen:
    """Prototypes as images: the class means, and two images that the first layer sends to each prototype."""

    network: str
    means: Float[np.ndarray, "c d"]
    nearest: Float[np.ndarray, "c d"]
    likeliest: Float[np.ndarray, "c d"]


@dataclass(frozen=True, eq=False)
class Alphas:
    """The weights of one network's hidden units in each class's distance, and what they may go with."""

    network: str
    table: pd.DataFrame


def observe(model: nn.Sequential, x: Tensor, y: Tensor) -> Hidden | None:
    """Return a network with a distance layer as it sees some images; None where a class has none of them."""
    head = model[2]
    assert isinstance(head, OffsetL2)
    with torch.no_grad():
        pre = model[0](x)
        hidden = Hidden(model, head.mu.double(), head.alpha.double(), pre.double(), model[1](pre).double(), y)
    return hidden if set(hidden.classes) <= set(y.tolist()) else None


def read(asked: Prototypes, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
    """Return everything that is measured on one network's distance layer; no tables where a class has no image."""
    hidden = observe(model, x, y)
    if hidden is None:
        return Result(record={"missing": "a class has no image in the sample"})
    tables = {"places": _places(hidden, asked.start), "weighing": _weighing(hidden, asked.fewest)}
    tables |= {"forms": _forms(hidden, asked.training.model), "alphas": alphas(hidden)}
    return Result(tables, _images(hidden, x) if asked.drawn else {})


def gather(found: Sequence[tuple[Training, Mapping[str, pd.DataFrame]]]) -> dict[str, pd.DataFrame]:
    """Return the tables of many networks as one each, with where every row comes from."""
    whole = {}
    for name in TABLES:
        parts = []
        for job, tables in found:
            fields: dict[str, Any] = {"setting": str(job.setting), "network": job.model, "seed": job.number}
            ends: dict[str, Any] = {"protocol": job.setting.protocol, "length": job.setting.length}
            columns = [*WHERE, *tables[name].columns, *ends]
            parts.append(tables[name].assign(**fields, **ends)[columns])
        whole[name] = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=list(WHERE))
    return whole


def _places(hidden: Hidden, start: float) -> pd.DataFrame:
    """Return how far each prototype lies from each class mean: plainly, and as the network measures it."""
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
    """Return what alpha goes with: rank correlations over hidden units, one row per output.

    ``compact``: with 1 / sd of the unit within the output's class, the weight of a Mahalanobis distance along the
    axes; ``quiet``: with 1 / sd over all images; ``own``: with the class's mean above the mean of the others, in
    standard deviations. Units that are the same for a whole class have no place in the ranks.
    """
    rows = []
    for c in hidden.classes:
        own, rest = hidden.post[hidden.labels == c], hidden.post[hidden.labels != c]
        sd, whole = own.std(0), hidden.post.std(0)
        alive = (sd > 0).numpy()
        alpha = hidden.alpha[c].numpy()
        lean = (own.mean(0) - rest.mean(0)) / whole
        ranked = {"compact": 1 / sd, "quiet": 1 / whole, "own": lean}
        line: dict[str, float] = {"output": c}
        line |= {k: _rank_correlation(alpha, v.numpy(), alive, fewest) for k, v in ranked.items()}
        line |= {"mean alpha": alpha.mean(), "sd alpha": alpha.std(), "negative": float((alpha < 0).mean())}
        rows.append(line)
    return pd.DataFrame(rows).astype({"output": int})


def _rank_correlation(a: np.ndarray, b: np.ndarray, kept: Bool[np.ndarray, " k"], fewest: int) -> float:
    from scipy.stats import spearmanr

    a, b = a[kept], b[kept]
    if len(a) < fewest or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def alphas(hidden: Hidden) -> pd.DataFrame:
    """Return every weight beside the unit's inverse deviation within the class and where the class lies, in sd."""
    parts = []
    for c in hidden.classes:
        own, rest = hidden.post[hidden.labels == c], hidden.post[hidden.labels != c]
        sd = own.std(0).numpy()
        lean = ((own.mean(0) - rest.mean(0)) / hidden.post.std(0)).numpy()
        alive = np.flatnonzero(sd > 0)
        columns = {"unit": alive, "alpha": hidden.alpha[c].numpy()[alive], "1 / sd": 1 / sd[alive], "lean": lean[alive]}
        parts.append(pd.DataFrame({"class": c, **columns}))
    return pd.concat(parts, ignore_index=True)


def preimage(
    goal: Float[Tensor, " k"],
    weight: Float[Tensor, "k d"],
    bias: Float[Tensor, " k"],
    start: Float[Tensor, " d"],
    cov: Float[Tensor, "d d"] | None = None,
) -> Float[Tensor, " d"]:
    """Return the point with ``weight x + bias = goal`` (in the sense of least squares) that is nearest to ``start``.

    Nearness is Euclidean, or with ``cov`` the Mahalanobis distance of that covariance: of all solutions the
    likeliest under a Gaussian around ``start``.

    >>> preimage(torch.tensor([2.0]), torch.tensor([[1.0, 1.0]]), torch.zeros(1), torch.zeros(2))
    tensor([1., 1.])
    """
    spread = weight.mT if cov is None else cov @ weight.mT
    missing = goal - (weight @ start + bias)
    return start + spread @ (torch.linalg.pinv(weight @ spread, hermitian=True) @ missing)


def _images(hidden: Hidden, x: Tensor) -> dict[str, Tensor]:
    """Return class means, and the prototypes mapped back through the first layer.

    The activation is undone by the sign pattern of the class's mean pre-activation. Abs: each unit takes that sign.
    ReLU: only the units that are on for the class mean are asked for, as the others' depth below zero is lost.
    """
    points = x.double()
    means = hidden.means(points)
    parts = {"nearest": None, "likeliest": torch.cov(points.mT)}
    drawn = {k: torch.stack([_back(hidden, c, means[c], cov) for c in hidden.classes]) for k, cov in parts.items()}
    return {"means": means, **drawn}


def seen(network: str, tensors: Mapping[str, Tensor]) -> Seen:
    """Return stored images of prototypes as arrays."""
    return Seen(network, *(tensors[name].numpy() for name in ("means", "nearest", "likeliest")))


def _back(hidden: Hidden, c: int, start: Float[Tensor, " d"], cov: Tensor | None) -> Float[Tensor, " d"]:
    weight, bias = (parameter.detach().double() for parameter in hidden.model[0].parameters())
    signs = hidden.pre[hidden.labels == c].mean(0).sign()
    relu = isinstance(hidden.model[1], nn.ReLU)
    units = signs > 0 if relu else torch.ones_like(signs, dtype=torch.bool)
    goal = hidden.mu[c] if relu else signs * hidden.mu[c]
    return preimage(goal[units], weight[units], bias[units], start, cov)


def _forms(hidden: Hidden, name: str) -> pd.DataFrame:
    """Return what both forms of OffsetL2 compute on the same weights and images, one row.

    ``agree``: the share of images that both forms give to the same class. ``undefined``: the share of distances that
    negative weights leave without a real root. ``rewritten``: the largest relative difference between the formula and
    the other form with every weight squared, where the two are one and the same function.
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
