"""Where hyperplanes meet classes."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Block, Details, Prose, Section, Table, mean_text
from metriscope.studies.representation.hyperplanes import figures
from metriscope.studies.representation.measure import Results
from metriscope.studies.representation.plan import title

__all__ = ["planes", "section", "units"]


def section(results: Results) -> Section:
    """Return the section on classes in the hidden space."""
    text = (
        "S2 argues by where hyperplanes meet classes: a distance output should pass through its own class (z_c), an "
        "intensity output through the others (not z_c). Both can be measured."
    )
    statistics = units(results)
    details = Details("Mean, variance and skewness of each class", (statistics,)) if statistics else None
    shown: list[Block | None] = [figures.distributions(results), details, figures.heat_maps(results), planes(results)]
    kept = tuple(block for block in shown if block is not None)
    missing = Prose("No trained network with its images is at hand.")
    return Section("Classes in the hidden space", (Prose(text), *(kept or (missing,))))


def units(results: Results) -> Table | None:
    """Return mean, variance and skewness of every class along the chosen units."""
    if not results.units:
        return None
    frame = pd.concat([unit.statistics for unit in results.units], ignore_index=True)
    frame["network"] = frame["network"].map(title)
    note = f"First seed. {results.units[0].setting}. Chosen: the largest absolute weight to the digit's output."
    return Table("unit-classes", "Classes along the chosen units", frame, note, {"below zero": ".0%"})


def planes(results: Results) -> Table | None:
    """Return how output hyperplanes lie to their own class and to the others, over seeds."""
    table = results.tables["crossed"]
    if table.empty:
        return None
    measures = ("own distance", "nearest other", "own inside", "others inside", "nearest own")
    rows = [
        {"network": title(str(n)), "seeds": len(part), **{m: mean_text(part[m]) for m in measures}}
        for n, part in table.groupby("network", sort=False)
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
