"""Cut a plane through three digits into the exact linear regions of a network that was trained on them."""

import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import nn

import metriscope as ms
from metriscope.data import load, pixels


def main(out: Path) -> None:
    """Train on 4,000 digits; print what the regions between a 3, a 5 and an 8 say, and draw them."""
    digits = load("mnist-5k")
    x, y = torch.from_numpy(pixels(digits.train.x, "unit")), torch.from_numpy(digits.train.y)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    for rows in (rows for _ in range(8) for rows in torch.randperm(len(x)).split(64)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        optimizer.step()
    three, five, eight = (x[y == digit][0].numpy() for digit in (3, 5, 8))
    regions = ms.linear_regions(model, (three, five - three, eight - three), bounds=((-0.4, 1.4), (-0.4, 1.4)))
    regions.check()
    ends = regions.locate([[0, 0], [1, 0], [0, 1]])
    print(f"{len(regions)} regions; largest {regions.areas.max():.3f}, smallest {regions.areas.min():.1e}")
    for name, end in (("5", ends[1]), ("8", ends[2])):
        vq, way = ms.vq_kernel(regions.patterns[ends[:1]], regions.patterns[[end]]), regions.distance(ends[0], end)
        print(f"from the 3 to the {name}: {vq[0, 0]} units differ, {way} borders on the shortest way")
    axes = regions.plot(color="output", ax=(drawing := Figure(figsize=(5, 5))).subplots(), cmap="tab10")
    axes.plot([0, 1, 0], [0, 0, 1], "o", color="black")
    drawing.savefig(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
