"""The claims of the VQ study, C21 to C25, C30 and C31, with their criteria, notes and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import pandas as pd

from metriscope.report import Evidence, mean_text, number
from metriscope.report.numbers import MISSING
from metriscope.studies.evidence import Above, Below, Within
from metriscope.studies.verdicts import Criterion, Statement, Values
from metriscope.studies.vq.digits import printed
from metriscope.studies.vq.distillation import STATEMENT as DISTILLATION
from metriscope.studies.vq.experiments import (
    COMPARISONS,
    DISTANCES,
    FORMS,
    INITIAL,
    KERNEL_MEASURES,
    PAIRS,
    PLACES,
    SEPARATION_MEASURES,
    STRUCTURE,
    TRAINED,
    Band,
    name_of,
)
from metriscope.studies.vq.moons import by_comparison
from metriscope.studies.vq.prediction import STATEMENT as PREDICTION
from metriscope.studies.vq.sample_sizes import needed_text

__all__ = ["STATEMENTS", "gain", "lemma_1_notes", "lemma_2_notes"]

Tables = Mapping[str, pd.DataFrame]

SOURCE = "Roddenberry et al."
HALF, QUARTER = 0.5, 0.25
CENTERED, COSINE = "centered alignment", "uncentered cosine of heat kernels, any σ²"


def _mean(tables: Tables, table: str, column: str, **where: object) -> str:
    """Return mean and interval of a column in the rows where others have these values; a dash without rows."""
    rows = Values.of(table, column, **where).rows(tables)
    return MISSING if rows is None else mean_text(rows[column], 3)


def _total(rows: pd.DataFrame, column: str) -> str:
    return f"{int(rows[column].sum()):,}"


def _rotation_criteria(measure: str, title: str) -> Iterator[Criterion]:
    criterion = partial(Criterion, units="seeds", level=title)
    yield criterion(
        "rotated back − not rotated back",
        Values.of("turning", measure, comparison="back"),
        Above(0.0),
        "A kernel that stays where it is agrees no better when it is rotated back.",
        minus=Values.of("turning", measure, comparison="still"),
        paired=True,
    )
    yield criterion(
        "(rotated back − another start on the same data) / gain from rotating back",
        Values.of("turning gaps", "share", measure=measure),
        Within(QUARTER),
        "If only the data mattered, kernels rotated back would agree as two starts on the same data do; a difference "
        "of more than a quarter of the gain from rotating back shows that something else matters too.",
    )


def gain(rows: pd.DataFrame, measure: str = "alignment", one: str = "back", other: str = "still") -> str:
    """Return the paired difference of two comparisons as mean and interval; a dash where one is missing."""
    table = by_comparison(rows, measure)
    return mean_text(table[one] - table[other], 3) if {one, other} <= set(table) else MISSING


def _rotation_notes(tables: Tables) -> str:
    if "turning" not in tables:
        return ""
    before = {m: gain(tables["turning"], m, "start back", "start") for m in ("alignment", "overlap")}
    return (
        f"Before training, rotating back changes the alignment by {before['alignment']} and the eigenspace overlap by "
        f"{before['overlap']}; the alignment of untrained networks is "
        f"{_mean(tables, 'turning', 'alignment', comparison='start')}."
    )


def _rotation_evidence(tables: Tables) -> list[Evidence]:
    if "turning" not in tables:
        return []
    gains = {f"gain from rotating back, paired: {t}": gain(tables["turning"], m) for m, t in KERNEL_MEASURES.items()}
    means = {
        f"{title}: {CENTERED}": _mean(tables, "turning", "alignment", comparison=name)
        for name, title in COMPARISONS.items()
    }
    return [Evidence(label, text) for label, text in (gains | means).items()]


def _separation_criteria(place: str, title: str) -> Iterator[Criterion]:
    criterion = partial(Criterion, units="seeds", level=title)
    silhouette = Values.of("separation", "silhouette", points=place, distance="first")
    euclid = Values.of("separation", "silhouette", points=place, distance="euclid")
    yield criterion(
        "silhouette in the VQ scaling",
        silhouette,
        Above(STRUCTURE),
        "Kaufman and Rousseeuw (1990) see no substantial structure in a mean silhouette of 0.25 or less.",
    )
    yield criterion(
        "silhouette in the Euclidean scaling",
        euclid,
        Below(STRUCTURE),
        "The same bound: above it Euclidean scaling would separate the moons too.",
    )
    yield criterion(
        "silhouette, VQ − Euclid",
        silhouette,
        Above(0.0),
        "Euclidean scaling is said not to separate, so VQ must separate more.",
        minus=euclid,
        paired=True,
    )
    yield criterion(
        "effective rank of the VQ kernel / Euclid's",
        Values.of("ranks", "of euclid", points=place),
        Below(HALF),
        "The paper contrasts low rank with Euclid's unstructured kernel; less than half of its rank is clearly lower.",
    )
    yield criterion(
        "effective rank of the VQ kernel / the largest that points and units allow",
        Values.of("ranks", "of largest", points=place),
        Below(QUARTER),
        "A kernel that uses a quarter or more of all its dimensions is hardly of low rank, whatever Euclid's uses.",
    )


def _separation_notes(tables: Tables) -> str:
    if not {"separation", "sphere accuracies"} <= set(tables):
        return ""
    seen = partial(_mean, tables, "separation", points="training")
    neighbor = _mean(tables, "separation", "neighbor", points="new", distance="first")
    return (
        f"Effective rank on training points: VQ {seen('rank', distance='first')}, Euclid "
        f"{seen('rank', distance='euclid')}, VQ before training {seen('rank', distance='start')}. On new points the "
        f"accuracy of the nearest neighbor is {neighbor} and that of the network itself "
        f"{_mean(tables, 'sphere accuracies', 'test', role='first')}, where 0.5 is chance. Networks trained on random "
        f"labels have, on the training points and by those labels, a silhouette of "
        f"{seen('silhouette', distance='shuffled')} and a rank of {seen('rank', distance='shuffled')}. "
        f"{needed_text(tables)}".strip()
    )


def _separation_evidence(tables: Tables) -> list[Evidence]:
    shown = [("silhouette", "training"), ("silhouette", "new"), ("rank", "training")]
    texts = {
        f"{name}, {PLACES[place]}: {SEPARATION_MEASURES[measure]}": _mean(
            tables, "separation", measure, points=place, distance=distance
        )
        for measure, place in shown
        for distance, name in DISTANCES.items()
    }
    return [Evidence(label, text) for label, text in texts.items() if text != MISSING]


def _alikeness_criteria() -> Iterator[Criterion]:
    criterion = partial(Criterion, units="seeds", level=CENTERED)
    aligned = partial(Values.of, "alignment", pair=name_of(TRAINED))
    yield criterion(
        "alignment of 4 with 6 layers, trained − initial",
        aligned("alignment"),
        Above(0.0),
        "More alike is a larger alignment of the same two networks.",
        minus=Values.of("alignment", "alignment", pair=name_of(INITIAL)),
        paired=True,
    )
    yield criterion(
        "trained alignment − the 95 % quantile of its permutation null",
        aligned("excess"),
        Above(0.0),
        "Kernels that agree no more than with shuffled images are not alike, however much more than before.",
    )
    for form, title in FORMS.items():
        yield criterion(
            f"cosine of {title}, trained − initial, at the least favorable σ² (simultaneous band)",
            Values.of("heat worst", "change", form=form),
            Above(-Band().margin),
            "The paper prints cosines with two digits; a hundredth less would be printed as the same number.",
            level=COSINE,
        )


def _intervals(scales: list[float], inside: list[bool]) -> str:
    """Return the intervals of neighboring scales that are inside, in words.

    >>> _intervals([1.0, 2.0, 4.0], [True, True, False]), _intervals([1.0], [False])
    ('from 1.0 to 2.0', 'nowhere')
    """
    found: list[list[float]] = []
    for place, (scale, here) in enumerate(zip(scales, inside, strict=True)):
        if here and place and inside[place - 1]:
            found[-1].append(scale)
        elif here:
            found.append([scale])
    texts = [f"from {number(s[0], 2)} to {number(s[-1], 2)}" if len(s) > 1 else f"at {number(s[0], 2)}" for s in found]
    return " and ".join(texts) or "nowhere"


def _band_text(form: str, rows: pd.DataFrame) -> str:
    scales = [float(s) for s in rows["sigma2"]]
    above, below = (_intervals(scales, mask.tolist()) for mask in (rows["low"] > 0, rows["high"] < 0))
    return f"with {FORMS[form]} the band lies above 0 for σ² {above}, and below 0 {below}"


def _alikeness_notes(tables: Tables) -> str:
    parts = []
    if "heat band" in tables:
        bands = [_band_text(str(form), rows) for form, rows in tables["heat band"].groupby("form", sort=False)]
        parts.append(f"Over all scales at once: {'; '.join(bands)}.")
    parts.append(f"Printed: {printed(TRAINED):g} trained and {printed(INITIAL):g} before training.")
    if "heat nearest" in tables:
        best = tables["heat nearest"].iloc[0]
        parts.append(
            f"Ours are nearest to all six printed numbers at {FORMS[best['form']]}, σ² = {number(best['scale'], 2)}, "
            f"{number(best['error'], 2)} away (root mean square)."
        )
    return " ".join(parts)


def _alikeness_evidence(tables: Tables) -> list[Evidence]:
    names = {name_of(pair): printed(pair) for pair in PAIRS}
    found = []
    if "alignment" in tables:
        found += [Evidence(f"{n}: {CENTERED}", _mean(tables, "alignment", "alignment", pair=n)) for n in names]
    if {"heat cosines", "heat nearest"} <= set(tables):
        heat, best = tables["heat cosines"], tables["heat nearest"].iloc[0]
        chosen = heat[(heat["form"] == best["form"]) & (abs(heat["sigma2"] / best["scale"] - 1) < 1e-9)]
        label = f"cosine, {FORMS[best['form']]}, σ² = {number(best['scale'], 2)}"
        for name, value in names.items():
            ours = _mean({"heat cosines": chosen}, "heat cosines", "cosine", pair=name)
            found.append(Evidence(f"{name}: {label}", ours, value, f"{SOURCE}, fig. 3"))
    return found


# Counts that are zero if the lemma holds, each with its values and the reason for counting it.
LEMMA_1 = {
    "most pairs of regions in one shallow network whose two distances differ:": (
        Values.of("lemmas", "differ", kind="shallow"),
        "One pair that differs breaks the lemma.",
    )
}
LEMMA_2 = {
    "most pairs of regions in one deep network with a larger VQ distance:": (
        Values.of("lemmas", "violations", kind="deep"),
        "One pair with a larger VQ distance breaks the lemma.",
    ),
    "the same on a wider window:": (
        Values.of("lemmas", "wider violations", kind="deep"),
        "A window lengthens paths in the graph, which favors the lemma; a wider one does so less.",
    ),
    "most pairs of pieces of a tent map with a larger VQ distance:": (
        Values.of("tents", "violations"),
        "One pair with a larger VQ distance breaks the lemma.",
    ),
    "tent maps of two or more layers without a pair of smaller VQ distance:": (
        Values.of("tents", "never strict"),
        "The tent map is said to have pairs with a smaller VQ distance.",
    ),
    "pieces of a tent map of L layers, largest difference from 2^L:": (
        Values.of("tents", "pieces off"),
        "The tent map of L layers is said to cut the interval into 2^L pieces.",
    ),
}


def _exact(text: str, values: Values, why: str) -> Criterion:
    unit = {"lemmas": "network", "tents": "layers"}[values.table]
    why = f"{why} A count is below a half only if it is zero."
    return Criterion(text, values, Below(0.5), why, unit=unit, test="exact")


def _networks(tables: Tables, kind: str) -> pd.DataFrame | None:
    return Values.of("lemmas", "pairs", kind=kind).rows(tables)


def lemma_1_notes(tables: Tables) -> str:
    """Return how many pairs of regions of shallow networks have two different distances."""
    rows = _networks(tables, "shallow")
    if rows is None:
        return ""
    return (
        f"{len(rows)} random networks with one hidden layer: the distances differ for {_total(rows, 'differ')} of "
        f"{_total(rows, 'pairs')} pairs of exact regions."
    )


def _lemma_1_evidence(tables: Tables) -> list[Evidence]:
    rows = _networks(tables, "shallow")
    if rows is None:
        return []
    differ = f"{_total(rows, 'differ')} of {_total(rows, 'pairs')}"
    return [
        Evidence("random shallow networks", len(rows)),
        Evidence("pairs of regions that differ", differ, "0", f"{SOURCE}, lemma 1"),
        Evidence("regions per network, mean", mean_text(rows["regions"])),
    ]


def lemma_2_notes(tables: Tables) -> str:
    """Return how both distances compare in deep networks, what the window changes, and the tent map's pieces."""
    parts, rows = [], _networks(tables, "deep")
    if rows is not None:
        parts.append(
            f"{len(rows)} random deep networks: VQ is larger for {_total(rows, 'violations')} of "
            f"{_total(rows, 'pairs')} pairs, and smaller for {mean_text(100 * rows['strict'])} % of a network's "
            f"pairs. The window lengthens the graph distance of {mean_text(100 * rows['shortened'])} % of a network's "
            f"pairs, by {mean_text(rows['excess'], 3)} on average over all pairs, compared with a window "
            f"{rows['wider'].iloc[0]:g} times as wide, on which {mean_text(100 * rows['wider strict'])} % are strict."
        )
    if "tents" in tables:
        last = tables["tents"].iloc[-1]
        parts.append(
            f"The tent map of {int(last['layers'])} layers makes {int(last['pieces']):,} pieces. The formula printed "
            f"for it, 2z − relu(2z − 1), is min(2z, 1) and makes {int(last['pieces as printed'])}; 2z − relu(4z − 2) "
            "is the tent."
        )
    return " ".join(parts)


