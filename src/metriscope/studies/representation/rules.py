"""How C12 to C17 are judged: a claim is taken apart into parts that hold or not, each a comparison of numbers.

Axes: S seeds. Accuracies are per cent of test images.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import numpy as np
import pandas as pd

from metriscope.functional import moments
from metriscope.report import Verdict
from metriscope.studies.representation.results import title

__all__ = [
    "LITTLE",
    "Parts",
    "bias_parts",
    "collapse_parts",
    "distance_parts",
    "fold_parts",
    "harm_parts",
    "recovery_parts",
    "verdict_of",
]

# Points of accuracy that count as the same: the columns that S2 prints for one network differ by as much.
LITTLE = 1.0
# Points below the baseline that count as a collapse: ten times what counts as the same.
COLLAPSE = 10.0
# Per cent of output units never active from which units can be said to die: one of ten.
DEAD = 10.0
# Share of what ReLU2 loses that a recovery has to win back.
RECOVERED = 0.9
# How much larger a deviation over seeds has to be to be called high.
WIDER = 3.0
# An offset counts as small up to this share of the range; P prints 3 % and 1 %.
SMALL = 0.05
# P's levels between which scaling, and from which clipping, is said to do no harm.
SCALES, CLIP = (0.1, 2.0), 0.5

Parts: TypeAlias = "Mapping[str, bool | None]"


def verdict_of(parts: Parts, protocol: bool = True) -> Verdict:
    """Return the verdict on a claim whose parts hold (True), do not (False) or could not be measured (None).

    Supported if all hold, contradicted if none does, else it depends; a part that is not measured leaves the best
    verdict at "depends". Runs shorter than the protocol contradict nothing: there, none holding is "depends" as well.

    >>> verdict_of({"a": True, "b": True}), verdict_of({"a": False}), verdict_of({"a": False}, protocol=False)
    ('supported', 'contradicted', 'depends')
    """
    known = [holds for holds in parts.values() if holds is not None]
    if not known:
        return "not run"
    if all(known):
        return "supported" if len(known) == len(parts) else "depends"
    return "contradicted" if protocol and not any(known) else "depends"


def collapse_parts(relu: Iterable[float], relu2: Iterable[float], dead: Iterable[float]) -> dict[str, bool | None]:
    """Take C12 apart: accuracies of ReLU and ReLU2, and per cent of ReLU2's output units never active, by seed."""
    lost, died = list(dead), None
    if lost:
        died = float(np.mean(lost)) >= DEAD
    fallen = moments(relu).mean - moments(relu2).mean > COLLAPSE
    return {f"ReLU2 is over {COLLAPSE:g} points below ReLU": fallen, f"at least {DEAD:g} % of its outputs die": died}


def recovery_parts(relu: Iterable[float], neg: Iterable[float], relu2: Iterable[float]) -> dict[str, bool | None]:
    """Take C13 apart: accuracies of ReLU, ReLU2-Neg and ReLU2, the last of which may be empty."""
    base, back, fallen = moments(relu).mean, moments(neg).mean, list(relu2)
    share = None
    if fallen and base > moments(fallen).mean:
        share = (back - moments(fallen).mean) / (base - moments(fallen).mean) >= RECOVERED
    return {
        f"ReLU2-Neg is at most {LITTLE:g} point below ReLU": base - back <= LITTLE,
        f"it wins back {100 * RECOVERED:g} % of what ReLU2 loses": share,
    }


def fold_parts(abs_: Iterable[float], abs2: Iterable[float], neg: Iterable[float]) -> dict[str, bool | None]:
    """Take C14 apart: accuracies of Abs, Abs2 and Abs2-Neg."""
    base, kept, dropped = moments(abs_), moments(abs2), moments(neg)
    spread = None if min(kept.runs, dropped.runs) < 2 else dropped.sd > WIDER * kept.sd
    return {
        f"Abs2 is at most {LITTLE:g} point below Abs": base.mean - kept.mean <= LITTLE,
        f"Abs2-Neg is over {LITTLE:g} point below Abs2": kept.mean - dropped.mean > LITTLE,
        f"its deviation is over {WIDER:g} times that of Abs2": spread,
    }


def bias_parts(pairs: Mapping[str, tuple[Iterable[float], Iterable[float]]]) -> dict[str, bool | None]:
    """Take C15 apart: by network, accuracies with and without bias.

    A change counts as little within a point, or within what another seed changes, the larger deviation of the two.
    """
    parts: dict[str, bool | None] = {}
    for network, (with_bias, without) in pairs.items():
        a, b = moments(with_bias), moments(without)
        spread = max((m.sd for m in (a, b) if not math.isnan(m.sd)), default=0.0)
        parts[f"{title(network)} changes little"] = abs(a.mean - b.mean) <= max(LITTLE, spread)
    return parts


def distance_parts(
    heads: Mapping[str, Iterable[float]], others: Mapping[str, Iterable[float]]
) -> dict[str, bool | None]:
    """Take C16 apart: accuracies of the networks with an OffsetL2 head, and of all others."""
    ours, rest = ({k: moments(v) for k, v in group.items()} for group in (heads, others))
    stable, gap = None, None
    if min(m.runs for m in (*ours.values(), *rest.values())) > 1:
        stable = max(m.sd for m in ours.values()) <= min(m.sd for m in rest.values())
    pairs = [(ours[n], ours[f"{n}-neg"]) for n in ("relu-l2", "abs-l2") if {n, f"{n}-neg"} <= set(ours)]
    if pairs:
        gap = all(abs(a.mean - b.mean) <= LITTLE for a, b in pairs)
    best = min(m.mean for m in ours.values()) > max(m.mean for m in rest.values())
    return {
        "every OffsetL2 network is above all others": best,
        "its deviation over seeds is at most that of the others": stable,
        f"normal and Neg are within {LITTLE:g} point of each other": gap,
    }


def harm_parts(found: pd.DataFrame) -> dict[str, bool | None]:
    """Take C17 apart, by network: the table of levels between which accuracy holds (see ``perturbed.ranges``)."""
    parts: dict[str, bool | None] = {}
    for network, part in found.groupby("network", sort=False):
        name = title(str(network))
        ends = {
            (k, e): float(part[part["kind"] == k][e].median())
            for k in ("scale", "clip", "offset")
            for e in ("low", "high")
        }
        within = ends["scale", "low"] <= SCALES[0] and ends["scale", "high"] >= SCALES[1]
        parts[f"{name} holds under scaling by {100 * SCALES[0]:g} % to {100 * SCALES[1]:g} %"] = within
        parts[f"{name} holds under clipping from {100 * CLIP:g} %"] = ends["clip", "low"] <= CLIP
        harmed = ends["offset", "low"] >= -SMALL and ends["offset", "high"] <= SMALL
        parts[f"{name} does not hold under offsets of {100 * SMALL:g} %"] = harmed
    return parts
