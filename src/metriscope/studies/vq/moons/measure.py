"""How far kernels agree on points that correspond, and what figure 1 shows of one seed.

Axes: N points of the unit disc, K components. Every comparison has its two networks on points that correspond, so
that nothing is resampled: the network of the turned data is evaluated on turned points ("turned back"), or on the
same ones ("not turned back").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment

from metriscope.data import rotate
from metriscope.runs import Driver, Finished
from metriscope.studies.vq.moons.plan import MEASURES, Moons, Turning
from metriscope.studies.vq.networks.measure import ends_of, stored, trained
from metriscope.studies.vq.networks.plan import ROLES
from metriscope.studies.vq.train import Networks, sample
from metriscope.vq import VQMDS, Patterns, vq_kernel
from metriscope.vq.capture import capture
from metriscope.vq.measures import alignment

__all__ = ["Picture", "Results", "compare", "comparisons", "disc", "gaps", "measure", "turn_rows"]


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


def compare(p: Patterns, q: Patterns, components: int, estimator: str) -> dict[str, float]:
    """Return how alike two networks' kernels on the same points are: leading eigenspaces, eigenvectors, the whole.

    The biased alignment stands beside the one that is asked for.
    """
    u, v = (VQMDS(n_components=components).fit(each).eigenvectors_ for each in (p, q))
    cosines = matched_cosines(u, v)
    single = {f"cosine{i + 1}": float(cosine) for i, cosine in enumerate(cosines)}
    whole = {name: float(np.asarray(alignment(p, q, kind).value)) for name, kind in _kinds(estimator)}
    return {"overlap": eigenspace_overlap(u, v), "cosine": float(cosines.mean()), **whole, **single}


def _kinds(estimator: str) -> tuple[tuple[str, str], ...]:
    return ("alignment", estimator), ("biased", "biased")


def comparisons(networks: Networks, number: int, spec: Turning) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each comparison of one seed with its measures."""
    points = torch.from_numpy(disc(spec.grid)[0])
    angle, last = spec.group.angle, spec.group.recipe.epochs
    straight, turned, how = points.float(), rotate(points, angle).float(), (spec.components, spec.estimator)
    for epoch, prefix in ((last, ""), (0, "start ")):
        one = capture(networks.network(number, "first", epoch), straight)
        other = networks.network(number, "turned", epoch)
        yield f"{prefix}back", compare(one, capture(other, turned), *how)
        yield f"{prefix}still".replace("start still", "start"), compare(one, capture(other, straight), *how)
        if epoch:
            second = networks.network(number, "second", epoch)
            yield "ceiling", compare(one, capture(second, straight), *how)


def turn_rows(part: Moons, runs: Finished, driver: Driver, label: str) -> pd.DataFrame:
    """Return every comparison of every seed, measured or from the store."""
    networks = trained(part.jobs(), runs)

    def rows(spec: Turning) -> Iterator[dict[str, object]]:
        for seed in spec.group.seeds:
            for name, found in comparisons(networks[spec.group], seed, spec):
                yield {"seed": seed, "comparison": name, **found}

    return stored(driver, part.turnings(), rows, label)


@dataclass(frozen=True)
class Picture:
    """What figure 1 shows of one network: its training points, eigenvectors on the disc, and its kernel on them."""

    points: Float[np.ndarray, "n 2"]
    labels: Float[np.ndarray, " n"]
    fields: Float[np.ndarray, "k g g"]
    shares: Float[np.ndarray, " k"]
    kernel: np.ndarray


@dataclass(frozen=True)
class Results:
    """What figure 1 yields: one row for each seed and comparison, how networks ended, and pictures of one seed."""

    part: Moons
    rows: pd.DataFrame
    ends: pd.DataFrame
    pictures: Mapping[str, Picture]

    def values(self, comparison: str, measure: str) -> Float[np.ndarray, " s"]:
        """Return one value per seed, in the order of seeds."""
        return _values(self.rows, comparison, measure)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Every comparison, and the gaps, each with whether all networks of the seed converged."""
        worst = self.ends.groupby("seed")["loss"].max()
        rows = {"turning": self.rows, "turning gaps": gaps(self.rows)}
        return {k: v.assign(protocol=v["seed"].map(worst < self.part.converged)) for k, v in rows.items()}


def _values(rows: pd.DataFrame, comparison: str, measure: str) -> Float[np.ndarray, " s"]:
    part = rows[rows["comparison"] == comparison].sort_values("seed")
    return part[measure].to_numpy(dtype=float)


def gaps(rows: pd.DataFrame) -> pd.DataFrame:
    """Return by how much turning back is better than another start, as a share of what turning back is worth.

    Of a ratio of two means each seed has the value that the delta method gives it: their mean is the ratio, and a
    t-test of them counts the uncertainty of both means. Where turning back is worth nothing the share is undefined.
    """
    found = []
    for measure in MEASURES:
        back, still, ceiling = (_values(rows, name, measure) for name in ("back", "still", "ceiling"))
        gap, worth = back - ceiling, back - still
        ratio = gap.mean() / worth.mean() if worth.mean() > 0 else np.nan
        shares = ratio + (gap - ratio * worth) / worth.mean()
        seeds = np.sort(rows["seed"].unique())
        found.append(pd.DataFrame({"seed": seeds, "measure": measure, "worth": worth, "gap": gap, "share": shares}))
    return pd.concat(found, ignore_index=True)


def measure(part: Moons, runs: Finished, driver: Driver) -> Results:
    """Compare the networks of figure 1."""
    rows = turn_rows(part, runs, driver, "vq: figure 1")
    networks = trained(part.jobs(), runs)
    return Results(part, rows, ends_of(networks.values()), _pictures(next(iter(networks.values())), part))


def _pictures(networks: Networks, part: Moons) -> dict[str, Picture]:
    """Return the first seed's networks on the straight and on the turned data."""
    (spec, *_), number = part.turnings(), networks.group.seeds[0]
    inside = disc(spec.grid)[1]
    reference = _fields(networks, "first", spec)[1]
    found = {}
    for role in ("first", "turned"):
        vectors, back, shares = _fields(networks, role, spec)
        images = np.full((spec.components, *inside.shape), np.nan)
        images[:, inside] = (vectors * np.sign((back * reference).sum(0))).T
        own = sample(networks.group, number, role)
        kernel = vq_kernel(capture(networks.network(number, role), own.x))
        found[role] = Picture(own.x.double().numpy(), own.y.double().numpy(), images, shares, kernel)
    return found


def _fields(networks: Networks, role: str, spec: Turning) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return eigenvectors on the disc, on the disc turned as the role's data is, and relative eigenvalues."""
    points = torch.from_numpy(disc(spec.grid)[0])
    model = networks.network(networks.group.seeds[0], role)
    found = VQMDS(n_components=spec.components).fit(capture(model, points.float()))
    # The same components on turned points, by projection, tell which sign corresponds to the first network's.
    angle = spec.group.angle if ROLES[role].turned else 0.0
    back = found.transform(capture(model, rotate(points, angle).float()))
    return found.eigenvectors_, back, found.eigenvalues_ / found.eigenvalues_[0]
