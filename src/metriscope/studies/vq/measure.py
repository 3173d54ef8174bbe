"""Let every experiment of the VQ study measure its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from metriscope.runs import Driver, Finished
from metriscope.studies.vq.beyond import measure as beyond
from metriscope.studies.vq.digits import measure as digits
from metriscope.studies.vq.explorer import measure as explorer
from metriscope.studies.vq.lemmas import measure as lemmas
from metriscope.studies.vq.moons import measure as moons
from metriscope.studies.vq.plan import Plan
from metriscope.studies.vq.spheres import measure as spheres

__all__ = ["Results", "measure"]


@dataclass(frozen=True)
class Results:
    """What every experiment measured."""

    moons: moons.Results
    spheres: spheres.Results
    digits: digits.Results
    lemmas: lemmas.Results
    beyond: beyond.Results
    explorer: explorer.Results

    @cached_property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """The tables of all experiments."""
        parts = (self.moons, self.spheres, self.digits, self.lemmas, self.beyond, self.explorer)
        return {name: table for part in parts for name, table in part.tables.items()}


def measure(plan: Plan, runs: Finished, driver: Driver) -> Results:
    """Measure the finished runs, figure by figure."""
    turned, separated = moons.measure(plan.moons, runs, driver), spheres.measure(plan.spheres, runs, driver)
    compared, cut = digits.measure(plan.digits, runs, driver), lemmas.measure(plan.lemmas, driver)
    more = beyond.measure(plan.beyond, runs, driver, compared, turned)
    return Results(turned, separated, compared, cut, more, explorer.measure(plan.explorer, runs, driver))
