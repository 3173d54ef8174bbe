"""Students that match a teacher's VQ kernels: training, alignment, the claim C31, and the section on it.

Axes: S students, N points of a batch, H hidden units of all layers. Signs have no gradient, so they are
replaced by soft signs tanh(beta z). The centered alignment of their Gram matrices tends to that of the VQ kernels as
beta grows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope import data
from metriscope.nn import stack_state, unstack
from metriscope.report import Evidence, Figure, Prose, Section, Table, mean_text, number, to_svg
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, INK, figure
from metriscope.rng import stream
from metriscope.runs import Driver
from metriscope.studies.evidence import Above
from metriscope.studies.tidy_tables import joined
from metriscope.studies.verdicts import Criterion, Statement, Values
from metriscope.studies.vq.networks import (
    DATA,
    MATCHED,
    METHODS,
    STUDY,
    WORTH,
    Distillation,
    Distilling,
    ExampleSplit,
    MLPShape,
    StudentVariant,
)
from metriscope.studies.vq.train import accuracy, aligned, looked_up, mlp
from metriscope.train import Protocol
from metriscope.train.engines import RULES
from metriscope.vq import capture

__all__ = [
    "STATEMENT", "DistillationResults", "chosen", "gram_alignment", "hidden", "measure_distillation", "section",
    "soft_signs", "split", "taught",
]  # fmt: skip

Layers = list[Float[Tensor, "*s n h"]]


def gram_alignment(a: Float[Tensor, "*s n h"], b: Float[Tensor, "n k"]) -> Float[Tensor, "*s"]:
    """Return the centered alignment (CKA) of the Gram matrices of two sets of features of the same points.

    >>> gram_alignment(torch.tensor([[1.0], [-1.0]]), torch.tensor([[3.0, 0.0], [0.0, 0.0]]))
    tensor(1.)
    """
    a, b = (x - x.mean(-2, keepdim=True) for x in (a, b))
    one, other = a @ a.mT, b @ b.mT
    norms = torch.linalg.matrix_norm(one) * torch.linalg.matrix_norm(other)
    return (one * other).sum((-2, -1)) / norms


def soft_signs(layers: Layers, beta: float) -> Float[Tensor, "*s n h"]:
    """Return tanh(beta z) of all pre-activations, each layer in units of its root mean square; signs for large beta."""
    scales = [z.square().mean((-2, -1), keepdim=True).sqrt() for z in layers]
    return torch.cat([torch.tanh(beta * z / scale) for z, scale in zip(layers, scales, strict=True)], -1)


def hidden(
    shape: MLPShape, state: Mapping[str, Tensor], x: Float[Tensor, "n d"]
) -> tuple[Layers, Float[Tensor, "s n o"]]:
    """Return the pre-activations of each hidden layer of a stack of ReLU networks on the same points, and outputs."""
    weight, bias = state["0.weight"], state["0.bias"]
    # All networks have the same inputs: their first layers are one product.
    layers = [F.linear(x, weight.flatten(0, 1), bias.flatten()).unflatten(1, bias.shape).movedim(1, 0)]
    for index in range(2, 2 * shape.depth + 2, 2):
        layers.append(torch.baddbmm(state[f"{index}.bias"][:, None], layers[-1].relu(), state[f"{index}.weight"].mT))
    return layers[:-1], layers[-1]


@dataclass(frozen=True)
class SplitData:
    """Examples of one seed by part, as inputs and labels."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@lru_cache(maxsize=1)
def _pool(name: str) -> tuple[Tensor, Tensor]:
    found = data.load(name)
    parts = (found.train, found.test)
    x = np.concatenate([part.x.reshape(len(part.x), -1) for part in parts])
    return torch.from_numpy(x).double(), torch.from_numpy(np.concatenate([part.y for part in parts]))


def split(examples: ExampleSplit, seed: int, number: int) -> SplitData:
    """Return a seed's examples, standardized by mean and deviation of the training part."""
    x, y = _pool(examples.name)
    sizes = [examples.train, examples.validation, examples.test]
    order = torch.randperm(len(y), generator=stream(seed, STUDY, "distillation", examples.name, number))
    rows = order[: sum(sizes)].split(sizes)
    deviation, mean = torch.std_mean(x[rows[0]], dim=None if examples.together else 0)
    scaled = ((x - mean) / deviation).float()
    return SplitData(*((scaled[r], y[r].long()) for r in rows))


