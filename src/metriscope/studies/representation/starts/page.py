"""The section on recorded runs by the paper's protocol, and on whether they start where the published ones did."""

from __future__ import annotations

from metriscope.report import Block, Details, Prose, Section, Table, number
from metriscope.studies.representation.accuracy import page as accuracy
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.plan import title
from metriscope.studies.representation.starts.measure import STATISTICS
from metriscope.studies.representation.starts.plan import Identifying
from metriscope.studies.representation.units import page as units

__all__ = ["sections"]

PREFIX = "recorded-"
IMAGES = {"train": "training images", "test": "test images"}
VERDICTS = {
    "identified": "Other starts would rarely match as closely: the starts are identified as the published ones.",
    "not identified": "Other starts would match as closely: the starts are not identified as the published ones.",
    "open": "All published runs have to be replayed before their starts can count as identified.",
}


def sections(results: RepresentationResults) -> tuple[Section, ...]:
    """Return the section on recorded runs beside those of this report, or else that on replayed starts, if any."""
    if results.beside is not None:
        return (_from_records(results.beside),)
    found = _identification(results)
    return (Section("Are the replayed starts the published ones?", found),) if found else ()


def _from_records(beside: RepresentationResults) -> Section:
    setting = beside.settings[0]
    rows = beside.tables["runs"]
    replayed = int((rows["start"] == "author").sum())
    text = (
        f"{len(rows)} trainings by the paper's protocol are too long for this profile and come with the package as "
        f"records: every number, without weights. {replayed} of them start from the random numbers of the published "
        "runs, the others from our own; a run of our own is left out where a replayed one has its number. Claims are "
        "judged by these runs where each network that a claim compares has enough of them."
    )
    every = [units.dead(beside, s, f"{PREFIX}dead-{i}", whole=True) for i, s in enumerate(beside.settings)]
    tested = str(setting) in set(beside.tables["compared"]["setting"])
    more = [accuracy.pairs(beside, setting, f"{PREFIX}tests", whole=True) if tested else None, *every]
    kept = tuple(table for table in more if table is not None)
    folded = (Details("Tests between networks, and inactive units", kept),) if kept else ()
    found: tuple[Block, ...] = (Prose(text), *accuracy.blocks(beside, PREFIX), *folded, *_identification(beside))
    return Section("The paper's protocol, from records", found)


def _identification(results: RepresentationResults) -> tuple[Block, ...]:
    """Return how close replayed runs are to the printed numbers, and how often other starts would be."""
    table, asked = results.tables["starts"], Identifying()
    if table.empty:
        return ()
    rows, name = [row for _, row in table.iterrows()], title(asked.network)
    first = rows[0]
    dead = ", ".join(f"{_spread(row['dead mean'], row['dead sd'])} on {IMAGES[row['images']]}" for row in rows)
    chances = ", ".join(f"p = {number(row['p'])} with dead outputs on {IMAGES[row['images']]}" for row in rows)
    pool = "runs with starts of our own" if first["drawn from"] == "own" else "the replayed runs themselves"
    best = next((v for v in VERDICTS if v in set(table["verdict"])), "open")
    text = (
        f"The published random numbers of {name} can be computed, but not with certainty: they depend on how the "
        f"author's GPU divides a tensor among its threads. {first['runs']} of the {first['of']} published runs of "
        f"{name} are replayed. They reach {_spread(first['mean'], first['sd'])} % (printed: "
        f"{_spread(first['printed mean'], first['printed sd'])}), and the number of dead outputs is {dead} (printed: "
        f"{_spread(first['printed dead mean'], first['printed dead sd'])}). Sets of as many runs, drawn from {pool}, "
        f"are as close to the printed numbers with {chances}; {asked.alpha:g}, shared by both, is the level. "
        f"{VERDICTS[best]}"
    )
    note = (
        "Test accuracy in per cent and number of dead outputs: mean and standard deviation (divided by n) over the "
        f"replayed runs, beside those printed. Distance: Euclidean over the four, each in its deviation over "
        f"{asked.draws:,} drawn sets. p: the share of drawn sets that are as close."
    )
    groups = {"replayed": STATISTICS, "published": tuple(f"printed {name}" for name in STATISTICS)}
    labels = {f"printed {name}": name for name in STATISTICS}
    formats = dict.fromkeys((*STATISTICS, *labels), ".2f")
    heading = f"{name}: replayed runs beside the printed numbers"
    return Prose(text), Table("published-starts", heading, table, note, formats, groups, labels)


def _spread(mean: float, sd: float) -> str:
    return f"{mean:.2f} ± {sd:.2f}"
