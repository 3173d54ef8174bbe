"""Verdicts on C01 to C08: one function a claim, from measured numbers to a verdict, its reason and evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch

from metriscope.nn import Mahalanobis, abs_to_relu
from metriscope.report import Claim, Evidence, Verdict, number
from metriscope.rng import stream
from metriscope.studies.contract import claims, published
from metriscope.studies.mahalanobis.comparison import chance_cosine, explained, judged, starts_compared
from metriscope.studies.mahalanobis.measure import METRICS
from metriscope.studies.mahalanobis.results import Results
from metriscope.studies.mahalanobis.spec import NAME

__all__ = ["verdicts"]

# A network has learned the distance if it explains this share of the variance of the true distances.
LEARNED = 0.9
# Relative error under which two float64 computations of the same distance are the same.
SAME = 1e-9
# A hyperplane passes through the mean if it is nearer than this, in units of the largest standard deviation.
THROUGH = 0.1
SIGNIFICANT = 0.01

TITLE = {metric.name: metric.title for metric in METRICS}


@dataclass(frozen=True)
class Judgement:
    """What one claim's function returns."""

    verdict: Verdict
    reason: str
    evidence: tuple[Evidence, ...] = ()


def verdicts(results: Results) -> tuple[Claim, ...]:
    """Return every claim of this study with its verdict."""
    found = []
    for entry in claims(NAME):
        judgement = JUDGES[entry.id](results)
        found.append(Claim(entry.id, entry.text, entry.source, *_fields(judgement)))
    return tuple(found)


def _fields(j: Judgement) -> tuple[Verdict, str, tuple[Evidence, ...]]:
    return j.verdict, j.reason, j.evidence


def _named(dims: tuple[int, ...] | list[int]) -> str:
    return " and ".join(f"{d}-D" for d in dims)


def _unjudged(results: Results) -> str:
    left = [d for d in results.plan.sizes if d not in judged(results)]
    return f" Not judged: {_named(left)}, run shorter than the protocol." if left else ""


def _not_run(what: str) -> Judgement:
    return Judgement("not run", f"No dimension was run at the paper's protocol with {what}.")


def _trials(results: Results, dim: int, activation: str) -> pd.DataFrame:
    return results.select(dim=dim, start="random", activation=activation)


def _has(results: Results, *activations: str) -> bool:
    return set(activations) <= set(results.plan.activations) and bool(judged(results))


def _against(results: Results, metric: str, dims: tuple[int, ...] | None = None) -> tuple[Evidence, ...]:
    """Return the mean of a metric beside the published mean, for each dimension and activation run."""
    printed = published(NAME)
    rows = []
    for dim in dims or tuple(results.plan.sizes):
        for activation in results.plan.activations:
            values = _trials(results, dim, activation)[metric]
            where = (printed["dim"] == dim) & (printed["activation"] == activation) & (printed["metric"] == metric)
            theirs = printed[where]["mean"].dropna()
            known = float(theirs.iloc[0]) if len(theirs) else None
            if not values.isna().all():
                label = f"{dim}-D {activation}: {TITLE[metric]}, mean of {len(values)}"
                rows.append(Evidence(label, float(values.mean()), known, "S1" if known is not None else ""))
    return tuple(rows)


def _c01(results: Results) -> Judgement:
    evidence, worst = [], 0.0
    for dim, task in results.tasks.items():
        x = task.gaussian.sample(1_000, stream(results.plan.seed, "C01", dim))
        centred = x - task.gaussian.mean
        # By solving, not by whitening: the same route twice would prove nothing.
        solved = torch.linalg.solve(task.gaussian.cov, centred.mT).mT
        true = (centred * solved).sum(1).sqrt()
        error = float(((Mahalanobis.from_gaussian(task.gaussian.mean, task.gaussian.cov)(x) - true) / true).abs().max())
        worst = max(worst, error)
        evidence.append(Evidence(f"{dim}-D: largest relative error on 1,000 new points, float64", error))
    verdict: Verdict = "supported" if worst < SAME else "contradicted"
    return Judgement(verdict, f"The largest relative error is {number(worst)}: rounding.", tuple(evidence))


