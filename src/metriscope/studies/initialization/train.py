"""Initialize networks in every way, choose a learning rate for each, and train all of them at once.

Axes: S networks, N points, D features, K units, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope import data, probes
from metriscope.common.threads import one_blas_thread
from metriscope.nn import (
    ACTIVATIONS,
    init_from_clusters_,
    init_lsuv_,
    init_model_,
    init_through_points_,
    stack_state,
)
from metriscope.nn.clusters import cluster_count
from metriscope.rng import stream
from metriscope.runs import Result, once
from metriscope.studies.heads.plan import Source
from metriscope.studies.heads.train import prepared
from metriscope.studies.initialization.plan import REAL, StartContest

__all__ = ["WORK", "contested", "losses", "problem", "started"]

Part = tuple[Tensor, Tensor]
State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class StartProblem:
    """Points and targets for training, validation and test: classes, or distances to the mean of a Gaussian."""

    train: Part
    validation: Part
    test: Part
    gaussian: data.Gaussian | None = None
    _counts: dict[str, int] = field(default_factory=dict)

    def count(self, how: str, seed: int) -> int:
        """Return the number of clusters of the training points; cached."""
        if how not in self._counts:
            self._counts[how] = cluster_count(self.train[0].double(), how, stream(seed, "count"))
        return self._counts[how]


def problem(job: StartContest, number: int = 0) -> StartProblem:
    """Return the data of a contest; ``number`` is that of the Gaussian."""
    if job.family == "real":
        source = Source(job.data, REAL[job.data][1])
        split = prepared(source, job.sizes, job.seed)
        return StartProblem(split.train, split.validation, split.test)
    if job.family == "mixture":
        return _mixture(job)
    gaussian = data.random_gaussian(job.dim, stream(job.seed, job.study, job.data, number))
    kept = job.sizes[0] * 4 // 5
    counts = {"train": kept, "validation": job.sizes[0] - kept, "test": job.sizes[1]}
    found = []
    for name, count in counts.items():
        x = gaussian.sample(count, stream(job.seed, job.study, job.data, number, name))
        found.append((x.float(), gaussian.distance(x).float()))
    return StartProblem(found[0], found[1], found[2], gaussian)


def _mixture(job: StartContest) -> StartProblem:
    """Return points of several Gaussians with their numbers, standardized feature by feature."""
    here = (job.seed, job.study, job.data)
    parts = [data.random_gaussian(job.dim, stream(*here, "gaussian", c), spread=job.spread) for c in range(job.right)]
    sets = []
    for name, count in zip(("train", "test"), job.component, strict=True):
        x = torch.cat([g.sample(count, stream(*here, name, c)) for c, g in enumerate(parts)]).float()
        y = torch.arange(job.right).repeat_interleave(count)
        order = torch.randperm(len(x), generator=stream(*here, name, "order"))
        sets.append((x[order], y[order]))
    (x, y), test = sets
    cut = len(x) // 5
    mean, spread = x[cut:].mean(0), x[cut:].std(0)
    pairs = ((x[cut:], y[cut:]), (x[:cut], y[:cut]), test)
    train, validation, new = (((points - mean) / spread, labels) for points, labels in pairs)
    return StartProblem(train, validation, new)


def _empty(job: StartContest, points: StartProblem) -> nn.Sequential:
    """Return a network of the contest whose weights are still to be set."""
    act = ACTIVATIONS[job.activation].module
    features = points.train[0].shape[1]
    if job.gaussians:
        # An Abs unit equals two ReLU units.
        return nn.Sequential(nn.Linear(features, features * (2 if job.activation == "relu" else 1)))
    layers = [nn.Linear(features, job.hidden), act(), nn.Linear(job.hidden, job.hidden), act()]
    return nn.Sequential(*layers, nn.Linear(job.hidden, int(points.train[1].max()) + 1))


def _random_(model: nn.Module, fill: Callable[..., Any], gain: float, generator: torch.Generator) -> None:
    """Set all linear layers at random, with a gain for all but the last, and biases to zero."""
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    for layer in layers:
        fill(layer.weight, gain if len(layers) == 1 or layer is not layers[-1] else 1.0, generator)
        nn.init.zeros_(layer.bias)


def _kaiming(weight: Tensor, gain: float, generator: torch.Generator) -> None:
    nn.init.normal_(weight, 0.0, gain / math.sqrt(weight.shape[1]), generator=generator)


def _xavier(weight: Tensor, gain: float, generator: torch.Generator) -> None:
    nn.init.xavier_uniform_(weight, gain, generator=generator)


def _orthogonal(weight: Tensor, gain: float, generator: torch.Generator) -> None:
    nn.init.orthogonal_(weight, gain, generator=generator)


RANDOM: Mapping[str, Callable[..., Any]] = {"kaiming": _kaiming, "xavier": _xavier, "orthogonal": _orthogonal}


@torch.no_grad()
def started(job: StartContest, entry: str, points: StartProblem, number: int) -> tuple[nn.Sequential, float]:
    """Return a network before training, and its number of clusters; NaN where there are none.

    Starts that set only some layers take the others from Kaiming's start of the same number.
    """
    model, x, here = _empty(job, points), points.train[0], (job.seed, job.study, job.data, number)
    # The gain that preserves the mean square of activations if pre-activations are symmetric.
    gain = math.sqrt(2) if job.activation == "relu" else 1.0
    _random_(model, RANDOM.get(entry, _kaiming), gain, stream(*here, "random"))
    first, count = cast(nn.Linear, model[0]), math.nan
    if entry == "lsuv":
        init_lsuv_(model, x, stream(*here, entry))
    elif entry == "points":
        init_through_points_(first, x, stream(*here, entry))
    elif entry == "model":
        init_model_(model, x, stream(*here, entry), head="clusters" if len(model) == 1 else "keep")
    elif entry.startswith("clusters"):
        count = _count(job, entry, points)
        init_from_clusters_(first, x, int(count), stream(*here, "clusters"))
    return model, count


def _count(job: StartContest, entry: str, points: StartProblem) -> int:
    """Return the number of clusters, which is the same for all starts on the same points."""
    named = {"clusters": job.right, "clusters-half": max(1, job.right // 2), "clusters-double": 2 * job.right}
    return named[entry] if entry in named else points.count(entry.partition("-")[2], job.seed)


def outputs(job: StartContest, state: State, x: Float[Tensor, "s n d"]) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs of all networks, and the pre-activations of their hidden layers."""
    act, names = ACTIVATIONS[job.activation].function, [name for name in state if name.endswith("weight")]
    h, hidden = x, []
    for name in names:
        h = torch.baddbmm(state[name.replace("weight", "bias")][:, None], h, state[name].mT)
        if job.gaussians or name != names[-1]:
            hidden.append(h)
            h = act(h)
    # A tiny number under the root keeps its gradient finite at the mean itself.
    return (h.square().sum(-1) + 1e-12).sqrt() if job.gaussians else h, hidden


