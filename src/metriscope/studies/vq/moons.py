"""How far two kernels agree, how well a distance separates classes, and the parts of figures 1 and 2 for one seed.

Axes: N points (figure 1: cells of the unit disc), K components, S seeds. Both networks of a comparison are evaluated on
corresponding points, so that nothing is interpolated: a network trained on rotated data is evaluated on rotated points
("rotated back") or on the same points ("not rotated back"). New points are a second draw that no network was trained
on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int, Num
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from metriscope.data import rotate
from metriscope.runs import Driver, Finished
from metriscope.studies.vq.experiments import KERNEL_MEASURES, SPHERE_ROLES, Moons, Rotation, Separation
from metriscope.studies.vq.train import Networks, aligned, ends_of, rows_by_seed, sample, stored, trained
from metriscope.vq import VQMDS, Patterns, capture, vq_kernel

__all__ = [
    "MoonsResults", "SpheresResults", "by_comparison", "comparisons", "disc", "disc_points", "eigenspace_overlap",
    "entropy_rank", "euclidean_scaling", "gaps", "matched_cosines", "measure_moons", "measure_spheres",
    "neighbor_accuracy", "participation_ratio", "pattern_separation", "point_separation", "rotation_rows",
]  # fmt: skip


def disc(grid: int) -> tuple[Float[np.ndarray, "n 2"], Bool[np.ndarray, "g g"]]:
    """Return the cells of a ``grid`` x ``grid`` square on [-1, 1]² whose centers lie in the unit disc, and their mask.

    >>> points, inside = disc(96)
    >>> len(points), inside.shape
    (7232, (96, 96))
    """
    ticks = (np.arange(grid) + 0.5) * 2 / grid - 1
    points = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    inside = np.square(points).sum(-1) <= 1
    return points[inside], inside


def disc_points(grid: int) -> Float[Tensor, "n 2"]:
    """Return the points of :func:`disc` as a tensor."""
    return torch.from_numpy(disc(grid)[0])


def eigenspace_overlap(u: Float[np.ndarray, "n k"], v: Float[np.ndarray, "n k"]) -> float:
    """Return the mean squared canonical correlation of two spaces with orthonormal bases: 1 if equal, 0 if orthogonal.

    >>> eigenspace_overlap(np.eye(4)[:, :2], np.eye(4)[:, 1:3])
    0.5
    """
    return float(np.square(u.T @ v).sum() / u.shape[1])


def matched_cosines(u: Float[np.ndarray, "n k"], v: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """Return |cosine| of each column of ``u`` and its partner in ``v``, paired so that the sum is largest.

    >>> matched_cosines(np.eye(3)[:, :2], -np.eye(3)[:, [1, 0]]).tolist()
    [1.0, 1.0]
    """
    cosines = np.abs(u.T @ v)
    return cosines[linear_sum_assignment(-cosines)]


def _agreement(p: Patterns, q: Patterns, spec: Rotation) -> dict[str, float]:
    """Return how similar two networks' kernels are on the same points: by eigenspaces, eigenvectors and alignment."""
    u, v = (VQMDS(n_components=spec.components).fit(each).eigenvectors_ for each in (p, q))
    cosines = matched_cosines(u, v)
    whole = {"alignment": aligned(p, q, spec.estimator), "biased": aligned(p, q, "biased")}
    single = {f"cosine{i + 1}": float(cosine) for i, cosine in enumerate(cosines)}
    return {"overlap": eigenspace_overlap(u, v), "cosine": float(cosines.mean()), **whole, **single}