def _c02(results: Results) -> Judgement:
    networks = [t for t in results.trained if t.activation == "abs"]
    if not networks:
        return Judgement("not run", "No Abs network was trained.")
    worst = 0.0
    for network in networks:
        x = results.tasks[network.dim].x[:200].double()
        one, two = network.model.double()(x), abs_to_relu(network.model.double())(x)
        worst = max(worst, float(((one - two) / one).abs().max()))
        network.model.float()
    verdict: Verdict = "supported" if worst < SAME else "contradicted"
    reason = f"{len(networks)} trained Abs networks, rewritten as mirrored ReLU pairs, give the same distances."
    return Judgement(verdict, reason, (Evidence("largest relative difference, float64", worst),))


def _c03(results: Results) -> Judgement:
    if not _has(results, "abs", "relu", "sigmoid"):
        return _not_run("Abs, ReLU and Sigmoid")
    shares = {}
    for dim in judged(results):
        for activation in ("abs", "relu", "sigmoid"):
            test = _trials(results, dim, activation)["test_mse"]
            shares[dim, activation] = float((explained(results, dim, test) > LEARNED).mean())
    learned = [key for key, share in shares.items() if share > LEARNED]
    wanted = [(d, a) for d in judged(results) for a in ("abs", "relu")]
    sigmoid = any(a == "sigmoid" for _, a in learned)
    every = set(learned) == set(wanted)
    verdict: Verdict = "supported" if every else "contradicted" if sigmoid else "depends"
    parts = [f"{d}-D {a} {share:.0%}" for (d, a), share in shares.items()]
    reason = (
        f"Share of trials that explain over {LEARNED:.0%} of the variance on new points: {', '.join(parts)}. "
        "Sigmoid never gets there; Abs and ReLU do in the trials that keep all directions."
        if not sigmoid
        else f"Share of trials that learned: {', '.join(parts)}."
    )
    return Judgement(verdict, reason + _unjudged(results), _against(results, "train_mse"))


def _c04(results: Results) -> Judgement:
    if not _has(results, "abs", "relu", "sigmoid"):
        return _not_run("Abs, ReLU and Sigmoid")
    dims = judged(results)
    means = {(d, a): _trials(results, d, a)["centering"].mean() for d in dims for a in ("abs", "relu", "sigmoid")}
    sigmoid_away = all(means[d, "sigmoid"] > max(means[d, "abs"], means[d, "relu"], THROUGH) for d in dims)
    through = all(means[d, a] < THROUGH for d in dims for a in ("abs", "relu"))
    verdict: Verdict = "contradicted" if not sigmoid_away else "supported" if through else "depends"
    kept = [_kept_centering(results, d, a) for d in dims for a in ("abs", "relu")]
    reason = (
        f"Sigmoid's hyperplanes lie farthest from the mean{'' if sigmoid_away else ' not everywhere'}. Those of Abs "
        "and ReLU pass through it in the trials that learned the distance; a trial that "
        "failed keeps hyperplanes away from it. Median distance in learned and other trials: "
        f"{'; '.join(kept)}."
    )
    return Judgement(verdict, reason + _unjudged(results), _against(results, "centering"))


def _kept_centering(results: Results, dim: int, activation: str) -> str:
    rows = _trials(results, dim, activation)
    learned = explained(results, dim, rows["test_mse"]) > LEARNED
    medians = [
        number(float(rows["centering"][mask].median())) if mask.any() else "none" for mask in (learned, ~learned)
    ]
    return f"{dim}-D {activation} {medians[0]} and {medians[1]}"


def _c05(results: Results) -> Judgement:
    if not _has(results, "relu"):
        return _not_run("ReLU")
    parts, any_pairs, all_pairs = [], False, True
    for dim in judged(results):
        rows = _trials(results, dim, "relu")
        exact = explained(results, dim, rows["test_mse"]) > 0.999
        paired = rows["mirrored"] > 0
        any_pairs |= bool(paired.any())
        all_pairs &= bool((rows["mirrored"] == dim).all())
        whole = int((rows["mirrored"][exact] == dim).sum())
        parts.append(
            f"{dim}-D: pairs in {int(paired.sum())} of {len(rows)} trials, "
            f"all {dim} pairs in {whole} of the {int(exact.sum())} trials that are exact"
        )
    verdict: Verdict = "supported" if all_pairs else "depends" if any_pairs else "contradicted"
    reason = f"Mirrored pairs come with success. {'; '.join(parts)}."
    return Judgement(verdict, reason + _unjudged(results), _against(results, "mirrored"))


