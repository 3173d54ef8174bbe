"""The published series of trainings whose starts can be computed, and how they are identified."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PERTURBED", "REPLAYS", "STARTS", "TABLES", "Identifying", "Replay", "replays"]


@dataclass(frozen=True)
class Replay:
    """The random numbers of a published series of trainings on a GPU, all from one seed.

    ``networks``: in the order in which they were trained, ``runs`` times each. ``draws``: the tensors that each run
    draws, in order; a tensor that is drawn twice keeps the second values.
    """

    seed: int
    networks: tuple[str, ...]
    draws: tuple[str, ...]
    runs: int = 20


STARTS = ("author", "own")
SIX = ("relu", "abs", "relu2", "abs2", "relu2-neg", "abs2-neg")
# Both programs draw the first layer twice: PyTorch's `apply` meets it as an attribute and again inside a Sequential.
REPLAYS = {
    "oursland-2025": Replay(42484103, SIX, ("0.weight", "0.bias", "2.weight") * 2),
    "oursland-2024b": Replay(411713593, ("relu-bias", "abs-bias"), (*("0.weight", "0.bias") * 2, "2.weight", "2.bias")),
}
# The series behind the tables of Oursland 2025, and that of the perturbation experiment, which is another study's.
TABLES, PERTURBED = REPLAYS


def replays(start: str, model: str, number: int) -> tuple[str, ...]:
    """Return the starts of a run: the series it is replayed from, or the empty word for a start of our own.

    Networks of the perturbation experiment are trained twice, with a start of our own and with the published one.

    >>> replays("author", "relu2", 19), replays("author", "relu2", 20), replays("author", "abs-bias", 0)
    (('oursland-2025',), ('',), ('', 'oursland-2024b'))
    """
    if start == "own":
        return ("",)
    known = [name for name, row in REPLAYS.items() if model in row.networks and number < row.runs]
    return tuple(known) if TABLES in known else ("", *known)


@dataclass(frozen=True)
class Identifying:
    """How replayed starts are shown to be the published ones, on one network whose runs differ a lot.

    Sets of as many runs are drawn ``draws`` times from runs with starts of our own, or from the replayed runs where
    there are fewer than ``fewest`` of those. The starts are identified if sets as close to the printed numbers as the
    replayed one have a probability below ``alpha``; ``parts`` of the images on which dead outputs may have been counted
    share it. Fewer than ``least`` replayed runs are not compared. Printed numbers are multiples of ``rounding``.
    """

    network: str = "relu2"
    column: str = "section 6"
    fewest: int = 20
    draws: int = 9_999
    alpha: float = 0.01
    parts: tuple[str, ...] = ("train", "test")
    least: int = 3
    rounding: float = 0.01
