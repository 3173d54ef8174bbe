"""Read what trained distance networks measure: where their hyperplanes lie, which directions they have lost."""

import metriscope as ms
from metriscope.data import random_gaussian
from metriscope.nn import stack_state, unstack
from metriscope.probes import centering, lost_directions, metric_rank, sphericity
from metriscope.rng import stream
from metriscope.train import Cohort, Protocol, engine_for, fit

DIM, SEEDS = 2, range(6)


def main() -> None:
    """Train six networks on one Gaussian and print a line of measurements for each."""
    gaussian = random_gaussian(DIM, stream(0, "gaussian"), spread=3.0)
    points = gaussian.sample(1_000, stream(0, "points"))
    x, y = points.float(), gaussian.distance(points).float()
    models = [ms.Mahalanobis(DIM, generator=stream(seed, "init")) for seed in SEEDS]
    for seed, model in zip(SEEDS, models, strict=True):
        ms.init_through_points_(model.linear, x, generator=stream(seed, "points"))
    protocol = Protocol(epochs=10_000, betas=(0.9, 0.99))
    cohort = Cohort("abs", engine_for(models[0], x, y, protocol, tuple(SEEDS)), stack_state(models), protocol)
    fit([cohort])

    theory = lost_directions(DIM, 1)
    print(f"theory, one direction lost: loss {theory.loss:.3f}, sphericity {theory.sphericity:.3f}, "
          f"constant {theory.constant:.3f}")  # fmt: skip
    for seed in SEEDS:
        linear = unstack(models[0], cohort.parameters, seed).linear
        rank = metric_rank(linear, gaussian.mean, gaussian.cov)
        away, white = centering(linear, gaussian.mean).mean(), sphericity(linear, gaussian.cov)
        print(f"seed {seed}: training loss {cohort.history[seed, -1]:.3f}, sphericity {white:.3f}, "
              f"constant {rank.constant:.3f}, {away:.3f} from the mean, lost {DIM - rank.rank} of {DIM}")  # fmt: skip


if __name__ == "__main__":
    main()
