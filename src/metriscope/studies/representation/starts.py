"""Whether replayed starts are the published ones: how often other starts would match the printed numbers as closely.

Axes: N runs, M runs to draw from, B draws. A run is its test accuracy (per cent) and its number of dead outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Float

from metriscope.rng import derive
from metriscope.studies.representation.accuracy import printed
from metriscope.studies.representation.experiments import Identifying
from metriscope.studies.representation.plan import NAME, PAPER, REPLAYS, TABLES
from metriscope.studies.representation.train import TrainedNetwork
from metriscope.studies.tidy_tables import matching

__all__ = ["STATISTICS", "identified", "moments_of", "starts"]

# The statistics of a set of runs, in the order of :func:`moments_of`.
STATISTICS = ("mean", "sd", "dead mean", "dead sd")


def moments_of(runs: Float[np.ndarray, "*b n 2"]) -> Float[np.ndarray, "*b 4"]:
    """Return mean and deviation of the accuracy and of the dead outputs of each set of runs.

    Deviations are divided by n, because then six of the paper's seven printed tests follow from its printed numbers.

    >>> moments_of(np.array([[40.0, 1.0], [60.0, 3.0]])).tolist()
    [50.0, 10.0, 2.0, 1.0]
    """
    mean, sd = runs.mean(-2), runs.std(-2)
    return np.stack([mean[..., 0], sd[..., 0], mean[..., 1], sd[..., 1]], axis=-1)


@dataclass(frozen=True)
class Match:
    """How close a set of runs is to printed numbers: its statistics, its distance, and the p-value of the distance."""

    statistics: tuple[float, ...]
    distance: float
    p: float


def identified(
    runs: Float[np.ndarray, "n 2"],
    pool: Float[np.ndarray, "m 2"] | None,
    goal: Float[np.ndarray, " 4"],
    asked: Identifying,
) -> Match:
    """Return how close runs are to the printed numbers, and how often the same number of runs from a pool is as close.

    Without a pool, sets are drawn from the runs themselves, and their statistics shifted to be centered on those
    of the runs, since a set drawn with replacement has a smaller spread. The distance is Euclidean over mean and
    deviation of both measures, each in units of its own deviation over the draws; differences within the rounding of
    the printed numbers count as zero.
    """
    generator = np.random.default_rng(derive(0, NAME, "identify"))
    source = runs if pool is None else pool
    drawn = moments_of(source[generator.integers(len(source), size=(asked.draws, len(runs)))])
    if pool is None:
        drawn += moments_of(runs) - drawn.mean(0)
    scale = np.maximum(drawn.std(0), asked.rounding)

    def distance(found: Float[np.ndarray, "*b 4"]) -> Float[np.ndarray, "*b"]:
        beyond = np.maximum(np.abs(found - goal) - asked.rounding / 2, 0.0)
        return np.linalg.norm(beyond / scale, axis=-1)

    ours = moments_of(runs)
    own = float(distance(ours))
    as_close = int((distance(drawn) <= own).sum())
    return Match(tuple(map(float, ours)), own, (1 + as_close) / (1 + asked.draws))


def starts(runs: Sequence[TrainedNetwork], asked: Identifying) -> pd.DataFrame:
    """Return one row per part of the images: replayed runs beside the printed numbers, the p-value, and the conclusion.

    Only runs by the paper's protocol count. With fewer runs than were published, ``verdict`` is "open"; otherwise it is
    "identified" if the p-value is below the level, shared by the parts.
    """
    same = [run for run in runs if run.job.setting.protocol and run.job.epochs == PAPER.epochs]
    ours = [run for run in same if run.job.model == asked.network]
    goal, published = _printed(asked), REPLAYS[TABLES].runs
    found = []
    for part in asked.parts:
        replayed, own = (_values(ours, part, name) for name in (TABLES, ""))
        if len(replayed) < asked.least:
            continue
        enough = len(own) >= asked.fewest
        match = identified(replayed, own if enough else None, goal, asked)
        whole, decided = len(replayed) >= published, match.p * len(asked.parts) < asked.alpha
        verdict = "open" if not whole else "identified" if decided else "not identified"
        line = {"images": part, "runs": len(replayed), "of": published, "drawn from": "own" if enough else "replayed"}
        line |= dict(zip(STATISTICS, match.statistics, strict=True))
        line |= {f"printed {name}": value for name, value in zip(STATISTICS, goal, strict=True)}
        found.append({**line, "distance": match.distance, "p": match.p, "verdict": verdict})
    return pd.DataFrame(found)


def _values(runs: Sequence[TrainedNetwork], part: str, replay: str) -> Float[np.ndarray, "n 2"]:
    """Return the accuracy and the number of dead outputs at the end of each run with such a start."""
    rows = []
    for run in runs:
        if run.job.replay == replay:
            ends = matching(run.dead, part=part, layer="output", epoch=run.dead["epoch"].max())
            rows.append((100 * float(run.history["test_accuracy"].iloc[-1]), float(ends["never"].iloc[0])))
    return np.array(rows, dtype=np.float64).reshape(len(rows), 2)


def _printed(asked: Identifying) -> Float[np.ndarray, " 4"]:
    accuracy = printed("test_accuracy", network=asked.network, column=asked.column).iloc[0]
    dead = printed("dead_output_units", network=asked.network).dropna(subset=["count"]).iloc[0]
    return np.array([accuracy["mean"], accuracy["sd"], dead["count"], dead["sd"]], dtype=np.float64)
