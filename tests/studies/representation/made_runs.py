"""Runs made by hand for the report: real small networks on made-up images, with histories of known accuracies."""

import numpy as np
import pandas as pd
import torch

from metriscope.nn import build
from metriscope.rng import stream
from metriscope.studies.representation.results import Images, Results, Trained

PIXELS, HIDDEN, CLASSES = 16, 8, 10
EPOCHS = (0, 10, 100, 1000)


def images(n=200):
    """Return points around one centre a class, more than enough to be told apart."""
    y = torch.arange(n) % CLASSES
    centres = 3 * torch.randn(CLASSES, PIXELS, generator=stream(0, "centres"))
    x = centres[y] + torch.randn(n, PIXELS, generator=stream(0, "images"))
    return Images(x, y, x[: n // 2], y[: n // 2])


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


def run(name, seed, accuracy, never=0, pixels="raw", paper=False, model=True):
    """Return one run; of the paper's size if asked, else of 1,000 epochs on 200 images."""
    network = build(name, PIXELS, HIDDEN, CLASSES, generator=stream(seed, name)).eval().requires_grad_(False)
    size = (5_000, "mnist", 60_000) if paper else (1_000, "mnist-5k", 200)
    records = (history(accuracy), dead("2" in name and "l2" not in name, never))
    return Trained(name, seed, pixels, *size, network if model else None, *records)


def results(accuracies, paper=False, pixels=("raw",), model=True, **more):
    """Return results from accuracies by network, one a seed; ``never`` gives dead output units by network."""
    never = more.get("never", {})
    runs = [
        run(name, seed, value, never.get(name, 0), form, paper, model)
        for form in pixels
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    return Results(tuple(runs), {form: images() for form in pixels}, ("Made by hand.",))