@dataclass(frozen=True)
class _Guide:
    """The outputs of a teacher on a batch: pre-activations by layer, and logits."""

    layers: Layers
    logits: Float[Tensor, "n c"]

    @classmethod
    def of(cls, shape: MLPShape, state: Mapping[str, Tensor], x: Float[Tensor, "n d"]) -> _Guide:
        layers, logits = hidden(shape, state, x)
        return cls([z[0] for z in layers], logits[0])


@dataclass(frozen=True)
class _Students:
    """Students of one shape that are trained together, each by its variant."""

    spec: Distilling
    shape: MLPShape
    variants: Sequence[StudentVariant]

    def losses(
        self, state: Mapping[str, Tensor], batch: tuple[Tensor, Tensor], guide: _Guide | None
    ) -> Float[Tensor, " s"]:
        """Return the loss of each student on a batch."""
        x, y = batch
        layers, logits = hidden(self.shape, state, x)
        labels = F.cross_entropy(logits.movedim(-1, 1), y.expand(logits.shape[:2]), reduction="none").mean(1)
        if guide is None:
            return labels
        share = self.spec.share * torch.tensor([float(METHODS[v.method].logits) for v in self.variants])
        found = (1 - share) * labels + share * self._logits(logits, guide.logits)
        matched = [self._match(kind, layers, guide) for kind in ("signs", "activations")]
        return torch.stack([found, *matched]).sum(0)

    def _logits(self, logits: Float[Tensor, "s n c"], target: Float[Tensor, "n c"]) -> Float[Tensor, " s"]:
        """Return the divergence from the teacher's softened outputs, scaled as Hinton et al. (2015) do."""
        heat = self.spec.temperature
        ours, theirs = F.log_softmax(logits / heat, -1), F.log_softmax(target / heat, -1)
        return heat**2 * (theirs.exp() * (theirs - ours)).sum(-1).mean(1)

    def _match(self, kind: str, layers: Layers, guide: _Guide) -> Float[Tensor, " s"]:
        """Return the weighted matching term of one kind for each student; zero for students of other kinds."""
        rows = [i for i, v in enumerate(self.variants) if METHODS[v.method].match == kind]
        weights = torch.tensor([self.variants[i].weight for i in rows])
        ours, theirs = (self._features(kind, some) for some in ([z[rows] for z in layers], guide.layers))
        return torch.zeros(len(self.variants)).index_add(
            0, torch.tensor(rows), weights * (1 - gram_alignment(ours, theirs))
        )

    def _features(self, kind: str, layers: Layers) -> Tensor:
        return soft_signs(layers, self.spec.beta) if kind == "signs" else torch.cat(layers, -1).relu()


def _learn(
    course: _Students,
    start: nn.Module,
    points: tuple[Tensor, Tensor],
    teacher: tuple[MLPShape, Mapping[str, Tensor]] | None,
) -> dict[str, Tensor]:
    """Return the trained parameters of all students of a course, from the same start and in the same batches."""
    spec, (x, y), step = course.spec, points, 0
    epochs = spec.schooling if teacher is None else spec.epochs
    protocol = Protocol(epochs, lr=spec.lr, batch_size=spec.batch, loss="cross-entropy")
    rule, state = RULES[protocol.optimizer], stack_state([start] * len(course.variants))
    moments = {f"{kind}.{name}": torch.zeros_like(value) for kind in rule.moments for name, value in state.items()}
    for epoch in range(epochs):
        order = torch.randperm(len(y), generator=stream(spec.seed, STUDY, "lesson", spec.number, epoch))
        for rows in order.split(spec.batch):
            step += 1
            guide = None if teacher is None else _Guide.of(*teacher, x[rows])
            leaves = {name: value.detach().requires_grad_() for name, value in state.items()}
            # Summed over students, never averaged, so that each trains as it would alone.
            total = course.losses(leaves, (x[rows], y[rows]), guide).sum()
            for name, gradient in zip(leaves, torch.autograd.grad(total, list(leaves.values())), strict=True):
                rule.step(state[name], gradient, moments, name, step, protocol)
    return state


def taught(spec: Distilling, points: SplitData) -> tuple[nn.Module, Sequence[nn.Module]]:
    """Return the trained teacher, and the trained student of each variant."""
    here = (spec.seed, STUDY, "distillation", spec.examples.name, spec.number)
    large, small = spec.shape(spec.teacher), spec.shape(spec.student)
    starts = mlp(large, stream(*here, "teacher")), mlp(small, stream(*here, "student"))
    alone = _learn(_Students(spec, large, (StudentVariant("labels"),)), starts[0], points.train, None)
    course = _Students(spec, small, spec.variants())
    state = _learn(course, starts[1], points.train, (large, alone))
    students = [unstack(starts[1], state, i) for i in range(len(course.variants))]
    return unstack(starts[0], alone, 0), students


