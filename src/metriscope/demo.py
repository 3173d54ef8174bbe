"""The command ``demo``: train a small convolutional network on embedded digits and write its ``inspect`` page."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from metriscope.data import mnist_5k
from metriscope.rng import stream

__all__ = ["digits", "network", "trained", "write_demo"]

EPOCHS, BATCH, RATE = 4, 64, 3e-3
SHOWN = 1_000


def network() -> nn.Sequential:
    """Return the network of the demonstration: two convolutions and two linear layers, by name.

    >>> network()(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    layers = {
        "conv1": nn.Conv2d(1, 4, 5, stride=2), "relu1": nn.ReLU(),
        "conv2": nn.Conv2d(4, 8, 3, stride=2), "relu2": nn.ReLU(),
        "flat": nn.Flatten(), "fc1": nn.Linear(200, 32), "relu3": nn.ReLU(), "fc2": nn.Linear(32, 10),
    }  # fmt: skip
    return nn.Sequential(OrderedDict(layers))


def digits(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the 5,000 embedded digits, pixels from 0 to 1, and their labels, in random order."""
    images, labels = (torch.from_numpy(array) for array in mnist_5k())
    order = torch.randperm(len(images), generator=stream(seed, "demo", "order"))
    return images[order][:, None] / 255, labels[order]


def trained(x: torch.Tensor, y: torch.Tensor, epochs: int = EPOCHS, seed: int = 0) -> nn.Sequential:
    """Return the network after a few epochs of Adam; the global random state stays as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=stream(seed, "demo", epoch)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def write_demo(out: Path, announce: Callable[[str], None]) -> Path:
    """Train the network, keep its weights and data below ``out``, and write the page about it; return its path."""
    from safetensors.torch import save_file

    from metriscope.reading.points import UserPoints
    from metriscope.reading.sources import network_sources, source
    from metriscope.report.export import write_report
    from metriscope.report.network_pages import Subject, inspect_page
    from metriscope.runs.provenance import provenance
    from metriscope.vq import capture

    folder = out / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    x, y = digits()
    announce(f"training a small CNN on {len(x) - SHOWN:,} digits ...")
    model = trained(x[SHOWN:], y[SHOWN:])
    new, labels = x[:SHOWN], y[:SHOWN]
    with torch.no_grad():
        right = float((model(new).argmax(1) == labels).double().mean())
    announce(f"{right:.1%} of {SHOWN:,} new digits are classified correctly; reading the network on them ...")
    save_file(model.state_dict(), folder / "weights.safetensors")
    np.save(folder / "x.npy", new.numpy())
    np.save(folder / "y.npy", labels.numpy())
    subject = Subject("demo", capture(model, new), labels.numpy(), model, UserPoints(new.numpy()))
    origin = network_sources("metriscope.demo:network", folder / "weights.safetensors")
    origin |= {"command": "metriscope demo", "data": source(folder / "x.npy"), "labels": source(folder / "y.npy")}
    return write_report(inspect_page(subject, {**origin, **provenance()}), out, "inspect.html")
