"""The MNIST study's tables of what lies inside: hyperplanes and classes, prototypes, alpha, perturbations."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Table, mean_sd
from metriscope.report.numbers import MISSING
from metriscope.studies.representation.analysis import Analysis
from metriscope.studies.representation.inside import crossed, unit_statistics
from metriscope.studies.representation.measure import mean_text, printed
from metriscope.studies.representation.perturbed import POINTS, ranges
from metriscope.studies.representation.results import title

__all__ = ["forms", "perturbations", "places", "planes", "units", "weighing"]


def units(analysis: Analysis) -> Table | None:
    """Return mean, variance and skewness of every class along the chosen units."""
    if not analysis.units:
        return None
    frame = unit_statistics(analysis.units)
    frame["network"] = frame["network"].map(title)
    note = f"First seed. {analysis.units[0].run.setting}. Chosen: the largest absolute weight to the digit's output."
    return Table("unit-classes", "Classes along the chosen units", frame, note, {"below zero": ".0%"})


def planes(analysis: Analysis) -> Table | None:
    """Return how output hyperplanes lie to their own class and to the others, over seeds."""
    if analysis.planes.empty:
        return None
    measures = ("own distance", "nearest other", "own inside", "others inside", "nearest own")
    rows = [
        {"network": title(str(n)), "seeds": len(part), **{m: mean_text(part[m]) for m in measures}}
        for n, part in crossed(analysis.planes).groupby("network", sort=False)
    ]
    labels = {
        "own distance": "own class", "nearest other": "nearest other",
        "own inside": "own in band", "others inside": "others in band", "nearest own": "own nearest",
    }  # fmt: skip
    groups = {"distance of the class mean, in sd": measures[:2], "share": measures[2:]}
    note = (
        "Each output's hyperplane z = 0 against the classes, mean over outputs, then mean [95 % t interval] over "
        "seeds. Band: within a quarter of the output's standard deviation around zero. By S2's theory distance "
        "networks (Neg) cross their own class, intensity networks the others."
    )
    return Table("output-classes", "Where output hyperplanes pass", pd.DataFrame(rows), note, {}, groups, labels)


def places(analysis: Analysis) -> Table | None:
    """Return where prototypes lie, over seeds."""
    if analysis.places.empty:
        return None
    rows = []
    for network, part in analysis.places.groupby("network", sort=False):
        seeds = _by_seed(part)
        rows.append({"network": title(str(network)), "seeds": len(seeds), **{k: mean_text(seeds[k]) for k in seeds}})
    labels = {"mu": "‖μ‖", "mean": "‖class mean‖", "own nearest": "nearest", "own farthest": "farthest"}
    groups = {
        "distance of μ from class means": ("own", "others"),
        "own prototype is": ("own nearest", "own farthest"),
    }
    note = (
        "In the space of hidden activations, as the network measures it, alpha included. A prototype starts as N(0, "
        "0.1), which has a norm of about 1.13 with 128 units. Last: shares of class means to which, of all "
        "prototypes, their own is the nearest (what a distance needs) or the farthest (what an intensity needs). Mean "
        "[95 % t interval] over seeds."
    )
    return Table("prototype-places", "Where the prototypes lie", pd.DataFrame(rows), note, {}, groups, labels)


def _by_seed(part: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for _, one in part.groupby("seed", sort=False):
        own, rest = one[one["output"] == one["class"]].set_index("class"), one[one["output"] != one["class"]]
        others = rest.groupby("class")["weighted"]
        rows.append({
            "mu": own["norm of mu"].mean(), "mean": own["norm of mean"].mean(), "own": own["weighted"].mean(),
            "others": rest["weighted"].mean(), "own nearest": float((own["weighted"] < others.min()).mean()),
            "own farthest": float((own["weighted"] > others.max()).mean()),
        })  # fmt: skip
    return pd.DataFrame(rows)


def weighing(analysis: Analysis) -> Table | None:
    """Return what alpha goes with, over seeds."""
    if analysis.weighing.empty:
        return None
    names = {
        "compact": "with 1 / sd within the class", "quiet": "with 1 / sd over all", "own": "with the class's mean",
        "mean alpha": "mean", "sd alpha": "sd", "negative": "share below 0",
    }  # fmt: skip
    rows = []
    for network, part in analysis.weighing.groupby("network", sort=False):
        seeds = part.groupby("seed")[list(names)].mean()
        line: dict[str, object] = {"network": title(str(network)), "seeds": len(seeds)}
        line |= {k: mean_text(seeds[k]) for k in ("compact", "quiet", "own")}
        rows.append(line | {k: float(seeds[k].mean()) for k in ("mean alpha", "sd alpha", "negative")})
    groups = {"rank correlation of α": ("compact", "quiet", "own"), "α": ("mean alpha", "sd alpha", "negative")}
    note = "Over hidden units, mean over classes; mean [95 % t interval] over seeds. α starts at 1."
    return Table("alpha-weighs", "What alpha weighs", pd.DataFrame(rows), note, {}, groups, names)


def forms(analysis: Analysis) -> Table | None:
    """Return what both forms of OffsetL2 give on the same weights."""
    if analysis.forms.empty:
        return None
    means = analysis.forms.groupby("network", sort=False)
    frame = means[["agree", "undefined", "rewritten"]].mean().reset_index()
    frame.insert(1, "seeds", means.size().to_numpy())
    frame["network"] = frame["network"].map(title)
    labels = {"agree": "same class by both forms", "undefined": "distances without a real root"}
    labels["rewritten"] = "largest difference after squaring α"
    note = "Training images; prototypes and weights as trained; means over seeds."
    return Table(
        "offset-forms",
        "Two forms, one set of weights",
        frame,
        note,
        {"agree": ".1%", "undefined": ".1%"},
        labels=labels,
    )


def perturbations(analysis: Analysis) -> Table | None:
    """Return the levels between which accuracy holds, over seeds, beside the printed ranges."""
    found = ranges(analysis.perturbed) if len(analysis.perturbed) else pd.DataFrame()
    if found.empty:
        return None
    theirs = printed("perturbation").set_index(["network", "kind"])
    rows = []
    for (network, kind), part in found.groupby(["network", "kind"], sort=False):
        base = summarize(part["baseline"])
        line = {"network": title(str(network)), "perturbation": kind, "seeds": len(part)}
        line |= {"baseline": mean_sd(base.mean, base.sd) if len(part) > 1 else f"{base.mean:.2f}"}
        line |= {end: _end(part[end]) for end in ("low", "high")}
        key = (str(network).removesuffix("-bias"), kind)
        printed_row = theirs.loc[key] if key in theirs.index and "-bias" not in str(network) else {}
        line |= {f"published {end}": _percent(printed_row.get(end, math.nan)) for end in ("low", "high")}
        rows.append(line)
    groups = {"ours": ("low", "high"), "published": ("published low", "published high")}
    labels = {
        f"{kind}{end}": f"{word}, %" for kind in ("", "published ") for end, word in (("low", "from"), ("high", "to"))
    }
    labels["baseline"] = "unperturbed, %"
    note = (
        f"{found['setting'].iloc[0]}. Levels between which training accuracy stays within {POINTS:g} point of the "
        "unperturbed, interpolated; shares of the unit's range (its largest minus its smallest pre-activation). Mean "
        "[95 % t interval] over seeds; “all”: up to the last level measured (1 % to 1,000 %, offset −200 % to 100 %)."
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
