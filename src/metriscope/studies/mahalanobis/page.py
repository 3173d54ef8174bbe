"""The Mahalanobis study's part of the report: what was asked, what came out, what it hides, the verdicts."""

from __future__ import annotations

from metriscope.probes import lost_directions
from metriscope.report import Block, Details, Ledger, Prose, Section, number
from metriscope.studies.contract import source_of
from metriscope.studies.mahalanobis import figures, tables
from metriscope.studies.mahalanobis.claims import verdicts
from metriscope.studies.mahalanobis.results import Results
from metriscope.studies.mahalanobis.spec import NAME

__all__ = ["sections"]


def sections(results: Results) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    return (
        Section("Learning the Mahalanobis distance", (Prose(_introduction(results)), *_results(results))),
        Section("What the means hide: lost directions", _lost(results)),
        Section("Starting from clusters", _starts(results)),
        Section("Verdicts C01 to C08", (Ledger(verdicts(results)),)),
        Section("Every number", _numbers(results)),
    )


def _introduction(results: Results) -> str:
    deviations = " ".join(results.plan.deviations())
    shortened = f"\n\n**Shorter than the paper's protocol.** {deviations}" if deviations else ""
    return (
        "Networks of one linear layer, an activation and the Euclidean norm are trained to give the Mahalanobis "
        "distance of points from a Gaussian. If a hyperplane with an absolute value is a distance along one axis, Abs "
        "should find hyperplanes through the mean that whiten the data, ReLU should do so with mirrored pairs, and "
        f"Sigmoid should fail. Published numbers: {source_of(NAME)}.{shortened}"
    )


def _numbers(results: Results) -> tuple[Block, ...]:
    whole = tuple(tables.metrics(results, dim) for dim in results.plan.sizes)
    return (
        Details("Every metric: mean, sd, variance, extremes, 95 % interval, best run; ours and published", whole),
        Details("All trials, diagnoses and further Gaussians", tables.everything(results)),
    )


def _results(results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = [tables.protocol(results), tables.placement(results)]
    if len(results.others):
        blocks.append(figures.gaussians(results))
    if 2 in results.plan.sizes:
        blocks.append(figures.hyperplanes(results))
    blocks += [tables.beside(results, dim) for dim in results.plan.sizes]
    blocks += [figures.distributions(results), figures.curves(results), figures.eigenvalues(results)]
    return tuple(blocks)


def _lost(results: Results) -> tuple[Block, ...]:
    text = (
        "Trials do not fail at random: they lose directions. A network that no longer sees r of D directions, and is "
        "white in the others, has a sphericity norm of sqrt(r D / (D - r)), and a constant, the part of W μ + b "
        "outside the range of W, stands in for what the lost directions would add on average. Theory gives its best "
        f"value and the loss that remains: {_theory(results)}.\n\n"
        "Why a trial ends there is asked of a second optimiser: L-BFGS in float64 goes on from the trained weights. "
        "Where the loss falls, the trial had not arrived: Adam moves a parameter by about its learning rate a step at "
        "most, and however the whitening is turned, its biases must reach the norm of the whitened mean. Where the "
        "loss stays and no direction curves down, the trial stands at a true minimum, and more epochs would not help."
    )
    spectra = figures.metric_spectra(results)
    return (Prose(text), spectra, tables.lost(results), tables.failures(results))


def _theory(results: Results) -> str:
    parts = []
    for dim in results.plan.sizes:
        if dim > 1:
            theory = lost_directions(dim, 1)
            values = (number(theory.constant), number(theory.loss), number(theory.sphericity))
            parts.append("one of {}: constant {}, loss {}, sphericity {}".format(dim, *values))
    return "; ".join(parts) or "nothing in one dimension"


def _starts(results: Results) -> tuple[Block, ...]:
    text = (
        "`init_from_clusters` runs k-means and places hyperplanes along the principal axes of each cluster, scaled to "
        "unit variance, through the cluster's mean; units beyond the number of axes mirror the first. With one "
        "cluster that is the sample's own whitening: what remains to be learned is the sampling error. With two "
        "clusters (paper profile) the start is wrong about the data on purpose."
    )
    return (Prose(text), tables.starts(results))
