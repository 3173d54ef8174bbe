"""Centers of classes along the outputs, how far hyperplanes are from them, and how correlated projections are.

Axes: N images, K hidden units, C classes (outputs). Measured in float64 on training images.

Oursland (2025, §6.1) defines z_c as the center that minimizes the distances within a class while it maximizes those to
the other classes, and not-z_c as the opposite. Here both are points on the axis of an output, its pre-activation: with
r(z) = mean |z - own| / mean |z - others|, z_c has the smallest r and not-z_c the largest. The hyperplane is at zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from torch import Tensor, nn

from metriscope.report import Evidence, Section, Table, interval, mean_text, number
from metriscope.rng import derive
from metriscope.runs import Result
from metriscope.studies.evidence import Above, Below, Region
from metriscope.studies.representation.accuracy import over_seeds, section_of
from metriscope.studies.representation.experiments import DRAWS, Centers
from metriscope.studies.representation.plan import RepresentationTraining, title
from metriscope.studies.representation.train import tagged
from metriscope.studies.verdicts import Criterion, Statement, Values

__all__ = ["STATEMENT", "centers", "correlation", "gather", "outputs", "rank_correlations", "read", "section"]

COLUMNS = {
    "centers": ("output", "center", "anticenter", "own sd", "others sd", "to center", "to anticenter", "nearer"),
    "projections": ("hidden", "output"),
}


def _mean_distance(z: Float[np.ndarray, " g"], values: Float[np.ndarray, " n"]) -> Float[np.ndarray, " g"]:
    """Return the mean of |z - value| for every z, from sorted values and their running sums."""
    ordered = np.sort(values)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    below = np.searchsorted(ordered, z)
    return (z * (2 * below - len(ordered)) + sums[-1] - 2 * sums[below]) / len(ordered)


def centers(own: Float[np.ndarray, " n"], others: Float[np.ndarray, " m"]) -> tuple[float, float]:
    """Return z_c and not-z_c on one axis.

    Between two neighboring values both means are linear in z, so their ratio is monotone, and beyond all values it
    tends to 1. So its smallest and its largest value are at values of the data.

    >>> centers(np.array([0.0, 1.0, 2.0]), np.array([9.0, 10.0, 11.0]))
    (1.0, 10.0)
    """
    z = np.concatenate([own, others])
    inner, outer = _mean_distance(z, own), _mean_distance(z, others)
    # Compared without division: a class may have the same value for all its images.
    angle = np.arctan2(inner, outer)
    return float(z[angle.argmin()]), float(z[angle.argmax()])


def outputs(z: Float[np.ndarray, "n c"], labels: Int[np.ndarray, " n"]) -> pd.DataFrame:
    """Return one row per output with images of its own class and of others.

    ``to center`` is the distance of the hyperplane z = 0 from z_c in standard deviations of the class along the output,
    ``to anticenter`` that from not-z_c in standard deviations of the other classes, in whose middle it lies. ``nearer``
    is 1 where the hyperplane is nearer to z_c than to not-z_c, which does not depend on the unit.
    """
    rows = []
    for c in range(z.shape[1]):
        own, others = z[labels == c, c], z[labels != c, c]
        if not len(own) or not len(others):
            continue
        center, anticenter = centers(own, others)
        spread, wide = own.std(), others.std()
        rows.append({
            "output": c, "center": center, "anticenter": anticenter, "own sd": spread, "others sd": wide,
            "to center": abs(center) / spread if spread > 0 else np.nan,
            "to anticenter": abs(anticenter) / wide if wide > 0 else np.nan,
            "nearer": float(abs(center) < abs(anticenter)),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS["centers"]))


def correlation(z: Float[np.ndarray, "n k"]) -> float:
    """Return the mean absolute correlation over pairs of columns; constant columns are left out.

    >>> round(correlation(np.array([[0.0, 0.0, 5.0], [1.0, -2.0, 5.0], [2.0, -4.0, 5.0]])), 6)
    1.0
    """
    varied = z[:, z.std(0) > 0]
    if varied.shape[1] < 2:
        return float("nan")
    above = np.triu_indices(varied.shape[1], 1)
    return float(np.abs(np.corrcoef(varied.T)[above]).mean())


def read(asked: Centers, model: nn.Sequential, x: Tensor, y: Tensor) -> Result:
    """Return the centers of one network's outputs, and the correlations of its hidden and its output projections."""
    hidden = model[0](x)
    found = [part.detach().double().numpy() for part in (hidden, model[1:3](hidden))]
    correlated = dict(zip(COLUMNS["projections"], map(correlation, found), strict=True))
    return Result({"centers": outputs(found[1], y.numpy()), "projections": pd.DataFrame([correlated])})


