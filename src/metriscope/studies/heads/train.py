"""What the trainings of the study compute."""

from __future__ import annotations

from metriscope.runs import once
from metriscope.studies.heads.offsets.train import trained

__all__ = ["WORK"]

WORK = once(trained)
