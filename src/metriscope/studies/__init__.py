"""Studies: what to run, what the papers printed, and how verdicts are reached."""

from __future__ import annotations

__all__ = ["STUDIES"]

# Name -> the package of six modules that `contract` describes; each module is loaded when it is needed.
STUDIES = {
    "mahalanobis": "metriscope.studies.mahalanobis",
    "representation": "metriscope.studies.representation",
    "vq": "metriscope.studies.vq",
    "heads": "metriscope.studies.heads",
    "initialization": "metriscope.studies.initialization",
    "transfer": "metriscope.studies.transfer",
    "reading": "metriscope.studies.reading",
}