def comparisons(networks: Networks, number: int, spec: Rotation) -> Iterator[dict[str, object]]:
    """Yield one row per comparison of one seed."""
    points = disc_points(spec.grid)
    straight, rotated = points.float(), rotate(points, spec.group.angle).float()
    for epoch, back, still in ((spec.group.recipe.epochs, "back", "still"), (0, "start back", "start")):
        one = capture(networks.network(number, "first", epoch), straight)
        other = networks.network(number, "turned", epoch)
        yield {"comparison": back, **_agreement(one, capture(other, rotated), spec)}
        yield {"comparison": still, **_agreement(one, capture(other, straight), spec)}
        if epoch:
            second = networks.network(number, "second", epoch)
            yield {"comparison": "ceiling", **_agreement(one, capture(second, straight), spec)}


def rotation_rows(part: Moons, runs: Finished, driver: Driver, label: str) -> pd.DataFrame:
    """Return every comparison of every seed, measured or from the store."""
    return stored(driver, part.rotations(), rows_by_seed(trained(part.jobs(), runs), comparisons), label)


def by_comparison(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return one measure with one row per seed and one column per comparison."""
    return rows.pivot(index="seed", columns="comparison", values=measure)


@dataclass(frozen=True)
class Picture:
    """What figure 1 shows of one network: its training points, eigenvectors on the disc, and its kernel."""

    points: Float[np.ndarray, "n 2"]
    labels: Float[np.ndarray, " n"]
    fields: Float[np.ndarray, "k g g"]
    shares: Float[np.ndarray, " k"]
    kernel: np.ndarray


@dataclass(frozen=True)
class MoonsResults:
    """Figure 1: one row for each seed and comparison, final losses and accuracies, and pictures of one seed."""

    part: Moons
    rows: pd.DataFrame
    ends: pd.DataFrame
    pictures: Mapping[str, Picture]

    def values(self, comparison: str, measure: str) -> Float[np.ndarray, " s"]:
        """Return one value per seed, in the order of seeds."""
        return by_comparison(self.rows, measure)[comparison].to_numpy(dtype=float)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every comparison and every gap, and for each whether all networks of the seed converged."""
        worst = self.ends.groupby("seed")["loss"].max()
        rows = {"turning": self.rows, "turning gaps": gaps(self.rows)}
        return {k: v.assign(protocol=v["seed"].map(worst < self.part.converged)) for k, v in rows.items()}


def gaps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how much better rotating back is than another start, as a share of the gain from rotating back.

    The share is a ratio of two means. Each seed gets its value by the delta method: the mean of these values is the
    ratio, and a t-test of them includes the uncertainty of both means. Without a gain the share is undefined.
    """
    found = []
    for measure in KERNEL_MEASURES:
        table = by_comparison(rows, measure)
        gap, worth = table["back"] - table["ceiling"], table["back"] - table["still"]
        ratio = gap.mean() / worth.mean() if worth.mean() > 0 else np.nan
        shares = ratio + (gap - ratio * worth) / worth.mean()
        found.append(pd.DataFrame({"measure": measure, "worth": worth, "gap": gap, "share": shares}).reset_index())
    return pd.concat(found, ignore_index=True)


def measure_moons(part: Moons, runs: Finished, driver: Driver) -> MoonsResults:
    """Compare the networks of figure 1."""
    rows = rotation_rows(part, runs, driver, "vq: figure 1")
    networks = list(trained(part.jobs(), runs).values())
    return MoonsResults(part, rows, ends_of(networks), _pictures(networks[0], part.rotations()[0]))


def _pictures(networks: Networks, spec: Rotation) -> dict[str, Picture]:
    """Return the first seed's networks on the data and on the rotated data."""
    number, inside, found = networks.group.seeds[0], disc(spec.grid)[1], {}
    fields = {role: _fields(networks, role, spec) for role in ("first", "turned")}
    reference = fields["first"][1]
    for role, (vectors, back, shares) in fields.items():
        images = np.full((spec.components, *inside.shape), np.nan)
        images[:, inside] = (vectors * np.sign((back * reference).sum(0))).T
        own = sample(networks.group, number, role)
        kernel = vq_kernel(capture(networks.network(number, role), own.x))
        found[role] = Picture(own.x.double().numpy(), own.y.double().numpy(), images, shares, kernel)
    return found


def _fields(networks: Networks, role: str, spec: Rotation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return eigenvectors on the disc, on the disc rotated as the role's data is, and relative eigenvalues."""
    points = disc_points(spec.grid)
    model = networks.network(networks.group.seeds[0], role)
    found = VQMDS(n_components=spec.components).fit(capture(model, points.float()))
    # The same components on rotated points, by projection, tell which sign corresponds to the first network's.
    angle = spec.group.angle if role == "turned" else 0.0
    back = found.transform(capture(model, rotate(points, angle).float()))
    return found.eigenvectors_, back, found.eigenvalues_ / found.eigenvalues_[0]


def entropy_rank(eigenvalues: Float[np.ndarray, " k"]) -> float:
    """Return the exponential of the entropy of a spectrum: k for k equal eigenvalues.

    >>> round(entropy_rank(np.ones(5)), 6)
    5.0
    """
    return float(np.exp(stats.entropy(eigenvalues[eigenvalues > 0])))


def participation_ratio(eigenvalues: Float[np.ndarray, " k"]) -> float:
    """Return (Σλ)² / Σλ²: k for k equal eigenvalues, and at most the entropy rank.

    >>> participation_ratio(np.ones(5))
    5.0
    """
    return float(eigenvalues.sum() ** 2 / np.square(eigenvalues).sum())


def euclidean_scaling(x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]]:
    """Return all components of the classical scaling of Euclidean distances (principal components), and eigenvalues.

    >>> euclidean_scaling(np.array([[0.0, 0.0], [2.0, 0.0]]))[1].round(12).tolist()
    [2.0, 0.0]
    """
    left, values, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    return left * values, np.square(values)


def neighbor_accuracy(distances: Num[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> float:
    """Return how often a point's nearest other point has its label; of several nearest ones, the share that has it.

    >>> neighbor_accuracy(np.array([[0, 1, 1], [1, 0, 2], [1, 2, 0]]), np.array([0, 0, 1]))
    0.5
    """
    away = distances.astype(np.float64)
    np.fill_diagonal(away, np.inf)
    nearest = away == away.min(1, keepdims=True)
    same = nearest & (labels[:, None] == labels)
    return float((same.sum(1) / nearest.sum(1)).mean())


def _separation(
    distances: Num[np.ndarray, "n n"],
    scaled: tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]],
    labels: Int[np.ndarray, " n"],
    components: int,
) -> dict[str, float]:
    """Return how well labels are separated on the leading components and in the full distance, and the rank."""
    # Imported here: scikit-learn takes longer to load than to compute.
    from sklearn.metrics import silhouette_score

    plane, eigenvalues = scaled[0][:, :components], scaled[1]
    return {
        # Exact distances: scikit-learn's own are not zero between equal points.
        "silhouette": float(silhouette_score(cdist(plane, plane), labels, metric="precomputed")),
        "neighbor": neighbor_accuracy(distances, labels),
        "rank": entropy_rank(eigenvalues),
        "participation": participation_ratio(eigenvalues),
    }


def pattern_separation(patterns: Patterns, labels: Int[np.ndarray, " n"], components: int) -> dict[str, float]:
    """Return how well labels are separated in the VQ distance, and the rank of its kernel."""
    found = VQMDS(n_components=None).fit(patterns)
    return _separation(vq_kernel(patterns), (found.embedding_, found.eigenvalues_), labels, components)


def point_separation(x: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], components: int) -> dict[str, float]:
    """Return how well labels are separated in the Euclidean distance, and the rank of its kernel."""
    return _separation(cdist(x, x), euclidean_scaling(x), labels, components)


