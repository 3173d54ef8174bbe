"""Stored groups as networks, and tables that are measured on them once and then read from the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from metriscope.runs import Driver, Finished, Result, once
from metriscope.studies.vq.networks.plan import Group
from metriscope.studies.vq.train import Networks

__all__ = ["Rows", "ends_of", "stored", "trained"]

Rows = Iterable[Mapping[str, object]]


def trained(groups: Iterable[Group], runs: Finished) -> dict[Group, Networks]:
    """Return the networks of each group."""
    return {group: Networks(group, runs[group]) for group in groups}


def stored(driver: Driver, specs: Sequence[Any], rows: Callable[[Any], Rows], label: str) -> pd.DataFrame:
    """Return the rows of all specifications, one after the other; those in the store are not measured again."""
    found = driver.perform(specs, once(lambda spec: Result({"rows": pd.DataFrame(list(rows(spec)))})), label)
    return pd.concat([found[spec].table("rows") for spec in specs], ignore_index=True)


def ends_of(networks: Iterable[Networks]) -> pd.DataFrame:
    """Return one row per network: the losses and accuracies it ended with."""
    return pd.concat([some.ends() for some in networks], ignore_index=True)
