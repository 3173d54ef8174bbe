"""Predict, before training, which axis a trial of Abs loses and whether it ends exact.

Axes: N trials, G Gaussians, D axes, F features. Features are the logarithms of the variances, of the mean's distance
from the origin along each axis, and of the squared length that the starting weights give each axis.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from scipy.stats import norm

from metriscope.rng import derive
from metriscope.studies.mahalanobis.experiments import LandscapeRule
from metriscope.studies.mahalanobis.plan import NAME
from metriscope.studies.tidy_tables import matching

__all__ = ["FEATURES", "auc", "choices", "conditional_logit", "features", "predicted"]

# The features of an axis, and the features of a trial.
AXIS_FEATURES = ("variance", "mean", "start_length")
FEATURES = ("whitened mean", "mean", "least variance", "share on least variance", "least start")
TARGETS = ("exact", "within reach")
SCORES = ("dim", "target", "fitted", "tested", "rate", "auc", "auc_low", "auc_high", "skill", "skill_low", "skill_high")


class ConditionalLogit(NamedTuple):
    """A fitted choice model: coefficients, their standard errors clustered by group, and its accuracy."""

    coefficients: Float[np.ndarray, " f"]
    errors: Float[np.ndarray, " f"]
    explained: float
    right: float


def conditional_logit(
    x: Float[np.ndarray, "n d f"], chosen: Int[np.ndarray, " n"], group: np.ndarray, rule: LandscapeRule
) -> ConditionalLogit:
    """Fit the probability of choosing one of D alternatives, proportional to ``exp(x @ coefficients)``.

    Newton's method with a ridge penalty, which keeps the fit finite where a feature separates the choices. Standard
    errors are those of the sandwich estimator, summed by group.
    """
    n, _, f = x.shape
    beta, ridge = np.zeros(f), rule.penalty * np.eye(f)
    taken = x[np.arange(n), chosen]
    for _ in range(rule.steps):
        p = _softmax(x @ beta)
        mean = np.einsum("nd,ndf->nf", p, x)
        bread = np.einsum("nd,ndf,ndg->fg", p, x, x) - mean.T @ mean + ridge
        beta = beta + np.linalg.solve(bread, (taken - mean).sum(0) - rule.penalty * beta)
    scores = pd.DataFrame(taken - mean).groupby(group).sum().to_numpy()
    inverse = np.linalg.inv(bread)
    errors = np.sqrt(np.diag(inverse @ (scores.T @ scores) @ inverse))
    likelihood = float(np.log(p[np.arange(n), chosen]).mean())
    return ConditionalLogit(beta, errors, 1 + likelihood / np.log(x.shape[1]), float((p.argmax(1) == chosen).mean()))


def _softmax(z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    weights = np.exp(z - z.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _described(axes: pd.DataFrame, starts: pd.DataFrame) -> pd.DataFrame:
    """Return one row per dimension, Gaussian, trial and axis, with the three features of an axis."""
    keys = ["dim", "gaussian", "axis"]
    left = starts[[*keys, "trial", "start_length"]]
    return left.merge(axes[[*keys, "variance", "mean"]], on=keys)


def choices(trials: pd.DataFrame, axes: pd.DataFrame, starts: pd.DataFrame, rule: LandscapeRule) -> pd.DataFrame:
    """Return which axes failed trials of Abs lose: the odds for ten times the variance, the mean or the start."""
    described, rows = _described(axes, starts), []
    for dim, part in trials[trials["lost"] > 0].groupby("dim", sort=False):
        wide = matching(described, dim=dim).pivot(
            index=["gaussian", "trial"], columns="axis", values=list(AXIS_FEATURES)
        )
        wide = np.log10(wide.loc[list(zip(part["gaussian"], part["trial"], strict=True))])
        x = np.stack([wide[name].to_numpy() for name in AXIS_FEATURES], axis=2)
        chosen = part["lost_axis"].to_numpy(dtype=int)
        # If the same axis is always lost, the coefficients have no finite optimum.
        if part["gaussian"].nunique() >= rule.groups and len(set(chosen)) > 1:
            model = conditional_logit(x, chosen, part["gaussian"].to_numpy(), rule)
            fit = {"dim": dim, "trials": len(x), "explained": model.explained, "right": model.right, "chance": 1 / dim}
            margins = norm.ppf((1 + rule.confidence) / 2) * model.errors
            for name, value, margin in zip(AXIS_FEATURES, model.coefficients, margins, strict=True):
                ends = {"odds": value, "low": value - margin, "high": value + margin}
                rows.append({**fit, "feature": name, **{key: float(np.exp(end)) for key, end in ends.items()}})
    columns = ["dim", "feature", "odds", "low", "high", "trials", "explained", "right", "chance"]
    return pd.DataFrame(rows, columns=columns)


def features(axes: pd.DataFrame, starts: pd.DataFrame) -> pd.DataFrame:
    """Return the features of every trial: logarithms of lengths and of a variance, and one share."""
    described = _described(axes, starts)
    whitened = described["mean"] ** 2 / described["variance"]
    rows = described.assign(whitened=whitened, squared=described["mean"] ** 2)
    found = rows.groupby(["dim", "gaussian", "trial"]).agg(
        whitened=("whitened", "sum"), last=("whitened", "last"), squared=("squared", "sum"),
        variance=("variance", "last"), start=("start_length", "min"),
    )  # fmt: skip
    return pd.DataFrame({
        "whitened mean": np.log10(found["whitened"]) / 2,
        "mean": np.log10(found["squared"]) / 2,
        "least variance": np.log10(found["variance"]),
        "share on least variance": found["last"] / found["whitened"],
        "least start": np.log10(found["start"]),
    }).reset_index()  # fmt: skip


def predicted(
    trials: pd.DataFrame, axes: pd.DataFrame, starts: pd.DataFrame, rule: LandscapeRule
) -> dict[str, pd.DataFrame]:
    """Return how well the rule predicts on Gaussians on which it was not fitted, and each prediction."""
    known = features(axes, starts)
    scores, shown, weights = [], [], []
    for dim, part in trials.groupby("dim", sort=False):
        rows = part.merge(matching(known, dim=dim).drop(columns="dim"), on=["gaussian", "trial"])
        failed = rows[~rows["exact"]]
        reached = (failed["outcome"] == "reaches exact").to_numpy()
        for target, some, happened in zip(TARGETS, (rows, failed), (rows["exact"].to_numpy(), reached), strict=True):
            where = {"dim": dim, "target": target}
            score, table, weight = _rule(some, happened.astype(bool), rule)
            scores.append({**where, **score})
            shown.append(table.assign(**where))
            weights.append(weight.assign(**where))
    names = ("landscape-predictions", "landscape-weights")
    joined = (pd.concat(frames, ignore_index=True) for frames in (shown, weights))
    return {"landscape-rule": pd.DataFrame(scores, columns=list(SCORES)), **dict(zip(names, joined, strict=True))}


def _rule(
    rows: pd.DataFrame, happened: np.ndarray, rule: LandscapeRule
) -> tuple[dict[str, float], pd.DataFrame, pd.DataFrame]:
    """Fit on one half of the Gaussians; return scores, predictions and weights on the other half."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fitted = (rows["gaussian"] % 2 == 1).to_numpy()
    x = rows[list(FEATURES)].to_numpy()
    halves = (happened[fitted], happened[~fitted])
    counts: dict[str, float] = {"fitted": int(fitted.sum()), "tested": int((~fitted).sum())}
    if min(min(half.sum(), (~half).sum()) for half in halves) < rule.fewest:
        return counts, pd.DataFrame(), pd.DataFrame()
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1 / rule.penalty)).fit(x[fitted], halves[0])
    p, base = model.predict_proba(x[~fitted])[:, 1], float(halves[0].mean())
    gaussian = rows["gaussian"].to_numpy()[~fitted]
    table = pd.DataFrame({"gaussian": gaussian, "predicted": p, "happened": halves[1]})
    weights = pd.DataFrame({"feature": FEATURES, "weight": model[-1].coef_[0]})
    return {**counts, "rate": float(halves[1].mean()), **_scores(table, base, rule)}, table, weights