def _separations(networks: Networks, number: int, spec: Separation) -> Iterator[dict[str, object]]:
    """Yield one row for each distance and set of points of one seed."""
    true, count = sample(networks.group, number, "first"), spec.components
    start = networks.network(number, "first", 0)
    for place, x, y in (("training", true.x, true.y.numpy()), ("new", true.test_x, true.test_y.numpy())):
        yield {"points": place, "distance": "euclid", **point_separation(x.double().numpy(), y, count)}
        yield {"points": place, "distance": "start", **pattern_separation(capture(start, x), y, count)}
    for role in SPHERE_ROLES:
        model, own = networks.network(number, role), sample(networks.group, number, role)
        seen, new = capture(model, own.x), capture(model, own.test_x)
        by_truth = "shuffled true" if role == "shuffled" else role
        yield {"points": "training", "distance": role, **pattern_separation(seen, own.y.numpy(), count)}
        if role == "shuffled":
            # All roles have the same points in the same order, so the first role's labels are the true ones.
            yield {"points": "training", "distance": by_truth, **pattern_separation(seen, true.y.numpy(), count)}
        yield {"points": "new", "distance": by_truth, **pattern_separation(new, own.test_y.numpy(), count)}


@dataclass(frozen=True)
class ScalingPanel:
    """One column of figure 2: points and labels of each set on the plane of its scaling, and distances by label."""

    sets: tuple[tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, " n"]], ...]
    kernel: np.ndarray


