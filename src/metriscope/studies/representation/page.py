"""The study's part of the report: accuracies, tests, units, prototypes, contradictions, verdicts, and every number."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Block, Claim, Details, Ledger, Prose, Section, Table, number
from metriscope.studies.representation import accuracy_page as accuracy
from metriscope.studies.representation import centers, figures
from metriscope.studies.representation import collapse_page as collapse
from metriscope.studies.representation import perturbations_page as perturbations
from metriscope.studies.representation import units_page as units
from metriscope.studies.representation.accuracy import last_epochs, over_seeds, section_of
from metriscope.studies.representation.experiments import Identifying
from metriscope.studies.representation.measure import RepresentationResults
from metriscope.studies.representation.plan import NAME, TITLE, RepresentationPlan, title
from metriscope.studies.representation.starts import STATISTICS
from metriscope.studies.tidy_tables import source_of

__all__ = ["HIGHLIGHTS", "QUESTION", "sections"]

QUESTION = (
    "Does a classifier measure how far an input is from a class, or how strongly it shows a feature? Sixteen "
    "networks on MNIST, with outputs forced to be positive or negative, and with units that are scaled, clipped and "
    "shifted, help to decide."
)
HIGHLIGHTS = ("recorded-accuracy-0", "replayed-levels")


def prototypes_section(results: RepresentationResults) -> Section:
    """Return the section on prototypes."""
    text = (
        "OffsetL2 is meant to learn one prototype μ per class, and weights α that say which hidden units count. A "
        "prototype's gradient is never longer than its largest |α|, so in T epochs at a learning rate of 10⁻³ it "
        "cannot move farther than about T / 1,000, while raw pixels put class means hundreds away. The table shows how "
        "far it moved."
    )
    missing = "No trained network with an OffsetL2 head is available."
    drawn = (figures.prototypes(results), figures.weights(results))
    return section_of("Prototypes of OffsetL2", text, missing, _places(results), *drawn, _weighing(results))


def _places(results: RepresentationResults) -> Table | None:
    """Return where prototypes lie, over seeds."""
    table = results.tables["places"]
    if table.empty:
        return None
    rows = []
    for (network, _), one in table.groupby(["network", "seed"], sort=False):
        own, rest = one[one["output"] == one["class"]].set_index("class"), one[one["output"] != one["class"]]
        others = rest.groupby("class")["weighted"]
        rows.append({
            "network": network, "mu": own["norm of mu"].mean(), "mean": own["norm of mean"].mean(),
            "own": own["weighted"].mean(), "others": rest["weighted"].mean(),
            "own nearest": float((own["weighted"] < others.min()).mean()),
            "own farthest": float((own["weighted"] > others.max()).mean()),
        })  # fmt: skip
    seeds = pd.DataFrame(rows)
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
    frame = over_seeds(seeds, seeds.columns[1:])
    return Table("prototype-places", "Where the prototypes lie", frame, note, {}, groups, labels)


def _weighing(results: RepresentationResults) -> Table | None:
    """Return what alpha is correlated with, over seeds."""
    table = results.tables["weighing"]
    if table.empty:
        return None
    ranks = {
        "compact": "with 1 / sd within the class", "quiet": "with 1 / sd over all", "own": "with the class's mean",
    }  # fmt: skip
    moments = {"mean alpha": "mean", "sd alpha": "sd", "negative": "share below 0"}
    seeds = table.groupby(["network", "seed"], sort=False)[[*ranks, *moments]].mean().reset_index()
    groups = {"rank correlation of α": tuple(ranks), "α": tuple(moments)}
    note = "Over hidden units, mean over classes; mean [95 % t interval] over seeds. α starts at 1."
    frame = over_seeds(seeds, ranks, moments)
    return Table("alpha-weighs", "What alpha weighs", frame, note, {}, groups, {**ranks, **moments})


PREFIX = "recorded-"
IMAGES = {"train": "training images", "test": "test images"}
VERDICTS = {
    "identified": "Other starts would rarely match as closely: the starts are identified as the published ones.",
    "not identified": "Other starts would match as closely: the starts are not identified as the published ones.",
    "open": "All published runs have to be replayed before their starts can count as identified.",
}


def starts_sections(results: RepresentationResults) -> tuple[Section, ...]:
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


def sections(
    plan: RepresentationPlan | None, results: RepresentationResults, claims: tuple[Claim, ...]
) -> tuple[Section, ...]:
    """Return the study's sections in reading order; a sentence stands for each part that could not be measured."""
    replayed = perturbations.sections(results.tables)
    if not results.settings:
        opening = Prose(_introduction(results) + ("" if replayed else "\n\nNo run is finished."))
        verdicts = (Section("Verdicts", (Ledger(claims),)),) if replayed else ()
        return (Section(TITLE, (opening,)), *replayed, *verdicts)
    return (
        Section(TITLE, (Prose(_introduction(results)), *accuracy.blocks(results))),
        accuracy.tests(results),
        units.dying(results),
        collapse.section(results.tables),
        units.hyperplanes(results),
        centers.section(results.tables),
        prototypes_section(results),
        units.perturbations(results),
        *perturbations.tried(results.tables),
        *replayed,
        accuracy.contradictions(results),
        *starts_sections(results),
        Section("Verdicts C12 to C17, C26 and C27", (Ledger(claims),)),
        Section("Every number of the MNIST study", (Details("One row per run", _everything(results)),)),
    )


def _introduction(results: RepresentationResults) -> str:
    short = " ".join(results.deviations)
    more = f"\n\n**Different from the paper's protocol.** {short}" if short else ""
    return (
        "Networks of 784, 128 and 10 units learn MNIST by full-batch gradient descent under constraints on what their "
        "outputs may mean. A second activation makes the outputs non-negative, so that cross-entropy asks for "
        "intensities; a negation after it makes them distances, small for the right class. OffsetL2 directly measures "
        "the distance to one learned prototype per class. Oursland (2025) reads the differences as a preference for "
        f"distances. Published numbers: {source_of(NAME)}.{more}"
    )


def _everything(results: RepresentationResults) -> tuple[Table, ...]:
    """Return the tidy tables behind the page."""
    named = {
        "all-runs": ("Every run", _informative(results.tables["runs"])),
        "all-dead": ("Inactive units of every run at its end", last_epochs(results.tables["dead"])),
        "all-perturbed": ("Every perturbation", results.tables["perturbed"]),
        "all-alpha": ("Every output's alpha", results.tables["weighing"]),
    }
    return tuple(Table(f"representation-{name}", text, frame) for name, (text, frame) in named.items() if len(frame))


def _informative(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table of runs without the columns on their start and origin that say the same of all of them."""
    return rows.drop(columns=[name for name in ("start", "origin") if rows[name].nunique() < 2])