def _c06(results: Results) -> Judgement:
    if not _has(results, "abs", "relu", "sigmoid"):
        return _not_run("Abs, ReLU and Sigmoid")
    dims = judged(results)
    mean = {
        (m, d, a): _trials(results, d, a)[m].mean()
        for m in ("sphericity", "data_sphericity")
        for d in dims
        for a in ("abs", "relu", "sigmoid")
    }
    units = all(mean["sphericity", d, "abs"] < mean["sphericity", d, a] for d in dims for a in ("relu", "sigmoid"))
    data = all(mean["data_sphericity", d, "abs"] < mean["data_sphericity", d, "relu"] for d in dims)
    verdict: Verdict = "supported" if units and data else "depends" if units or data else "contradicted"
    whiter = [d for d in dims if mean["data_sphericity", d, "abs"] < mean["data_sphericity", d, "relu"]]
    where = f"in {_named(whiter)}" if whiter else "nowhere"
    reason = (
        f"As S1 measures it, over units, Abs has {'' if units else 'not '}the smallest norm. But 2D units that do not "
        "pair up cannot be white in D dimensions: their norm is at least sqrt(2D), whatever they learned. Measured on "
        f"the data's side, where the number of units does not matter, Abs is whiter than ReLU {where} (of "
        f"{_named(dims)}): what decides is how many directions a trial lost."
    )
    sides = [
        Evidence(f"{d}-D {a}: on the data's side", float(mean["data_sphericity", d, a]))
        for d in dims
        for a in ("abs", "relu")
    ]
    return Judgement(verdict, reason + _unjudged(results), (*_against(results, "sphericity"), *sides))


def _c07(results: Results) -> Judgement:
    if not _has(results, "abs"):
        return _not_run("Abs")
    evidence, above, parts = [], [], []
    for dim in judged(results):
        chance, edge = chance_cosine(results, dim)
        ours = float(_trials(results, dim, "abs")["eigenvector_cosine"].mean())
        above.append(ours > edge)
        parts.append(f"{dim}-D {number(ours)} against {number(chance)}")
        evidence += [
            Evidence(f"{dim}-D abs: matched |cosine| with the principal axes", ours),
            Evidence(f"{dim}-D: the same for a randomly turned whitening, mean", chance),
            Evidence(f"{dim}-D: the same, 97.5 % point", edge),
        ]
    verdict: Verdict = "supported" if all(above) else "depends" if any(above) else "contradicted"
    reason = (
        "S1's own word, poorly, stands: the matched cosine is what a random turn of the whitening gives "
        f"({'; '.join(parts)}). Whitening is not unique, and training has no reason to choose the principal axes."
        if not any(above)
        else f"Matched |cosine| of Abs against a random turn: {'; '.join(parts)}."
    )
    errors = _against(results, "eigenvalue_error")
    return Judgement(verdict, reason + _unjudged(results), (*evidence, *errors))


def _c08(results: Results) -> Judgement:
    if not _has(results, "abs", "relu"):
        return _not_run("Abs and ReLU")
    table = starts_compared(results)
    rows = table[table["dim"].isin(judged(results)) & table["activation"].isin(["abs", "relu"])]
    better = (rows["start_mse"] < rows["random_mse"]) & (rows["p_value"] < SIGNIFICANT)
    verdict: Verdict = "supported" if better.all() else "depends" if better.any() else "contradicted"
    one = rows[rows["start"] == "clusters"]
    lost = number(float(one["start_lost"].mean()))
    never = ", ".join(f"{r.dim}-D {r.activation} {r.never:.0%}" for r in one.itertuples())
    worse = ", ".join(f"{r.dim}-D {r.activation} from {r.start}" for r in rows[~better].itertuples())
    reason = (
        f"Started from one cluster, as the data is, a trial loses {lost} directions on average. "
        f"Random trials that never reach the loss it begins with: {never}. "
        + (f"Not better than random: {worse}; the number of clusters has to be right." if worse else "")
    )
    evidence = []
    for row in rows.itertuples():
        label = f"{row.dim}-D {row.activation}, {row.start}"
        evidence.append(Evidence(f"{label}: mean MSE on new points", float(row.start_mse)))
        evidence.append(Evidence(f"{label}: paired Wilcoxon p, less than random", float(row.p_value)))
    return Judgement(verdict, reason + _unjudged(results), tuple(evidence))


JUDGES: dict[str, Callable[[Results], Judgement]] = {
    "C01": _c01,
    "C02": _c02,
    "C03": _c03,
    "C04": _c04,
    "C05": _c05,
    "C06": _c06,
    "C07": _c07,
    "C08": _c08,
}
