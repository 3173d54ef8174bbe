"""Two layers on data of several clusters: data, where the first layer comes from, and the head.

This module imports nothing of the study's own plan, which imports it.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DATA", "FIRST", "HEADS", "Clusters", "SecondLayer", "SecondLayers"]


@dataclass(frozen=True)
class Clusters:
    """Data of several clusters: a mixture of Gaussians, or the classes of a named data set.

    Each Gaussian of a mixture has a mean uniform in a cube of half width ``spread``, a random covariance whose largest
    eigenvalue is 1, and ``points`` points to train on and as many new ones. The first layer has ``units`` units for
    each cluster.
    """

    count: int
    dim: int
    units: int
    name: str = "mixture"
    sha256: str = ""
    points: int = 200
    spread: float = 5.0


DATA = {
    "2-D mixture": tuple(Clusters(count, 2, 2) for count in (3, 4, 5)),
    "10-D mixture": tuple(Clusters(count, 10, 10) for count in (3, 4, 5)),
    "digits": (Clusters(10, 64, 6, "digits"),),
}
# Where the first layer comes from: set to measure distances and kept, or trained with the second.
FIRST = {"clusters": "first layer set from clusters", "random": "both layers trained from a random start"}
# What follows the second layer: nothing but softmax, or Abs with a negation, so that it measures distances again.
HEADS = {"abs-bias": "softmax", "abs2-neg-bias": "Abs, Neg, softmax"}


@dataclass(frozen=True)
class SecondLayer:
    """Networks from several starts, each on points of its own, and what is measured on them.

    The columns of the second layer's weights are clustered by k-means with ``tries`` starts; its agreement with the
    clusters of the units is compared with ``permutations`` random assignments, of which ``high`` is the quantile shown.
    """

    data: Clusters
    first: str
    head: str
    starts: int = 10
    epochs: int = 1_000
    lr: float = 1e-2
    tries: int = 10
    permutations: int = 199
    high: float = 0.95
    seed: int = 0
    method: int = 1  # raised when the same request would give other numbers
    study: str = "mahalanobis"


@dataclass(frozen=True)
class SecondLayers:
    """The experiment: every data set, first layer and head."""

    starts: int = 10
    epochs: int = 1_000
    seed: int = 0
    data: tuple[tuple[str, tuple[Clusters, ...]], ...] = tuple(DATA.items())

    def jobs(self) -> dict[SecondLayer, str]:
        """Return every job with the name of its kind of data, those of the judged head first."""
        return {
            SecondLayer(clusters, first, head, self.starts, self.epochs, seed=self.seed): name
            for head in HEADS
            for name, some in self.data
            for clusters in some
            for first in FIRST
        }
