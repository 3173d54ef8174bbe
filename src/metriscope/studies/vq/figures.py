"""Every drawing of the study, from the experiment that it belongs to."""

from __future__ import annotations

from metriscope.studies.vq.beyond.figures import course, depth
from metriscope.studies.vq.digits.figures import aligned, changes, curves, matrices
from metriscope.studies.vq.explorer.figures import partitions
from metriscope.studies.vq.lemmas.figures import same_pieces, strictness
from metriscope.studies.vq.moons.figures import eigenvectors, turning
from metriscope.studies.vq.spheres.figures import scalings

__all__ = [
    "aligned",
    "changes",
    "course",
    "curves",
    "depth",
    "eigenvectors",
    "matrices",
    "partitions",
    "same_pieces",
    "scalings",
    "strictness",
    "turning",
]
