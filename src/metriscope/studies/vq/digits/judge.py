"""C23: training makes the kernels of different architectures more alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from metriscope.report import Evidence, mean_text, number
from metriscope.studies.evidence import Above
from metriscope.studies.judging import Criterion, Statement, Values
from metriscope.studies.published import published
from metriscope.studies.vq.digits.plan import FORMS, INITIAL, PAIRS, TRAINED, Band, name_of
from metriscope.studies.vq.networks.plan import STUDY

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ALIKENESS"]

CENTERED, COSINE = "centered alignment", "uncentered cosine of heat kernels, any σ²"


def _aligned(column: str, pair: tuple[str, str]) -> Values:
    return Values.of("alignment", column, pair=name_of(pair))


def _criteria() -> Iterator[Criterion]:
    yield Criterion(
        "alignment of 4 with 6 layers, trained − initial",
        _aligned("alignment", TRAINED),
        Above(0.0),
        "More alike is a larger alignment of the same two networks.",
        units="seeds",
        minus=_aligned("alignment", INITIAL),
        paired=True,
        level=CENTERED,
    )
    yield Criterion(
        "trained alignment − the 95 % quantile of its permutation null",
        _aligned("excess", TRAINED),
        Above(0.0),
        "Kernels that agree no more than with shuffled images are not alike, however much more than before.",
        units="seeds",
        level=CENTERED,
    )
    for form, title in FORMS.items():
        yield Criterion(
            f"cosine of {title}, trained − initial, at the σ² that speaks most against it (simultaneous band)",
            Values.of("heat worst", "change", form=form),
            Above(-Band().margin),
            "The source prints cosines with two digits; a hundredth less would be printed as the same number.",
            units="seeds",
            level=COSINE,
        )


def _stretches(scales: list[float], inside: list[bool]) -> str:
    """Return the stretches of scales that are inside, as people read them.

    >>> _stretches([1.0, 2.0, 4.0], [True, True, False]), _stretches([1.0], [False])
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


def _bands(rows: pd.DataFrame) -> Iterator[str]:
    for form, part in rows.groupby("form", sort=False):
        scales = [float(s) for s in part["sigma2"]]
        more, less = (part["low"] > 0).tolist(), (part["high"] < 0).tolist()
        yield (
            f"with {FORMS[str(form)]} the band lies above 0 for σ² {_stretches(scales, more)}, and below 0 "
            f"{_stretches(scales, less)}"
        )


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    parts = []
    if "heat band" in tables:
        parts.append(f"Over all scales at once: {'; '.join(_bands(tables['heat band']))}.")
    parts.append(f"Printed: {_printed(TRAINED):g} trained and {_printed(INITIAL):g} before training.")
    if "heat nearest" in tables:
        best = tables["heat nearest"].iloc[0]
        parts.append(
            f"Ours come nearest to all six printed numbers at {FORMS[best['form']]}, σ² = {number(best['scale'], 2)}, "
            f"{number(best['error'], 2)} away (root mean square)."
        )
    return " ".join(parts)


def _printed(pair: tuple[str, str]) -> float:
    table = published(STUDY)
    return float(table[table["pair"] == "-".join(pair)]["value"].iloc[0])


def _evidence(tables: Mapping[str, pd.DataFrame]) -> Iterator[Evidence]:
    if "alignment" in tables:
        rows = tables["alignment"]
        for pair in PAIRS:
            values = rows[rows["pair"] == name_of(pair)]["alignment"]
            yield Evidence(f"{name_of(pair)}: {CENTERED}", mean_text(values, 3))
    if {"heat cosines", "heat nearest"} <= set(tables):
        heat, best = tables["heat cosines"], tables["heat nearest"].iloc[0]
        chosen = heat[(heat["form"] == best["form"]) & (abs(heat["sigma2"] / best["scale"] - 1) < 1e-9)]
        for pair in PAIRS:
            values = chosen[chosen["pair"] == name_of(pair)]["cosine"]
            label = f"{name_of(pair)}: cosine, {FORMS[best['form']]}, σ² = {number(best['scale'], 2)}"
            yield Evidence(label, mean_text(values, 3), _printed(pair), "S4 fig. 3")


ALIKENESS = Statement(
    "C23",
    "Training makes the kernels of different architectures more alike.",
    "S4 fig. 3, 4",
    tuple(_criteria()),
    factor="measure",
    notes=_notes,
    evidence=lambda tables: tuple(_evidence(tables)),
)
