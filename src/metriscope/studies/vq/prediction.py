"""Sixty architectures: how well kernels predict final accuracy if parameters and depth are known (claim C30).

Axes: A architectures, C control variables. All correlations are between ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from scipy import stats

from metriscope.nn import ACTIVATIONS, unstack
from metriscope.report import Evidence, Figure, Prose, Section, Table, mean_interval, mean_text, number, to_svg
from metriscope.report.style import COLORS, CYCLE, FAINT, INK, figure, legend, log_axes
from metriscope.rng import derive
from metriscope.runs import Driver
from metriscope.studies.evidence import Above
from metriscope.studies.tidy_tables import joined
from metriscope.studies.verdicts import Criterion, Statement, Values
from metriscope.studies.vq.experiments import CONTROLS, REFERENCE, SCORES, USEFUL, Contest, Prediction
from metriscope.studies.vq.moons import entropy_rank
from metriscope.studies.vq.networks import STUDY, Group
from metriscope.studies.vq.train import accuracy, aligned, cohort, looked_up, sample, start
from metriscope.train import Cohort, fit
from metriscope.vq import VQMDS, Layer, Patterns, capture, naswot_score

__all__ = [
    "STATEMENT", "PredictionResults", "held_out_gains", "label_patterns", "measure_prediction",
    "partial_rank_correlation", "permutation_p", "pseudo_values", "section",
]  # fmt: skip

Array = Float[np.ndarray, " a"]
Controls = Float[np.ndarray, "a c"]


def label_patterns(labels: Int[np.ndarray, " n"]) -> Patterns:
    """Return labels as one sign per class, so that their kernel is that of the one-hot labels.

    >>> label_patterns(np.array([0, 1])).signs().tolist()
    [[1, -1], [-1, 1]]
    """
    hot = labels[:, None] == np.arange(labels.max() + 1)
    return Patterns((Layer("labels", hot.shape[1], "relu"),), np.packbits(hot, axis=1))


def contest_rows(spec: Contest) -> Iterator[dict[str, object]]:
    """Yield one row per architecture and start: the scores, and accuracies after the first and the last epoch."""
    for width in spec.widths:
        group = spec.group(width)
        own = cohort(group)
        fit([own], workers=1, threads=1)
        for place, seed in enumerate(group.seeds):
            size = {"width": width, "parameters": group.shape.parameters, "seed": seed}
            yield {**size, **_scored(spec, group, own, place)}


@torch.no_grad()
def _scored(spec: Contest, group: Group, own: Cohort, place: int) -> dict[str, float]:
    number = group.seeds[place]
    points, before = sample(group, number, "first"), start(group, number, "first")
    (epoch,) = group.recipe.kept
    first = {k.removeprefix(f"{epoch}/"): v for k, v in own.snapshots.items()}
    early, last = (unstack(before, state, place) for state in (first, own.parameters))
    p, q = (capture(model, points.x[: spec.points]) for model in (before, early))
    labels = label_patterns(points.y[: spec.points].numpy())
    batches = [p[i * spec.batch : (i + 1) * spec.batch] for i in range(spec.batches)]
    return {
        "naswot": float(np.mean([naswot_score(batch) for batch in batches])),
        "rank": entropy_rank(VQMDS(n_components=None).fit(p).eigenvalues_),
        "labels": aligned(p, labels, "debiased"),
        "moved": 1 - aligned(p, q, "debiased"),
        "labels after": aligned(q, labels, "debiased"),
        "early": accuracy(early, points.x, points.y),
        "test": accuracy(last, points.test_x, points.test_y),
    }


def _ranks(values: Array | Controls) -> np.ndarray:
    return np.asarray(stats.rankdata(values, axis=0), dtype=np.float64)


def _design(controls: Controls) -> Float[np.ndarray, "a c1"]:
    return np.column_stack([np.ones(len(controls)), _ranks(controls)])


def _left(values: Array, design: Float[np.ndarray, "a c"]) -> Array:
    """Return the residuals of a linear regression of values on the design; rounding errors are set to zero."""
    left = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    nothing = np.linalg.norm(left) <= np.sqrt(np.finfo(float).eps) * np.linalg.norm(values)
    return np.zeros_like(left) if nothing else left


def _cosine(a: Array, b: Array) -> float:
    norm = np.linalg.norm(a) * np.linalg.norm(b)
    return float(a @ b / norm) if norm else 0.0


def partial_rank_correlation(score: Array, target: Array, controls: Controls) -> float:
    """Return the correlation of two rankings after a linear function of the controls' ranks is subtracted from each.

    It is 0 if the controls explain the score completely.

    >>> size = np.array([[1.0], [2.0], [3.0], [4.0]])
    >>> partial_rank_correlation(size[:, 0] ** 2, np.array([1.0, 3.0, 2.0, 4.0]), size)
    0.0
    """
    design = _design(controls)
    return _cosine(_left(_ranks(score), design), _left(_ranks(target), design))


def pseudo_values(score: Array, target: Array, controls: Controls) -> Array:
    """Return the jackknife pseudo-value of the partial rank correlation for each architecture.

    Their mean estimates the correlation, and a t-test of them takes the architecture as the unit of replication.
    """
    count, whole = len(score), partial_rank_correlation(score, target, controls)
    rest = [np.delete(np.arange(count), i) for i in range(count)]
    without = np.array([partial_rank_correlation(score[r], target[r], controls[r]) for r in rest])
    return count * whole - (count - 1) * without


def permutation_p(score: Array, target: Array, controls: Controls, permutations: int, seed: int) -> float:
    """Return the one-sided p-value of the partial rank correlation, with the residual of the score shuffled."""
    design, generator = _design(controls), np.random.default_rng(seed)
    left, goal = _left(_ranks(score), design), _left(_ranks(target), design)
    shuffled = generator.permuted(np.tile(left, (permutations, 1)), axis=1)
    # The controls are regressed out of each shuffled score too.
    shuffled -= shuffled @ design @ np.linalg.pinv(design)
    norms = np.linalg.norm(shuffled, axis=1) * np.linalg.norm(goal)
    found = np.divide(shuffled @ goal, norms, out=np.zeros(permutations), where=norms > 0)
    return float((1 + np.sum(found >= _cosine(left, goal))) / (1 + permutations))


def held_out_gains(score: Array, target: Array, controls: Controls) -> Array:
    """Return by how much the score reduces the squared error of each architecture, as a share of the mean error.

    Each architecture's rank is predicted by linear regression on all others: from the controls, and with the score.
    """
    design, goal = _design(controls), _ranks(target)
    errors = [np.square(_left_out(d, goal)) for d in (design, np.column_stack([design, _ranks(score)]))]
    return (errors[0] - errors[1]) / errors[0].mean()


def _left_out(design: Float[np.ndarray, "a c"], target: Array) -> Array:
    """Return the error at each row of a regression on all other rows."""
    hat = design @ np.linalg.pinv(design)
    return (target - hat @ target) / (1 - np.diag(hat))


@dataclass(frozen=True)
class PredictionResults:
    """One row per architecture and start; without rows nothing was run or recorded."""

    part: Prediction
    rows: pd.DataFrame

    @cached_property
    def architectures(self) -> pd.DataFrame:
        """One row per architecture: means over its starts."""
        keys = ["depth", "activation", "width", "parameters"]
        return self.rows.groupby(keys, sort=False)[[*SCORES, *REFERENCE, "test"]].mean().reset_index()

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """By score: each architecture's pseudo-value and held-out gain, and one row of correlations."""
        if self.rows.empty:
            return {}
        origin = self.rows["origin"].iloc[0]
        each = [self._each(score) for score in (*SCORES, *REFERENCE)]
        found = pd.DataFrame([self._correlations(score) for score in (*SCORES, *REFERENCE)])
        tables = {"forecasts": pd.concat(each, ignore_index=True), "forecast correlations": found}
        return {name: table.assign(origin=origin) for name, table in tables.items()}

    def _values(self, score: str) -> tuple[Array, Array, Controls]:
        found = self.architectures
        columns = (found[name].to_numpy(dtype=float) for name in (score, "test"))
        return *columns, found[list(CONTROLS)].to_numpy(dtype=float)

    def _each(self, score: str) -> pd.DataFrame:
        values = self._values(score)
        columns = {"partial": pseudo_values(*values), "gain": held_out_gains(*values)}
        return pd.DataFrame({"architecture": np.arange(len(values[0])), "score": score, **columns})

    def _correlations(self, score: str) -> Mapping[str, object]:
        values = self._values(score)
        seed = derive(self.part.seed, STUDY, "prediction", score)
        return {
            "score": score,
            "plain": float(stats.spearmanr(*values[:2]).statistic),
            "partial": partial_rank_correlation(*values),
            "p": permutation_p(*values, self.part.permutations, seed),
            "tied": int((values[0] == values[0].min()).sum()),
        }


