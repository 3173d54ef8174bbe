"""Place a layer's hyperplanes where the data is, and see what the first steps of training gain.

Two networks per seed: one starts from PyTorch's default, one from k-means and the principal axes of each cluster.
"""

import torch
from torch import Tensor, nn

import metriscope as ms
from metriscope.data import random_gaussian
from metriscope.functional import summarize
from metriscope.rng import stream

CLUSTERS, DIM, SEEDS, STEPS = 4, 6, 5, (0, 30, 100)


def losses(model: nn.Sequential, x: Tensor, y: Tensor) -> list[float]:
    """Return the loss before each step of a short training."""
    optimizer, found = torch.optim.Adam(model.parameters(), lr=1e-3), []
    for _ in range(STEPS[-1] + 1):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


if __name__ == "__main__":
    gaussians = [random_gaussian(DIM, stream(0, "gaussian", i), spread=1.0) for i in range(CLUSTERS)]
    x = torch.cat([g.sample(250, stream(0, "points", i)) for i, g in enumerate(gaussians)]).float()
    y = torch.arange(CLUSTERS).repeat_interleave(250)
    for start in ("default", "clusters"):
        models = [ms.build("abs-l2-neg", DIM, 24, CLUSTERS, stream(seed, "init")) for seed in range(SEEDS)]
        firsts = [layer for model in models for layer in model if isinstance(layer, nn.Linear)]
        for seed, linear in enumerate(firsts if start == "clusters" else []):
            ms.init_from_clusters_(linear, x, CLUSTERS, generator=stream(seed, "k-means"))
        curves = torch.tensor([losses(model, x, y) for model in models])
        shown = [(step, summarize(curves[:, step])) for step in STEPS]
        print(f"{start:8s}", "  ".join(f"step {s}: {v.mean:.3f} ({v.low:.3f} to {v.high:.3f})" for s, v in shown))
