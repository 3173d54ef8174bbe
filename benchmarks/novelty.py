"""Ask which score tells points of a kind that a network was not trained on, beside the usual scores.

AUROC in per cent, mean and standard deviation over three trained networks. Far strangers: Fashion-MNIST for a network
of MNIST digits. Near strangers: classes that were left out of training (digits 8 and 9 of MNIST and of scikit-learn's
digits, letters U to Z). No method sees strangers before it is tested: LayerNovelty weights its layers on held-out
points and on the same points with every feature shuffled among them.

Peers: maximum softmax probability (Hendrycks & Gimpel 2017), energy (Liu et al. 2020), distance to the tenth nearest
normalized feature (Sun et al. 2022), ViM (Wang et al. 2022), all on the last hidden layer.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn import functional as F

import metriscope as ms
from metriscope import data
from metriscope.benching import processor
from metriscope.reading.layer_novelty import LayerNovelty
from metriscope.rng import stream

SEEDS, HIDDEN, EPOCHS, BATCH = 3, (128, 64), 20, 100


@dataclass(frozen=True)
class Problem:
    """Training, held-out and test points of known classes, and strangers."""

    x: np.ndarray
    y: np.ndarray
    held: np.ndarray
    known: np.ndarray
    strangers: np.ndarray


def left_out(name: str, unseen: tuple[int, ...]) -> Problem:
    """Return a data set without some classes, which are the strangers."""
    found = data.load(name)
    train, test = (part.x.reshape(len(part.x), -1).astype(np.float32) for part in (found.train, found.test))
    mean, spread = train.mean(0), train.std(0) if name == "letter" else np.float32(train.std())
    train, test = ((part - mean) / np.where(spread > 0, spread, 1) for part in (train, test))
    seen, known = ~np.isin(found.train.y, unseen), ~np.isin(found.test.y, unseen)
    rows = torch.randperm(int(seen.sum()), generator=stream(0, "novelty", name)).numpy()
    x, y = train[seen][rows], np.searchsorted(np.setdiff1d(found.train.y, unseen), found.train.y[seen][rows])
    cut = len(x) // 5
    return Problem(x[cut:], y[cut:], x[:cut], test[known], test[~known])


def far() -> Problem:
    """Return MNIST digits, and Fashion-MNIST as strangers."""
    digits = left_out("mnist-5k", ())
    raw, other = data.load("mnist-5k").train.x, data.load("fashion-mnist").test.x[:1000]
    flat = raw.reshape(len(raw), -1).astype(np.float32)
    strangers = (other.reshape(len(other), -1).astype(np.float32) - flat.mean(0)) / flat.std()
    return Problem(digits.x, digits.y, digits.held, digits.known, strangers)


def trained(problem: Problem, seed: int) -> nn.Sequential:
    """Return a network of two hidden layers."""
    generator = stream(seed, "novelty", "init")
    sizes = (problem.x.shape[1], *HIDDEN, int(problem.y.max()) + 1)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, generator=generator)
        nn.init.zeros_(layer.bias)
    model = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    x, y = torch.from_numpy(problem.x), torch.from_numpy(problem.y)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
    return model.requires_grad_(False)


def peers(model: nn.Sequential, problem: Problem) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return the scores of others: larger is less like the training points."""
    features = lambda x: model[:4](torch.from_numpy(x)).double()  # noqa: E731
    logits = lambda x: model(torch.from_numpy(x)).double()  # noqa: E731
    bank = F.normalize(features(problem.x))
    weight, bias = model[4].weight.double(), model[4].bias.double()
    origin = -torch.linalg.pinv(weight) @ bias
    centered = features(problem.x) - origin
    values, vectors = torch.linalg.eigh(centered.T @ centered)
    # ViM: as many principal directions as are usual for features of this size, the rest is the residual.
    rest = vectors[:, : len(values) // 2]
    residual = lambda x: ((features(x) - origin) @ rest).norm(dim=1)  # noqa: E731
    alpha = logits(problem.x).amax(1).mean() / residual(problem.x).mean()
    return {
        "MSP": lambda x: -logits(x).softmax(1).amax(1).numpy(),
        "energy": lambda x: -logits(x).logsumexp(1).numpy(),
        "kNN (k = 10)": lambda x: torch.cdist(F.normalize(features(x)), bank).kthvalue(10, dim=1).values.numpy(),
        "ViM": lambda x: (alpha * residual(x) - logits(x).logsumexp(1)).numpy(),
    }


def ours(model: nn.Sequential, problem: Problem) -> dict[str, Callable[[np.ndarray], np.ndarray]]:
    """Return the scores of this library."""
    draw = np.random.default_rng(0)
    shuffled = np.stack([draw.permutation(column) for column in problem.held.T], 1)
    patterns = ms.capture(model, problem.x)
    found = {"ms.novelty (signs)": lambda x: ms.novelty(patterns, ms.capture(model, x), k=10)}
    for relative in (False, True):
        word = "relative " if relative else ""
        fitted = LayerNovelty(model, relative=relative).partial_fit(problem.x, problem.y)
        found[f"{word}Mahalanobis, last layer"] = lambda x, fitted=fitted: fitted.layer_scores(x)[:, -1]
        equal, weighted = copy(fitted), copy(fitted)
        found[f"{word}LayerNovelty, equal weights"] = equal.calibrate(problem.held).score
        found[f"{word}LayerNovelty, held-out weights"] = weighted.calibrate(problem.held, shuffled).score
    return found


def main() -> None:
    print(processor())
    problems = {
        "far: Fashion": far(), "near: MNIST 8, 9": left_out("mnist-5k", (8, 9)),
        "near: digits 8, 9": left_out("digits", (8, 9)), "near: letters U-Z": left_out("letter", tuple(range(20, 26))),
    }  # fmt: skip
    table: dict[str, dict[str, list[float]]] = {}
    for name, problem in problems.items():
        truth = np.repeat([0, 1], [len(problem.known), len(problem.strangers)])
        both = np.concatenate([problem.known, problem.strangers])
        for seed in range(SEEDS):
            model = trained(problem, seed)
            for method, score in {**peers(model, problem), **ours(model, problem)}.items():
                area = 100 * float(roc_auc_score(truth, score(both)))
                table.setdefault(method, {}).setdefault(name, []).append(area)
    print("| AUROC, % | " + " | ".join(problems) + " |\n|---" + "|---" * len(problems) + "|")
    for method, columns in table.items():
        print(
            f"| {method} | "
            + " | ".join(f"{np.mean(v):.1f} ± {np.std(v, ddof=1):.1f}" for v in columns.values())
            + " |"
        )


if __name__ == "__main__":
    main()