def measure_prediction(part: Prediction, driver: Driver) -> PredictionResults:
    """Train and score all architectures, or look them up."""
    found = looked_up(driver, part.contests(), contest_rows, "vq: sixty architectures", part.computed)
    parts = [rows.assign(depth=spec.depth, activation=spec.activation) for spec, rows in found.items()]
    return PredictionResults(part, joined(parts))


Tables = Mapping[str, pd.DataFrame]


def _criteria(score: str, title: str) -> Iterator[Criterion]:
    criterion = partial(Criterion, unit="architecture", units="architectures", level=title, fewest=10)
    yield criterion(
        "partial rank correlation with final accuracy, given parameters and depth",
        Values.of("forecasts", "partial", score=score),
        Above(USEFUL),
        f"A correlation of {USEFUL:g} explains {USEFUL**2:.0%} of what parameters and depth leave open; with less, the "
        "score hardly helps to choose among architectures.",
    )
    yield criterion(
        "share of the squared error on held-out architectures that the score removes",
        Values.of("forecasts", "gain", score=score),
        Above(0.0),
        "A score that helps must also help on architectures that the regression has not seen.",
    )


def _rows(tables: Tables) -> pd.DataFrame:
    return tables["forecast correlations"].set_index("score")


def _notes(tables: Tables) -> str:
    if "forecast correlations" not in tables:
        return ""
    found = _rows(tables)
    ps = "; ".join(f"{title} {number(found['p'][score], 2)}" for score, title in SCORES.items())
    ((score, title),) = REFERENCE.items()
    return (
        f"One-sided p-values by permutation: {ps}. For comparison, the {title}, which needs no kernel, has a partial "
        f"correlation of {number(found['partial'][score], 2)}. NASWOT's score is −∞ for {found['tied']['naswot']} "
        "architectures with too few units: their kernel is singular, and they share the lowest rank."
    )


