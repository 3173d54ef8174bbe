"""Clusters of points, and hyperplanes that whiten them.

Axes: ``n`` points, ``m`` points of a cluster, ``d`` features, ``k`` units, ``r`` usable directions of a cluster.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from metriscope.common.validation import described, integer
from metriscope.functional import principal_axes

__all__ = ["ClusterCount", "Planes", "checked_count", "cluster_count", "cluster_planes", "draw_integers"]

# The number of clusters, or how it is chosen from the data.
ClusterCount: TypeAlias = int | Literal["silhouette", "bic"]
# Weights of shape (units, features), and one bias per unit.
Planes: TypeAlias = tuple[Tensor, Tensor]

CRITERIA = ("silhouette", "bic")
# Where the number of clusters is chosen: the most clusters that are tried, and the most points and principal
# components on which they are.
MOST_CLUSTERS, MOST_POINTS, MOST_COMPONENTS = 10, 1_000, 10


def draw_integers(high: int, count: int, generator: torch.Generator | None) -> Tensor:
    """Return whole numbers below ``high`` on the CPU, drawn on the device of the generator."""
    device = "cpu" if generator is None else generator.device
    return torch.randint(high, (count,), generator=generator, device=device).cpu()


def checked_count(n_clusters: Any) -> ClusterCount:
    """Return a number of clusters, or how it is chosen, or raise a ValueError of one sentence.

    >>> checked_count(3), checked_count("bic")
    (3, 'bic')
    """
    if not isinstance(n_clusters, str):
        return integer(n_clusters, "n_clusters")
    if n_clusters not in CRITERIA:
        words = " or ".join(repr(word) for word in CRITERIA)
        raise ValueError(f"n_clusters must be a positive integer, {words}, got {described(n_clusters)}")
    return n_clusters  # type: ignore[return-value]


def cluster_planes(
    points: Float[Tensor, "n d"],
    units: int,
    n_clusters: ClusterCount,
    generator: torch.Generator | None,
    mixed: bool = False,
) -> Planes:
    """Return hyperplanes that whiten clusters of points, as :func:`metriscope.init_from_clusters_` describes.

    With ``mixed``, the units that a cluster has beyond its directions are not copies: each is a random mixture of the
    directions and passes through a random point of the cluster.
    """
    count = cluster_count(points, n_clusters, generator) if isinstance(n_clusters, str) else n_clusters
    if len(points) < count:
        raise ValueError(f"{count} clusters need at least as many points, got {len(points)}")
    clusters = _clusters(points, count, generator)
    spread, planes = _Spread(points, clusters), []
    for place, cluster in enumerate(clusters):
        share = units // count + (place < units % count)
        if share == 0:
            continue
        directions = spread.directions(cluster)
        own = min(share, len(directions)) if mixed else share
        planes.append(_centered(cluster, directions, own))
        if share > own:
            planes.append(_mixtures(cluster, directions, share - own, generator))
    return torch.cat([weight for weight, _ in planes]), torch.cat([bias for _, bias in planes])


def _centered(cluster: Float[Tensor, "m d"], directions: Float[Tensor, "r d"], units: int) -> Planes:
    unit = torch.arange(units)
    # Even rounds take a direction as it is, odd rounds its mirror image.
    sign = 1.0 - 2.0 * (unit // len(directions) % 2)
    weight = directions[unit % len(directions)] * sign[:, None].double()
    return weight, -(weight @ cluster.mean(0))


def _mixtures(
    cluster: Float[Tensor, "m d"], directions: Float[Tensor, "r d"], units: int, generator: torch.Generator | None
) -> Planes:
    seed = torch.Generator().manual_seed(int(draw_integers(2**31, 1, generator)))
    weight = torch.randn(units, len(directions), generator=seed, dtype=torch.float64) @ directions
    rows = draw_integers(len(cluster), units, seed)
    return weight, -(weight * cluster[rows]).sum(1)


def _clusters(
    points: Float[Tensor, "n d"], n_clusters: int, generator: torch.Generator | None
) -> list[Float[Tensor, "m d"]]:
    """Return the points of each cluster, largest cluster first."""
    # scikit-learn takes seconds to import, and only this module needs it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    seed = int(draw_integers(2**31, 1, generator))
    with warnings.catch_warnings():
        # It warns about points that coincide; that case is an error below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = torch.as_tensor(KMeans(n_clusters, n_init=1, random_state=seed).fit(points.numpy()).labels_)
    clusters = [points[labels == label] for label in range(n_clusters)]
    filled = sum(len(cluster) > 0 for cluster in clusters)
    if filled < n_clusters:
        raise ValueError(f"x has only {filled} distinct points, too few for {n_clusters} clusters")
    return sorted(clusters, key=len, reverse=True)


@dataclass(frozen=True, eq=False)
class _Spread:
    """How all points vary, for clusters with too few points to estimate their own covariance."""

    points: Float[Tensor, "n d"]
    clusters: Sequence[Float[Tensor, "m d"]]

    @cached_property
    def deviations(self) -> Float[Tensor, " d"]:
        """The standard deviation of each feature over all points; 0 for a constant one."""
        constant = self.points.amax(0) == self.points.amin(0)
        return torch.where(constant, 0.0, self.points.std(0, correction=0))

    @cached_property
    def within(self) -> Float[Tensor, "d d"]:
        """The covariance within all clusters together."""
        centered = torch.cat([cluster - cluster.mean(0) for cluster in self.clusters])
        return centered.mT @ centered / max(1, len(centered) - len(self.clusters))

    def directions(self, cluster: Float[Tensor, "m d"]) -> Float[Tensor, "r d"]:
        """Return the directions that whiten a cluster, by descending variance."""
        found = _whitening(self._covariance(cluster), cluster)
        if len(found) == 0 and len(self.clusters) > 1:
            found = _whitening(self.within, self.points)
        if len(found) == 0:
            raise ValueError(
                f"a cluster of {len(cluster)} point{'s' * (len(cluster) > 1)} varies in no direction; "
                "ask for fewer clusters or remove repeated points"
            )
        return found

    def _covariance(self, cluster: Float[Tensor, "m d"]) -> Float[Tensor, "d d"]:
        centered = cluster - cluster.mean(0)
        sample = centered.mT @ centered / max(1, len(cluster) - 1)
        varying = self.deviations > 0
        if len(cluster) > int(varying.sum()) or len(cluster) == 1:
            return sample
        from sklearn.covariance import ledoit_wolf_shrinkage

        scaled = centered[:, varying] / self.deviations[varying]
        intensity = ledoit_wolf_shrinkage(scaled.numpy(), assume_centered=True)
        # Ledoit and Wolf's estimate is 0 for two points, whose outer products are the same.
        intensity = max(float(intensity), 1 / len(cluster))
        level = float(scaled.square().sum() / (len(cluster) - 1) / varying.sum())
        return (1 - intensity) * sample + intensity * level * torch.diag(self.deviations.square())


def _whitening(cov: Float[Tensor, "d d"], points: Float[Tensor, "m d"]) -> Float[Tensor, "r d"]:
    """Return the principal axes of a covariance over their deviations, without those that are only rounding."""
    variances, axes = principal_axes(cov)
    # Sums of m terms leave rounding errors: in the eigenvalues, and in the mean that was subtracted.
    rounding = max(points.shape) * torch.finfo(points.dtype).eps
    floor = torch.maximum(rounding * variances[0], (rounding * points.abs().max()).square())
    usable = variances > floor
    return axes[usable] / variances[usable].sqrt()[:, None]


def cluster_count(points: Float[Tensor, "n d"], how: str, generator: torch.Generator | None = None) -> int:
    """Return the number of clusters of points, at most ten, chosen by ``"silhouette"`` or ``"bic"``.

    >>> three = torch.cat([torch.randn(40, 2, generator=torch.Generator().manual_seed(i)) + 20 * i for i in range(3)])
    >>> cluster_count(three.double(), "silhouette"), cluster_count(three.double(), "bic")
    (3, 3)
    """
    seed = int(draw_integers(2**31, 1, generator))
    order = torch.randperm(len(points), generator=torch.Generator().manual_seed(seed))
    some = points[order[:MOST_POINTS].sort().values]
    most = min(MOST_CLUSTERS, len(some.unique(dim=0)) - 1)
    if most < 2:
        return 1
    return _by_silhouette(some, most, seed) if how == "silhouette" else _by_information(some, most, seed)


def _by_silhouette(points: Float[Tensor, "n d"], most: int, seed: int) -> int:
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    apart = torch.cdist(points, points).fill_diagonal_(0).numpy()
    scores = {}
    for count in range(2, most + 1):
        labels = KMeans(count, n_init=1, random_state=seed).fit(points.numpy()).labels_
        scores[count] = silhouette_score(apart, labels, metric="precomputed")
    return max(scores, key=scores.__getitem__)


def _by_information(points: Float[Tensor, "n d"], most: int, seed: int) -> int:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.mixture import GaussianMixture

    centered = points - points.mean(0)
    _, sizes, axes = torch.linalg.svd(centered, full_matrices=False)
    kept = (sizes > sizes[0] * max(points.shape) * torch.finfo(points.dtype).eps)[:MOST_COMPONENTS].nonzero().flatten()
    # Unit variance along the first axis gives the mixture's regularization a scale.
    reduced = (centered @ axes[kept].mT / sizes[0] * len(points) ** 0.5).numpy()
    scores = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for count in range(1, most + 1):
            mixture = GaussianMixture(count, random_state=seed).fit(reduced)
            scores[count] = mixture.bic(reduced)
    return min(scores, key=scores.__getitem__)