def _lemma_2_evidence(tables: Tables) -> list[Evidence]:
    rows, found = _networks(tables, "deep"), []
    if rows is not None:
        larger = _total(rows, "violations")
        found += [
            Evidence("pairs with a larger VQ distance", larger, "0", f"{SOURCE}, lemma 2"),
            Evidence("share of strict pairs in a network, %", mean_text(100 * rows["strict"])),
            Evidence("graph distance / VQ distance, all pairs of a network", mean_text(rows["stretch"])),
        ]
    if "tents" in tables:
        last = tables["tents"].iloc[-1]
        pieces = {
            f"pieces of the tent map, L = {int(last['layers'])}": "pieces",
            "pieces of the printed formula": "pieces as printed",
            "units of a shallow network with these pieces": "twin units",
        }
        found += [Evidence(text, int(last[c]), "2^L", f"{SOURCE}, app. B.2") for text, c in pieces.items()]
    return found


STATEMENTS = (
    Statement(
        "C21",
        "The eigenvectors of the VQ kernel rotate with the data.",
        f"{SOURCE}, fig. 1",
        tuple(criterion for row in KERNEL_MEASURES.items() for criterion in _rotation_criteria(*row)),
        "measure",
        _rotation_notes,
        _rotation_evidence,
    ),
    Statement(
        "C22",
        "In 100 dimensions VQ scaling separates the moons and Euclidean scaling does not; the kernel is of low rank.",
        f"{SOURCE}, fig. 2",
        tuple(criterion for row in PLACES.items() for criterion in _separation_criteria(*row)),
        "points that are looked at",
        _separation_notes,
        _separation_evidence,
    ),
    Statement(
        "C23",
        "Training makes the kernels of different architectures more alike.",
        f"{SOURCE}, fig. 3, 4",
        tuple(_alikeness_criteria()),
        "measure",
        _alikeness_notes,
        _alikeness_evidence,
    ),
    Statement(
        "C24",
        "In a network of one hidden layer the VQ distance is the distance in the graph of regions.",
        f"{SOURCE}, lemma 1",
        tuple(_exact(text, *row) for text, row in LEMMA_1.items()),
        notes=lemma_1_notes,
        evidence=_lemma_1_evidence,
    ),
    Statement(
        "C25",
        "In a deep network the VQ distance is at most the distance in the graph of regions, and less for the tent map.",
        f"{SOURCE}, lemma 2",
        tuple(_exact(text, *row) for text, row in LEMMA_2.items()),
        notes=lemma_2_notes,
        evidence=_lemma_2_evidence,
    ),
    PREDICTION,
    DISTILLATION,
)
