"""Whether centers and weights matter, and what the distances go with, as tables."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Block, Details, Prose, Table, mean_text
from metriscope.studies.heads import figures
from metriscope.studies.heads.figures import TITLES
from metriscope.studies.published import matching
from metriscope.studies.representation.plan import title

__all__ = ["blocks"]

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
    tables = (_changes(table), figures.accuracies(table), _followed(table), figures.distances(table))
    return (Prose(TEXT), *tables, Details("One row per start", (Table("offsets", "Every start", table),)))


def _changes(table: pd.DataFrame) -> Table:
    """Return accuracies, their difference to frozen centers, and the way of the centers."""
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
    """Return what distances and weights go with, in the networks whose smallest distance wins."""
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