def lesson_rows(spec: Distilling) -> Iterator[dict[str, object]]:
    """Yield the teacher and every student: accuracy in percent, and alignment with the teacher on the test part."""
    points = split(spec.examples, spec.seed, spec.number)
    teacher, students = taught(spec, points)
    theirs = capture(teacher, points.test[0])
    known = zip((StudentVariant("teacher"), *spec.variants()), (teacher, *students), strict=True)
    for variant, network in known:
        right = {part: 100 * accuracy(network, *getattr(points, part)) for part in ("validation", "test")}
        alike = aligned(capture(network, points.test[0]), theirs, "debiased")
        yield {"method": variant.method, "weight": variant.weight, **right, "alignment": alike}


def chosen(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each data set and method at the weight with the best mean accuracy on validation examples."""
    means = rows.groupby(["data", "method", "weight"], sort=False)["validation"].mean()
    best = means.groupby(["data", "method"], sort=False).idxmax()
    return rows[[key in set(best) for key in zip(rows["data"], rows["method"], rows["weight"], strict=True)]]


@dataclass(frozen=True)
class DistillationResults:
    """One row per data set, seed and variant; without rows nothing was run or recorded."""

    part: Distillation
    rows: pd.DataFrame

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The students with the chosen weights."""
        return {} if self.rows.empty else {"lessons": chosen(self.rows)}


def measure_distillation(part: Distillation, driver: Driver) -> DistillationResults:
    """Run the lessons on the data sets that are to be computed, and look up the others."""
    found: dict[Distilling, pd.DataFrame] = {}
    for computed in (True, False):
        asked = [spec for spec in part.lessons() if (spec.examples.name in part.computed) == computed]
        found |= looked_up(driver, asked, lesson_rows, "vq: distillation", computed) if asked else {}
    parts = [rows.assign(data=spec.examples.name, seed=spec.number) for spec, rows in found.items()]
    return DistillationResults(part, joined(parts))


Tables = Mapping[str, pd.DataFrame]


def _criteria(name: str) -> Iterator[Criterion]:
    criterion = partial(Criterion, units="seeds", level=name, paired=True, fewest=5)
    values = {m: {c: Values.of("lessons", c, data=name, method=m) for c in ("test", "alignment")} for m in METHODS}
    yield criterion(
        "test accuracy of the student in percentage points, logits and VQ kernel − logits",
        values["signs"]["test"],
        Above(WORTH),
        f"{WORTH:g} points are the least gain that is worth another loss term, a teacher's hidden layers and a weight "
        "to tune.",
        minus=values["logits"]["test"],
    )
    yield criterion(
        "alignment of the student's VQ kernel with the teacher's, logits and VQ kernel − logits",
        values["signs"]["alignment"],
        Above(0.0),
        "If the kernels are not more alike, the surrogate did not match them, so accuracies say nothing about that.",
        minus=values["logits"]["alignment"],
    )


def gain_text(rows: pd.DataFrame, one: str, other: str, column: str = "test") -> str:
    """Return the paired difference of two methods as mean and interval."""
    table = rows.pivot(index="seed", columns="method", values=column)
    return mean_text(table[one] - table[other])


def _notes(tables: Tables) -> str:
    if "lessons" not in tables:
        return ""
    return " ".join(_note(str(name), rows) for name, rows in tables["lessons"].groupby("data", sort=False))


def _note(name: str, rows: pd.DataFrame) -> str:
    gain = partial(gain_text, rows)
    weights = rows.groupby("method")["weight"].first()
    tuned = ", ".join(f"{METHODS[m].title} {number(weights[m], 2)}" for m in MATCHED)
    return (
        f"{name}, in percentage points: teacher − student on labels {gain('teacher', 'labels')}, logits − labels "
        f"{gain('logits', 'labels')}, VQ kernel − kernel of activations {gain('signs', 'activations')}, labels and VQ "
        f"kernel − labels {gain('signs alone', 'labels')}; weights chosen on validation examples: {tuned}."
    )


def _evidence(tables: Tables) -> list[Evidence]:
    if "lessons" not in tables:
        return []
    titles = {"teacher": "teacher", **{name: method.title for name, method in METHODS.items()}}
    return [
        Evidence(f"{name}, {titles[str(method)]}: test accuracy, %", mean_text(rows["test"]))
        for (name, method), rows in tables["lessons"].groupby(["data", "method"], sort=False)
    ]


STATEMENT = Statement(
    "C31",
    "Matching VQ kernels distills a network into another.",
    "Roddenberry et al., future work",
    tuple(criterion for name in DATA for criterion in _criteria(name)),
    "data set",
    _notes,
    _evidence,
)


COLORS = (INK, CYCLE[0], CYCLE[1], CYCLE[4])


def lessons(results: DistillationResults) -> Figure:
    """Draw each method's gain in test accuracy over logits alone, seed by seed, and its alignment with the teacher."""
    rows = results.tables["lessons"]
    names = list(dict.fromkeys(rows["data"]))
    drawing, axes = figure(9.2, 2.5 * len(names), len(names), 2)
    methods = [name for name in METHODS if name != "logits"]
    colors = dict(zip((METHODS[m].title for m in methods), COLORS, strict=True)) | {METHODS["logits"].title: CYCLE[2]}
    for (left, right), name in zip(axes, names, strict=True):
        part = rows[rows["data"] == name]
        test, alike = (part.pivot(index="seed", columns="method", values=c) for c in ("test", "alignment"))
        strip(left, {METHODS[m].title: (test[m] - test["logits"]).to_numpy() for m in methods}, colors)
        strip(right, {method.title: alike[m].to_numpy() for m, method in METHODS.items()}, colors)
        left.axvline(0, color=INK, linewidth=0.9)
        left.axvline(WORTH, color=INK, linewidth=0.9, dashes=(4, 3))
        left.set(title=name, xlabel="test accuracy − that with logits, points")
        right.set(title=name, xlabel="alignment with the teacher's VQ kernel")
    caption = (
        "Each dot is a seed; the large dot is the mean, the line its 95 % interval, "
        "or the range of fewer than five. Left: what a student gains over one "
        f"that learns from labels and logits, from the same start and batches; dashed: {WORTH:g} points. Right: "
        "debiased centered alignment of hard signs on test examples."
    )
    return Figure("vq-lessons", "Students with and without a kernel to match", to_svg(drawing, "vq-lessons"), caption)


TITLE = "Does matching VQ kernels distill a network?"


def section(results: DistillationResults) -> Section:
    """Return the question, the figure and the table or, without rows, a sentence that nothing was run."""
    if results.rows.empty:
        return Section(TITLE, (Prose(f"{_text(results)}\n\nNot run in this profile, and there is no record of it."),))
    return Section(TITLE, (Prose(_text(results)), lessons(results), _table(results)))


def _text(results: DistillationResults) -> str:
    part, spec = results.part, results.part.lessons()[0]
    (deep, wide), (flat, narrow) = spec.teacher, spec.student
    sizes = ", ".join(f"{e.train:,} / {e.validation:,} / {e.test:,} examples of `{e.name}`" for e in part.examples)
    return (
        "Roddenberry et al. name distillation as future work. Here a teacher of "
        f"{deep} × {wide} units teaches students of {flat} × {narrow}. All students of a seed have the same start, "
        "batches and epochs. They learn from labels only; from labels and the teacher's logits (Hinton et al. 2015, "
        f"temperature {spec.temperature:g}, weight {spec.share:g}); and from these and one more term: 1 minus the "
        "centered alignment (CKA) of the student's kernel with the teacher's on each batch.\n\n"
        "Signs have no gradient, so that a VQ kernel cannot be matched by gradient descent. The surrogate replaces "
        f"each sign by tanh(βz), with β = {spec.beta:g} and z in units of its layer's root mean square. As β grows, "
        "the alignment of these kernels tends to that of the VQ kernels. The control matches the kernel of plain "
        f"activations. The weight of the matching term ({', '.join(f'{w:g}' for w in spec.weights)}) is the one with "
        f"the best mean accuracy on validation examples, not on test examples. Training, validation and test: {sizes}, "
        "drawn separately for each seed."
    )


def _table(results: DistillationResults) -> Table:
    titles = {"teacher": "teacher", **{name: method.title for name, method in METHODS.items()}}
    lines: list[dict[str, object]] = []
    for (name, method), rows in results.tables["lessons"].groupby(["data", "method"], sort=False):
        everything = results.tables["lessons"]
        gain = gain_text(everything[everything["data"] == name], str(method), "logits")
        lines.append(
            {
                "data": name,
                "learns from": titles[str(method)],
                "seeds": len(rows),
                "weight": number(rows["weight"].iloc[0], 2) if rows["weight"].iloc[0] else "–",
                "test accuracy, %": mean_text(rows["test"]),
                "gain over logits, points": "–" if method == "logits" else gain,
                "alignment with the teacher": mean_text(rows["alignment"]),
            }
        )
    note = (
        f"Mean [95 % t interval] over {results.part.seeds} seeds; gains are paired. All students also see the labels."
    )
    return Table("vq-lessons", "Teacher and students", pd.DataFrame(lines), note)
