"""Verdicts on C12 to C17: one function a claim, from measured tables to a verdict, its reason and evidence.

Axes: S seeds. Accuracies are per cent of test images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from metriscope.functional import moments
from metriscope.report import Claim, Evidence, Verdict
from metriscope.studies.contract import claims
from metriscope.studies.representation.analysis import Analysis
from metriscope.studies.representation.comparisons import BASE
from metriscope.studies.representation.measure import mean_text, printed
from metriscope.studies.representation.perturbed import POINTS, ranges
from metriscope.studies.representation.results import NAME, Setting, title
from metriscope.studies.representation.rules import (
    LITTLE,
    Parts,
    bias_parts,
    collapse_parts,
    distance_parts,
    fold_parts,
    harm_parts,
    recovery_parts,
    verdict_of,
)

__all__ = ["JUDGES", "Judgement", "verdicts"]

Runs = Mapping[str, pd.Series]
BIAS_NOTE = f"Little: within {LITTLE:g} point, or within the larger deviation over seeds. "


@dataclass(frozen=True)
class Judgement:
    """What one claim's function returns."""

    verdict: Verdict
    reason: str
    evidence: tuple[Evidence, ...] = ()


def _said(parts: Parts) -> str:
    words = {True: "Holds", False: "Does not hold", None: "Not measured"}
    named = {w: [name for name, holds in parts.items() if holds is key] for key, w in words.items()}
    return " ".join(f"{word}: {'; '.join(names)}." for word, names in named.items() if names)


def _where(setting: Setting, runs: Runs) -> str:
    counts = sorted({len(values) for values in runs.values()})
    seeds = f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else f"{counts[0]} seed{'s' * (counts[0] > 1)}"
    hint = f" {setting.shortfall} So this is a hint, not a test of the paper's statement." if setting.shortfall else ""
    return f"Reached at {setting}, {seeds}.{hint}"


def _means(runs: Runs) -> str:
    return ", ".join(f"{title(name)} {mean_text(values)}" for name, values in runs.items())


def _beside(runs: Runs) -> tuple[Evidence, ...]:
    rows = []
    for name, values in runs.items():
        theirs = printed("test_accuracy", network=name)
        spots = (
            dict.fromkeys(f"{m:.2f} ± {s:.2f}" for m, s in zip(theirs["mean"], theirs["sd"], strict=True))
            if len(theirs)
            else {}
        )
        source = "S2" if spots else ""
        rows.append(
            Evidence(
                f"{title(name)}: test accuracy, %, mean of {len(values)}",
                mean_text(values),
                ", ".join(spots) or None,
                source,
            )
        )
    return tuple(rows)


def _runs(analysis: Analysis, setting: Setting, names: Iterable[str]) -> dict[str, pd.Series]:
    there = set(analysis.networks(setting))
    return {name: analysis.accuracy(setting, name) for name in names if name in there}


def _judged(parts: Parts, setting: Setting, runs: Runs, more: str = "") -> Judgement:
    reason = f"Test accuracy in per cent: {_means(runs)}. {_said(parts)} {more}{_where(setting, runs)}"
    return Judgement(verdict_of(parts, setting.paper), reason, _beside(runs))


def _absent(*names: str) -> Judgement:
    return Judgement("not run", f"No setting has {', '.join(map(title, names))} together.")


def judge_collapse(analysis: Analysis) -> Judgement:
    """Judge C12."""
    setting = analysis.setting(("relu", "relu2"))
    if setting is None:
        return _absent("relu", "relu2")
    runs = _runs(analysis, setting, ("relu", "relu2"))
    table = analysis.dead[(analysis.dead["setting"] == str(setting)) & (analysis.dead["network"] == "relu2")]
    table = table[(table["layer"] == "output") & (table["part"] == "train")]
    last = table[table["epoch"] == table["epoch"].max()]
    shares = {k: mean_text(last[k]) for k in ("never", "under_1", "under_5")}
    more = (
        f"Of ReLU2's output units {shares['never']} % are never active on training images, {shares['under_1']} % for "
        f"under 1 % and {shares['under_5']} % for under 5 % of them. "
        if len(last)
        else ""
    )
    found = _judged(collapse_parts(runs["relu"], runs["relu2"], last["never"]), setting, runs, more)
    theirs = printed("dead_output_units", network="relu2")
    rows = [
        Evidence(
            f"ReLU2 outputs, % {text} of training images",
            shares[key],
            ", ".join(f"{m:g}" for m in part) or None,
            "S2, notes",
        )
        for key, text in (
            ("never", "active for none"),
            ("under_1", "active for under 1 %"),
            ("under_5", "active for under 5 %"),
        )
        for part in [theirs[theirs["threshold"] == key]["mean"]]
        if len(last)
    ]
    return Judgement(found.verdict, found.reason, (*found.evidence, *rows))


def judge_recovery(analysis: Analysis) -> Judgement:
    """Judge C13."""
    setting = analysis.setting(("relu", "relu2-neg", "relu2")) or analysis.setting(("relu", "relu2-neg"))
    if setting is None:
        return _absent("relu", "relu2-neg")
    runs = _runs(analysis, setting, ("relu", "relu2", "relu2-neg"))
    return _judged(recovery_parts(runs["relu"], runs["relu2-neg"], runs.get("relu2", [])), setting, runs)


