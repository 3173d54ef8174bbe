"""How far classes are apart in a distance, the rank of a kernel, and what figure 2 shows of one seed.

Axes: N points, K components, S seeds. New points are a second draw of the same size, which no network was trained on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Num
from scipy.spatial.distance import cdist

from metriscope.runs import Driver, Finished
from metriscope.studies.vq.networks.measure import ends_of, stored, trained
from metriscope.studies.vq.spheres.plan import ROLES, Separation, Spheres
from metriscope.studies.vq.train import Networks, sample
from metriscope.vq import VQMDS, Patterns, vq_kernel
from metriscope.vq.capture import capture

__all__ = [
    "Panel",
    "Results",
    "entropy_rank",
    "euclidean_scaling",
    "measure",
    "neighbor_accuracy",
    "participation_ratio",
    "pattern_separation",
    "point_separation",
    "silhouette",
]


def entropy_rank(eigenvalues: Float[np.ndarray, " k"]) -> float:
    """Return the exponential of the entropy of a spectrum: k for k equal eigenvalues.

    >>> round(entropy_rank(np.ones(5)), 6)
    5.0
    """
    shares = eigenvalues[eigenvalues > 0] / eigenvalues[eigenvalues > 0].sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def participation_ratio(eigenvalues: Float[np.ndarray, " k"]) -> float:
    """Return (Σλ)² / Σλ²: k for k equal eigenvalues, and nearer to 1 than the entropy's rank for a steep spectrum.

    >>> participation_ratio(np.ones(5))
    5.0
    """
    return float(eigenvalues.sum() ** 2 / np.square(eigenvalues).sum())


def euclidean_scaling(x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]]:
    """Return the classical scaling of Euclidean distances, whole, and its eigenvalues: principal components.

    >>> euclidean_scaling(np.array([[0.0, 0.0], [2.0, 0.0]]))[1].round(12).tolist()
    [2.0, 0.0]
    """
    left, values, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    return left * values, np.square(values)


def neighbor_accuracy(distances: Num[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> float:
    """Return how often a point's nearest other point has its label; of several nearest, the share that has it.

    >>> neighbor_accuracy(np.array([[0, 1, 1], [1, 0, 2], [1, 2, 0]]), np.array([0, 0, 1]))
    0.5
    """
    away = distances.astype(np.float64)
    np.fill_diagonal(away, np.inf)
    nearest = away == away.min(1, keepdims=True)
    same = nearest & (labels[:, None] == labels)
    return float((same.sum(1) / nearest.sum(1)).mean())


def silhouette(embedding: Float[np.ndarray, "n k"], labels: Int[np.ndarray, " n"]) -> float:
    """Return the mean silhouette of two or more labels: 1 far apart, 0 mixed, less than 0 on the wrong side.

    >>> round(silhouette(np.array([[0.0], [1.0], [10.0], [11.0]]), np.array([0, 0, 1, 1])), 3)
    0.9
    """
    # Written out: scikit-learn's takes longer to import than everything that is measured with it.
    kinds, which, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sums = cdist(embedding, embedding) @ (which[:, None] == np.arange(len(kinds)))
    own = np.arange(len(kinds)) == which[:, None]
    inside = sums[own] / np.maximum(counts[which] - 1, 1)
    outside = np.where(own, np.inf, sums / counts).min(1)
    values = (outside - inside) / np.maximum(inside, outside)
    return float(np.where(counts[which] > 1, values, 0.0).mean())


def _separation(
    distances: Num[np.ndarray, "n n"],
    scaled: tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " k"]],
    labels: Int[np.ndarray, " n"],
    components: int,
) -> dict[str, float]:
    """Return how well labels are apart, on the leading components and in the full distance, and the kernel's rank."""
    embedding, eigenvalues = scaled
    return {
        "silhouette": silhouette(embedding[:, :components], labels),
        "neighbor": neighbor_accuracy(distances, labels),
        "rank": entropy_rank(eigenvalues),
        "participation": participation_ratio(eigenvalues),
    }


def pattern_separation(patterns: Patterns, labels: Int[np.ndarray, " n"], components: int) -> dict[str, float]:
    """Return how well labels are apart in the VQ distance, and the rank of its kernel."""
    found = VQMDS(n_components=None).fit(patterns)
    return _separation(vq_kernel(patterns), (found.embedding_, found.eigenvalues_), labels, components)


def point_separation(x: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], components: int) -> dict[str, float]:
    """Return the same in the Euclidean distance."""
    return _separation(cdist(x, x), euclidean_scaling(x), labels, components)