@dataclass(frozen=True)
class SpheresResults:
    """Figure 2: one row for each seed, distance and set of points, final accuracies, and panels of one seed."""

    part: Moons
    rows: pd.DataFrame
    ends: pd.DataFrame
    panels: Mapping[str, ScalingPanel]

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every separation, and the ranks as shares, and for each whether the seed's network converged."""
        first = self.ends[self.ends["role"] == "first"].set_index("seed")["loss"]
        rows = {"separation": self.rows, "ranks": self._ranks()}
        tables = {k: v.assign(protocol=v["seed"].map(first < self.part.converged)) for k, v in rows.items()}
        return tables | {"sphere accuracies": self.ends}

    def _ranks(self) -> pd.DataFrame:
        """Return the VQ kernel's rank as a share of that of Euclidean distances, and of the largest possible."""
        table = self.rows.pivot(index=["seed", "points"], columns="distance", values="rank").reset_index()
        most = min(self.part.points.count - 1, self.part.shape.depth * self.part.shape.width)
        shares = {"of euclid": table["first"] / table["euclid"], "of largest": table["first"] / most}
        return table[["seed", "points"]].assign(**shares)


def measure_spheres(part: Moons, runs: Finished, driver: Driver) -> SpheresResults:
    """Measure the networks of figure 2."""
    networks = trained(part.jobs(), runs)
    rows = stored(driver, part.separations(), rows_by_seed(networks, _separations), "vq: figure 2")
    return SpheresResults(part, rows, ends_of(networks.values()), _panels(next(iter(networks.values()))))


def _panels(networks: Networks) -> dict[str, ScalingPanel]:
    """Return the first seed's scalings and kernels, by role and for Euclid."""
    found, number = {}, networks.group.seeds[0]
    for role in (*SPHERE_ROLES, "euclid"):
        own = sample(networks.group, number, "first" if role == "euclid" else role)
        if role == "euclid":
            planes = [euclidean_scaling(x.double().numpy())[0][:, :2] for x in (own.x, own.test_x)]
            kernel = torch.cdist(own.x.double(), own.x.double()).numpy()
        else:
            both = [capture(networks.network(number, role), x) for x in (own.x, own.test_x)]
            planes, kernel = [VQMDS(n_components=2).fit(p).embedding_ for p in both], vq_kernel(both[0])
        labels, order = (own.y.double().numpy(), own.test_y.double().numpy()), np.argsort(own.y.numpy(), kind="stable")
        found[role] = ScalingPanel(tuple(zip(planes, labels, strict=True)), kernel[np.ix_(order, order)])
    return found
