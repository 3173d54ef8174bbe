"""The factorial experiment on ReLU2: networks from several starts, trained together, and observed while outputs die.

Axes: S starts, N images, K hidden units, C outputs. Epoch ``e`` is the network after ``e`` steps.
The unit of replication is the start; every contrast is taken within a start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Protocol

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from scipy import stats
from torch import Tensor, nn

from metriscope.data import digest
from metriscope.functional import holm, summarize
from metriscope.runs import Driver, Record, Result, once
from metriscope.studies.representation.experiments import FACTORS, CollapseCell, baselines, cells, controls, tuning
from metriscope.studies.representation.plan import MODELS, NAME, RepresentationPlan, RepresentationTraining
from metriscope.studies.representation.train import images, start
from metriscope.studies.tidy_tables import joined, matching
from metriscope.train import recorded_epochs
from metriscope.train.classifiers import Classifier, PackedExamples, advance, examples, measure

__all__ = [
    "asked", "cells_of", "compute", "effects", "even", "find", "gather", "half_dead_epoch", "lifted", "pushes", "rates",
]  # fmt: skip


def rates(cell: CollapseCell, begin: int, end: int) -> Iterator[tuple[int, float]]:
    """Yield numbers of epochs with their learning rate, from one epoch to another.

    >>> list(rates(CollapseCell("relu2", "raw", 1.0, warmup=4), 2, 9))
    [(1, 0.75), (1, 1.0), (5, 1.0)]
    """
    for epoch in range(begin, min(end, cell.warmup)):
        yield 1, cell.lr * (epoch + 1) / cell.warmup
    if end > cell.warmup:
        yield end - max(begin, cell.warmup), cell.lr


def counted(cell: CollapseCell) -> np.ndarray:
    """Return the epochs at which dead outputs are counted, the first and the last included."""
    return recorded_epochs(cell.epochs + 1, cell.counts)


@dataclass(frozen=True, eq=False)
class CollapseTask:
    """Training images as tensors, and training and test images packed."""

    x: Float[Tensor, "n d"]
    y: Int[Tensor, " n"]
    train: PackedExamples
    test: PackedExamples


@lru_cache(maxsize=1)
def _task(job: RepresentationTraining) -> CollapseTask:
    train, test = images(job)
    packed = (examples(train.x, train.y), examples(test.x, test.y, gradient=False))
    return CollapseTask(torch.from_numpy(train.x), torch.from_numpy(train.y).long(), *packed)


def _training(cell: CollapseCell, number: int) -> RepresentationTraining:
    """Return the training of this study that has the same images and the same start."""
    size = (cell.data, cell.train_size, cell.pixels, cell.epochs, cell.seed, cell.sha256)
    return RepresentationTraining(cell.model, number, *size)


def lifted(model: nn.Sequential, x: Float[Tensor, "n d"], lift: float) -> dict[str, Tensor]:
    """Return the network's state with a second-layer bias of ``lift`` deviations of the output pre-activations."""
    with torch.no_grad():
        z = model[:3](x)
    return {**model.state_dict(), "2.bias": torch.full((z.shape[1],), lift * float(z.std()))}


def _network(cell: CollapseCell, number: int, x: Float[Tensor, "n d"]) -> Classifier:
    model = start(_training(cell, number))
    if cell.lift:
        return Classifier(f"{cell.model}-bias", lifted(model, x, cell.lift), target=cell.target)
    return Classifier(cell.model, model.state_dict(), target=cell.target)


def pushes(z: Float[Tensor, "n c"], y: Int[Tensor, " n"]) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """Return how much cross-entropy pushes each ReLU output up (its targets) and down (all other images).

    ``z`` are pre-activations. Both are means over images of the loss's derivative with respect to the pre-activations,
    which is zero where these are negative. Without ReLU, both sums over outputs would be equal on every image.

    >>> up, down = pushes(torch.tensor([[1.0, 1.0], [1.0, -1.0]]), torch.tensor([0, 1]))
    >>> up.tolist(), [round(value, 3) for value in down.tolist()]
    ([0.25, 0.0], [0.366, 0.25])
    """
    own = torch.nn.functional.one_hot(y, z.shape[1]).bool()
    change = (torch.softmax(z.clamp(min=0), 1) - own.to(z)) * (z > 0)
    return (change * own).abs().mean(0), (change * ~own).mean(0)


def even(up: Float[Tensor, " c"], down: Float[Tensor, " c"]) -> Float[Tensor, " c"]:
    """Return, per output, the factor of its targets that makes both pushes equal; 1 for an output without targets.

    >>> even(torch.tensor([0.25, 0.0]), torch.tensor([0.5, 0.5]))
    tensor([2., 1.])
    """
    return torch.where(up > 0, down / up.clamp(min=torch.finfo(up.dtype).tiny), 1.0)