def _scores(table: pd.DataFrame, base: float, rule: LandscapeRule) -> dict[str, float]:
    """Return AUC and Brier skill over the base rate of the fitted half, with bootstrap intervals over Gaussians."""
    p, happened = table["predicted"].to_numpy(), table["happened"].to_numpy(dtype=bool)
    member = pd.get_dummies(table["gaussian"]).to_numpy(dtype=float)
    many = member.shape[1]
    drawn = np.random.default_rng(derive(0, NAME, "rule", many)).multinomial(many, np.full(many, 1 / many), rule.draws)
    # The weight of each Gaussian: one in the estimate, then the number of times it is drawn.
    counts = np.vstack([np.ones(many), drawn])
    beaten = _beaten(p, happened)
    wins, pairs = (member[happened].T @ matrix @ member[~happened] for matrix in (beaten, np.ones_like(beaten)))
    ours, theirs = (np.square(guess - happened) @ member for guess in (p, base))
    above, compared = (np.einsum("bg,gh,bh->b", counts, matrix, counts) for matrix in (wins, pairs))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = {"auc": above / compared, "skill": 1 - (counts @ ours) / (counts @ theirs)}
    quantiles, result = [(1 - rule.confidence) / 2, (1 + rule.confidence) / 2], dict[str, float]()
    for name, values in found.items():
        low, high = np.nanquantile(values[1:], quantiles)
        result |= {name: float(values[0]), f"{name}_low": float(low), f"{name}_high": float(high)}
    return result


def _beaten(p: Float[np.ndarray, " n"], happened: np.ndarray) -> Float[np.ndarray, "yes no"]:
    """Return, per pair of a positive and a negative case, 1 if the positive one is predicted higher, 1/2 for ties."""
    yes, no = p[happened][:, None], p[~happened]
    return (yes > no) + (yes == no) / 2


def auc(p: Float[np.ndarray, " n"], happened: np.ndarray) -> float:
    """Return the probability that a positive case has a higher prediction than a negative one; ties count half.

    >>> auc(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
    0.875
    """
    beaten = _beaten(p, happened)
    return float(beaten.mean()) if beaten.size else float("nan")
