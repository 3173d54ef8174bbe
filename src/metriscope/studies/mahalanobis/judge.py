"""The claims C01 to C08 as criteria, written before looking at the numbers.

What a trained network shows is averaged over the trials of a Gaussian, and the unit of replication is the Gaussian:
trials on one Gaussian share its data. Only runs of the source's full length count for what training ends in: in 10-D
the mean loss of Abs on the main Gaussian is 0.044 after a fifth of the epochs, about what one lost direction costs, and
0.019 after all of them, so that a shorter run says nothing for or against a claim.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from metriscope.report import Evidence, number
from metriscope.studies.evidence import Above, Below, Region
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.mahalanobis.plan import DIMS, NAME
from metriscope.studies.mahalanobis.trials.measure import TITLES
from metriscope.studies.mahalanobis.trials.plan import METRICS
from metriscope.studies.published import published

if TYPE_CHECKING:
    from metriscope.studies.judging import Tables

__all__ = ["STATEMENTS"]

RECORD = "author's record"
TITLE = {metric.name: metric.title for metric in METRICS}

# The share of the source's epochs that counts for what training ends in.
FULL = 1.0
# Relative error under which two float64 computations of the same distance are the same: rounding of a hundred
# terms, through covariances whose eigenvalues span five powers of ten.
SAME = 1e-9
# Halfway between a network that learned the distance, 0, and one that lost a direction, 1.
MOST = 0.5
# In largest standard deviations: a tenth is near beside the data's own extent, and one is as far as the data reaches.
THROUGH = 0.1
AWAY = 1.0
# Half of what the author's record has in 2-D, 0.4 of 2; random directions give 0.04.
PAIRED = 0.1
# Halfway between a randomly rotated whitening and the principal axes themselves.
HALFWAY = 0.5
# Half the loss, in powers of ten.
HALVED = -0.3
# Fewer pairs could not contradict: 2^-8 is the largest such power under 0.05 / 8, by Holm over the eight criteria.
PAIRS = 8


def _trained(dim: int, activation: str, column: str, region: Region, text: str, why: str) -> Criterion:
    """Return a criterion on what training from random starts ends in."""
    values = Values.of("trials", column, dim=dim, start="random", activation=activation)
    return _on_gaussians(dim, f"{TITLES[activation]}, {text}", values, region, why)


def _on_gaussians(dim: int, text: str, values: Values, region: Region, why: str) -> Criterion:
    level = f"{dim}-D"
    return Criterion(text, values, region, why, unit="gaussian", units="Gaussians", level=level, length=FULL)


def _each(make: Callable[[int], tuple[Criterion, ...]]) -> tuple[Criterion, ...]:
    return tuple(criterion for dim in DIMS for criterion in make(dim))


def _learned(dim: int) -> tuple[Criterion, ...]:
    text = "loss on new points over that of one lost direction"
    why = "Halfway between a network that learned the distance, 0, and one that lost one direction, 1."
    regions = {"abs": Below(MOST), "relu": Below(MOST), "sigmoid": Above(MOST)}
    return tuple(_trained(dim, a, "loss_ratio", region, text, why) for a, region in regions.items())


def _through(dim: int) -> tuple[Criterion, ...]:
    text = "distance of hyperplanes to the mean in largest standard deviations"
    near = "A tenth of the data's largest standard deviation is near, beside the extent of the data."
    away = "One largest standard deviation away, a plane lies outside the bulk of the data along that axis."
    return (
        *(_trained(dim, a, "centering_sd", Below(THROUGH), text, near) for a in ("abs", "relu")),
        _trained(dim, "sigmoid", "centering_sd", Above(AWAY), text, away),
    )


def _mirrored(dim: int) -> tuple[Criterion, ...]:
    why = (
        "Half of the share that the author's record has in 2-D, 0.4 pairs of 2, and over twice what random directions "
        "give there."
    )
    return (_trained(dim, "relu", "pair_share", Above(PAIRED), "share of the possible mirrored pairs", why),)


def _white(dim: int) -> tuple[Criterion, ...]:
    text = "sphericity on the data side over that of one lost direction"
    why = "Halfway between a metric that is white, 0, and one that is white but for one lost direction, 1."
    regions = {"abs": Below(MOST), "relu": Above(MOST), "sigmoid": Above(MOST)}
    return tuple(_trained(dim, a, "whiteness", region, text, why) for a, region in regions.items())


def _recovered(dim: int) -> tuple[Criterion, ...]:
    texts = {
        "cosine_share": "share of the way from a randomly rotated whitening to the principal axes, by |cosine|",
        "error_share": "share of the way from a randomly rotated whitening to the eigenvalues, by |log10 ratio|",
    }
    why = "Nearer to the principal axes than to a random rotation; both are averaged over as many trials."
    return tuple(
        _on_gaussians(dim, f"Abs, {text}", Values.of("axes", column, dim=dim), Above(HALFWAY), why)
        for column, text in texts.items()
    )


def _started(start: str, level: str) -> tuple[Criterion, ...]:
    """Return the criteria on one start from clusters against the random one, trial by trial, on one Gaussian."""
    why = f"Half the loss. {PAIRS} pairs are the fewest that could contradict under Holm's correction over this claim."
    # The source names no dimension; in 100-D there are too few trials to be paired.
    return tuple(_pair(dim, activation, start, level, why) for dim in DIMS[:2] for activation in ("abs", "relu"))


def _pair(dim: int, activation: str, start: str, level: str, why: str) -> Criterion:
    where = {"dim": dim, "gaussian": 0, "activation": activation}
    ours, random = (Values.of("trials", "log_test", start=name, **where) for name in (start, "random"))
    text = f"{dim}-D {TITLES[activation]}, log10 of the loss on new points less that from a random start"
    return Criterion(
        text,
        ours,
        Below(HALVED),
        why,
        unit="trial",
        units="pairs",
        test="rank",
        minus=random,
        paired=True,
        fewest=PAIRS,
        level=level,
        length=FULL,
    )


def _against(metric: str, tables: Tables) -> list[Evidence]:
    """Return the mean of a metric on the main Gaussian beside the published mean, by dimension and activation."""
    printed = published(NAME)
    trials = tables["trials"]
    main = trials[(trials["gaussian"] == 0) & (trials["start"] == "random")]
    rows = []
    for (dim, activation), part in main.groupby(["dim", "activation"], sort=False):
        where = (printed["dim"] == dim) & (printed["activation"] == activation) & (printed["metric"] == metric)
        theirs = printed[where]["mean"].dropna()
        known = float(theirs.iloc[0]) if len(theirs) else None
        values = part[metric].dropna()
        if len(values):
            label = f"{dim}-D {TITLES[activation]}: {TITLE[metric]}, mean of {len(values)} trials"
            rows.append(Evidence(label, float(values.mean()), known, RECORD if known is not None else ""))
    return rows


def _errors(identity: str, tables: Tables) -> list[Evidence]:
    table = tables["identities"]
    part = table[table["identity"] == identity].groupby("dim", sort=False)["error"]
    return [
        Evidence(f"{dim}-D: largest relative error of {len(e)}, float64", float(e.max(skipna=False))) for dim, e in part
    ]


def _pairs_and_success(tables: Tables) -> str:
    trials = tables["trials"]
    relu = trials[(trials["activation"] == "relu") & (trials["start"] == "random")]
    parts = []
    for dim, rows in relu.groupby("dim", sort=False):
        exact = rows[rows["exact"]]
        some, whole = int((rows["mirrored"] > 0).sum()), int((exact["mirrored"] == dim).sum())
        parts.append(
            f"{dim}-D, all Gaussians: pairs in {some} of {len(rows)} trials, "
            f"all {dim} pairs in {whole} of the {len(exact)} trials that are exact"
        )
    return f"{'; '.join(parts)}." if parts else ""


def _beyond_chance(tables: Tables) -> str:
    """Say on how many Gaussians the recovered axes are better than all but a few averages of random rotations."""
    parts = []
    for dim, rows in tables["axes"].groupby("dim", sort=False):
        beyond = int((rows["cosine"] > rows["cosine_high"]).sum())
        parts.append(
            f"{dim}-D: |cosine| {number(float(rows['cosine'].mean()))} where random rotations have "
            f"{number(float(rows['cosine_chance'].mean()))}, beyond their 97.5 % point on {beyond} of {len(rows)} "
            f"Gaussians ({int(rows['trials'].sum())} trials that kept all directions)"
        )
    return f"{'; '.join(parts)}." if parts else "No trial of Abs kept all directions."


def _of_starts(tables: Tables) -> list[Evidence]:
    found = []
    for row in tables["starts"].to_dict("records"):
        label = f"{row['dim']}-D {TITLES[row['activation']]}, {row['start']}"
        text = f"{label}: mean MSE on new points (random: {number(row['random_mse'])})"
        found.append(Evidence(text, float(row["start_mse"])))
        found.append(Evidence(f"{label}: share of random trials that never reach its first loss", float(row["never"])))
    return found


def _exact(identity: str) -> tuple[Criterion, ...]:
    texts = {
        "analytic": "largest relative error of the analytic network on new points, float64",
        "mirrored": "largest relative difference of trained Abs networks rewritten with mirrored ReLU pairs, float64",
    }
    why = "Far more than the rounding of float64 with these covariances, far less than any error of substance."
    values = Values.of("identities", "error", identity=identity)
    return (Criterion(texts[identity], values, Below(SAME), why, test="exact", units="networks"),)


STATEMENTS = (
    Statement(
        "C01",
        "A linear layer with Abs, W = Λ⁻¹ᐟ² Vᵀ and b = −W μ, gives the Mahalanobis distance exactly.",
        "S0, S1",
        _exact("analytic"),
        evidence=partial(_errors, "analytic"),
    ),
    Statement(
        "C02",
        "A mirrored pair of ReLU units equals one Abs unit.",
        "S0",
        _exact("mirrored"),
        evidence=partial(_errors, "mirrored"),
    ),
    Statement(
        "C03",
        "Abs and ReLU learn the distance, Sigmoid does not, in 2, 10 and 100 dimensions.",
        "S1",
        _each(_learned),
        factor="dimension",
        evidence=partial(_against, "train_mse"),
    ),
    Statement(
        "C04",
        "Hyperplanes of Abs and ReLU pass through the mean; those of Sigmoid do not.",
        "S1",
        _each(_through),
        factor="dimension",
        evidence=partial(_against, "centering"),
    ),
    Statement(
        "C05",
        "ReLU forms mirrored pairs (author's record: only in 2-D).",
        "S1",
        _each(_mirrored),
        factor="dimension",
        notes=_pairs_and_success,
        evidence=partial(_against, "mirrored"),
    ),
    Statement(
        "C06",
        "Abs whitens: its sphericity norm is small; that of ReLU and Sigmoid is not.",
        "S1",
        _each(_white),
        factor="dimension",
        evidence=partial(_against, "sphericity"),
    ),
    Statement(
        "C07",
        "Trained weights recover Λ⁻¹ᐟ² Vᵀ (S2 §3.3, S1's hypothesis; S0 expects only some whitening).",
        "S2 §3.3, S1",
        _each(_recovered),
        factor="dimension",
        notes=_beyond_chance,
        evidence=partial(_against, "eigenvalue_error"),
    ),
    Statement(
        "C08",
        "Initializing from clusters and their principal axes beats random initialization.",
        "S0",
        (*_started("clusters", "one cluster"), *_started("clusters-2", "two clusters")),
        factor="number of clusters",
        evidence=_of_starts,
    ),
)
