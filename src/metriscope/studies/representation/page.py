"""The MNIST study's part of the report: what was run, what came out, what lies inside, contradictions, verdicts."""

from __future__ import annotations

from threadpoolctl import threadpool_limits

from metriscope.report import Block, Details, Ledger, Prose, Section
from metriscope.studies.contract import source_of
from metriscope.studies.representation import contradictions, figures, inside_figures, inside_tables, tables
from metriscope.studies.representation.analysis import Analysis, analyse
from metriscope.studies.representation.claims import verdicts
from metriscope.studies.representation.results import NAME, Results

__all__ = ["sections"]


def sections(results: Results) -> tuple[Section, ...]:
    """Return the study's sections in reading order; parts that could not be measured are left out with a sentence."""
    if not results.runs:
        return (Section("Distance against intensity", (Prose(_introduction(results) + "\n\nNo run is finished."),)),)
    # Densities and distances on a page are small: one thread is quicker than several, above all on a busy machine.
    with threadpool_limits(limits=1):
        return _sections(analyse(results))


def _sections(analysis: Analysis) -> tuple[Section, ...]:
    return (
        Section("Distance against intensity", (Prose(_introduction(analysis.results)), *_accuracies(analysis))),
        Section("Tests between networks", _tests(analysis)),
        Section("Units that die", _dead(analysis)),
        Section("Classes in the hidden space", _inside(analysis)),
        Section("Prototypes of OffsetL2", _prototypes(analysis)),
        Section("Perturbed pre-activations", _perturbed(analysis)),
        Section("Four contradictions of the sources", _contradictions(analysis)),
        Section("Verdicts C12 to C17", (Ledger(verdicts(analysis)),)),
        Section("Every number of the MNIST study", (Details("One row a run", tables.everything(analysis)),)),
    )


def _introduction(results: Results) -> str:
    short = " ".join(results.deviations)
    more = f"\n\n**Different from the paper's protocol.** {short}" if short else ""
    return (
        "Networks of 784, 128 and 10 units learn MNIST by full-batch gradient descent under constraints on what their "
        "outputs may mean. A second activation makes them non-negative, so that cross-entropy asks for intensities; a "
        "negation behind it makes them distances, small for the right class. OffsetL2 measures the distance to one "
        "learned prototype a class outright. S2 reads the differences as a preference for distances. Published "
        f"numbers: {source_of(NAME)}.{more}"
    )


def _shown(*blocks: Block | None, missing: str = "") -> tuple[Block, ...]:
    """Return the blocks there are, or the sentence that says why there are none."""
    found = tuple(block for block in blocks if block is not None)
    return found or (Prose(missing),)


def _accuracies(analysis: Analysis) -> tuple[Block, ...]:
    """Return the setting nearest to S2's in full view, the others to be opened."""
    blocks: list[Block] = []
    for i, setting in enumerate(analysis.results.settings):
        shown = (
            tables.accuracies(analysis, setting, f"accuracies-{i}"),
            figures.accuracies(analysis, setting, f"accuracy-{i}"),
            figures.curves(analysis, setting, f"learning-{i}"),
        )
        blocks += shown if i == 0 else (Details(f"The same at {setting}", shown),)
    return tuple(blocks)


def _tests(analysis: Analysis) -> tuple[Block, ...]:
    there = set(analysis.compared["setting"])
    settings = [s for s in analysis.results.settings if str(s) in there]
    shown = [tables.pairs(analysis, s, "tests") for s in settings[:1]]
    every = tuple(tables.pairs(analysis, s, f"tests-{i}", whole=True) for i, s in enumerate(settings))
    details = (
        [Details("Every setting; Student's test, degrees of freedom, p-values as they are", every)] if every else []
    )
    text = (
        "Every pair that S2 compares. A seed's networks start from the same first layer, so that runs are pairs; S2 "
        "announces paired tests and prints t(38), which is unpaired. Both are given."
    )
    missing = "No pair that S2 compares was run in one setting."
    return (Prose(text), *_shown(*shown, *details, missing=missing), tables.printed_tests())


def _dead(analysis: Analysis) -> tuple[Block, ...]:
    settings = analysis.results.settings
    shown = (figures.dying(analysis, settings[0], "dying"), tables.dead(analysis, settings[0], "dead"))
    every = [tables.dead(analysis, setting, f"dead-{i}", whole=True) for i, setting in enumerate(settings)]
    found = tuple(table for table in every if table is not None)
    details = Details("Every layer and setting, training and test images", found) if found else None
    text = (
        "S2 explains the fall of ReLU2 by output units that no image makes active: 33 % in its text, 22 % in the "
        "author's notes, and 53.5 % rarely active, which is under 5 % of inputs in the text and under 1 % in the code."
    )
    return (Prose(text), *_shown(*shown, details, missing="No record of inactive units is at hand."))


def _inside(analysis: Analysis) -> tuple[Block, ...]:
    text = (
        "S2 argues by where hyperplanes meet classes: a distance output should pass through its own class (z_c), an "
        "intensity output through the others (not z_c). Both can be measured."
    )
    statistics = inside_tables.units(analysis)
    details = Details("Mean, variance and skewness of each class", (statistics,)) if statistics else None
    blocks = (
        inside_figures.distributions(analysis),
        details,
        inside_figures.heat_maps(analysis),
        inside_tables.planes(analysis),
    )
    return (Prose(text), *_shown(*blocks, missing="No trained network with its images is at hand."))


def _prototypes(analysis: Analysis) -> tuple[Block, ...]:
    text = (
        "OffsetL2 was made to learn one prototype μ a class, and weights α that say which hidden units count. A "
        "prototype's gradient is never longer than its largest |α|, so in T epochs at a learning rate of 10⁻³ it "
        "cannot travel farther than about T / 1,000, while raw pixels put class means hundreds away: how far it got "
        "is in the table."
    )
    blocks = (
        inside_tables.places(analysis),
        inside_figures.prototypes(analysis),
        inside_figures.weights(analysis),
        inside_tables.weighing(analysis),
    )
    return (Prose(text), *_shown(*blocks, missing="No trained network with an OffsetL2 head is at hand."))


def _perturbed(analysis: Analysis) -> tuple[Block, ...]:
    text = (
        "P perturbs each hidden unit's pre-activation z to min(scale · z + offset · range, clip · range), one of the "
        "three at a time, and asks how far accuracy holds. With ReLU or Abs and no bias behind, scaling multiplies "
        "every output by one positive number and cannot change which is largest: only the networks with a bias put it "
        "to the test."
    )
    blocks = (figures.perturbations(analysis), inside_tables.perturbations(analysis))
    return (Prose(text), *_shown(*blocks, missing="No trained ReLU or Abs network with its images is at hand."))


def _contradictions(analysis: Analysis) -> tuple[Block, ...]:
    reached = tables.reached(analysis)
    parts: tuple[tuple[str, Block | None], ...] = (
        (contradictions.pixels(analysis), contradictions.pixels_table(analysis)),
        (contradictions.epochs(analysis), Details("Every printed mean on our curves", (reached,)) if reached else None),
        (contradictions.pairing(analysis), None),
        (contradictions.forms(analysis), inside_tables.forms(analysis)),
    )
    return tuple(block for text, table in parts for block in (Prose(text), table) if block is not None)