def _pre_activations(network: Classifier, x: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
    state = network.state()
    hidden = torch.relu(x @ state["0.weight"].mT + state["0.bias"])
    return (hidden @ state["2.weight"].mT + state.get("2.bias", torch.zeros(1))).double()


def _advance(cell: CollapseCell, networks: list[Classifier], task: CollapseTask, span: tuple[int, int]) -> None:
    """Train from one epoch to another; if pushes are evened, they are measured before every step."""
    for epochs, rate in rates(cell, *span):
        for _ in range(epochs if cell.evened else 1):
            for network in networks if cell.evened else ():
                network.targets[:] = even(*pushes(_pre_activations(network, task.x), task.y)).numpy()
            advance(networks, task.train, 1 if cell.evened else epochs, rate)


def compute(cell: CollapseCell) -> Result:
    """Train every start of a cell and return its end, its dead outputs over epochs, and what pushed its outputs."""
    task = _task(replace(_training(cell, 0), model="relu2"))
    networks = [_network(cell, number, task.x) for number in cell.starts]
    seen, pushed, stops = [], [], counted(cell).tolist()
    for epoch, after in zip(stops, (*stops[1:], stops[-1]), strict=True):
        scores = measure(networks, task.train)
        for i, (number, network) in enumerate(zip(cell.starts, networks, strict=True)):
            seen.append((number, epoch, int((scores.outputs[i] == 0).sum()), scores.loss[i], scores.accuracy[i]))
            if epoch <= cell.pushed and cell.model == "relu2":
                sums = (float(part.sum()) for part in pushes(_pre_activations(network, task.x), task.y))
                pushed.append((number, epoch, *sums))
        _advance(cell, networks, task, (epoch, after))
    ends = pd.DataFrame({"seed": cell.starts, "test_accuracy": measure(networks, task.test).accuracy})
    columns = ["seed", "epoch", "never", "train_loss", "train_accuracy"]
    tables = {"ends": ends, "dead": pd.DataFrame(seen, columns=columns)}
    return Result({**tables, "pushes": pd.DataFrame(pushed, columns=["seed", "epoch", "up", "down"])})


WORK = once(compute)


OUTCOMES = ("test_accuracy", "dead")
EMPTY = {
    "collapse": ("network", "pixels", "factors", "seed", "test_accuracy", "dead", "early", "diverged"),
    "collapse effects": ("cells", "outcome", "factor", "with", "mean", "low", "high", "starts", "p", "holm"),
    "collapse deaths": ("pixels", "factors", "seed", "epoch", "dead"),
    "collapse pushes": ("pixels", "factors", "seed", "epoch", "up", "down"),
    "collapse controls": ("network", "pixels", "factors", "rate", "seed", "test_accuracy", "train_loss", "dead"),
}


class Tabled(Protocol):
    """A run, or the record of a run."""

    def table(self, name: str) -> pd.DataFrame:
        """Return a table by its name."""


def asked(seed: int) -> tuple[CollapseCell, ...]:
    """Return every cell, in the order in which they should be trained."""
    base = CollapseCell("relu2", "raw", 1e-3, seed=seed, sha256=digest("mnist-5k"))
    return (*tuning(base), *baselines(base), *cells(base), *controls(base))


def find(plan: RepresentationPlan, driver: Driver) -> tuple[dict[CollapseCell, Tabled], str]:
    """Return the available cells and their origin: runs, or records that come with the package.

    Training takes half an hour, so cells are trained only if all networks of the paper's protocol are asked for.
    """
    wanted = asked(plan.seed)
    if plan.profile == "paper" and {m for part in plan.parts for m in part.models} == set(MODELS):
        return dict(driver.perform(wanted, WORK, f"{NAME}: collapse")), "run"
    return dict(driver.recorded(wanted)), "record"


def cells_of(records: Iterable[Record]) -> dict[CollapseCell, Tabled]:
    """Return records by the cell that each describes."""
    found: dict[CollapseCell, Tabled] = {}
    for record in records:
        spec = {name: value for name, value in record.spec.items() if name != "kind"}
        found[CollapseCell(**{**spec, "starts": tuple(spec["starts"])})] = record
    return found


def half_dead_epoch(epochs: np.ndarray, never: np.ndarray) -> float:
    """Return the first epoch at which half of the outputs that are dead at the end are dead; NaN if none are.

    >>> half_dead_epoch(np.array([0, 5, 10]), np.array([1, 2, 4]))
    5.0
    """
    return float(epochs[np.argmax(never >= never[-1] / 2)]) if never[-1] else math.nan


def gather(found: Mapping[CollapseCell, Tabled], origin: str) -> dict[str, pd.DataFrame]:
    """Return the tables of all cells: ends, effects, deaths and pushes over epochs, and controls.

    ``dead`` is the share of outputs that no training image makes active at the end, ``early`` the share of training
    after which half of them are dead. Accuracies are per cent.
    """
    wide = {cell: _ends(cell, run).assign(origin=origin) for cell, run in found.items()}
    main = {cell for cell in found if not cell.control}
    factorial = [cell for cell in found if cell in main and cell.model == "relu2"]
    series = {name: _series(((c, found[c]) for c in factorial), name) for name in ("dead", "pushes")}
    tables = {
        "collapse": joined(wide[cell] for cell in found if cell in main),
        "collapse deaths": series["dead"].rename(columns={"never": "dead"}),
        "collapse pushes": series["pushes"],
        "collapse controls": joined(wide[cell] for cell in found if cell not in main),
    }
    whole = len(factorial) == 2 ** len(FACTORS)
    tables["collapse effects"] = _both(matching(tables["collapse"], network="relu2")) if whole else pd.DataFrame()
    return {k: tables[k] if len(tables[k]) else pd.DataFrame(columns=list(EMPTY[k])) for k in EMPTY}


def _where(cell: CollapseCell) -> dict[str, Any]:
    return {"network": cell.model, "pixels": cell.pixels, "factors": cell.factors, "rate": cell.lr, **cell.on}


def _ends(cell: CollapseCell, run: Tabled) -> pd.DataFrame:
    """Return one row per start; outputs of a network that diverged are counted while its loss was still finite."""
    rows, outputs = [], 10
    seen = run.table("dead")
    for _, end in run.table("ends").iterrows():
        own = seen[seen["seed"] == end["seed"]]
        sound = own[np.isfinite(own["train_loss"])]
        epochs, never = sound["epoch"].to_numpy(), sound["never"].to_numpy()
        early = half_dead_epoch(epochs, never) / cell.epochs
        line = {"seed": int(end["seed"]), "dead": never[-1] / outputs, "early": early}
        line |= {"train_loss": own["train_loss"].iloc[-1], "diverged": len(sound) < len(own)}
        rows.append({**_where(cell), **line, "test_accuracy": 100 * end["test_accuracy"]})
    return pd.DataFrame(rows)


def _series(found: Iterable[tuple[CollapseCell, Tabled]], name: str) -> pd.DataFrame:
    return joined(run.table(name).assign(**_where(cell)) for cell, run in found)


def _contrasts(rows: pd.DataFrame, factors: Mapping[str, str]) -> Iterator[tuple[str, str, pd.Series]]:
    """Yield each factor, the factor it interacts with (or none), and a column of weights, one per row of one start.

    The weights of a main effect give the mean over cells with the factor on, minus the mean with it off. Those of an
    interaction give how much larger this difference is where the other factor is on.
    """
    signs = {name: rows[name].map({True: 1.0, False: -1.0}) for name in factors}
    count = 2 ** len(factors)
    for name, text in factors.items():
        yield text, "", signs[name] * 2 / count
    for one, other in combinations(factors, 2):
        yield factors[one], factors[other], signs[one] * signs[other] * 4 / count


def effects(rows: pd.DataFrame, factors: Mapping[str, str] = FACTORS) -> pd.DataFrame:
    """Return main effects and two-factor interactions on each outcome, with 95 % t intervals over starts.

    ``rows`` has one row per cell and start, and a boolean column for each factor. Holm's correction is over the
    effects on one outcome.
    """
    found = []
    for outcome in OUTCOMES:
        lines = []
        for factor, other, weights in _contrasts(rows, factors):
            # Rounded, because sums of equal shares differ in their last digits.
            values = (weights * rows[outcome]).groupby(rows["seed"]).sum().round(9)
            mean = summarize(values)
            # If all starts are equal, there is no spread, and no test.
            t = math.sqrt(mean.count) * abs(mean.mean) / mean.sd if mean.sd > 0 else math.nan
            p = 2 * float(stats.t.sf(t, mean.count - 1))
            line = {"outcome": outcome, "factor": factor, "with": other, "starts": mean.count, "p": p}
            lines.append({**line, "mean": mean.mean, "low": mean.low, "high": mean.high})
        found.append(pd.DataFrame(lines).assign(holm=lambda part: holm(part["p"])))
    return pd.concat(found, ignore_index=True)


def _both(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the effects over all cells, and over those with the plain gradient, which do not diverge."""
    rest = {name: text for name, text in FACTORS.items() if name != "balanced"}
    parts = (
        effects(rows).assign(cells="all"),
        effects(rows[~rows["balanced"].astype(bool)], rest).assign(cells="plain gradient"),
    )
    return pd.concat(parts, ignore_index=True)[list(EMPTY["collapse effects"])]
