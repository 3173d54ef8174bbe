"""Sections on units: those that die, the classes at their hyperplanes, and perturbed pre-activations."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Details, Section, Table, mean_sd, mean_text
from metriscope.report.numbers import MISSING
from metriscope.studies.representation import figures
from metriscope.studies.representation.accuracy import last_epochs, over_seeds, printed, section_of
from metriscope.studies.representation.accuracy_page import shortened
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.plan import Setting, title
from metriscope.studies.representation.units import INACTIVE, half_dead
from metriscope.studies.tidy_tables import matching

__all__ = ["dead", "dying", "hyperplanes", "perturbations"]

ENDS = {"low": "from", "high": "to"}


def dying(results: RepresentationResults) -> Section:
    """Return the section on units that die."""
    first = results.settings[0]
    every = [dead(results, setting, f"dead-{i}", whole=True) for i, setting in enumerate(results.settings)]
    found = tuple(table for table in every if table is not None)
    text = (
        "Oursland (2025) explains the low accuracy of ReLU2 by output units that no image makes active: 33 % in its "
        "text, 22 % in the author's notes, and 53.5 % rarely active, which means under 5 % of inputs in the text and "
        "under 1 % in the code."
    )
    more = Details("Every layer and setting, training and test images", found) if found else None
    shown = (figures.dying(results, first, "dying"), dead(results, first, "dead"), more)
    return section_of("Units that die", text, "No record of inactive units is available.", *shown)


def dead(results: RepresentationResults, setting: Setting, name: str, whole: bool = False) -> Table | None:
    """Return the share of inactive units at the end, over seeds, beside the printed shares.

    Unless ``whole``: on training images only, and without layers in which no unit is inactive.
    """
    rows = matching(results.tables["dead"], setting=str(setting))
    rows = rows if whole else matching(rows, part="train")
    lines = []
    for network in results.networks(setting):
        for (layer, part), held in matching(rows, network=network).groupby(["layer", "part"], sort=False):
            if whole or (held[list(INACTIVE)] > 0).any(axis=None):
                lines.append({"network": title(network), "layer": layer, "images": part, **_inactive(network, held)})
    if not lines:
        return None
    frame = pd.DataFrame(lines) if whole else pd.DataFrame(lines).drop(columns=["images"])
    theirs = {f"published {k}": text for k, text in INACTIVE.items()}
    groups = {"ours": (*INACTIVE, "half dead at"), "published": tuple(theirs)}
    listed = " Training images; layers not listed never had a unit under 5 %. Printed: §6 first, then notes."
    note = (
        f"{shortened(results, setting)} Per cent of the layer's units at the last epoch that are active "
        "(|activation| > 10⁻⁶) never, for under 1 % and for under 5 % of the images: mean [95 % t interval]. “Half "
        "dead at”: the recorded epoch by which half of the units that are never active at the end had become "
        "so, in the median seed." + ("" if whole else listed)
    )
    kind = "Inactive units, every layer" if whole else "Inactive units"
    return Table(name, f"{kind}: {setting}", frame, note, {"half dead at": ",.0f"}, groups, {**INACTIVE, **theirs})


def _inactive(network: str, held: pd.DataFrame) -> dict[str, object]:
    """Return one line: what is inactive at the end of each run, and what is printed for outputs on training images."""
    last = last_epochs(held)
    shown = (last[["layer", "part"]] == ["output", "train"]).all(axis=None)
    theirs = printed("dead_output_units", network=network) if shown else pd.DataFrame()
    line = {"units": last["units"].iloc[0], "seeds": last["seed"].nunique()}
    line |= {k: mean_text(last[k]) for k in INACTIVE} | {"half dead at": half_dead(held)}
    means = {k: matching(theirs, threshold=k)["mean"] if len(theirs) else () for k in INACTIVE}
    return line | {f"published {k}": ", ".join(f"{mean:g}" for mean in means[k]) or MISSING for k in INACTIVE}


def hyperplanes(results: RepresentationResults) -> Section:
    """Return the section on classes in the hidden space."""
    text = (
        "Oursland (2025) argues from where hyperplanes meet classes: a distance output should pass through its own "
        "class (z_c), an intensity output through the others (not z_c). Both can be measured."
    )
    shown = (figures.distributions(results), _statistics(results), figures.heat_maps(results), _planes(results))
    return section_of("Classes in the hidden space", text, "No trained network with its images is available.", *shown)


def _statistics(results: RepresentationResults) -> Details | None:
    """Return mean, variance and skewness of every class along the chosen units."""
    if not results.units:
        return None
    frame = pd.concat([unit.statistics for unit in results.units], ignore_index=True)
    frame["network"] = frame["network"].map(title)
    note = f"First seed. {results.units[0].setting}. Chosen: the largest absolute weight to the digit's output."
    table = Table("unit-classes", "Classes along the chosen units", frame, note, {"below zero": ".0%"})
    return Details("Mean, variance and skewness of each class", (table,))


def _planes(results: RepresentationResults) -> Table | None:
    """Return how output hyperplanes lie to their own class and to the others, over seeds."""
    table = results.tables["crossed"]
    if table.empty:
        return None
    labels = {
        "own distance": "own class", "nearest other": "nearest other",
        "own inside": "own in band", "others inside": "others in band", "nearest own": "own nearest",
    }  # fmt: skip
    groups = {"distance of the class mean, in sd": tuple(labels)[:2], "share": tuple(labels)[2:]}
    note = (
        "Each output's hyperplane z = 0 against the classes, mean over outputs, then mean [95 % t interval] over "
        "seeds. Band: within a quarter of the output's standard deviation around zero. By the paper's theory distance "
        "networks (Neg) cross their own class, intensity networks the others."
    )
    frame = over_seeds(table, labels)
    return Table("output-classes", "Where output hyperplanes pass", frame, note, {}, groups, labels)


def perturbations(results: RepresentationResults) -> Section:
    """Return the section on perturbed pre-activations."""
    text = (
        "Oursland (2024b) replaces each hidden unit's pre-activation z by min(scale · z + offset · range, clip · "
        "range), changing one of the three at a time, and asks how far accuracy holds. Here the range is that of the "
        "pre-activation; the paper's is that of the activation, and its program also keeps the largest activation "
        "where it was. With ReLU or Abs and no bias in "
        "the second layer, scaling multiplies every output by one positive number and cannot change which is largest: "
        "only the networks with a bias test it."
    )
    missing = "No trained ReLU or Abs network with its images is available."
    return section_of("Perturbed pre-activations", text, missing, figures.perturbations(results), _ranges(results))


def _ranges(results: RepresentationResults) -> Table | None:
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
        line |= {end: _end(part[end]) for end in ENDS}
        known = theirs.loc[(network, kind)] if (network, kind) in theirs.index else {}
        rows.append(line | {f"published {end}": _percent(known.get(end, math.nan)) for end in ENDS})
    labels = {f"{kind}{end}": f"{word}, %" for kind in ("", "published ") for end, word in ENDS.items()}
    groups = {"ours": tuple(labels)[:2], "published": tuple(labels)[2:]}
    note = (
        f"{found['setting'].iloc[0]}. Levels between which training accuracy stays within "
        f"{results.comparing.points:g} point of the unperturbed, interpolated; shares of the unit's range (its largest "
        "minus its smallest pre-activation). Mean [95 % t interval] over seeds; “all”: up to the last level measured "
        "(1 % to 1,000 %, offset −200 % to 100 %)."
    )
    labels["baseline"] = "unperturbed, %"
    return Table("perturbation-ranges", "How far accuracy holds", pd.DataFrame(rows), note, {}, groups, labels)


def _end(values: pd.Series) -> str:
    if np.isinf(values).all():
        return "all"
    finite = values[np.isfinite(values)]
    some = f" ({len(values) - len(finite)} of {len(values)}: all)" if len(finite) < len(values) else ""
    return f"{mean_text(100 * finite)}{some}"


def _percent(value: float) -> str:
    return MISSING if math.isnan(value) else f"{100 * value:g}".replace("-", "−")
