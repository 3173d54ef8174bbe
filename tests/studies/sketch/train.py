"""Toss coins, one step per toss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import torch
from torch import Tensor

from metriscope.rng import stream
from metriscope.runs import Result, Work
from studies.sketch.plan import Coin


@dataclass
class Tossing:
    """Coins in the air; their state is every toss so far."""

    jobs: Sequence[Coin]
    seen: dict[Coin, Tensor] = field(init=False)
    done: dict[Coin, int] = field(init=False)

    def __post_init__(self) -> None:
        self.seen = {job: torch.full((job.tosses,), torch.nan) for job in self.jobs}
        self.done = dict.fromkeys(self.jobs, 0)

    def span(self, job: Coin) -> tuple[int, int]:
        return self.done[job], job.tosses

    def state(self, job: Coin) -> dict[str, Tensor]:
        return {"tosses": self.seen[job]}

    def restore(self, job: Coin, tensors: Mapping[str, Tensor], step: int) -> None:
        self.seen[job].copy_(tensors["tosses"])
        self.done[job] = step

    def run(self, tick: Callable[[], None]) -> None:
        while left := [job for job in self.jobs if self.done[job] < job.tosses]:
            for job in left:
                draw = torch.rand((), generator=stream(job.seed, job.study, job.number, self.done[job]))
                self.seen[job][self.done[job]] = float(draw < job.chance)
                self.done[job] += 1
            tick()

    def result(self, job: Coin) -> Result:
        return Result({"tosses": pd.DataFrame({"heads": self.seen[job].numpy()})}, {"tosses": self.seen[job]})


WORK = Work(Tossing, share=lambda job: job.tosses, width=4)