def _rows(networks: Networks, number: int, components: int) -> Iterator[dict[str, object]]:
    """Yield one row for each distance and set of points of one seed."""
    true = sample(networks.group, number, "first")
    start = networks.network(number, "first", 0)
    sets = {"training": (true.x, true.y.numpy()), "new": (true.test_x, true.test_y.numpy())}
    for place, (x, y) in sets.items():
        yield {"points": place, "distance": "euclid", **point_separation(x.double().numpy(), y, components)}
        yield {"points": place, "distance": "start", **pattern_separation(capture(start, x), y, components)}
    for role in ROLES:
        model, own = networks.network(number, role), sample(networks.group, number, role)
        seen, new = capture(model, own.x), capture(model, own.test_x)
        by_truth = "shuffled true" if role == "shuffled" else role
        yield {"points": "training", "distance": role, **pattern_separation(seen, own.y.numpy(), components)}
        if role == "shuffled":
            # All roles see the same points in the same order, so the first role's labels are the true ones.
            yield {"points": "training", "distance": by_truth, **pattern_separation(seen, true.y.numpy(), components)}
        yield {"points": "new", "distance": by_truth, **pattern_separation(new, own.test_y.numpy(), components)}


@dataclass(frozen=True)
class Panel:
    """One column of figure 2: both sets of points on the plane of their scaling, and distances in label order."""

    training: Float[np.ndarray, "n 2"]
    labels: Float[np.ndarray, " n"]
    new: Float[np.ndarray, "n 2"]
    new_labels: Float[np.ndarray, " n"]
    kernel: np.ndarray


@dataclass(frozen=True)
class Results:
    """What figure 2 yields: one row for each seed, distance and set of points, and panels of one seed."""

    part: Spheres
    rows: pd.DataFrame
    ends: pd.DataFrame
    panels: Mapping[str, Panel]

    def accuracies(self, role: str) -> Float[np.ndarray, " s"]:
        """Return each network's accuracy on new points."""
        return self.ends[self.ends["role"] == role]["test"].to_numpy(dtype=float)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every separation, and the ranks as shares, each with whether the seed's network converged."""
        first = self.ends[self.ends["role"] == "first"].set_index("seed")["loss"]
        rows = {"separation": self.rows, "ranks": self._ranks()}
        tables = {k: v.assign(protocol=v["seed"].map(first < self.part.converged)) for k, v in rows.items()}
        return tables | {"sphere accuracies": self.ends}

    def _ranks(self) -> pd.DataFrame:
        """Return the VQ kernel's rank as a share of Euclid's, and of the largest that points and units allow."""
        table = self.rows.pivot(index=["seed", "points"], columns="distance", values="rank").reset_index()
        most = min(self.part.points.count - 1, self.part.shape.units)
        shares = {"of euclid": table["first"] / table["euclid"], "of largest": table["first"] / most}
        return table[["seed", "points"]].assign(**shares)


def measure(part: Spheres, runs: Finished, driver: Driver) -> Results:
    """Measure the networks of figure 2."""
    networks = trained(part.jobs(), runs)

    def rows(spec: Separation) -> Iterator[dict[str, object]]:
        for seed in spec.group.seeds:
            for row in _rows(networks[spec.group], seed, spec.components):
                yield {"seed": seed, **row}

    found = stored(driver, part.separations(), rows, "vq: figure 2")
    return Results(part, found, ends_of(networks.values()), _panels(next(iter(networks.values()))))


def _panels(networks: Networks) -> dict[str, Panel]:
    """Return the first seed's scalings and kernels, by role and for Euclid."""
    found, number = {}, networks.group.seeds[0]
    for role in (*ROLES, "euclid"):
        own = sample(networks.group, number, "first" if role == "euclid" else role)
        planes = [_plane(networks, number, role, x) for x in (own.x, own.test_x)]
        order = np.argsort(own.y.numpy(), kind="stable")
        kernel = _distances(networks, number, role, own.x)[np.ix_(order, order)]
        found[role] = Panel(planes[0], own.y.double().numpy(), planes[1], own.test_y.double().numpy(), kernel)
    return found


def _plane(networks: Networks, number: int, role: str, x: torch.Tensor) -> np.ndarray:
    if role == "euclid":
        return euclidean_scaling(x.double().numpy())[0][:, :2]
    return VQMDS(n_components=2).fit(capture(networks.network(number, role), x)).embedding_


def _distances(networks: Networks, number: int, role: str, x: torch.Tensor) -> np.ndarray:
    if role == "euclid":
        return torch.cdist(x.double(), x.double()).numpy()
    return vq_kernel(capture(networks.network(number, role), x))
