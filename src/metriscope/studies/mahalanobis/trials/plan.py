"""What is measured on trained networks, with every number that decides an outcome."""

from __future__ import annotations

from dataclasses import dataclass

from metriscope.studies.mahalanobis.plan import EXACT, NAME, Task, Training

__all__ = ["METRICS", "Analytic", "Measurement", "Metric"]


@dataclass(frozen=True)
class Metric:
    """One measured quantity: its column, what people read, and whether the published record prints it."""

    name: str
    title: str
    published: bool = True


METRICS = (
    Metric("train_mse", "MSE, training points"),
    Metric("test_mse", "MSE, new points"),
    Metric("mirrored", "mirrored pairs"),
    Metric("centering", "distance of hyperplanes to the mean"),
    Metric("sphericity", "sphericity norm"),
    Metric("eigenvalue_error", "eigenvalue error, |log10 ratio|", published=False),
    Metric("eigenvector_cosine", "eigenvector |cosine|", published=False),
    Metric("metric_error", "relative error of the Mahalanobis matrix", published=False),
    Metric("data_sphericity", "sphericity on the data side", published=False),
    Metric("rank", "rank of the metric", published=False),
    Metric("constant", "standing-in constant", published=False),
)


@dataclass(frozen=True)
class Measurement:
    """Every metric of the networks of one training.

    Two units mirror each other from a |cosine| of ``mirror`` on; a direction is lost if the metric gives it less than
    ``lost`` of its true squared length; a trial is exact if its training loss is under ``exact`` of what one lost
    direction costs. Abs networks are rewritten with ReLU, and compared on the first ``rewritten`` training points.
    """

    training: Training
    test_samples: int
    mirror: float = 0.999
    lost: float = 0.1
    exact: float = EXACT
    rewritten: int = 200
    method: int = 2  # raised when the same request would give other numbers
    study: str = NAME


@dataclass(frozen=True)
class Analytic:
    """The analytic network of one Gaussian against the distance by solving, on so many new points."""

    task: Task
    points: int = 1_000