def _evidence(tables: Tables) -> list[Evidence]:
    if "forecasts" not in tables:
        return []
    found, each = _rows(tables), tables["forecasts"]
    return [
        evidence
        for score, title in {**SCORES, **REFERENCE}.items()
        for evidence in (
            Evidence(f"{title}: rank correlation, nothing else known", number(found["plain"][score], 2)),
            Evidence(f"{title}: given parameters and depth", mean_text(each[each["score"] == score]["partial"])),
        )
    ]


STATEMENT = Statement(
    "C30",
    "The kernel of a network tells its worth before or early in training.",
    "Roddenberry et al., future work",
    tuple(criterion for row in SCORES.items() for criterion in _criteria(*row)),
    "score",
    _notes,
    _evidence,
)


def forecasts(results: PredictionResults) -> Figure:
    """Draw accuracy over parameters, and each score's correlation with accuracy, plain and partial."""
    drawing, ((left, right),) = figure(9.2, 3.6, 1, 2)
    for activation, rows in results.architectures.groupby("activation", sort=False):
        row = ACTIVATIONS[str(activation)]
        looks = {"color": COLORS[str(activation)], "alpha": 0.7, "markeredgewidth": 0, "label": row.title}
        left.plot(rows["parameters"], 100 * rows["test"], "o", markersize=4.5, **looks)
    log_axes(left, "x")
    left.set(xlabel="parameters", ylabel="final test accuracy, %")
    legend(left, "lower right")
    found, each = results.tables["forecast correlations"].set_index("score"), results.tables["forecasts"]
    titles = {**SCORES, **REFERENCE}
    for row_number, score in enumerate(titles):
        mean, low, high = mean_interval(each[each["score"] == score]["partial"])
        first = {"label": "nothing else known"} if row_number == 0 else {}
        right.plot(
            [found["plain"][score]], [row_number], "D", color="white", markeredgecolor=INK, markersize=6, **first
        )
        right.plot([low, high], [row_number] * 2, color=CYCLE[0], linewidth=2)
        first = {"label": "given parameters and depth"} if row_number == 0 else {}
        right.plot([mean], [row_number], "o", color=CYCLE[0], markersize=7, **first)
    right.axvline(0, color=FAINT, linewidth=1)
    right.axvline(USEFUL, color=INK, linewidth=0.9, dashes=(4, 3))
    right.set_yticks(range(len(titles)), list(titles.values()))
    right.invert_yaxis()
    right.set_xlabel("rank correlation with final accuracy")
    legend(right, "upper left")
    caption = (
        f"Left: each dot is one of {len(results.architectures)} architectures, the mean over {results.part.starts} "
        "starts. Right: hollow diamonds are rank correlations of a score with final accuracy, dots those that remain "
        f"given parameters and depth, with the 95 % jackknife interval over architectures. Dashed: {USEFUL:g}, the "
        "least that counts as useful."
    )
    return Figure("vq-forecasts", "Scores of the kernel and final accuracy", to_svg(drawing, "vq-forecasts"), caption)


