"""What the distance layer has learned: where its prototypes lie, what they look like, and what alpha weighs.

Axes: N images, D pixels, K hidden units, C classes; mu and alpha are C x K. Measured in float64 on training images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from metriscope.functional import OffsetForm, offset_l2
from metriscope.nn import OffsetL2
from metriscope.studies.representation.results import Results, Trained

__all__ = ["SHOWN", "Hidden", "Seen", "forms_compared", "observe", "places", "preimage", "seen", "weighing"]

# Networks whose prototypes are shown as images, if they were run: distance first, as S2's theory is about it.
SHOWN = ("abs-l2-neg", "relu-l2-neg", "abs-l2")

# The deviation that entries of a prototype start with.
START = 0.1


@dataclass(frozen=True)
class Hidden:
    """One network with a distance layer, and where the classes lie in front of it."""

    run: Trained
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


@dataclass(frozen=True)
class Seen:
    """Prototypes as images: the class means, and two images that the first layer sends to each prototype."""

    run: Trained
    means: Float[np.ndarray, "c d"]
    nearest: Float[np.ndarray, "c d"]
    likeliest: Float[np.ndarray, "c d"]


def observe(results: Results) -> tuple[Hidden, ...]:
    """Return every network with a distance layer at the setting nearest to S2's that has it, every class sampled."""
    found = []
    for name in results.networks:
        for run in results.nearest(name):
            assert run.model is not None
            head = run.model[2]
            if isinstance(head, OffsetL2):
                x, y = results.images[run.pixels].sample()
                with torch.no_grad():
                    pre = run.model[0](x)
                    hidden = Hidden(
                        run, head.mu.double(), head.alpha.double(), pre.double(), run.model[1](pre).double(), y
                    )
                if set(hidden.classes) <= set(y.tolist()):
                    found.append(hidden)
    return tuple(found)


def places(observed: tuple[Hidden, ...]) -> pd.DataFrame:
    """Return how far each prototype lies from each class mean: plainly, and as the network measures it."""
    parts = []
    for hidden in observed:
        means = hidden.means(hidden.post)
        plain = torch.cdist(hidden.mu, means)
        form: OffsetForm = "squared-weights" if hidden.run.form == "squared-weights" else "formula"
        weighted = offset_l2(means, hidden.mu, hidden.alpha, form).mT
        output, digit = (axis.ravel() for axis in np.indices(plain.shape))
        columns = {
            "output": output,
            "class": digit,
            "distance": plain.numpy().ravel(),
            "weighted": weighted.numpy().ravel(),
        }
        lengths = {
            "norm of mu": hidden.mu.norm(dim=1).numpy()[output],
            "norm of mean": means.norm(dim=1).numpy()[digit],
        }
        fresh = START * math.sqrt(hidden.mu.shape[1])
        where = {"setting": str(hidden.run.setting), "network": hidden.run.network, "seed": hidden.run.seed}
        parts.append(pd.DataFrame({**columns, **lengths, "fresh norm": fresh}).assign(**where))
    lengths_of = ["norm of mu", "norm of mean", "fresh norm"]
    names = ["setting", "network", "seed", "output", "class", "distance", "weighted", *lengths_of]
    return pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)


