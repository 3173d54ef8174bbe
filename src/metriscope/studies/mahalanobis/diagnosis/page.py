"""The table of how trials ended."""

from __future__ import annotations

from metriscope.report import Table
from metriscope.studies.mahalanobis.diagnosis.plan import OUTCOMES
from metriscope.studies.mahalanobis.measure import Results
from metriscope.studies.mahalanobis.trials.measure import TITLES

__all__ = ["failures"]


def failures(results: Results) -> Table:
    """Return how many trials ended how."""
    counts = results.tables["diagnoses"].groupby(["dim", "start", "activation", "outcome"]).size().unstack(fill_value=0)
    frame = counts.reindex(columns=list(OUTCOMES), fill_value=0).reset_index()
    frame["activation"] = frame["activation"].map(TITLES)
    frame.columns.name = None
    note = "; ".join(f"**{name}**: {text}" for name, text in OUTCOMES.items()) + "."
    labels = {"dim": "dimension", "activation": "network"}
    return Table("failures", "How trials end, and why", frame, note, labels=labels)