TITLE = "Does the kernel tell a network's worth before training?"


def section(results: PredictionResults) -> Section:
    """Return the question, the figure and the table or, without rows, a sentence that nothing was run."""
    if results.rows.empty:
        return Section(TITLE, (Prose(f"{_text(results)}\n\nNot run in this profile, and there is no record of it."),))
    return Section(TITLE, (Prose(_text(results)), forecasts(results), _table(results)))


def _text(results: PredictionResults) -> str:
    part, spec = results.part, results.part.contests()[0]
    planned = len(part.depths) * len(part.widths) * len(part.activations)
    count = planned if results.rows.empty else len(results.architectures)
    names = " or ".join(ACTIVATIONS[a].title for a in part.activations)
    return (
        "Roddenberry et al. name architecture search as future work: could a network's kernel tell, before or early in "
        f"training, how good the network will be? Here {count} architectures ({part.depths[0]} to {part.depths[-1]} "
        f"hidden layers of {part.widths[0]} to {part.widths[-1]} units, {names}) learn {part.images.train:,} images of "
        f"`{part.images.name}` for {spec.recipe.epochs} epochs from {part.starts} starts each. Scores and accuracies "
        "are averaged over the starts; the unit of replication is the architecture.\n\n"
        f"NASWOT's score is the log determinant of the kernel H − d, here on batches of {spec.batch} images; the "
        "effective rank and the alignment with the labels are those of the centered kernel on "
        f"{spec.points:,} training images. Larger networks have larger scores and are more accurate, so the question "
        "is what a score adds to the number of parameters and the depth, which are known without drawing a network. "
        "The partial rank correlation answers it, and so does the error on held-out architectures: each one's rank is "
        "predicted from all others, with and without the score."
    )


def _table(results: PredictionResults) -> Table:
    found, each = results.tables["forecast correlations"].set_index("score"), results.tables["forecasts"]
    lines = []
    for score, title in {**SCORES, **REFERENCE}.items():
        rows = each[each["score"] == score]
        lines.append(
            {
                "score": title,
                "nothing else known": number(found["plain"][score], 2),
                "given parameters and depth": mean_text(rows["partial"]),
                "p, permutation": number(found["p"][score], 2),
                "held-out error removed": mean_text(rows["gain"]),
            }
        )
    note = (
        f"Rank correlations with final test accuracy over {len(results.architectures)} architectures; jackknife mean "
        f"[95 % t interval]. p: one-sided, {results.part.permutations:,} permutations of what parameters and depth "
        "leave of the score. Held-out error removed: share of the squared error of predicted ranks, leave one out. "
        "The last row is no score of the kernel."
    )
    return Table("vq-forecasts", "What each score predicts", pd.DataFrame(lines), note)