def weighing(observed: tuple[Hidden, ...]) -> pd.DataFrame:
    """Return what alpha goes with: rank correlations over hidden units, one row a network, seed and output.

    ``compact``: with 1 / sd of the unit within the output's class, the weight of a Mahalanobis distance along the
    axes; ``quiet``: with 1 / sd over all images; ``own``: with the class's mean above the mean of the others, in
    standard deviations. Units that are the same for a whole class have no place in the ranks.
    """
    rows = []
    for hidden in observed:
        for c in hidden.classes:
            own, rest = hidden.post[hidden.labels == c], hidden.post[hidden.labels != c]
            sd, whole = own.std(0), hidden.post.std(0)
            alive = (sd > 0).numpy()
            alpha = hidden.alpha[c].numpy()
            lean = (own.mean(0) - rest.mean(0)) / whole
            ranked = {"compact": 1 / sd, "quiet": 1 / whole, "own": lean}
            line = {
                "setting": str(hidden.run.setting),
                "network": hidden.run.network,
                "seed": hidden.run.seed,
                "output": c,
            }
            line |= {k: _rank_correlation(alpha, v.numpy(), alive) for k, v in ranked.items()}
            rows.append(
                line | {"mean alpha": alpha.mean(), "sd alpha": alpha.std(), "negative": float((alpha < 0).mean())}
            )
    names = ["setting", "network", "seed", "output", "compact", "quiet", "own", "mean alpha", "sd alpha", "negative"]
    return pd.DataFrame(rows, columns=names)


def _rank_correlation(a: np.ndarray, b: np.ndarray, kept: Bool[np.ndarray, " k"]) -> float:
    from scipy.stats import spearmanr

    a, b = a[kept], b[kept]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


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


def seen(results: Results, observed: tuple[Hidden, ...]) -> tuple[Seen, ...]:
    """Return the prototypes of the first seed of each network shown, mapped back through its first layer.

    The activation is undone by the sign pattern of the class's mean pre-activation. Abs: each unit takes that sign.
    ReLU: only the units that are on for the class mean are asked for, as the others' depth below zero is lost.
    """
    found = []
    for name in SHOWN:
        hidden = next((h for h in observed if h.run.name == name), None)
        if hidden is None or hidden.run.model is None:
            continue
        x, _ = results.images[hidden.run.pixels].sample()
        x = x.double()
        cov = torch.cov(x.mT)
        means = hidden.means(x)
        parts = [[_back(hidden, c, means[c], with_cov) for c in hidden.classes] for with_cov in (None, cov)]
        nearest, likeliest = (torch.stack(images).numpy() for images in parts)
        found.append(Seen(hidden.run, means.numpy(), nearest, likeliest))
    return tuple(found)


def _back(hidden: Hidden, c: int, start: Float[Tensor, " d"], cov: Tensor | None) -> Float[Tensor, " d"]:
    assert hidden.run.model is not None
    weight, bias = (parameter.detach().double() for parameter in hidden.run.model[0].parameters())
    signs = hidden.pre[hidden.labels == c].mean(0).sign()
    relu = isinstance(hidden.run.model[1], nn.ReLU)
    units = signs > 0 if relu else torch.ones_like(signs, dtype=torch.bool)
    goal = hidden.mu[c] if relu else signs * hidden.mu[c]
    return preimage(goal[units], weight[units], bias[units], start, cov)


def forms_compared(observed: tuple[Hidden, ...]) -> pd.DataFrame:
    """Return what both forms of OffsetL2 compute on the same weights and images, one row a network and seed.

    ``agree``: the share of images that both forms give to the same class. ``undefined``: the share of distances that
    negative weights leave without a real root. ``rewritten``: the largest relative difference between the formula and
    the other form with every weight squared, where the two are one and the same function.
    """
    rows = []
    for hidden in observed:
        pick = torch.argmin if hidden.run.name.endswith("-neg") else torch.argmax
        formula = offset_l2(hidden.post, hidden.mu, hidden.alpha)
        other = offset_l2(hidden.post, hidden.mu, hidden.alpha, "squared-weights")
        again = offset_l2(hidden.post, hidden.mu, hidden.alpha.square(), "squared-weights")
        defined = ~other.isnan().any(1)
        same = pick(formula[defined], dim=1) == pick(other[defined], dim=1)
        rows.append({
            "setting": str(hidden.run.setting), "network": hidden.run.network, "seed": hidden.run.seed,
            "agree": float(same.double().mean()), "undefined": float(other.isnan().double().mean()),
            "rewritten": float(((again - formula).abs() / formula).max()),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=["setting", "network", "seed", "agree", "undefined", "rewritten"])
