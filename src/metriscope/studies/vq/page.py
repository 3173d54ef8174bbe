"""The VQ study's part of the report: an introduction, every experiment in turn, the verdicts, every number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from metriscope.nn import ACTIVATIONS
from metriscope.report import Claim, Companion, Details, Ledger, Prose, Section, Table, mean_text, number
from metriscope.report.explorer import explorer_page
from metriscope.report.numbers import MISSING
from metriscope.studies.tidy_tables import source_of
from metriscope.studies.vq import digits, distillation, figures, prediction, sample_sizes
from metriscope.studies.vq.digits import DigitsResults, printed
from metriscope.studies.vq.experiments import (
    COMPARISONS,
    DISTANCES,
    FORMS,
    INITIAL,
    KERNEL_MEASURES,
    PAIRS,
    PLACES,
    SEPARATION_MEASURES,
    TRAINED,
    TWINS,
    Pair,
    name_of,
)
from metriscope.studies.vq.judge import gain, lemma_1_notes, lemma_2_notes
from metriscope.studies.vq.measure import BeyondResults, VQResults
from metriscope.studies.vq.moons import MoonsResults, SpheresResults
from metriscope.studies.vq.networks import STUDY
from metriscope.studies.vq.plan import TITLE, VQPlan
from metriscope.studies.vq.regions import ExplorerResults, LemmasResults

__all__ = ["HIGHLIGHTS", "QUESTION", "explorer", "sections"]

QUESTION = (
    "Two inputs are near for a network if few of its units put them on different sides. Is this distance the "
    "geometry that the network has learned? Does it follow the data, is it shared between architectures, and does "
    "it equal the distance across linear regions?"
)
HIGHLIGHTS = ("vq-starts", "vq-scalings")

# Values that agree in all seeds have no interval; they are shown with this many decimals.
DECIMALS = 6
Keys = Mapping[str, Mapping[str, str]]


def sections(plan: VQPlan, results: VQResults, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    return (
        Section(TITLE, (Prose(_introduction(plan)),)),
        _moons(results.moons),
        _spheres(results.spheres),
        sample_sizes.section(results.sample_sizes),
        _digits(results.digits),
        *((digits.section(results.starts),) if results.starts.recorded else ()),
        _lemmas(results.lemmas),
        _beyond(results.beyond),
        explorer(results.explorer),
        prediction.section(results.prediction),
        distillation.section(results.distillation),
        Section("Verdicts C21 to C25, C30 and C31", (Ledger(claims),)),
        _numbers(results),
    )


def summary_table(
    name: str, title: str, rows: pd.DataFrame, keys: Keys, measures: Mapping[str, str], note: str = ""
) -> Table:
    """Return one line for each combination of ``keys``: mean and 95 % interval over seeds of each measure.

    ``keys`` maps each column to what its values are shown as, in the order of lines; an empty mapping shows values as
    they are, in the order of rows. ``measures`` maps columns to headings. A measure without values is a dash.
    """
    for column, texts in reversed(list(keys.items())):
        if texts:
            places = rows[column].map(list(texts).index).to_numpy()
            rows = rows.assign(**{column: rows[column].map(texts)}).iloc[np.argsort(places, kind="stable")]
    lines = []
    for key, part in rows.groupby(list(keys), sort=False):
        line: dict[str, object] = {**dict(zip(keys, key, strict=True)), "seeds": len(part)}
        for column in measures:
            values = part[column].to_numpy(dtype=float)
            line[column] = MISSING if np.isnan(values).any() else mean_text(values, DECIMALS)
        lines.append(line)
    return Table(name, title, pd.DataFrame(lines), f"{note} Mean [95 % t interval].".strip(), labels=dict(measures))


def _introduction(plan: VQPlan) -> str:
    return (
        "A network of ReLU units cuts its input space by hyperplanes, bent from layer to layer. The VQ distance of two "
        "points is the number of units that have them on different sides. Roddenberry et al. (VQ-Kernels) study the "
        "kernel of these distances. They report that it rotates with the data, finds moons in 100 dimensions, and is "
        "shared by networks of different depth once they are trained. Here each statement is measured, compared with a "
        f"null, and given intervals over seeds. Published numbers: {source_of(STUDY)}.\n\n**Choices and differences.** "
        f"{' '.join(plan.deviations())}"
    )


def _moons(results: MoonsResults) -> Section:
    """Return figure 1 and its numbers."""
    cells = int(np.isfinite(results.pictures["first"].fields[0]).sum())
    note = (
        f"Kernels on the {cells:,} cells of the unit disc. The overlap is the mean squared canonical correlation of "
        "the two spaces of three leading eigenvectors; |cosine| is the mean over the three, each with its partner. The "
        "centered alignment is debiased; the biased one is shown too."
    )
    keys, shown = {"comparison": COMPARISONS}, {**KERNEL_MEASURES, "biased": "alignment, biased"}
    table = summary_table("vq-turning", "Does the kernel rotate with the data?", results.rows, keys, shown, note)
    single = {f"cosine{k}": f"eigenvector {k}" for k in (1, 2, 3)}
    note = "Matched |cosine| of single eigenvectors, in the order of the first network's eigenvalues."
    each = summary_table("vq-eigenvectors", "Eigenvector by eigenvector", results.rows, keys, single, note)
    drawn = (figures.eigenvectors(results), figures.rotation(results))
    blocks = (Prose(_moons_text(results)), *drawn, table, Details("Each eigenvector", (each,)))
    return Section("Do VQ kernels rotate with the data?", blocks)


def _moons_text(results: MoonsResults) -> str:
    ends, bound = results.ends, results.part.converged
    return (
        "Roddenberry et al. train one network on two moons and another, from another start, on the same moons rotated "
        "by π/6, and show that the leading eigenvectors of the kernel rotate too. Here the second network is evaluated "
        "on rotated points: what rotates with the data must then agree, point by point, with the first network. Three "
        "references: a second start on the same data shows how far any two networks agree; points that are not rotated "
        "show the gain from rotating; the same networks before training show the effect of training.\n\n"
        "Some of this is expected. Rotating the data and the first layer's weights together changes nothing, so for an "
        "optimizer and an initialization without preferred axes the rotated problem is the same problem. Adam and "
        "uniform weights do have preferred axes; the gap between the first two rows measures how much they matter.\n\n"
        f"{int((ends['loss'] < bound).sum())} of {len(ends)} networks converged: largest mean loss "
        f"{number(ends['loss'].max(), 2)} against the bound of {bound:g}; lowest accuracy on training points "
        f"{number(ends['train'].min())}, on new points {mean_text(ends[ends['role'] == 'first']['test'])}."
    )


def _spheres(results: SpheresResults) -> Section:
    """Return figure 2 and its numbers on training points and on new ones."""
    ends, names = results.ends, {"first": "moons", "turned": "rotated moons", "shuffled": "random labels"}
    parts = [f"{text} {mean_text(ends[ends['role'] == role]['test'])}" for role, text in names.items()]
    text = (
        "The moons are scaled by 0.1 and 98 random coordinates bring every point to the unit sphere: the signal is as "
        "faint as any single coordinate of the noise. Roddenberry et al. show that the VQ kernel of the training "
        "points separates the classes in two dimensions where Euclidean scaling does not, and that the kernel is of "
        "approximately low rank. Two controls are added: new points, and networks trained on random labels, which can "
        "only memorize.\n\n"
        f"Lowest accuracy of a network on its training points: {number(ends['train'].min())}. On new points, where 0.5 "
        f"is chance: {', '.join(parts)}."
    )
    note = (
        "Silhouette of the labels on the two-dimensional scaling; nearest-neighbor accuracy in the full distance, "
        "ties shared; effective rank of the centered kernel as the exponential of its spectrum's entropy and as "
        "participation ratio. New points have their own scaling, and true labels."
    )
    keys = {"points": PLACES, "distance": DISTANCES}
    table = summary_table("vq-separation", "Separation and rank", results.rows, keys, SEPARATION_MEASURES, note)
    return Section("Moons in 100 dimensions", (Prose(text), figures.scalings(results), table))


def _digits(results: DigitsResults) -> Section:
    """Return figures 3 and 4 repeated, the alignments, and where each printed number lies on our curves."""
    images = results.part.images
    text = (
        f"Networks of 4 and 6 hidden layers of 16 units learn digits ({images.name}, {images.train:,} images for "
        f"training and {images.test:,} for testing, drawn separately for each seed). Roddenberry et al. compare their "
        "kernels on the test images by the cosine of heat kernels, trained (T) and before training (I). Their text has "
        "exp(−d / σ²), their appendix exp(−d² / σ²), and σ² is not printed: both forms are run over all scales.\n\n"
        "The cosine is not centered. For large σ² both kernels tend to all ones and any two networks agree; for small "
        "σ² only images with the same pattern count. The centered alignment has no such limits: it compares which "
        "images are nearer than others."
    )
    drawn = (digits.tried(results), figures.matrices(results), figures.curves(results), figures.changes(results))
    tables = (_aligned(results), _printed_table(results), _accuracies(results))
    return Section("Networks of 4 and 6 layers on digits", (Prose(text), *drawn, figures.aligned(results), *tables))


def _aligned(results: DigitsResults) -> Table:
    note = (
        "Centered alignment on the test images, debiased and biased; null: mean of "
        f"{results.part.permutations} debiased values with the images shuffled, {results.part.further} for pairs that "
        "no claim is about; p: the largest permutation p-value of any seed. A prime marks another start on the same "
        "images."
    )
    keys = {"pair": {name_of(pair): name_of(pair) for pair in (*PAIRS, *TWINS)}}
    measures = {"alignment": "alignment", "biased": "alignment, biased", "null": "null"}
    table = summary_table("vq-alignment", "Centered alignment", results.aligned, keys, measures, note)
    table.frame["p"] = table.frame["pair"].map(results.aligned.groupby("pair")["p_value"].max())
    return table


def _printed_table(results: DigitsResults) -> Table:
    lines = [
        {"pair": name_of(pair), "published": printed(pair)}
        | {title: _where(results, pair, form) for form, title in FORMS.items()}
        for pair in PAIRS
    ]
    note = (
        f"The σ² at which the mean curve over {results.part.seeds} seeds takes the printed value; in brackets, the "
        "least and the largest over single seeds. If one σ² served all six, a column would hold one number."
    )
    return Table("vq-printed", "Where each printed number lies on our curves", pd.DataFrame(lines), note)


def _where(results: DigitsResults, pair: Pair, form: str) -> str:
    found, single = results.places(pair, form)
    mean = results.curve(pair, form).mean(0)
    if not len(found):
        return f"never: {number(mean.min(), 2)} to {number(mean.max(), 2)}"
    seeds = f" [{number(min(single))} to {number(max(single))}]" if len(single) else ""
    return f"σ² = {' and '.join(number(s) for s in found)}{seeds}"


def _accuracies(results: DigitsResults) -> Table:
    names = {"loss": "training loss", "train": "accuracy, training", "test": "accuracy, test"}
    marks = results.ends["role"].map({"first": "", "second": "′"})
    ends = results.ends.assign(network="T" + results.ends["depth"].astype(str) + marks)
    note = f"After {results.part.recipe.epochs} epochs of Adam in batches of {results.part.recipe.batch}."
    return summary_table("vq-digits", "Final loss and accuracy", ends, {"network": {}}, names, note)


def _lemmas(results: LemmasResults) -> Section:
    """Return figure 5, the random networks and the tent maps."""
    text = (
        "A path from region to region crosses one unit's border at a time. With one hidden layer the fewest "
        "crossings are the units that differ, so both distances are equal (lemma 1). In deeper layers a unit's border "
        "is bent and may be crossed twice, so the path can be longer, never shorter (lemma 2). Regions are exact here: "
        "polygons cut by every unit, and a graph of shared sides.\n\n"
        f"{lemma_1_notes(results.tables)} {lemma_2_notes(results.tables)}"
    )
    rows = results.networks.rename(columns={"depth": "hidden layers"})
    note = (
        "Differences are region-graph distance minus VQ distance, over every pair of regions of a network. The last "
        f"column is by how much graph distances are longer than on a window {rows['wider'].max():g} times as wide."
    )
    measures = {
        "regions": "regions",
        "strict": "share of pairs that differ",
        "mean gap": "mean difference",
        "largest gap": "largest difference",
        "stretch": "graph / VQ",
        "excess": "longer by the window",
    }
    keys: Keys = {"hidden layers": {}, "activation": {}}
    table = summary_table("vq-lemmas", "Both distances in random networks", rows, keys, measures, note)
    # Here a line summarizes networks, not seeds.
    table = replace(table, frame=table.frame.rename(columns={"seeds": "networks"}))
    tents = Table("vq-tents", "The tent map, layer by layer", results.tents.drop(columns=["units", "violations"]))
    blocks = (Prose(text), figures.same_pieces(results), table, figures.strictness(results), tents)
    return Section("Figure 5: regions, and the two lemmas", blocks)


def _beyond(results: BeyondResults) -> Section:
    """Return what happens during training, what depth changes, and what Abs changes."""
    tasks = results.course.rename(columns={"task": "network"})
    keys: Keys = {"network": figures.TASKS, "epoch": {}}
    course = summary_table("vq-course", "Alignment during training", tasks, keys, {"alignment": "alignment"})
    blocks = (
        *(Prose(_course_text(results)), figures.course(results), Details("Every kept epoch", (course,))),
        *(Prose(_depth_text(results)), figures.depth(results), *_depth_tables(results)),
        *(Prose(_abs_text(results)), _abs_rotation(results), _abs_digits(results)),
    )
    return Section("Beyond the paper: training, depth, Abs", blocks)


def _course_text(results: BeyondResults) -> str:
    parts = []
    for task in ("moons", "T4", "T6"):
        epochs, values = results.course_of(task)
        reached = np.median(epochs[(values >= (values[:, :1] + 1) / 2).argmax(1)])
        parts.append(f"{figures.TASKS[task]}: from {mean_text(values[:, 0])}, half of the way by epoch {reached:.0f}")
    epochs, both = results.course_of("both")
    return (
        "**During training.** How far is the kernel from its final state? Centered alignment with the same network at "
        f"the end of training: {'; '.join(parts)}. The alignment of the two architectures with each other at the same "
        f"epoch goes from {mean_text(both[:, 0])} to {mean_text(both[:, -1])}; its largest mean is at epoch "
        f"{epochs[both.mean(0).argmax()]}."
    )


def _depth_text(results: BeyondResults) -> str:
    shapes, budget = results.depths.drop_duplicates("depth"), results.part.budget
    sizes = ", ".join(f"{r.depth} × {r.width:,} ({r.parameters:,})" for r in shapes.itertuples())
    far = (shapes["parameters"] / budget - 1).abs().max()
    ranks = [f"{d}: {mean_text(p['rank'])}" for d, p in results.depths.groupby("depth")]
    return (
        f"**Depth at equal size.** Networks on the moons with {budget:,} parameters within {far:.1%}: {sizes}. "
        f"Effective rank of the kernel on the disc by depth: {'; '.join(ranks)}."
    )


def _depth_tables(results: BeyondResults) -> tuple[Table, Table]:
    keys: Keys = {"network": {}, "parameters": {}}
    grid = results.part.deep(1).grid
    names = {"back": "rotated back", "ceiling": "another start", "still": "not rotated back"}
    measures = {column: f"alignment, {text}" for column, text in names.items()}
    note = f"Kernels on the disc of a {grid} × {grid} grid, compared as in figure 1."
    alike = summary_table("vq-depth-alike", "Depth: how alike kernels are", results.depths, keys, measures, note)
    measures = {column: SEPARATION_MEASURES[column] for column in ("rank", "participation")}
    measures |= {"neighbor": "nearest neighbor, new points", "test": "accuracy, new points"}
    note = "Effective rank of the kernel on the disc; leave-one-out nearest neighbor in the VQ distance."
    shape = summary_table("vq-depth-shape", "Depth: rank and accuracy", results.depths, keys, measures, note)
    return alike, shape


def _abs_text(results: BeyondResults) -> str:
    gains = {a: gain(rows) for a, rows in results.turning.items()}
    grown = {a: mean_text(d.alignments(TRAINED) - d.alignments(INITIAL)) for a, d in results.digits.items()}
    accuracy = {a: d.ends[d.ends["role"] == "first"].groupby("depth")["test"].mean() for a, d in results.digits.items()}
    reached = "; ".join(f"{ACTIVATIONS[a].title} {number(v[4])} and {number(v[6])}" for a, v in accuracy.items())
    return (
        "**Abs in place of ReLU.** The same initial weights, data and epochs. Rotating back changes the alignment by "
        f"{gains['relu']} with ReLU and {gains['abs']} with Abs. Training on digits changes the alignment of 4 and "
        f"6 layers by {grown['relu']} with ReLU and {grown['abs']} with Abs. Test accuracy of 4 and 6 layers: "
        f"{reached}."
    )


def _abs_rotation(results: BeyondResults) -> Table:
    rows = pd.concat([rows.assign(network=ACTIVATIONS[a].title) for a, rows in results.turning.items()])
    keys: Keys = {"comparison": COMPARISONS, "network": {}}
    return summary_table("vq-abs-turning", "Figure 1's numbers, ReLU and Abs", rows, keys, KERNEL_MEASURES)


def _abs_digits(results: BeyondResults) -> Table:
    best, parts = results.digits["relu"].nearest, []
    for pair in PAIRS:
        for activation, found in results.digits.items():
            cosines = found.curve(pair, best.form)[:, best.index]
            values = pd.DataFrame({"alignment": found.alignments(pair), "cosine": cosines})
            parts.append(values.assign(pair=name_of(pair), network=ACTIVATIONS[activation].title))
    cosine = f"cosine, {FORMS[best.form]}, σ² = {number(best.scale, 2)}"
    measures = {"alignment": KERNEL_MEASURES["alignment"], "cosine": cosine}
    keys: Keys = {"pair": {}, "network": {}}
    return summary_table("vq-abs-digits", "Figure 3's numbers, ReLU and Abs", pd.concat(parts), keys, measures)


def explorer(results: ExplorerResults) -> Section:
    """Return the explorer beside the report, and the numbers of its networks."""
    sources = results.part.views()[0].sources
    table = Table(
        "vq-regions",
        "Exact regions of small networks on the moons",
        results.rows.drop(columns="violations"),
        f"Distances from {sources} regions to all others; “strict” is the share of pairs with VQ below the region "
        "graph, differences are graph minus VQ. One seed; shallow is 1 × 96, deep is 3 × 32: as many units. The "
        "decision boundary's length is in units of the plane.",
        labels={"strict": "share strict", "stretch": "graph / VQ", "decision boundary": "decision boundary, length"},
    )
    page = Companion(
        "explorer.html",
        "Open the explorer",
        "Move the pointer to see the distance from it to every point: VQ, region graph and Euclid side by side, "
        f"for {len(results.views)} networks. One file that needs no internet; works with mouse, touch and keyboard.",
        explorer_page([view.scene for view in results.views], back="report.html#study-vq"),
    )
    return Section("The explorer", (Prose(_explorer_text(results)), page, figures.partitions(results), table))


def _explorer_text(results: ExplorerResults) -> str:
    rows = results.rows
    means = rows.groupby(["shape", "state"])["strict"].mean()
    deep = {state: 100 * float(means.loc[("deep", state)]) for state in ("initial", "trained")}
    wrong = rows["violations"] + (rows["strict"] > 0) * (rows["shape"] == "shallow")
    return (
        "Shallow and deep networks of 96 units, ReLU and Abs, on the moons and on the rotated moons, before and after "
        f"training: {int(rows['regions'].sum()):,} regions, all exact. {int((wrong > 0).sum())} of {len(rows)} "
        f"networks have a pair of regions that breaks a lemma. In deep networks VQ is below the region graph for "
        f"{deep['initial']:.0f} % of pairs before training and {deep['trained']:.0f} % after it."
    )


def _numbers(results: VQResults) -> Section:
    tables = (
        Table("vq-all-turning", "Figure 1: every comparison", results.moons.rows),
        Table("vq-all-separation", "Figure 2: every separation", results.spheres.rows),
        Table("vq-all-alignment", "Figure 3: every alignment", results.digits.aligned),
        Table("vq-all-lemmas", "Lemmas: every random network", results.lemmas.networks),
        Table("vq-all-depths", "Depth against width: every seed", results.beyond.depths),
    )
    return Section("Every number of the VQ study", (Details("One row per seed, or per random network", tables),))
