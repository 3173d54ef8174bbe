"""Train small convolutional networks on 5,000 MNIST digits and keep what `inspect` and `compare` need."""

import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from metriscope.data import mnist_5k


def cnn(width: int = 4) -> nn.Sequential:
    """Return a network of two convolutions and two linear layers."""
    body = [nn.Conv2d(1, width, 5, stride=2), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, stride=2), nn.ReLU()]
    return nn.Sequential(*body, nn.Flatten(), nn.Linear(50 * width, 32), nn.ReLU(), nn.Linear(32, 10))


def main(out: Path) -> None:
    """Train two seeds and two widths on 4,000 digits; print how many of the other 1,000 each gets right."""
    out.mkdir(parents=True, exist_ok=True)
    images, labels = (torch.from_numpy(array) for array in mnist_5k())
    order = torch.randperm(5_000, generator=torch.Generator().manual_seed(0))
    x, y = images[order][:, None] / 255, labels[order]
    for name, part in (("x", x), ("y", y)):
        np.save(out / f"{name}.npy", part[4_000:].numpy())
    for name, width, seed in (("cnn-1", 4, 1), ("cnn-2", 4, 2), ("wide-1", 8, 1)):
        torch.manual_seed(seed)
        optimizer = torch.optim.Adam((model := cnn(width)).parameters(), 3e-3)
        for rows in (rows for _ in range(4) for rows in torch.randperm(4_000).split(64)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
        print(f"{name}: {(model(x[4_000:]).argmax(1) == y[4_000:]).float().mean():.1%} of 1,000 new digits right")
        save_file(model.state_dict(), out / f"{name}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
