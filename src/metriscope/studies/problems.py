"""Problems found in the papers, each with evidence that is computed: ``python -m metriscope.studies.problems PAGE``.

The evidence of a problem is a sentence built from printed numbers, from an identity that is computed here, or from
records of runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from metriscope.functional import Moments, student_test, whitening_factor
from metriscope.nn import OffsetL2
from metriscope.report import number
from metriscope.rng import stream
from metriscope.runs.records import read, shipped
from metriscope.studies.mahalanobis.plan import PAPER, author_task
from metriscope.studies.mahalanobis.train import draw_problem
from metriscope.studies.representation.accuracy import printed
from metriscope.studies.representation.measure import RepresentationResults, recorded
from metriscope.studies.representation.plan import BASE, title
from metriscope.studies.tidy_tables import matching, published
from metriscope.studies.vq.regions import Tent
from metriscope.vq import linear_regions

__all__ = ["PROBLEMS", "PaperProblem", "main", "page"]

ARTICLE = "[Oursland 2025](https://arxiv.org/abs/2502.02103)"
EARLIER = "[Oursland 2024b](https://arxiv.org/abs/2411.17932)"
EXPERIMENT = (
    "Oursland 2024, the experiment `exp_md` published with [arXiv:2410.19352](https://arxiv.org/abs/2410.19352)"
)
KERNELS = "Roddenberry et al., VQ-Kernels"
RUNS = 20


@dataclass(frozen=True)
class PaperProblem:
    """One problem: what the source says, and what was found, in a sentence that a function builds from numbers."""

    title: str
    source: str
    says: str
    found: Callable[[], str]


@cache
def _records() -> RepresentationResults:
    return recorded(read(shipped("representation")))


def _pixels() -> str:
    table = matching(_records().tables["pixels"], form="normalized", data="mnist")
    parts, nearer = [], []
    for row in table.itertuples():
        name = str(row.network)
        theirs = printed("test_accuracy", network=name)["mean"]
        miss = {form: float((theirs - getattr(row, form)).abs().min()) for form in ("raw", "other")}
        parts.append(f"{title(name)} {miss['raw']:.2f} with raw and {miss['other']:.2f} with normalized pixels")
        nearer.append(miss["raw"] < miss["other"])
    return (
        f"Both forms were trained for {int(table['epochs'].iloc[0]):,} epochs on all of MNIST. Distance to the nearest "
        f"printed mean, in points: {'; '.join(parts)}. Raw pixels are nearer in {sum(nearer)} of {len(nearer)}."
    )


def _epochs() -> str:
    known = printed("test_accuracy").set_index(["column", "network"])["mean"]
    same = sum(known["table 2", name] == known["table 5", name] for name in BASE)
    follow = _records().tables["follow"].set_index("column")["follow"]
    count = len(_records().tables["printed tests"])
    columns = _records().tables["columns"]
    gaps = ", ".join(f"{row.distance:.2f} points from {row.column}" for row in columns.itertuples())
    return (
        f"{same} of {len(BASE)} means are equal in both tables. Of the {count} printed t, {follow['table 2']} follow "
        f"from table 2 and {follow['section 6, sd of n']} from §6 and the author's notes. Means of our runs of 5,000 "
        f"epochs lie {gaps} (mean over networks of small spread)."
    )


def _tests() -> str:
    rows = _records().tables["printed tests"].set_index(["network", "other"])
    first, neg = rows.loc[("relu", "abs")], rows.loc[("relu2-neg", "relu")]
    return (
        f"t(38) belongs to an unpaired test of {RUNS} + {RUNS} runs. The means and deviations of table 2 give "
        f"t = {first['table 2 t']:.1f} for ReLU against Abs, where t = {first['printed t']:.2f} is printed and called "
        f"not significant; and t = {neg['printed t']:.2f} with p < 0.001 is called comparable."
    )


def _bias() -> str:
    known = printed("test_accuracy").set_index(["column", "network"])
    parts = []
    for name in BASE:
        one, two = known.loc[("table 2", name)], known.loc[("table 3", f"{name}-bias")]
        t = student_test(Moments(two["mean"], two["sd"], RUNS), Moments(one["mean"], one["sd"], RUNS)).t
        parts.append(f"{title(name)} {two['mean'] - one['mean']:+.2f} (t = {t:.1f})")
    return (
        f"Table 3 minus table 2, in points: {', '.join(parts)}. If table 2 was trained ten times as long (see above), "
        "that explains the differences, and the effect of the bias cannot be read from the two tables."
    )


def _dead() -> str:
    known = printed("dead_output_units", network="relu2", threshold="never").set_index("column")["mean"]
    starts = _records().tables["starts"].set_index("images")
    train, test = starts.loc["train"], starts.loc["test"]
    # The shares are of ten outputs.
    shares = [10 * float(row["dead mean"]) for row in (train, test)]
    text = (
        f"{int(train['runs'])} networks that start from the published random numbers end with {shares[0]:.0f} % of "
        f"outputs that no training image makes active (notes: {known['notes']:.0f} %), and {shares[1]:.0f} % that no "
        f"test image does (text: {known['section 6']:.0f} %)."
    )
    same = [abs(one - float(known[of])) < 1 for one, of in zip(shares, ("notes", "section 6"), strict=True)]
    return f"{text} If the notes count training images and the text test images, both are right." if all(same) else text


def _form() -> str:
    layer, x = OffsetL2(4, 2, generator=torch.Generator().manual_seed(0)), torch.arange(4.0)[None]
    other = OffsetL2(4, 2, form="squared-weights", generator=torch.Generator().manual_seed(0))
    first, second = (torch.autograd.grad(one(x).sum(), one.alpha)[0] for one in (layer, other))
    ratio = first / second
    return (
        f"At alpha = 1 both give the same distances, but the formula's gradient with respect to alpha is "
        f"{number(float(ratio.mean()))} times that of the code. If an alpha becomes negative, the formula still gives "
        "a distance, but the code may take the root of a negative number."
    )


def _offset() -> str:
    low, high, share = 0.0, 10.0, 0.1
    reach = share * (high - low)
    scale = (high - reach) / high
    return (
        f"For a unit with values from {low:g} to {high:g}, an offset of {share:.0%} moves the largest value to "
        f"{high + reach:g} in the text's formula and leaves it at {scale * high + reach:g} in the code, which also "
        f"multiplies the unit by {scale:g}."
    )


def _tent() -> str:
    layers = range(1, 7)
    counts = [
        [len(linear_regions(Tent(count, printed=form), bounds=(0.0, 1.0))) for count in layers]
        for form in (True, False)
    ]
    return (
        f"For {layers.start} to {layers.stop - 1} layers, the printed formula cuts the unit interval into "
        f"{', '.join(map(str, counts[0]))} pieces, and 2z − relu(4z − 2) into {', '.join(map(str, counts[1]))}, "
        "which is 2 to the power of the number of layers."
    )


def _heat() -> str:
    table = published("vq").set_index("pair")["value"]
    return (
        "The two are different kernels: no σ² turns one into the other. The printed cosine of the two trained "
        f"networks, {table['T4-T6']:.2f}, is below that of the two untrained ones, {table['I4-I6']:.2f}, though the "
        "text says that training makes them more alike. The uncentered cosine gives either order, depending on σ² "
        "(claim C23)."
    )


def _moons() -> str:
    runs = [record for record in read(shipped("vq")) if record.kind == "Crowd"]
    fewest = min(runs, key=lambda record: int(record.spec["group"]["data"]["count"]))
    data = fewest.spec["group"]["data"]
    rows = matching(fewest.table("rows"), distance="first")
    shown, new = (matching(rows, points=part)["silhouette"].mean() for part in ("training", "new"))
    return (
        f"The two informative coordinates are scaled by {data['scale']:g}, so that the {data['dim'] - 2} others, which "
        f"are independent of the label, hold nearly all of every point's norm. With {data['count']} points, over "
        f"{rows['seed'].nunique()} seeds, the moons are separated with a silhouette of {number(float(shown))} on the "
        f"training points and {number(float(new))} on new points, at a test accuracy of {rows['test'].mean():.0%}: the "
        "figure shows memorized labels (claim C22)."
    )


def _norm() -> str:
    parts = []
    for dim in PAPER:
        cov = draw_problem(author_task(dim, PAPER[dim].samples)).gaussian.cov
        inverse = torch.linalg.inv(cov)
        random = torch.randn(dim, dim, generator=stream(0, "problems", dim), dtype=cov.dtype)
        exact, worst = (_norm_of(weight, inverse) for weight in (whitening_factor(cov), random))
        least = float((torch.trace(inverse) - dim) / dim**0.5)
        # Three digits: the smallest eigenvalues of the covariance are known to little more in float32.
        found = f"{exact:.3g} for the exact network, {worst:.3g} for random weights"
        parts.append(f"{dim}-D: {found}, at least {least:.3g} for any D units")
    return (
        "Rows of W_norm have norm 1, so the trace of W_normᵀ W_norm is the number of units, while the trace of Σ⁻¹ is "
        "larger than D unless Σ = I. With D units the norm is therefore at least (tr Σ⁻¹ − D) / √D. On the published "
        f"Gaussians: {'; '.join(parts)}. The study compares Wᵀ W without normalizing rows."
    )


def _norm_of(weight: Tensor, inverse: Tensor) -> float:
    rows = nn.functional.normalize(weight, dim=1)
    return float(torch.linalg.matrix_norm(rows.mT @ rows - inverse))


PROBLEMS = (
    PaperProblem(
        "Pixels", ARTICLE, "The text says that images are normalized; the author's code trains on bytes.", _pixels
    ),
    PaperProblem("Epochs of table 2", ARTICLE, "Table 2 is captioned 5,000 epochs, table 5 50,000.", _epochs),
    PaperProblem("Tests", ARTICLE, "Paired t-tests are announced, and t(38) is printed.", _tests),
    PaperProblem("Bias", f"{ARTICLE}, §5.4", "A bias in the second layer is said to have minimal impact.", _bias),
    PaperProblem(
        "Dead outputs of ReLU2",
        f"{ARTICLE}, §6.2",
        "The text says that a third of ReLU2's outputs are dead; the author's notes say 2.2 of 10.",
        _dead,
    ),
    PaperProblem(
        "The form of OffsetL2",
        ARTICLE,
        "The formula weights the difference, ‖α ⊙ (x − μ)‖; the author's code weights its square, √Σ α (x − μ)².",
        _form,
    ),
    PaperProblem(
        "The form of the offset",
        EARLIER,
        "The text's formula adds a share of the range; the author's code also rescales the unit, so that its largest "
        "value does not change.",
        _offset,
    ),
    PaperProblem("The tent map", KERNELS, "Printed as f(z) = 2z − relu(2z − 1), which is min(2z, 1).", _tent),
    PaperProblem("The heat kernel", KERNELS, "exp(−d/σ²) in the text, exp(−d²/σ²) in the appendix.", _heat),
    PaperProblem(
        "Moons in 100 dimensions",
        f"{KERNELS}, figure 2",
        "The figure shows the points that the network was trained on.",
        _moons,
    ),
    PaperProblem(
        "A norm that cannot vanish",
        EXPERIMENT,
        "‖W_normᵀ W_norm − Σ⁻¹‖ is said to measure how well the weights recover the Mahalanobis matrix.",
        _norm,
    ),
)


def page() -> str:
    """Return the page as Markdown."""
    parts = [
        "# Problems found in the papers",
        "Written by a program: every number below is computed from printed numbers, from records of runs, or here.",
    ]
    for i, problem in enumerate(PROBLEMS, 1):
        parts += [f"## {i}. {problem.title}", f"**{problem.source}.** {problem.says}", problem.found()]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Write the page to the file named in the arguments."""
    Path(arguments[0]).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
