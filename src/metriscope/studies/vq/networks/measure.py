"""Read trained networks from the store, and measure tables on them once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor, nn

from metriscope.nn import unstack
from metriscope.runs import Driver, Finished, Result, Run, once
from metriscope.studies.vq.networks.plan import Group
from metriscope.studies.vq.train import start
from metriscope.vq import Patterns, alignment

__all__ = ["Networks", "Rows", "aligned", "ends_of", "looked_up", "rows_by_seed", "stored", "trained"]

Rows = Iterable[Mapping[str, object]]


@dataclass(frozen=True)
class Networks:
    """The trained networks of one group, at every epoch whose weights were stored."""

    group: Group
    run: Run

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The stored weights, by epoch and parameter."""
        return self.run.tensors()

    def network(self, number: int, role: str = "first", epoch: int | None = None) -> nn.Sequential:
        """Return one network after training, or at a kept epoch (roles other than "first": 0 or the last)."""
        group = self.group
        template = start(group, number, role)
        if epoch == 0:
            return template.requires_grad_(False)
        last = epoch is None or epoch == group.recipe.epochs
        stacked = group.members if last else tuple((s, "first") for s in group.seeds)
        prefix = f"{group.recipe.epochs if last else epoch}/"
        state = {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}
        return unstack(template, state, stacked.index((number, role))).requires_grad_(False)


def trained(groups: Iterable[Group], runs: Finished) -> dict[Group, Networks]:
    """Return the networks of each group."""
    return {group: Networks(group, runs[group]) for group in groups}


def stored(driver: Driver, specs: Sequence[Any], rows: Callable[[Any], Rows], label: str) -> pd.DataFrame:
    """Return the rows of all specifications in order; rows that are already in the store are not measured again."""
    found = driver.perform(specs, once(lambda spec: Result({"rows": pd.DataFrame(list(rows(spec)))})), label)
    return pd.concat([found[spec].table("rows") for spec in specs], ignore_index=True)


def looked_up(
    driver: Driver, specs: Sequence[Any], rows: Callable[[Any], Rows], label: str, computed: bool
) -> dict[Any, pd.DataFrame]:
    """Return the rows of each specification, computed or from its record if there is one; ``origin`` says which."""
    if not computed:
        return {spec: r.table("rows").assign(origin="record") for spec, r in driver.recorded(specs).items()}
    found = driver.perform(specs, once(lambda spec: Result({"rows": pd.DataFrame(list(rows(spec)))})), label)
    return {spec: found[spec].table("rows").assign(origin="run") for spec in specs}


def rows_by_seed(
    networks: Mapping[Group, Networks], rows: Callable[[Networks, int, Any], Rows]
) -> Callable[[Any], Iterator[dict[str, object]]]:
    """Return a function from a specification with one group to the rows of all its seeds, for :func:`stored`."""

    def all_rows(spec: Any) -> Iterator[dict[str, object]]:
        for seed in spec.group.seeds:
            yield from ({"seed": seed, **row} for row in rows(networks[spec.group], seed, spec))

    return all_rows


def ends_of(networks: Iterable[Networks]) -> pd.DataFrame:
    """Return one row per network: its final loss and accuracies."""
    return pd.concat([some.run.table("ends") for some in networks], ignore_index=True)


def aligned(p: Patterns, q: Patterns, estimator: str) -> float:
    """Return the centered alignment of two networks' kernels on the same points."""
    return float(np.asarray(alignment(p, q, estimator).value))