def judge_fold(analysis: Analysis) -> Judgement:
    """Judge C14."""
    names = ("abs", "abs2", "abs2-neg")
    setting = analysis.setting(names)
    if setting is None:
        return _absent(*names)
    runs = _runs(analysis, setting, names)
    sds = [moments(runs[n]).sd for n in names[1:]]
    more = "" if any(map(math.isnan, sds)) else f"Deviations: Abs2 {sds[0]:.2f}, Abs2-Neg {sds[1]:.2f}. "
    return _judged(fold_parts(*(runs[n] for n in names)), setting, runs, more)


def judge_bias(analysis: Analysis) -> Judgement:
    """Judge C15 in the setting nearest to S2's that has any network with and without bias."""
    for setting in analysis.results.settings:
        there = set(analysis.networks(setting))
        names = [n for n in BASE if {n, f"{n}-bias"} <= there]
        if names:
            runs = _runs(analysis, setting, [m for n in names for m in (n, f"{n}-bias")])
            parts = bias_parts({n: (runs[f"{n}-bias"], runs[n]) for n in names})
            # S2's statement is about all six.
            parts |= {f"{title(n)} changes little": None for n in BASE if n not in names}
            return _judged(parts, setting, runs, BIAS_NOTE)
    return Judgement("not run", "No setting has a network both with and without bias.")


def judge_distance(analysis: Analysis) -> Judgement:
    """Judge C16 in the setting nearest to S2's that has baselines and any OffsetL2 network."""
    heads = ("relu-l2", "relu-l2-neg", "abs-l2", "abs-l2-neg")
    for setting in analysis.results.settings:
        ours, others = (_runs(analysis, setting, names) for names in (heads, BASE))
        if ours and {"relu", "abs"} & set(others):
            parts = distance_parts(ours, others)
            return _judged(parts, setting, {**others, **ours}, _movement(analysis, setting))
    return Judgement("not run", "No setting has an OffsetL2 network beside ReLU or Abs.")


def _movement(analysis: Analysis, setting: Setting) -> str:
    rows = analysis.places[analysis.places["setting"] == str(setting)]
    if rows.empty:
        return ""
    own = rows[rows["output"] == rows["class"]]
    return (
        "Whether it is prototypes that do it is another question: after training ‖μ‖ is "
        f"{own['norm of mu'].mean():.2f} on average, where a fresh one has about {own['fresh norm'].mean():.2f}, and "
        f"class means lie {own['distance'].mean():.4g} away. "
    )


def judge_harm(analysis: Analysis) -> Judgement:
    """Judge C17 by ReLU and Abs, and by those with a bias where they were run."""
    if not {"relu", "abs"} & set(analysis.perturbed["network"]):
        return Judgement("not run", "No ReLU or Abs network and its images are at hand.")
    found = ranges(analysis.perturbed)
    parts = harm_parts(found)
    offsets = found[found["kind"] == "offset"].groupby("network", sort=False)
    texts = [f"{title(str(n))} {100 * p['low'].median():.1f} % to {100 * p['high'].median():.1f} %" for n, p in offsets]
    setting = next(s for s in analysis.results.settings if str(s) == found["setting"].iloc[0])
    runs = {str(n): part["baseline"] for n, part in offsets}
    reason = (
        f"Training accuracy holds within {POINTS:g} point under offsets of the range from {'; '.join(texts)} "
        f"(medians). {_said(parts)} Without a bias in the second layer scaling cannot change which output is largest, "
        f"so that part is algebra there and evidence only with a bias. {_where(setting, runs)}"
    ).replace(" -", " −")
    return Judgement(verdict_of(parts, setting.paper), reason, _ends(found))


def _ends(found: pd.DataFrame) -> tuple[Evidence, ...]:
    theirs = printed("perturbation").set_index(["network", "kind"])
    rows = []
    for (network, kind), part in found.groupby(["network", "kind"], sort=False):
        ours = " to ".join(_share(float(part[end].median())) for end in ("low", "high"))
        known = (network, kind) in theirs.index
        printed_ends = (
            " to ".join(_share(float(theirs.loc[(network, kind), end])) for end in ("low", "high")) if known else None
        )
        rows.append(
            Evidence(
                f"{title(str(network))}: {kind} within which accuracy holds", ours, printed_ends, "P" if known else ""
            )
        )
    return tuple(rows)


def _share(value: float) -> str:
    return "any" if math.isinf(value) or math.isnan(value) else f"{100 * value:.3g} %".replace("-", "−")


JUDGES: dict[str, Callable[[Analysis], Judgement]] = {
    "C12": judge_collapse,
    "C13": judge_recovery,
    "C14": judge_fold,
    "C15": judge_bias,
    "C16": judge_distance,
    "C17": judge_harm,
}


def verdicts(analysis: Analysis) -> tuple[Claim, ...]:
    """Return every claim of this study with its verdict, in the ledger's order."""
    found = []
    for entry in claims(NAME):
        judgement = JUDGES[entry.id](analysis)
        fields = (judgement.verdict, judgement.reason, judgement.evidence)
        found.append(Claim(entry.id, entry.text, entry.source, *fields))
    return tuple(found)
