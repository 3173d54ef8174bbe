"""Figures 3 and 4 of S4: whether networks of 4 and 6 layers grow more alike by training on digits, by every measure.

Axes: S seeds, T scales sigma2, N test images. T4 is the trained network of 4 hidden layers, I4 the same before
training; a prime marks a second start on the same images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from metriscope.report import Prose, Section, Table, number
from metriscope.runs import Store
from metriscope.studies.contract import Announce, published
from metriscope.studies.vq import digit_figures
from metriscope.studies.vq.experiment import Networks, digit_source, sample, train
from metriscope.studies.vq.heat import FORMS, SCALES, Nearest, crossings, nearest
from metriscope.studies.vq.parts import Measured, Part, measured, summary_table
from metriscope.studies.vq.spec import DIGIT_DEPTHS, NAME, Plan
from metriscope.vq import Patterns, alignment, capture, heat_cosine

__all__ = ["PAIRS", "PART", "TWINS", "Digits", "collect", "digit_rows", "name_of", "printed"]

PAIRS = (("T4", "T6"), ("T4", "I4"), ("T4", "I6"), ("T6", "I4"), ("T6", "I6"), ("I4", "I6"))
TWINS = (("T4", "T4′"), ("T6", "T6′"), ("I4", "I4′"), ("I6", "I6′"))
PERMUTATIONS = 49
KINDS = {"T": "trained", "I": "initial"}


def name_of(pair: tuple[str, str]) -> str:
    """Return a pair as people read it.

    >>> name_of(("T4", "I6"))
    'T4–I6'
    """
    return "–".join(pair)


@dataclass(frozen=True)
class Digits:
    """What figures 3 and 4 yield: cosines by scale, alignments, how the networks ended, and on what digits."""

    plan: Plan
    heat: pd.DataFrame
    aligned: pd.DataFrame
    ends: pd.DataFrame
    source: tuple[str, int]

    def curve(self, pair: tuple[str, str], form: str) -> np.ndarray:
        """Return cosines as seeds by scales."""
        part = self.heat[(self.heat["pair"] == name_of(pair)) & (self.heat["form"] == form)]
        return part.pivot(index="seed", columns="sigma2", values="cosine").to_numpy()

    def alignments(self, pair: tuple[str, str], measure: str = "alignment") -> np.ndarray:
        """Return one alignment a seed, in the order of seeds."""
        part = self.aligned[self.aligned["pair"] == name_of(pair)].sort_values("seed")
        return part[measure].to_numpy(dtype=float)

    def nearest(self) -> Nearest:
        """Return where our mean curves come nearest to the six printed numbers."""
        curves = {form: np.array([self.curve(pair, form).mean(0) for pair in PAIRS]) for form in FORMS}
        return nearest(curves, SCALES, np.array([printed(pair) for pair in PAIRS]))


def printed(pair: tuple[str, str]) -> float:
    """Return the number that figure 3 prints for a pair."""
    table = published(NAME)
    return float(table[table["pair"] == "-".join(pair)]["value"].iloc[0])


def _patterns(networks: dict[int, Networks], number: int, label: str) -> Patterns:
    some = networks[int(label[1])]
    role = "second" if label.endswith("′") else "first"
    epoch = 0 if label[0] == "I" else None
    return capture(some.network(number, role, epoch), sample(some.group, number, role).test_x)


def digit_rows(
    networks: dict[int, Networks], number: int, pairs: tuple[tuple[str, str], ...], permutations: int
) -> Iterator[dict[str, object]]:
    """Yield the alignment, its null and every cosine of each pair of one seed, on the test images."""
    labels = dict.fromkeys(label for pair in pairs for label in pair)
    found = {label: _patterns(networks, number, label) for label in labels}
    for pair in pairs:
        p, q = (found[label] for label in pair)
        whole = alignment(p, q, permutations=permutations, seed=number)
        here = {"seed": number, "pair": name_of(pair)}
        null = {
            "null": float(whole.null.mean()) if permutations else np.nan,
            "p_value": float(np.asarray(whole.p_value)),
        }
        yield {**here, "form": "alignment", "sigma2": np.nan, "value": float(np.asarray(whole.value)), **null}
        for form, scales in SCALES.items():
            for scale, cosine in zip(scales, heat_cosine(p, q, scales, form=form), strict=True):
                yield {**here, "form": form, "sigma2": scale, "value": cosine, "null": np.nan, "p_value": np.nan}


def collect(plan: Plan, store: Store, announce: Announce, activation: str = "relu") -> Digits:
    """Train and compare the networks of figures 3 and 4."""
    source = digit_source(plan.images)
    groups = {depth: plan.digit_groups(depth, *source, activation) for depth in DIGIT_DEPTHS}
    trained = {depth: train(some, store) for depth, some in groups.items()}
    pairs = (*PAIRS, *TWINS) if activation == "relu" else PAIRS
    tables = []
    for block in zip(*trained.values(), strict=True):
        by_depth = {some.group.shape.depth: some for some in block}
        tables.append(_rows(by_depth, store, pairs))
    rows = pd.concat(tables, ignore_index=True)
    announce(f"figures 3 and 4 on {source[0]}, {activation}: {len(pairs)} pairs over {plan.seeds} seeds")
    ends = [n.history().assign(depth=depth) for depth, some in trained.items() for n in some]
    aligned = rows[rows["form"] == "alignment"].rename(columns={"value": "alignment"})
    heat = rows[rows["form"] != "alignment"].rename(columns={"value": "cosine"})
    return Digits(plan, heat, aligned, pd.concat(ends, ignore_index=True), source)


def _rows(networks: dict[int, Networks], store: Store, pairs: tuple[tuple[str, str], ...]) -> pd.DataFrame:
    groups = tuple(some.group for some in networks.values())
    # Chance is asked for where the claim is judged; it is the same for networks of other units.
    permutations = PERMUTATIONS if len(pairs) > len(PAIRS) else 0

    def rows() -> Iterator[dict[str, object]]:
        for seed in groups[0].seeds:
            yield from digit_rows(networks, seed, pairs, permutations)

    return measured(store, Measured("heat", groups), rows)


def sections(digits: Digits) -> tuple[Section, ...]:
    """Return figures 3 and 4 repeated, the alignments, and where each printed number lies on our curves."""
    note = (
        f"Centred alignment on the test images; null: mean of {PERMUTATIONS} values with the images shuffled; p: the "
        "largest permutation p-value of any seed. A prime marks another start on the same images."
    )
    rows = digits.aligned.assign(pair=pd.Categorical(digits.aligned["pair"], [name_of(p) for p in (*PAIRS, *TWINS)]))
    rows = rows.sort_values(["pair", "seed"]).astype({"pair": str})
    aligned = summary_table(
        "vq-alignment", "Centred alignment", rows, ["pair"], {"alignment": "alignment", "null": "null"}, note
    )
    worst = rows.groupby("pair", sort=False)["p_value"].max()
    aligned.frame["p"] = aligned.frame["pair"].map(worst)
    figures = (digit_figures.matrices(digits), digit_figures.curves(digits), digit_figures.aligned(digits))
    blocks = (Prose(_words(digits)), *figures, aligned, _printed_table(digits), _accuracies(digits))
    return (Section("Networks of 4 and 6 layers on digits", blocks),)


def _words(digits: Digits) -> str:
    name, points = digits.source
    return (
        f"Networks of 4 and 6 hidden layers of 16 units learn digits ({name}, {points:,} images for training and "
        f"{points // 4:,} for testing, drawn anew for each seed). S4 compares their kernels on the test images by the "
        "cosine of heat kernels, trained (T) and before training (I). Its text has exp(−d / σ²), its appendix "
        "exp(−d² / σ²), and σ² is not printed: both forms are run over all scales.\n\n"
        "The cosine is not centred. As σ² grows both kernels tend to all ones and any two networks agree; as it "
        "shrinks, only images with one and the same pattern count. The centred alignment has neither end: it compares "
        "which images are nearer than others."
    )


def _printed_table(digits: Digits) -> Table:
    lines = []
    for pair in PAIRS:
        line: dict[str, object] = {"pair": name_of(pair), "published": printed(pair)}
        for form in FORMS:
            line[FORMS[form]] = _where(SCALES[form], digits.curve(pair, form), printed(pair))
        lines.append(line)
    note = (
        f"The σ² at which the mean curve over {digits.plan.seeds} seeds takes the printed value; in brackets, the "
        "least and the largest over single seeds. If one σ² served all six, a column would hold one number."
    )
    return Table("vq-printed", "Where each printed number lies on our curves", pd.DataFrame(lines), note)


def _where(scales: np.ndarray, curves: np.ndarray, value: float) -> str:
    mean = curves.mean(0)
    found = crossings(scales, mean, value)
    if not len(found):
        return f"never: {number(mean.min(), 2)} to {number(mean.max(), 2)}"
    single = [each for curve in curves for each in crossings(scales, curve, value)]
    return f"σ² = {' and '.join(number(s) for s in found)} [{number(min(single))} to {number(max(single))}]"


def _accuracies(digits: Digits) -> Table:
    names = {"loss": "training loss", "train": "accuracy, training", "test": "accuracy, test"}
    marks = digits.ends["role"].map({"first": "", "second": "′"})
    ends = digits.ends.assign(network="T" + digits.ends["depth"].astype(str) + marks)
    note = f"After {digits.plan.digits.epochs} epochs of Adam in batches of {digits.plan.digits.batch}."
    return summary_table("vq-digits", "How the networks ended", ends, ["network"], names, note)


PART = Part("digits", collect, sections)