def losses(job: StartContest, state: State, part: Part) -> Float[Tensor, " s"]:
    """Return the mean loss of each network: squared errors of distances, or cross-entropy."""
    found, _ = outputs(job, state, part[0])
    if job.gaussians:
        return (found - part[1]).square().mean(1)
    return F.cross_entropy(found.mT, part[1], reduction="none").mean(1)


@dataclass(frozen=True)
class _Racer:
    """One network that is trained with others: its start, the number of its Gaussian, and its learning rate."""

    entry: str
    number: int
    gaussian: int
    rate: float


@dataclass(frozen=True, eq=False)
class _Race:
    """Networks that are trained together, each on the problem with its own number."""

    job: StartContest
    problems: Sequence[StartProblem]
    racers: Sequence[_Racer]

    def run(
        self, begun: Mapping[tuple[str, int, int], nn.Module], seen: str
    ) -> tuple[State, Float[Tensor, "s checks"]]:
        """Return the trained networks, and their losses on a part of the data at the start and at every check."""
        job = self.job
        state = stack_state([begun[one.entry, one.number, one.gaussian] for one in self.racers])
        memory = {name: (torch.zeros_like(value), torch.zeros_like(value)) for name, value in state.items()}
        rates, batches = torch.tensor([one.rate for one in self.racers]), self._batches()
        marks = {round(len(batches) * check / job.checks) for check in range(1, job.checks + 1)}
        curve = [self._loss(state, seen)]
        for step, rows in enumerate(batches):
            weights = {name: value.requires_grad_() for name, value in state.items()}
            loss = losses(job, weights, self._part("train") if rows is None else self._rows(rows))
            slopes = torch.autograd.grad(loss.sum(), list(weights.values()))
            state = {name: value.detach() for name, value in weights.items()}
            for (name, value), slope in zip(state.items(), slopes, strict=True):
                moments = (*memory[name], step + 1)
                _adam_(value, slope, moments, rates * (1 - step / len(batches)), job.adam)
            if step + 1 in marks:
                curve.append(self._loss(state, seen))
        return state, torch.stack(curve, 1)

    @cached_property
    def _gathered(self) -> dict[str, Part]:
        """Training, validation and test points of Gaussians, one set per network."""
        found = {}
        for name in ("train", "validation", "test"):
            parts = [getattr(self.problems[one.gaussian], name) for one in self.racers]
            found[name] = (torch.stack([x for x, _ in parts]), torch.stack([y for _, y in parts]))
        return found

    def _part(self, name: str) -> Part:
        return self._gathered[name]

    def _rows(self, rows: Tensor) -> Part:
        x, y = self.problems[0].train
        return x[rows], y[rows]

    def _batches(self) -> list[Tensor | None]:
        """Return the rows of every step, networks by points; None for all points."""
        job, count = self.job, len(self.problems[0].train[0])
        if job.gaussians:
            return [None] * job.epochs
        size = max(1, min(job.batch, count // job.fewest))
        found: list[Tensor | None] = []
        for epoch in range(job.epochs):
            # Networks with the same number see the same batches, whatever their start.
            orders = {
                number: torch.randperm(count, generator=stream(job.seed, job.study, job.data, number, "batches", epoch))
                for number in {one.number for one in self.racers}
            }
            found += torch.stack([orders[one.number] for one in self.racers]).split(size, 1)
        return found

    @torch.no_grad()
    def _loss(self, state: State, name: str) -> Float[Tensor, " s"]:
        if self.job.gaussians:
            return losses(self.job, state, self._part(name))
        x, y = getattr(self.problems[0], name)
        single = [{key: value[[s]] for key, value in state.items()} for s in range(len(self.racers))]
        return torch.cat([losses(self.job, one, (x[None], y[None])) for one in single])


def _adam_(
    value: Tensor,
    slope: Tensor,
    moments: tuple[Tensor, Tensor, int],
    rates: Float[Tensor, " s"],
    constants: tuple[float, float, float],
) -> None:
    """Take one step of Adam in place, with a learning rate for each network; its moments are updated too."""
    (mean, square, step), (first, second, least) = moments, constants
    mean.lerp_(slope, 1 - first)
    square.mul_(second).addcmul_(slope, slope, value=1 - second)
    size = rates.reshape(-1, *[1] * (value.ndim - 1)) / (1 - first**step)
    value.sub_(size * mean / ((square / (1 - second**step)).sqrt() + least))


def contested(job: StartContest) -> Result:
    """Return the results of every start: its losses, its time to the reference's loss, and its units at the start."""
    problems = [problem(job, number) for number in range(job.gaussians or 1)]
    places = range(len(problems))
    numbers = (job.tuning, *range(job.starts))
    keys = [(entry, number, place) for entry in job.entries for number in numbers for place in places]
    with one_blas_thread():
        both = {key: started(job, key[0], problems[key[2]], key[1]) for key in keys}
        begun = {key: model for key, (model, _) in both.items()}
        tuned = _tuned(job, problems, begun)
        racers = [_Racer(e, number, place, tuned.best[e]) for e, number, place in keys if number != job.tuning]
        state, curve = _Race(job, problems, racers).run(begun, "test")
    table = pd.DataFrame(
        [{"entry": r.entry, "start": r.number, "gaussian": r.gaussian, "rate": r.rate} for r in racers]
    )
    table = table.assign(first=curve[:, 0].numpy(), loss=curve[:, -1].numpy())
    table["clusters"] = [both[r.entry, r.number, r.gaussian][1] for r in racers]
    table["share"] = _shares(job, table, curve.double().numpy())
    table = pd.concat([table, _units(job, problems, racers, begun)], axis=1)
    if job.gaussians:
        table["kept"] = _kept(job, problems, racers, state)
    drawn = pd.DataFrame(curve.double().log10().numpy()).groupby(table["entry"], sort=False).mean()
    long = drawn.rename_axis(columns="check").stack().rename("log_loss").reset_index()
    return Result({"starts": table, "curves": long, "tuning": tuned.table})


@dataclass(frozen=True, eq=False)
class _Tuned:
    """The learning rate of each start, and the validation losses of all that were tried."""

    best: Mapping[str, float]
    table: pd.DataFrame


def _tuned(
    job: StartContest, problems: Sequence[StartProblem], begun: Mapping[tuple[str, int, int], nn.Module]
) -> _Tuned:
    places = range(len(problems))
    racers = [_Racer(entry, job.tuning, place, rate) for entry in job.entries for rate in job.rates for place in places]
    _, curve = _Race(job, problems, racers).run(begun, "validation")
    ends = curve[:, -1].double().log10().nan_to_num(math.inf, posinf=math.inf).numpy()
    table = pd.DataFrame({"entry": [r.entry for r in racers], "rate": [r.rate for r in racers], "log_loss": ends})
    table = table.groupby(["entry", "rate"], sort=False)["log_loss"].mean().reset_index()
    least = table.loc[table.groupby("entry", sort=False)["log_loss"].idxmin()]
    return _Tuned(dict(zip(least["entry"], least["rate"], strict=True)), table)


def _shares(job: StartContest, table: pd.DataFrame, curve: Float[np.ndarray, "s checks"]) -> Float[np.ndarray, " s"]:
    """Return the share of training after which a network is as good as the reference halfway, or 1 if it never is."""
    found = np.ones(len(table))
    for _, rows in table.groupby("gaussian"):
        own = rows.index[rows["entry"] == job.reference]
        goal = np.exp(np.log(curve[own, job.checks // 2]).mean())
        reached = curve[rows.index] <= goal
        found[rows.index] = np.where(reached.any(1), reached.argmax(1) / job.checks, 1.0)
    return found


@torch.no_grad()
def _units(
    job: StartContest,
    problems: Sequence[StartProblem],
    racers: Sequence[_Racer],
    begun: Mapping[tuple[str, int, int], nn.Module],
) -> pd.DataFrame:
    """Return the shares of hidden units that are positive at no training point, or have one sign at all, at start."""
    rows = []
    for one in racers:
        state = stack_state([begun[one.entry, one.number, one.gaussian]])
        _, hidden = outputs(job, state, problems[one.gaussian].train[0][None])
        z = torch.cat(hidden, -1)[0]
        above, below = (z > 0).any(0), (z < 0).any(0)
        rows.append({"dead": float((~above).double().mean()), "aside": float((~(above & below)).double().mean())})
    return pd.DataFrame(rows)


def _kept(job: StartContest, problems: Sequence[StartProblem], racers: Sequence[_Racer], state: State) -> list[float]:
    """Return the share of directions that each trained metric has kept."""
    found = []
    for place, one in enumerate(racers):
        gaussian = problems[one.gaussian].gaussian
        assert gaussian is not None
        layer = state["0.weight"][place], state["0.bias"][place]
        active: Any = 1.0
        if job.activation == "relu":
            x = problems[one.gaussian].train[0]
            active = ((x @ layer[0].mT + layer[1]) > 0).double().mean(0).numpy()
        found.append(probes.metric_rank(layer, gaussian.mean, gaussian.cov, active).rank / job.dim)
    return found


WORK = once(contested)
