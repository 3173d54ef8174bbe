"""Figures 3 and 4 repeated, the alignments, and where each printed number lies on our curves."""

from __future__ import annotations

import pandas as pd

from metriscope.report import Prose, Section, Table, number
from metriscope.studies.vq.digits import figures
from metriscope.studies.vq.digits.measure import Results, printed
from metriscope.studies.vq.digits.plan import FORMS, PAIRS, TWINS, Pair, name_of
from metriscope.studies.vq.networks.page import summary_table

__all__ = ["sections"]


def sections(results: Results) -> tuple[Section, ...]:
    """Return figures 3 and 4 repeated, the alignments, and where each printed number lies on our curves."""
    drawn = (figures.matrices(results), figures.curves(results), figures.changes(results), figures.aligned(results))
    tables = (_aligned(results), _printed_table(results), _accuracies(results))
    return (Section("Networks of 4 and 6 layers on digits", (Prose(_words(results)), *drawn, *tables)),)


def _aligned(results: Results) -> Table:
    note = (
        "Centered alignment on the test images, debiased and biased; null: mean of "
        f"{results.part.permutations} debiased values with the images shuffled; p: the largest permutation p-value of "
        "any seed. A prime marks another start on the same images."
    )
    rows = results.aligned.assign(pair=pd.Categorical(results.aligned["pair"], [name_of(p) for p in (*PAIRS, *TWINS)]))
    rows = rows.sort_values(["pair", "seed"]).astype({"pair": str})
    measures = {"alignment": "alignment", "biased": "alignment, biased", "null": "null"}
    table = summary_table("vq-alignment", "Centered alignment", rows, ["pair"], measures, note)
    worst = rows.groupby("pair", sort=False)["p_value"].max()
    table.frame["p"] = table.frame["pair"].map(worst)
    return table


def _words(results: Results) -> str:
    images = results.part.images
    return (
        f"Networks of 4 and 6 hidden layers of 16 units learn digits ({images.name}, {images.train:,} images for "
        f"training and {images.test:,} for testing, drawn anew for each seed). S4 compares their kernels on the test "
        "images by the cosine of heat kernels, trained (T) and before training (I). Its text has exp(−d / σ²), its "
        "appendix exp(−d² / σ²), and σ² is not printed: both forms are run over all scales.\n\n"
        "The cosine is not centered. As σ² grows both kernels tend to all ones and any two networks agree; as it "
        "shrinks, only images with one and the same pattern count. The centered alignment has neither end: it compares "
        "which images are nearer than others."
    )


def _printed_table(results: Results) -> Table:
    lines = []
    for pair in PAIRS:
        line: dict[str, object] = {"pair": name_of(pair), "published": printed(pair)}
        for form, title in FORMS.items():
            line[title] = _where(results, pair, form)
        lines.append(line)
    note = (
        f"The σ² at which the mean curve over {results.part.seeds} seeds takes the printed value; in brackets, the "
        "least and the largest over single seeds. If one σ² served all six, a column would hold one number."
    )
    return Table("vq-printed", "Where each printed number lies on our curves", pd.DataFrame(lines), note)


def _where(results: Results, pair: Pair, form: str) -> str:
    found, single = results.places(pair, form)
    mean = results.curve(pair, form).mean(0)
    if not len(found):
        return f"never: {number(mean.min(), 2)} to {number(mean.max(), 2)}"
    seeds = f" [{number(min(single))} to {number(max(single))}]" if len(single) else ""
    return f"σ² = {' and '.join(number(s) for s in found)}{seeds}"


def _accuracies(results: Results) -> Table:
    names = {"loss": "training loss", "train": "accuracy, training", "test": "accuracy, test"}
    marks = results.ends["role"].map({"first": "", "second": "′"})
    ends = results.ends.assign(network="T" + results.ends["depth"].astype(str) + marks)
    recipe = results.part.recipe
    note = f"After {recipe.epochs} epochs of Adam in batches of {recipe.batch}."
    return summary_table("vq-digits", "How the networks ended", ends, ["network"], names, note)
