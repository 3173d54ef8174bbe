"""How far accuracy holds while pre-activations are perturbed."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Block, Prose, Section, Table, mean_sd, mean_text
from metriscope.report.numbers import MISSING
from metriscope.studies.representation.accuracy.measure import printed
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.perturbation import figures
from metriscope.studies.representation.plan import title

__all__ = ["perturbations", "section"]


def section(results: Results) -> Section:
    """Return the section on perturbed pre-activations."""
    text = (
        "P perturbs each hidden unit's pre-activation z to min(scale · z + offset · range, clip · range), one of the "
        "three at a time, and asks how far accuracy holds. With ReLU or Abs and no bias behind, scaling multiplies "
        "every output by one positive number and cannot change which is largest: only the networks with a bias put it "
        "to the test."
    )
    shown: list[Block | None] = [figures.perturbations(results), perturbations(results)]
    kept = tuple(block for block in shown if block is not None)
    missing = Prose("No trained ReLU or Abs network with its images is at hand.")
    return Section("Perturbed pre-activations", (Prose(text), *(kept or (missing,))))


def perturbations(results: Results) -> Table | None:
    """Return the levels between which accuracy holds, over seeds, beside the printed ranges."""
    found = results.tables["ranges"]
    if found.empty:
        return None
    theirs = printed("perturbation").set_index(["network", "kind"])
    rows = []
    for (network, kind), part in found.groupby(["network", "kind"], sort=False):
        base = summarize(part["baseline"])
        line = {"network": title(str(network)), "perturbation": kind, "seeds": len(part)}
        line |= {"baseline": mean_sd(base.mean, base.sd) if len(part) > 1 else f"{base.mean:.2f}"}
        line |= {end: _end(part[end]) for end in ("low", "high")}
        known = theirs.loc[(network, kind)] if (network, kind) in theirs.index else {}
        line |= {f"published {end}": _percent(known.get(end, math.nan)) for end in ("low", "high")}
        rows.append(line)
    groups = {"ours": ("low", "high"), "published": ("published low", "published high")}
    labels = {
        f"{kind}{end}": f"{word}, %" for kind in ("", "published ") for end, word in (("low", "from"), ("high", "to"))
    }
    labels["baseline"] = "unperturbed, %"
    note = (
        f"{found['setting'].iloc[0]}. Levels between which training accuracy stays within "
        f"{results.comparing.points:g} point of the unperturbed, interpolated; shares of the unit's range (its largest "
        "minus its smallest pre-activation). Mean [95 % t interval] over seeds; “all”: up to the last level measured "
        "(1 % to 1,000 %, offset −200 % to 100 %)."
    )
    return Table("perturbation-ranges", "How far accuracy holds", pd.DataFrame(rows), note, {}, groups, labels)


def _end(values: pd.Series) -> str:
    if np.isinf(values).all():
        return "all"
    finite = values[np.isfinite(values)]
    some = f" ({len(values) - len(finite)} of {len(values)}: all)" if len(finite) < len(values) else ""
    return f"{mean_text(100 * finite)}{some}"


def _percent(value: float) -> str:
    return MISSING if math.isnan(value) else f"{100 * value:g}".replace("-", "−")
