"""Everything the report says, measured once: tables that figures, verdicts and pages share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from threadpoolctl import threadpool_limits

from metriscope.studies.representation import inside, measure, perturbed, prototypes
from metriscope.studies.representation.comparisons import compare
from metriscope.studies.representation.results import Results, Setting

__all__ = ["Analysis", "analyse"]


@dataclass(frozen=True, eq=False)
class Analysis:
    """Tables by what they hold; one without rows stands for what could not be measured."""

    results: Results
    rows: pd.DataFrame
    summary: pd.DataFrame
    compared: pd.DataFrame
    dead: pd.DataFrame
    placed: pd.DataFrame
    perturbed: pd.DataFrame
    planes: pd.DataFrame
    places: pd.DataFrame
    weighing: pd.DataFrame
    forms: pd.DataFrame
    units: tuple[inside.Unit, ...] = ()
    seen: tuple[prototypes.Seen, ...] = ()
    observed: tuple[prototypes.Hidden, ...] = ()

    def networks(self, setting: Setting) -> tuple[str, ...]:
        """Return the networks of a setting, in the order of the tables."""
        return tuple(dict.fromkeys(self.rows[self.rows["setting"] == str(setting)]["network"]))

    def setting(self, names: Iterable[str]) -> Setting | None:
        """Return the setting nearest to S2's in which all the named networks were run."""
        wanted = set(names)
        return next((s for s in self.results.settings if wanted <= set(self.networks(s))), None)

    def accuracy(self, setting: Setting, network: str) -> pd.Series:
        """Return the test accuracy of each seed, in per cent, by seed."""
        mask = (self.rows["setting"] == str(setting)) & (self.rows["network"] == network)
        return self.rows[mask].set_index("seed")["test_accuracy"]


def analyse(results: Results) -> Analysis:
    """Measure whatever the runs at hand allow."""
    # Thousands of small products: handing each to several threads costs more than it saves, far more on a busy machine.
    with threadpool_limits(limits=1):
        return _analyse(results)


def _analyse(results: Results) -> Analysis:
    rows = measure.accuracies(results)
    observed = prototypes.observe(results)
    return Analysis(
        results=results,
        rows=rows,
        summary=measure.summary(rows),
        compared=compare(rows),
        dead=measure.dead_units(results),
        placed=measure.placements(results),
        perturbed=perturbed.perturbed(results),
        planes=inside.hyperplanes(results),
        places=prototypes.places(observed),
        weighing=prototypes.weighing(observed),
        forms=prototypes.forms_compared(observed),
        units=inside.units_shown(results),
        seen=prototypes.seen(results, observed),
        observed=observed,
    )
