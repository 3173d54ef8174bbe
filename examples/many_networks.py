"""Train ten seeds at once, and one of them alone: the weights are bit-identical.

``engine_for`` picks the compiled engine for distance networks on a CPU and stacked autograd for anything else.
"""

from collections.abc import Sequence

import torch

import metriscope as ms
from metriscope.data import random_gaussian
from metriscope.nn import stack_state
from metriscope.rng import stream
from metriscope.train import Cohort, Protocol, engine_for, fit

GAUSSIAN = random_gaussian(5, stream(0, "gaussian"))
POINTS = GAUSSIAN.sample(1_000, stream(0, "points"))


def trained(seeds: Sequence[int]) -> Cohort:
    """Return one trained network per seed, stacked along the first axis."""
    x, y = POINTS.float(), GAUSSIAN.distance(POINTS).float()
    models = [ms.Mahalanobis(5, activation="relu", generator=stream(seed, "init")) for seed in seeds]
    for seed, model in zip(seeds, models, strict=True):
        ms.init_through_points_(model.linear, x, generator=stream(seed, "points"))
    protocol = Protocol(epochs=5_000, lr=1e-3)
    engine = engine_for(models[0], x, y, protocol, tuple(seeds))
    cohort = Cohort("relu", engine, stack_state(models), protocol)
    fit([cohort])
    return cohort


if __name__ == "__main__":
    together, alone = trained(range(10)), trained([7])
    print(f"{type(together.engine).__name__}, weights {tuple(together.parameters['linear.weight'].shape)}")
    for seed, loss in enumerate(together.history[:, -1].tolist()):
        print(f"seed {seed}: loss {loss:.4f}")
    same = all(torch.equal(together.parameters[name][7], alone.parameters[name][0]) for name in alone.parameters)
    print(f"seed 7 among ten and alone: {'bit-identical' if same else 'different'}")