def gather(
    found: Sequence[tuple[RepresentationTraining, Mapping[str, pd.DataFrame]]], runs: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Return the tables of many networks, each row with the columns of its training, and correlations with accuracy.

    Of each network, the setting nearest to the paper's in which it was measured is used.
    """
    best = {job.model: job.setting for job, _ in sorted(found, key=lambda pair: pair[0].setting.closeness)}
    kept = [(job, tables) for job, tables in found if job.setting == best[job.model]]
    tables = {name: tagged(((job, own[name]) for job, own in kept), names) for name, names in COLUMNS.items()}
    return {**tables, "decorrelation": rank_correlations(tables["projections"], runs)}


def rank_correlations(projections: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Return Spearman's correlation, over networks, of the mean |correlation| of projections with test accuracy.

    One row per setting and kind of projection. Each network is one point, with its means over seeds; the 95 % interval
    is a percentile bootstrap over networks.
    """
    where = ["setting", "network"]
    means = projections.groupby(where, sort=False)[list(COLUMNS["projections"])].mean()
    means = means.join(runs.groupby(where)["test_accuracy"].mean()).dropna()
    rows = []
    for setting, part in means.groupby("setting", sort=False):
        for kind in COLUMNS["projections"]:
            pairs = part[[kind, "test_accuracy"]].to_numpy()
            if len(pairs) >= 5:
                rows.append({"setting": setting, "projections": kind, "networks": len(pairs), **_spearman(pairs)})
    return pd.DataFrame(rows, columns=["setting", "projections", "networks", "rank correlation", "low", "high"])


def _spearman(pairs: Float[np.ndarray, "n 2"]) -> dict[str, float]:
    from scipy.stats import rankdata

    generator = np.random.default_rng(derive(0, "centers", "bootstrap"))
    drawn = pairs[generator.integers(len(pairs), size=(DRAWS, len(pairs)))]
    ranks = rankdata(np.concatenate([pairs[None], drawn]), axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    products = (ranks[..., 0] * ranks[..., 1]).sum(1)
    # Undefined if all networks, or all that are drawn, have equal values.
    with np.errstate(invalid="ignore"):
        found = products / np.sqrt(np.square(ranks).sum(1).prod(1))
    defined = found[1:][np.isfinite(found[1:])]
    low, high = np.quantile(defined, [0.025, 0.975]) if len(defined) else (np.nan, np.nan)
    return {"rank correlation": float(found[0]), "low": float(low), "high": float(high)}


THROUGH = "Through a class means through its bulk: within one standard deviation of its center."
CHANCE = "Half of the outputs would be nearer to either center by chance."


def _criteria(network: str, distance: bool) -> tuple[Criterion, Criterion]:
    own = "its own class's center" if distance else "the other classes' center"
    side = Above(0.5) if distance else Below(0.5)

    def of(text: str, column: str, region: Region, why: str) -> Criterion:
        return Criterion(text, Values.of("centers", column, network=network), region, why, level=title(network))

    return (
        of(f"deviations from a hyperplane to {own}", "to center" if distance else "to anticenter", Below(1.0), THROUGH),
        of("share of hyperplanes nearer to their own class's center", "nearer", side, CHANCE),
    )


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    """Return sentences on whether decorrelated projections go with higher accuracy."""
    parts = [
        f"{row['projections']} projections {number(row['rank correlation'])} {interval(row['low'], row['high'])} "
        f"({row['networks']} networks; {row['setting']})"
        for _, row in tables["decorrelation"].iterrows()
    ]
    text = "Rank correlation of accuracy with the mean |correlation| between projections, over networks [95 % interval]"
    return f"{text}: {'; '.join(parts)}." if parts else ""


def _evidence(tables: Mapping[str, pd.DataFrame]) -> tuple[Evidence, ...]:
    columns = {"to center": "deviations to its own center", "to anticenter": "deviations to the others' center"}
    found = []
    for network, part in tables["centers"].groupby("network", sort=False):
        means = part.groupby("seed")[list(columns)].mean()
        for column, text in columns.items():
            label = f"{title(str(network))}: {text}, mean of {len(means)} runs"
            found.append(Evidence(label, mean_text(means[column])))
    return tuple(found)


STATEMENT = Statement(
    "C27",
    "Where distance is learned (ReLU2-Neg, Abs2-Neg) output hyperplanes pass through their own class; where intensity "
    "is learned (Abs2), through the other classes.",
    "Oursland 2025, §6.1–6.3",
    (*_criteria("relu2-neg", True), *_criteria("abs2-neg", True), *_criteria("abs2", False)),
    factor="network",
    notes=_notes,
    evidence=_evidence,
)


Tables = Mapping[str, pd.DataFrame]


def section(tables: Tables) -> Section:
    """Return the section."""
    text = (
        "Oursland (2025, §6.1) defines for each class an optimal center z_c, near its own class and far from the "
        "others, and its opposite not-z_c. Here both are points on the axis of the class's output, its "
        "pre-activation: z_c has the smallest ratio of the mean distance to its own class over the mean distance to "
        "the others, not-z_c the largest. A hyperplane (zero) that represents a distance should pass through z_c, one "
        "that represents an intensity through not-z_c. Zero of an OffsetL2 output is its prototype."
    )
    missing = "No trained network with its images is available."
    return section_of("Hyperplanes and optimal centers", text, missing, _distances(tables), _decorrelation(tables))


def _distances(tables: Tables) -> Table | None:
    table = tables["centers"]
    if table.empty:
        return None
    numbers = table.assign(place=table["center"] / table["own sd"], opposite=table["anticenter"] / table["others sd"])
    labels = {
        "to center": "z_c, own sd", "to anticenter": "not-z_c, others' sd", "nearer": "share nearer to z_c",
        "place": "z_c", "opposite": "not-z_c",
    }  # fmt: skip
    seeds = numbers.groupby(["network", "seed"], sort=False)[list(labels)].mean().reset_index()
    columns = tuple(labels)
    groups = {"distance of the hyperplane from": columns[:2], "where they lie (hyperplane at 0)": columns[3:]}
    note = (
        f"{table['setting'].iloc[0]}. Mean over outputs, then mean [95 % t interval] over seeds, in standard "
        "deviations along the output: of the class for z_c, of the other classes for not-z_c."
    )
    frame = over_seeds(seeds, columns)
    return Table("centers", "Hyperplanes and optimal centers", frame, note, {}, groups, labels)


def _decorrelation(tables: Tables) -> Table | None:
    table = tables["decorrelation"]
    if table.empty:
        return None
    ends = [interval(low, high) for low, high in zip(table["low"], table["high"], strict=True)]
    frame = table.drop(columns=["low", "high"]).assign(**{"95 % interval": ends})
    note = (
        "Oursland (2025, §6.2) rests ReLU2-Neg's accuracy on classes that are decorrelated across projections. "
        "Spearman's correlation, over networks, of test accuracy with the mean |correlation| between the "
        "pre-activations of hidden units or of outputs (means over seeds; percentile bootstrap over networks). If "
        "decorrelation predicted accuracy it would be negative."
    )
    return Table("decorrelation", "Does decorrelation predict accuracy?", frame, note, {"rank correlation": ".2f"})
