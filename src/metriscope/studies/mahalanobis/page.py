"""The Mahalanobis study's part of the report: what was asked, what came out, what it hides, the verdicts."""

from __future__ import annotations

from metriscope.probes import lost_directions
from metriscope.report import Block, Claim, Details, Ledger, Prose, Section, Table, number
from metriscope.studies.mahalanobis import figures
from metriscope.studies.mahalanobis.diagnosis.page import failures
from metriscope.studies.mahalanobis.measure import Results
from metriscope.studies.mahalanobis.plan import NAME, TITLE, Plan
from metriscope.studies.mahalanobis.starts.page import starts
from metriscope.studies.mahalanobis.trials import page as trials
from metriscope.studies.mahalanobis.trials.measure import RANKED
from metriscope.studies.published import source_of

__all__ = ["sections"]


def sections(plan: Plan, results: Results, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    return (
        Section(TITLE, (Prose(_introduction(plan)), *_results(plan, results))),
        Section("What the means hide: lost directions", _lost(plan, results)),
        Section("Starting from clusters", _starts(results)),
        Section("Verdicts C01 to C08", (Ledger(claims),)),
        Section("Every number", _numbers(plan, results)),
    )


def _introduction(plan: Plan) -> str:
    deviations = " ".join(plan.deviations())
    shortened = f"\n\n**Shorter than the paper's protocol.** {deviations}" if deviations else ""
    return (
        "Networks of one linear layer, an activation and the Euclidean norm are trained to give the Mahalanobis "
        "distance of points from a Gaussian. If a hyperplane with an absolute value is a distance along one axis, Abs "
        "should find hyperplanes through the mean that whiten the data, ReLU should do so with mirrored pairs, and "
        f"Sigmoid should fail. Published numbers: {source_of(NAME)}.{_further(plan)}{shortened}"
    )


def _further(plan: Plan) -> str:
    parts = [
        f"{more.count} in {dim}-D ({more.size.trials} trials of {more.size.epochs:,} epochs each)"
        for dim, more in plan.others.items()
    ]
    return f" Further Gaussians, which verdicts count beside the main one: {', '.join(parts)}." if parts else ""


def _numbers(plan: Plan, results: Results) -> tuple[Block, ...]:
    whole = tuple(trials.metrics(plan, results, dim) for dim in plan.sizes)
    return (
        Details("Every metric: mean, sd, variance, extremes, 95 % interval, best run; ours and published", whole),
        Details("All trials, diagnoses and further Gaussians", _everything(results)),
    )


def _everything(results: Results) -> tuple[Table, ...]:
    """Return the tidy tables behind the page."""
    titles = {
        "trials": "Every trial",
        "diagnoses": "Every diagnosis",
        "gaussians": "Every further Gaussian",
        "axes": "Recovered axes beside random rotations, every Gaussian",
        "identities": "Every identity checked",
    }
    return tuple(Table(name, title, frame) for name, title in titles.items() if len(frame := results.tables[name]))


def _results(plan: Plan, results: Results) -> tuple[Block, ...]:
    blocks: list[Block] = [trials.protocol(plan), trials.placement(plan, results)]
    if len(results.tables["gaussians"]):
        blocks.append(figures.gaussians(plan, results))
    if results.panels:
        blocks.append(figures.hyperplanes(results))
    blocks += [trials.beside(plan, results, dim) for dim in plan.sizes]
    drawn = (figures.distributions, figures.curves, figures.eigenvalues)
    return (*blocks, *(draw(plan, results) for draw in drawn))


def _lost(plan: Plan, results: Results) -> tuple[Block, ...]:
    text = (
        "Trials do not fail at random: they lose directions. A network that no longer sees r of D directions, and is "
        "white in the others, has a sphericity norm of sqrt(r D / (D - r)), and a constant, the part of W μ + b "
        "outside the range of W, stands in for what the lost directions would add on average. Theory gives its best "
        f"value and the loss that remains: {_theory(plan)}.\n\n"
        "Why a trial ends there is asked of a second optimizer: L-BFGS in float64, in whitened coordinates, goes on "
        "from the trained weights until the gradient is gone. Where the loss falls on the way, the trial had not "
        "arrived: Adam moves a parameter by about its learning rate per step at most, and however the whitening is "
        "rotated, its biases must reach the norm of the whitened mean. The second optimizer may then reach the exact "
        "distance, or another point that is not exact either. Where the loss stays, the curvature is read: if no "
        "direction curves down, the trial stands at a true minimum, and more epochs would not help."
    )
    if not set(RANKED) & set(plan.activations):
        return (Prose(text), Prose("No network was trained here that could lose a direction."))
    return (Prose(text), figures.metric_spectra(plan, results), trials.lost(results), failures(results))


def _theory(plan: Plan) -> str:
    parts = []
    for dim in plan.sizes:
        if dim > 1:
            theory = lost_directions(dim, 1)
            values = (number(theory.constant), number(theory.loss), number(theory.sphericity))
            parts.append("one of {}: constant {}, loss {}, sphericity {}".format(dim, *values))
    return "; ".join(parts) or "nothing in one dimension"


def _starts(results: Results) -> tuple[Block, ...]:
    text = (
        "`init_from_clusters_` runs k-means and places hyperplanes along the principal axes of each cluster, scaled to "
        "unit variance, through the cluster's mean; units beyond the number of axes mirror the first. With one "
        "cluster that is the sample's own whitening: what remains to be learned is the sampling error. With two "
        "clusters the start is wrong about the data on purpose."
    )
    return (Prose(text), starts(results))
