"""A teacher, its students, and what each student learns from: labels, logits, and a kernel that it must match."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.vq.networks.plan import STUDY, MLPShape

__all__ = [
    "DATA",
    "MATCHED",
    "METHODS",
    "WORTH",
    "Distillation",
    "Distilling",
    "ExampleSplit",
    "Method",
    "StudentVariant",
]

# The least gain in test accuracy, in percentage points, that is worth another loss term.
WORTH = 0.3
DATA = ("mnist-5k", "letter")


@dataclass(frozen=True)
class Method:
    """What a student learns from besides the labels: the teacher's logits, and a kernel of its hidden layers."""

    title: str
    logits: bool
    match: str = ""


METHODS = {
    "labels": Method("labels only", logits=False),
    "logits": Method("logits", logits=True),
    "signs": Method("logits and VQ kernel", logits=True, match="signs"),
    "activations": Method("logits and kernel of activations", logits=True, match="activations"),
    "signs alone": Method("labels and VQ kernel", logits=False, match="signs"),
}
MATCHED = tuple(name for name, method in METHODS.items() if method.match)


@dataclass(frozen=True)
class StudentVariant:
    """One student: its method, and the weight of the matching term (0 without one)."""

    method: str
    weight: float = 0.0


@dataclass(frozen=True)
class ExampleSplit:
    """A named data set, and how many of its examples each seed draws to train, to choose weights and to test on.

    Features are scaled together, as pixels are, or each by itself.
    """

    name: str
    sha256: str
    inputs: int
    classes: int
    train: int
    validation: int
    test: int
    together: bool = False


@dataclass(frozen=True)
class Distilling:
    """One seed: a teacher is trained on labels, then every variant of a student from the same start and batches.

    ``share`` is the weight of the logits' loss against that of the labels, at ``temperature``. Soft signs are
    tanh(``beta`` z), with z in units of its layer's root mean square on the batch.
    """

    examples: ExampleSplit
    number: int
    teacher: tuple[int, int] = (6, 64)
    student: tuple[int, int] = (2, 32)
    # The teacher is trained for longer: only one that is better than its students has something to teach.
    schooling: int = 60
    epochs: int = 20
    batch: int = 128
    lr: float = 2e-3
    temperature: float = 4.0
    share: float = 0.9
    beta: float = 3.0
    weights: tuple[float, ...] = (0.1, 0.5, 2.0)
    seed: int = 0
    method: int = 1  # raised when the same request would end in other numbers
    study: str = STUDY

    def shape(self, size: tuple[int, int]) -> MLPShape:
        """Return a network of a depth and width for these examples."""
        return MLPShape(self.examples.inputs, *size, self.examples.classes)

    def variants(self) -> tuple[StudentVariant, ...]:
        """Return all students."""
        plain = [StudentVariant(name) for name in METHODS if name not in MATCHED]
        return (*plain, *(StudentVariant(name, weight) for name in MATCHED for weight in self.weights))


@dataclass(frozen=True)
class Distillation:
    """Every seed of every data set; lessons on data sets that are ``computed`` are run, others looked up."""

    examples: tuple[ExampleSplit, ...]
    computed: tuple[str, ...] = ()
    seed: int = 0
    seeds: int = 10

    def lessons(self) -> tuple[Distilling, ...]:
        """Return one lesson per data set and seed."""
        return tuple(Distilling(some, n, seed=self.seed) for some in self.examples for n in range(self.seeds))
