"""What the study of heads runs: contests of heads, penalties and activations, and the experiment on OffsetL2.

This module loads no tensor library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from tyro.conf import arg

from metriscope.studies.contract import given_numbers
from metriscope.studies.representation.plan import DISTANCES, RepresentationTraining

__all__ = [
    "CONTESTS", "HEADINGS", "LAYER_SCORES", "NAME", "OPTIONS", "SCORES", "SETS", "SOUND", "STUDY", "TIMES", "TITLE",
    "UNSEEN", "VARIANTS", "Contestant", "HeadContest", "HeadContests", "HeadsOptions", "HeadsPlan", "OffsetReading",
    "OffsetTraining", "Offsets", "Source", "plan",
]  # fmt: skip

STUDY = "heads"
# How many of the last classes of a data set are left out, as its own out-of-distribution points.
UNSEEN = 6
# Size of pooled spectrograms: frequencies and moments.
SOUND = (24, 24)
SCORES = (
    "accuracy", "log_loss", "ece", "temperature", "scaled_log_loss", "scaled_ece", "auroc", "fpr95", "sure_auroc",
    "noisy_accuracy",
)  # fmt: skip
# What is measured of a first linear layer: see `metriscope.studies.heads.train.layer_scores`.
LAYER_SCORES = ("axes", "directions")


@dataclass(frozen=True)
class Source:
    """A data set in a contest: its name in the registry, what its features are, and its out-of-distribution points.

    ``strangers`` says where these come from: the name of another data set; ``"columns"`` for its own points with the
    features in another order; ``"unseen"`` for classes that are left out of training.
    """

    data: str
    kind: str = "table"
    strangers: str = "columns"


SETS: Mapping[str, Source] = {
    "mnist-5k": Source("mnist-5k", "image", "fashion-mnist"),
    "fashion-mnist": Source("fashion-mnist", "image", "mnist-5k"),
    "digits": Source("digits", "image"),
    "wine": Source("wine"),
    "breast_cancer": Source("breast_cancer"),
    "adult": Source("adult"),
    "covertype": Source("covertype"),
    "letter": Source("letter"),
    "letter-unseen": Source("letter", strangers="unseen"),
    "spambase": Source("spambase"),
    "ecg5000": Source("ecg5000", "series"),
    "fsdd": Source("fsdd", "sound"),
}


@dataclass(frozen=True)
class Contestant:
    """One classifier of a contest: an encoder, an activation, a head, and how they are trained.

    ``share`` is the share of Abs among the hidden units; the others are ReLU. ``strengths`` are the strengths of the
    penalty that are tried; the one with the smallest validation loss is used, as with the learning rate. ``started``:
    the head starts from features and labels of the training points (:func:`metriscope.nn.init_head_`). ``rewritten``:
    after half of the epochs every Abs unit is replaced by two mirrored ReLU units, and training continues.
    """

    name: str
    head: str = "linear"
    share: float = 0.0
    hidden: int = 64
    encoder: str = "mlp"
    penalty: str = ""
    strengths: tuple[float, ...] = (0.0,)
    started: bool = False
    rewritten: bool = False


@dataclass(frozen=True)
class HeadContest:
    """Classifiers on one data set: each is tuned on a validation part, then trained from several starts.

    ``per_class`` is the largest number of training points per class; 0 for all. ``sha256`` are the digests of the data
    set and of that of its out-of-distribution points. A fifth of the training points is for validation: learning rate,
    strength and temperature are chosen there.
    """

    contest: str
    data: str
    entries: tuple[Contestant, ...]
    sha256: tuple[str, ...] = ()
    per_class: int = 0
    starts: int = 5
    epochs: int = 20
    rates: tuple[float, ...] = (1e-3, 5e-3, 2e-2)
    batch: int = 128
    sizes: tuple[int, int] = (3_300, 1_500)  # most training and test points
    noise: float = 0.5  # in standard deviations of the features
    bins: int = 10  # bins of confidence, in a reliability diagram
    varied: float = 1e-3  # principal axes are counted if their variance is at least this share of the largest
    seed: int = 0
    version: int = 1  # increased when the same request would give other numbers
    study: str = STUDY


# What the heads are called on pages.
HEADINGS: Mapping[str, str] = {
    "linear": "Linear (softmax)",
    "offset-l2": "OffsetL2",
    "offset-l2-code": "OffsetL2, weights of squares",
    "offset-l1": "OffsetL1",
    "offset-l4": "OffsetL4",
    "rbf": "RBF",
    "mahalanobis": "Mahalanobis",
    "mahalanobis-shared": "Mahalanobis, one factor",
    "cosine": "Cosine",
    "nearest-mean": "Nearest class mean",
}
HEAD_ENTRIES = (
    *(Contestant(name, head=name) for name in HEADINGS),
    *(Contestant(f"{name}, from data", head=name, started=True) for name in ("offset-l2", "mahalanobis")),
)
STRENGTHS = (1e-3, 1e-2, 1e-1)
PENALTY_ENTRIES = (
    Contestant("none"),
    *(
        Contestant(kind, penalty=kind, strengths=STRENGTHS)
        for kind in ("soft-orthogonality", "double-soft-orthogonality", "srip", "whitening", "spread")
    ),
)
MIXTURE_ENTRIES = (
    *(Contestant(f"{share:.0%} Abs", share=share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)),
    Contestant("100% Abs, half the units", share=1.0, hidden=32),
    Contestant("ReLU, twice the units", hidden=128),
    Contestant("Abs rewritten as ReLU", share=1.0, rewritten=True),
)


@dataclass(frozen=True)
class ContestRow:
    """One contest: its entries, its data sets, and numbers of training points per class (0 for all)."""

    title: str
    entries: tuple[Contestant, ...]
    data: tuple[str, ...]
    per_class: tuple[int, ...] = (0,)


CONTESTS: Mapping[str, ContestRow] = {
    "heads": ContestRow("Heads", HEAD_ENTRIES, tuple(SETS)),
    "few": ContestRow(
        "Heads with few training points",
        tuple(entry for entry in HEAD_ENTRIES if entry.name not in ("offset-l1", "offset-l4")),
        ("mnist-5k", "fashion-mnist", "letter", "fsdd"),
        (5, 20, 100),
    ),
    "sequences": ContestRow(
        "Heads behind convolutions and recurrent cells",
        tuple(
            Contestant(f"{head}, {encoder}", head=head, encoder=encoder)
            for encoder in ("convolution", "recurrent")
            for head in ("linear", "offset-l2")
        ),
        ("ecg5000", "fsdd"),
    ),
    "penalties": ContestRow(
        "Penalties",
        PENALTY_ENTRIES,
        ("mnist-5k", "digits", "wine", "breast_cancer", "letter", "spambase", "ecg5000", "fsdd"),
    ),
    "mixtures": ContestRow(
        "Abs and ReLU",
        MIXTURE_ENTRIES,
        (
            "mnist-5k",
            "fashion-mnist",
            "digits",
            "wine",
            "breast_cancer",
            "covertype",
            "letter",
            "spambase",
            "ecg5000",
            "fsdd",
        ),
    ),
}


@dataclass(frozen=True)
class HeadContests:
    """All contests; ``shape`` holds the numbers of starts and epochs that all of them share."""

    shape: HeadContest = HeadContest("", "", ())
    names: tuple[str, ...] = tuple(CONTESTS)

    def jobs(self) -> tuple[HeadContest, ...]:
        """Return the contests, one per data set and number of training points."""
        rows = [(name, CONTESTS[name], data) for name in self.names for data in CONTESTS[name].data]
        return tuple(
            replace(self.shape, contest=name, data=data, entries=row.entries, sha256=_digests(data), per_class=count)
            for name, row, data in rows
            for count in row.per_class
        )


def _digests(data: str) -> tuple[str, ...]:
    """Return the digests of a data set and, if its out-of-distribution points are another data set, of that one."""
    from metriscope.data import digest, names

    return tuple(digest(name) for name in (SETS[data].data, SETS[data].strangers) if name in names())


NEGATED = tuple(name for name in DISTANCES if name.endswith("-neg"))


@dataclass(frozen=True)
class Variant:
    """How the head is trained: factors of the learning rates of mu and alpha, and where mu starts.

    With ``placed``, mu starts at its target: the mean hidden activation of its class, or of all other classes in a
    network whose largest distance wins.
    """

    name: str
    mu: float = 1.0
    alpha: float = 1.0
    placed: bool = False


# In 1,000 epochs at the paper's rate a center moves by about 1 at most, and its target lies hundreds away. With
# this factor it moves by tens in 100 epochs, and training is stable.
FAST = 1e5
VARIANTS = {
    variant.name: variant
    for variant in (
        Variant("trained"),
        Variant("frozen", mu=0.0),
        Variant("fast", mu=FAST),
        Variant("flat", alpha=0.0),
        Variant("fast flat", mu=FAST, alpha=0.0),
        Variant("placed", placed=True),
    )
}


@dataclass(frozen=True)
class OffsetTraining:
    """One network from several starts, ``numbers``, trained with one variant of its head.

    ``base`` is the training of the representation study, with the number of the first start.
    """

    base: RepresentationTraining
    variant: Variant
    numbers: tuple[int, ...]
    version: int = 1  # increased when the same request would give other weights
    study: str = STUDY

    @property
    def negated(self) -> bool:
        """Whether the class with the smallest distance is predicted, as in table 4 of the paper."""
        return self.base.model in NEGATED


@dataclass(frozen=True)
class OffsetReading:
    """Where the centers of one training ended, and what their distances correlate with.

    Distances are compared, over test images, with the Mahalanobis distance of each class in the leading principal
    components of the training images, for each number of ``components``. The verdict uses ``judged`` of them: they
    hold four fifths of the variance, and the 400 images of a class are enough to estimate their covariance.
    """

    training: OffsetTraining
    judged: int
    components: tuple[int, ...]
    method: int = 1  # increased when the same networks would be measured in another way
    study: str = STUDY


# Networks and variants in the order in which they are run. Alpha is frozen only where the smallest distance wins.
RUNS = (
    *((name, variant) for variant in ("trained", "frozen", "fast", "flat", "fast flat") for name in NEGATED),
    *((name, variant) for variant in ("trained", "frozen", "fast") for name in DISTANCES if name not in NEGATED),
    *((name, "placed") for name in DISTANCES),
)


@dataclass(frozen=True)
class Offsets:
    """The experiment: every network and variant from every start; ``reading`` says what is measured."""

    seeds: int = 5
    epochs: int = 1_000
    train_size: int = 4_000
    seed: int = 0
    sha256: str = ""
    data: str = "mnist-5k"
    pixels: str = "raw"
    runs: tuple[tuple[str, str], ...] = RUNS
    reading: tuple[int, tuple[int, ...]] = (50, (50, 20, 100))

    def jobs(self) -> tuple[OffsetTraining, ...]:
        """Return the trainings, one per network and variant."""
        numbers = tuple(range(self.seeds))
        return tuple(OffsetTraining(self._base(name), VARIANTS[variant], numbers) for name, variant in self.runs)

    def readings(self) -> tuple[OffsetReading, ...]:
        """Return the measurements, one per training."""
        return tuple(OffsetReading(job, *self.reading) for job in self.jobs())

    def _base(self, name: str) -> RepresentationTraining:
        where = (self.data, self.train_size, self.pixels, self.epochs)
        return RepresentationTraining(name, 0, *where, self.seed, self.sha256)


NAME, TITLE = STUDY, "Heads that measure distances"
TIMES = {"quick": "a second: shows recorded runs", "paper": "an hour and a half on one core"}

# Its other contest, of sequences, belongs to the study of transfer.
CONTESTED = ("heads", "few", "penalties", "mixtures")


@dataclass(frozen=True)
class HeadsPlan:
    """Every experiment on heads; the quick profile computes none of them and shows their records."""

    profile: str
    offsets: Offsets
    contests: HeadContests

    @property
    def computed(self) -> bool:
        """Whether experiments are computed."""
        return self.profile != "quick"

    def jobs(self) -> tuple[OffsetTraining, ...]:
        """Return the trainings: none where the record is shown."""
        return self.offsets.jobs() if self.computed else ()


@dataclass(frozen=True)
class HeadsOptions:
    """Options of the study of heads; the contests of heads always have the same number of epochs."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: nothing, and show recorded runs, or all experiments."""
    seeds: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 5)")] = None
    """Starts of each network."""
    epochs: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 1,000)")] = None
    """Full-batch steps of gradient descent in the experiment on OffsetL2."""
    seed: int = 0
    """Root of all random streams."""


OPTIONS = HeadsOptions


def plan(options: HeadsOptions) -> HeadsPlan:
    """Return the plan of a profile, changed by whatever other options are given.

    >>> len(plan(HeadsOptions("paper", seeds=2)).jobs()), len(plan(HeadsOptions("quick")).jobs())
    (20, 0)
    """
    given = given_numbers(options, TIMES, {"seeds": 1, "epochs": 1})

    # Imported here, because it imports numpy: invalid options should be rejected before that.
    from metriscope.data import digest

    offsets = Offsets(seed=options.seed, sha256=digest(Offsets.data), **given)
    shape = HeadContest("", "", (), starts=given.get("seeds", HeadContest.starts), seed=options.seed)
    return HeadsPlan(options.profile, offsets, HeadContests(shape, CONTESTED))
