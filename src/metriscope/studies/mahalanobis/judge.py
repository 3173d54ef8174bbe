"""The claims C01 to C07 and C29 as criteria, fixed before the numbers are seen.

The result of training is averaged over the trials of a Gaussian, and the unit of replication is the Gaussian, since
trials on one Gaussian share its data. The Gaussians are those of the population if it was run (the quick
profile takes it from records); otherwise the few that were run. Only runs of the source's full length count. In 10-D,
for example, the mean loss of Abs on the main Gaussian is 0.044 after a fifth of the epochs, about the loss of one lost
direction, and 0.019 after all of them: a shorter run is no evidence for or against a claim.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from metriscope.report import Evidence, number
from metriscope.studies.evidence import Above, Below, Region
from metriscope.studies.mahalanobis.plan import DIMS, METRICS, NAME
from metriscope.studies.mahalanobis.second_layer import STATEMENT as SECOND_LAYER
from metriscope.studies.mahalanobis.trials import TITLES
from metriscope.studies.tidy_tables import matching, published
from metriscope.studies.verdicts import Criterion, Statement, Values

if TYPE_CHECKING:
    from metriscope.studies.verdicts import Tables

__all__ = ["STATEMENTS"]

ARTICLE = "Oursland 2024a, arXiv:2410.19352"
EXPERIMENT = "Oursland 2024, exp_md"
LATER = "Oursland 2025, §3.3, arXiv:2502.02103"
Notes: TypeAlias = "Callable[[Tables], str]"
TITLE = {metric.name: metric.title for metric in METRICS}

# The share of the source's epochs from which a run is counted as complete.
FULL = 1.0
# Relative error below which two float64 computations of the same distance are equal: the rounding of a hundred terms,
# with covariances whose eigenvalues span five orders of magnitude.
SAME = 1e-9
# Halfway between a network that learned the distance, 0, and one that lost a direction, 1.
MOST = 0.5
# In largest standard deviations: a tenth is near compared with the extent of the data; one is that extent.
THROUGH = 0.1
AWAY = 1.0
# Half of the share in the author's record in 2-D, 0.4 pairs of 2; random directions give 0.04.
PAIRED = 0.1
# Halfway between a randomly rotated whitening and the principal axes themselves.
HALFWAY = 0.5

CLAIMS = {
    "C01": "A linear layer with Abs, W = Λ⁻¹ᐟ² Vᵀ and b = −W μ, gives the Mahalanobis distance exactly.",
    "C02": "A mirrored pair of ReLU units equals one Abs unit.",
    "C03": "Abs and ReLU learn the distance, Sigmoid does not, in 2, 10 and 100 dimensions.",
    "C04": "Hyperplanes of Abs and ReLU pass through the mean; those of Sigmoid do not.",
    "C05": "ReLU forms mirrored pairs (author's record: only in 2-D).",
    "C06": "Abs whitens: its sphericity norm is small; that of ReLU and Sigmoid is not.",
    "C07": "Trained weights recover Λ⁻¹ᐟ² Vᵀ (expected by both sources; Oursland 2024a expects only some whitening).",
}

_on_gaussians = partial(Criterion, unit="gaussian", units="Gaussians", length=FULL)


def _exact(identity: str) -> tuple[Criterion, ...]:
    texts = {
        "analytic": "largest relative error of the analytic network on new points, float64",
        "mirrored": "largest relative difference of trained Abs networks rewritten with mirrored ReLU pairs, float64",
    }
    why = "Far more than the rounding of float64 with these covariances, far less than any error of substance."
    values = Values.of("identities", "error", identity=identity)
    return (Criterion(texts[identity], values, Below(SAME), why, test="exact", units="networks"),)


def _trained(column: str, text: str, why: str, **regions: Region) -> tuple[Criterion, ...]:
    """Return criteria on the result of training from random starts: a region per activation, in every dimension."""
    found = []
    for dim in DIMS:
        for name, region in regions.items():
            values = Values.of("population", column, dim=dim, start="random", activation=name)
            found.append(_on_gaussians(f"{TITLES[name]}, {text}", values, region, why, level=f"{dim}-D"))
    return tuple(found)


def _learned() -> tuple[Criterion, ...]:
    text = "loss on new points over that of one lost direction"
    why = "Halfway between a network that learned the distance, 0, and one that lost one direction, 1."
    return _trained("loss_ratio", text, why, abs=Below(MOST), relu=Below(MOST), sigmoid=Above(MOST))


def _through() -> tuple[Criterion, ...]:
    text = "distance of hyperplanes to the mean in largest standard deviations"
    near = "A tenth of the data's largest standard deviation is near, compared with the extent of the data."
    away = "One largest standard deviation away, a plane lies outside the bulk of the data along that axis."
    both = _trained("centering_sd", text, near, abs=Below(THROUGH), relu=Below(THROUGH))
    both += _trained("centering_sd", text, away, sigmoid=Above(AWAY))
    return tuple(sorted(both, key=lambda criterion: [f"{dim}-D" for dim in DIMS].index(criterion.level)))


def _mirrored() -> tuple[Criterion, ...]:
    why = "Half of the share in the author's record in 2-D, 0.4 pairs of 2, and over twice that of random directions."
    return _trained("pair_share", "share of the possible mirrored pairs", why, relu=Above(PAIRED))


def _white() -> tuple[Criterion, ...]:
    text = "sphericity on the data side over that of one lost direction"
    why = "Halfway between a metric that is white, 0, and one that is white but for one lost direction, 1."
    return _trained("whiteness", text, why, abs=Below(MOST), relu=Above(MOST), sigmoid=Above(MOST))


def _recovered() -> tuple[Criterion, ...]:
    way = "Abs, share of the way from a randomly rotated whitening to the"
    texts = {
        "cosine_share": f"{way} principal axes, by |cosine|",
        "error_share": f"{way} eigenvalues, by |log10 ratio|",
    }
    why = "Closer to the principal axes than to a random rotation; both are averaged over as many trials."
    return tuple(
        _on_gaussians(text, Values.of("population axes", column, dim=dim), Above(HALFWAY), why, level=f"{dim}-D")
        for dim in DIMS
        for column, text in texts.items()
    )


def _against(metric: str, tables: Tables) -> list[Evidence]:
    """Return the mean of a metric on the main Gaussian beside the published mean, by dimension and activation."""
    main = matching(tables["trials"], gaussian=0, start="random")
    rows = []
    for (dim, activation), part in main.groupby(["dim", "activation"], sort=False):
        printed = matching(published(NAME), dim=dim, activation=activation, metric=metric)["mean"].dropna()
        known = float(printed.iloc[0]) if len(printed) else None
        values = part[metric].dropna()
        if len(values):
            label = f"{dim}-D {TITLES[str(activation)]}: {TITLE[metric]}, mean of {len(values)} trials"
            rows.append(Evidence(label, float(values.mean()), known, EXPERIMENT if known is not None else ""))
    return rows


def _errors(identity: str, tables: Tables) -> list[Evidence]:
    errors = matching(tables["identities"], identity=identity).groupby("dim", sort=False)["error"]
    label = "{}-D: largest relative error of {}, float64"
    return [Evidence(label.format(dim, len(e)), float(e.max(skipna=False))) for dim, e in errors]


def _pairs_and_success(tables: Tables) -> str:
    relu = matching(tables["population"], activation="relu", start="random")
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
    """Say on how many Gaussians the recovered axes are better than 97.5 % of the means over random rotations."""
    parts = []
    for dim, rows in tables["population axes"].groupby("dim", sort=False):
        beyond = int((rows["cosine"] > rows["cosine_high"]).sum())
        parts.append(
            f"{dim}-D: |cosine| {number(float(rows['cosine'].mean()))} where random rotations have "
            f"{number(float(rows['cosine_chance'].mean()))}, beyond their 97.5 % point on {beyond} of {len(rows)} "
            f"Gaussians ({int(rows['trials'].sum())} trials that kept all directions)"
        )
    return f"{'; '.join(parts)}." if parts else "No trial of Abs kept all directions."


def _by_dimension(
    name: str, source: str, criteria: tuple[Criterion, ...], metric: str, notes: Notes | None = None
) -> Statement:
    """Return a claim that may depend on the dimension, with a metric's published means as evidence."""
    return Statement(name, CLAIMS[name], source, criteria, "dimension", notes, partial(_against, metric))


STATEMENTS = (
    Statement(
        "C01", CLAIMS["C01"], f"{ARTICLE}; {EXPERIMENT}", _exact("analytic"), evidence=partial(_errors, "analytic")
    ),
    Statement("C02", CLAIMS["C02"], ARTICLE, _exact("mirrored"), evidence=partial(_errors, "mirrored")),
    _by_dimension("C03", EXPERIMENT, _learned(), "train_mse"),
    _by_dimension("C04", EXPERIMENT, _through(), "centering"),
    _by_dimension("C05", EXPERIMENT, _mirrored(), "mirrored", _pairs_and_success),
    _by_dimension("C06", EXPERIMENT, _white(), "sphericity"),
    _by_dimension("C07", f"{LATER}; {EXPERIMENT}", _recovered(), "eigenvalue_error", _beyond_chance),
    SECOND_LAYER,
)
