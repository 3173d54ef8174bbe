"""The claims of the VQ study, C21 to C25."""

from __future__ import annotations

from metriscope.studies.vq.digits.judge import ALIKENESS
from metriscope.studies.vq.lemmas.judge import LEMMA_1, LEMMA_2
from metriscope.studies.vq.moons.judge import TURNING
from metriscope.studies.vq.spheres.judge import SEPARATION

__all__ = ["STATEMENTS"]

STATEMENTS = (TURNING, SEPARATION, ALIKENESS, LEMMA_1, LEMMA_2)
