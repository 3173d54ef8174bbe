"""Runs made by hand for the report: real small networks on made-up images, with histories of known accuracies."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from metriscope.nn import build
from metriscope.rng import stream
from metriscope.runs import Driver, Store
from metriscope.studies.representation.measure import Measurer, RepresentationResults, gathered, ordered
from metriscope.studies.representation.plan import PROFILES, RepresentationComparing, RepresentationTraining
from metriscope.studies.representation.train import TrainedNetwork

PIXELS, HIDDEN, CLASSES = 16, 8, 10
EPOCHS = (0, 10, 100, 1000)
QUICK = PROFILES["quick"]


@dataclass(frozen=True)
class Weights:
    """Stands for a stored run that has nothing but weights."""

    state: dict

    def tensors(self):
        return self.state


def images(n=200):
    """Return points around one center per class, more than enough to be told apart, and their labels."""
    y = torch.arange(n) % CLASSES
    centers = 3 * torch.randn(CLASSES, PIXELS, generator=stream(0, "centers"))
    return centers[y] + torch.randn(n, PIXELS, generator=stream(0, "images")), y


def history(accuracy, epochs=EPOCHS):
    """Return a history whose test accuracy rises in equal steps from 0.1 to ``accuracy``."""
    values = np.linspace(0.1, accuracy, len(epochs))
    losses = {"train_loss": 1 - values / 2, "test_loss": 1 - values / 2}
    return pd.DataFrame({"epoch": epochs, **losses, "train_accuracy": values, "test_accuracy": values})


def dead(output, never=0, epochs=EPOCHS):
    """Return records in which ``never`` output units are dead from the second record on."""
    rows = []
    for i, epoch in enumerate(epochs):
        for layer, units in (("hidden", HIDDEN), *((("output", CLASSES),) if output else ())):
            count = never if layer == "output" and i > 0 else 0
            for part in ("train", "test"):
                counts = {"never": count, "under_1": count, "under_5": min(count + 1, units)}
                rows.append({"epoch": epoch, "layer": layer, "part": part, **counts, "units": units})
    return pd.DataFrame(rows)


def job(name, seed, pixels="raw", paper=False, replay=""):
    """Return a training of the paper's size if asked, else of 1,000 epochs on 200 images."""
    size = {"data": "mnist", "train_size": 60_000} if paper else {"data": "mnist-5k", "train_size": 200}
    sizes = {"features": PIXELS, "hidden": HIDDEN, "classes": CLASSES}
    epochs = 5_000 if paper else 1_000
    return RepresentationTraining(name, seed, pixels=pixels, epochs=epochs, replay=replay, **size, **sizes)


def network(name, seed):
    return build(name, PIXELS, HIDDEN, CLASSES, generator=stream(seed, name)).eval().requires_grad_(False)


def run(name, seed, accuracy, never=0, pixels="raw", model=True, **more):
    """Return one run, with or without its network."""
    weights = Weights(network(name, seed).state_dict()) if model else None
    records = (history(accuracy), dead("2" in name and "l2" not in name, never))
    return TrainedNetwork(job(name, seed, pixels, **more), *records, weights)


def runs(accuracies, never=None, pixels=("raw",), **more):
    """Return runs from accuracies by network, one per seed; ``never`` gives dead output units by network."""
    return ordered(
        run(name, seed, value, (never or {}).get(name, 0), form, **more)
        for form in pixels
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    )


def recorded(found):
    """Return the results of runs whose weights were not kept."""
    return RepresentationResults(**gathered(found, [], [], RepresentationComparing()), deviations=("Made by hand.",))


def inspected(found, folder):
    """Return the results of runs with their networks, measured on made-up images."""
    views = {one.job.pixels: images() for one in found}
    return Measurer(QUICK, found, Driver(Store(folder)), views).results(("Made by hand.",))
