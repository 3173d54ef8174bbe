"""Ask how much faster twenty trials of all three activations train here than one by one, or in JAX.

Prints milliseconds per epoch of all sixty networks and ratios; peers are interleaved, the best of several counts.
The plain way: ``nn.Linear``, autograd, ``torch.optim.Adam``, the loss read each epoch, one network after another.
JAX: ``vmap`` over trials, ``lax.scan`` over epochs, one ``jit`` per activation. Compilation is left out for all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from metriscope.benching import processor
from metriscope.studies.mahalanobis.plan import ACTIVATIONS, PAPER, DistanceRecipe, DistanceTraining, GaussianTask
from metriscope.studies.mahalanobis.train import cohorts_of, draw_problem
from metriscope.train import fit

TRIALS = 20
ROUNDS = 5
BETAS, LR, EPS = (0.9, 0.99), 1e-3, 1e-8


@dataclass(frozen=True)
class Row:
    """One dimension: epochs that each contender is timed over, and the ratios asked for."""

    dim: int
    ours: int
    plain: int
    jax: int
    wanted: tuple[float, float]


ROWS = (
    Row(2, ours=3_000, plain=40, jax=400, wanted=(40, 1.1)),
    Row(10, ours=600, plain=40, jax=150, wanted=(15, 1.1)),
    Row(100, ours=16, plain=2, jax=2, wanted=(2, 1.1)),
)


def job(dim: int, epochs: int) -> DistanceTraining:
    return DistanceTraining(GaussianTask(dim, PAPER[dim].samples), DistanceRecipe(epochs), tuple(range(TRIALS)))


def starts(dim: int) -> list[tuple[str, dict[str, torch.Tensor]]]:
    """Return the sixty networks every contender begins with."""
    return [(c.name.split("/")[0], {k: v[0] for k, v in c.parameters.items()}) for c in cohorts_of(job(dim, 1))]


def ours(dim: int, epochs: int) -> Callable[[], dict[str, np.ndarray]]:
    def run() -> dict[str, np.ndarray]:
        fit(cohorts)
        losses: dict[str, list[float]] = {}
        for cohort in cohorts:
            losses.setdefault(cohort.name.split("/")[0], []).append(float(cohort.history[0, -1]))
        return {k: np.array(v) for k, v in losses.items()}

    cohorts = cohorts_of(job(dim, epochs))
    return run


def plain(dim: int, epochs: int) -> Callable[[], dict[str, np.ndarray]]:
    functions = {"abs": torch.abs, "relu": torch.relu, "sigmoid": torch.sigmoid}
    networks = starts(dim)
    task = draw_problem(GaussianTask(dim, PAPER[dim].samples))

    def train(activation: str, state: dict[str, torch.Tensor]) -> float:
        weight = state["linear.weight"]
        linear = nn.Linear(weight.shape[1], weight.shape[0])
        linear.load_state_dict({"weight": weight, "bias": state["linear.bias"]})
        optimizer = torch.optim.Adam(linear.parameters(), lr=LR, betas=BETAS, eps=EPS)
        criterion, activate, loss = nn.MSELoss(), functions[activation], 0.0
        for _ in range(epochs):
            optimizer.zero_grad()
            value = criterion(torch.linalg.vector_norm(activate(linear(task.x)), dim=-1), task.y)
            value.backward()
            optimizer.step()
            loss = value.item()
        return loss

    def run() -> dict[str, np.ndarray]:
        losses: dict[str, list[float]] = {}
        for activation, state in networks:
            losses.setdefault(activation, []).append(train(activation, state))
        return {k: np.array(v) for k, v in losses.items()}

    return run


def in_jax(dim: int, epochs: int) -> Callable[[], dict[str, np.ndarray]]:
    import jax
    import jax.numpy as jnp

    task = draw_problem(GaussianTask(dim, PAPER[dim].samples))
    x, y = jnp.asarray(task.x.numpy()), jnp.asarray(task.y.numpy())
    functions = {"abs": jnp.abs, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}
    tree = jax.tree.map

    def trainer(activate):  # noqa: ANN001, ANN202
        def loss(p):  # noqa: ANN001, ANN202
            a = activate(x @ p[0].T + p[1])
            return jnp.mean((jnp.sqrt(jnp.sum(a * a, -1)) - y) ** 2)

        def step(carry, t):  # noqa: ANN001, ANN202
            p, m, v = carry
            value, g = jax.value_and_grad(loss)(p)
            m = tree(lambda m, g: BETAS[0] * m + (1 - BETAS[0]) * g, m, g)
            v = tree(lambda v, g: BETAS[1] * v + (1 - BETAS[1]) * g * g, v, g)
            scale, root = LR / (1 - BETAS[0] ** t), jnp.sqrt(1 - BETAS[1] ** t)
            p = tree(lambda p, m, v: p - scale * m / (jnp.sqrt(v) / root + EPS), p, m, v)
            return (p, m, v), value

        def one(p):  # noqa: ANN001, ANN202
            zeros = tree(jnp.zeros_like, p)
            return jax.lax.scan(step, (p, zeros, zeros), jnp.arange(1.0, epochs + 1))

        return jax.jit(jax.vmap(one))

    stacks = {}
    for name in ACTIVATIONS:
        states = [s for a, s in starts(dim) if a == name]
        parts = ("linear.weight", "linear.bias")
        stacks[name] = tuple(jnp.asarray(torch.stack([s[k] for s in states]).numpy()) for k in parts)
    trainers = {name: trainer(functions[name]) for name in ACTIVATIONS}

    def run() -> dict[str, np.ndarray]:
        return {n: np.asarray(jax.block_until_ready(trainers[n](stacks[n]))[1][:, -1]) for n in ACTIVATIONS}

    run()
    return run


def timed(make: Callable[[int, int], Callable[[], object]], dim: int, epochs: int) -> float:
    run = make(dim, epochs)
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) / epochs * 1e3


def agreement(contenders: dict[str, Callable[..., Callable[[], dict[str, np.ndarray]]]]) -> float:
    """Return the largest relative difference of the losses after 20 epochs in 10-D: all train the same networks."""
    losses = {name: make(10, 20)() for name, make in contenders.items()}
    first = losses["ours"]
    others = [found for name, found in losses.items() if name != "ours"]
    return max(float(np.abs(found[a] / first[a] - 1).max()) for found in others for a in ACTIVATIONS)


def main() -> None:
    print(processor())
    contenders = {"ours": ours, "plain": plain}
    try:
        import jax  # noqa: F401

        contenders["jax"] = in_jax
    except ImportError:
        print("JAX is not installed; its column is left out (pip install 'metriscope[bench]')")
    print(f"{TRIALS} trials x {len(ACTIVATIONS)} activations, milliseconds per epoch, best of {ROUNDS}, interleaved")
    print(f"losses after 20 epochs agree to {agreement(contenders):.1e} (relative, 10-D)")
    for row in ROWS:
        best = dict.fromkeys(contenders, float("inf"))
        for _ in range(ROUNDS):
            for name, make in contenders.items():
                best[name] = min(best[name], timed(make, row.dim, getattr(row, name)))
        text = f"{row.dim:4d}-D  " + "  ".join(f"{name} {value:8.3f}" for name, value in best.items())
        for name, wanted in zip(("plain", "jax"), row.wanted, strict=True):
            if name in best:
                ratio = best[name] / best["ours"]
                text += f"  {ratio:6.1f}x {name} (asked {wanted:g}x: {'met' if ratio >= wanted else 'MISSED'})"
        print(text, flush=True)


if __name__ == "__main__":
    main()
