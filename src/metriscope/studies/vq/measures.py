"""What the VQ study measures on kernels and embeddings: pure functions of arrays and patterns.

Axes: N points, K components, H units.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from metriscope.vq import VQMDS, Patterns, alignment, vq_kernel

__all__ = [
    "compare",
    "disc",
    "eigenspace_overlap",
    "entropy_rank",
    "euclidean_scaling",
    "matched_cosines",
    "neighbour_accuracy",
    "participation_ratio",
    "pattern_separation",
    "point_separation",
    "separation",
    "silhouette",
]

COMPONENTS = 3


def disc(grid: int) -> tuple[Float[np.ndarray, "n 2"], Bool[np.ndarray, "g g"]]:
    """Return the cells of a ``grid`` x ``grid`` square on [-1, 1]² whose centres lie in the unit disc, and their mask.

    >>> points, inside = disc(96)
    >>> len(points), inside.shape
    (7232, (96, 96))
    """
    ticks = (np.arange(grid) + 0.5) * 2 / grid - 1
    points = np.stack(np.meshgrid(ticks, ticks), axis=-1)
    inside = np.square(points).sum(-1) <= 1
    return points[inside], inside


def eigenspace_overlap(u: Float[np.ndarray, "n k"], v: Float[np.ndarray, "n k"]) -> float:
    """Return the mean squared canonical correlation of two spaces with orthonormal bases: 1 the same, 0 orthogonal.

    >>> eigenspace_overlap(np.eye(4)[:, :2], np.eye(4)[:, 1:3])
    0.5
    """
    return float(np.square(u.T @ v).sum() / u.shape[1])


def matched_cosines(u: Float[np.ndarray, "n k"], v: Float[np.ndarray, "n k"]) -> Float[np.ndarray, " k"]:
    """Return |cosine| of each column of ``u`` with its partner in ``v``, partners assigned for the largest sum.

    >>> matched_cosines(np.eye(3)[:, :2], -np.eye(3)[:, [1, 0]]).tolist()
    [1.0, 1.0]
    """
    cosines = np.abs(u.T @ v)
    rows, columns = linear_sum_assignment(-cosines)
    return cosines[rows, columns]


def compare(p: Patterns, q: Patterns) -> dict[str, float]:
    """Return how alike two networks' kernels on the same points are: leading eigenspaces, eigenvectors, the whole."""
    u, v = (VQMDS(n_components=COMPONENTS).fit(each).eigenvectors_ for each in (p, q))
    cosines = matched_cosines(u, v)
    single = {f"cosine{i + 1}": float(cosine) for i, cosine in enumerate(cosines)}
    whole = float(np.asarray(alignment(p, q).value))
    return {"overlap": eigenspace_overlap(u, v), "cosine": float(cosines.mean()), "alignment": whole, **single}


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


def neighbour_accuracy(distances: Num[np.ndarray, "n n"], labels: Int[np.ndarray, " n"]) -> float:
    """Return how often a point's nearest other point has its label; of several nearest, the share that has it.

    >>> neighbour_accuracy(np.array([[0, 1, 1], [1, 0, 2], [1, 2, 0]]), np.array([0, 0, 1]))
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


def separation(
    distances: Num[np.ndarray, "n n"],
    embedding: Float[np.ndarray, "n k"],
    eigenvalues: Float[np.ndarray, " k"],
    labels: Int[np.ndarray, " n"],
) -> dict[str, float]:
    """Return how well labels are apart, on the plane of the scaling and in the full distance, and the kernel's rank."""
    return {
        "silhouette": silhouette(embedding[:, :2], labels),
        "neighbour": neighbour_accuracy(distances, labels),
        "rank": entropy_rank(eigenvalues),
        "participation": participation_ratio(eigenvalues),
    }


def pattern_separation(patterns: Patterns, labels: Int[np.ndarray, " n"]) -> dict[str, float]:
    """Return :func:`separation` in the VQ distance."""
    scaled = VQMDS(n_components=None).fit(patterns)
    return separation(vq_kernel(patterns), scaled.embedding_, scaled.eigenvalues_, labels)


def point_separation(x: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> dict[str, float]:
    """Return :func:`separation` in the Euclidean distance."""
    return separation(cdist(x, x), *euclidean_scaling(x), labels)
