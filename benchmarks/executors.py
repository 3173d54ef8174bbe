"""Ask what a cluster costs and gains: two workers against one, overhead per job, the smallest job worth sending.

The same trainings of small distance networks are computed in this process on one thread, and as Ray tasks on this
machine by one worker and by two, one thread each. The three are interleaved, and the best of several rounds counts.
Starting the cluster and the first job of each worker, which imports PyTorch, are not part of the times.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from metriscope.benching import processor
from metriscope.common.threads import at_most_threads
from metriscope.runs import Driver, Executor, InProcess, Store
from metriscope.runs.cluster import ClusterSettings, Remote, opened
from metriscope.studies.mahalanobis.plan import MahalanobisOptions, plan
from metriscope.studies.mahalanobis.train import WORK

EPOCHS, ROUNDS = (1, 1_000, 4_000, 16_000), 3
OPTIONS = MahalanobisOptions(dims=(3,), trials=16, samples=1_000, activations=("abs", "relu"))


def seconds(executor: Executor, epochs: int, seed: int) -> tuple[float, int]:
    """Return the time of all jobs of a plan into an empty store, and their number."""
    jobs = plan(replace(OPTIONS, epochs=epochs, seed=seed)).jobs()
    with tempfile.TemporaryDirectory() as folder, at_most_threads(1):
        driver = Driver(Store(Path(folder)), executor=executor)
        began = time.perf_counter()
        driver.perform(jobs, WORK, "trainings")
        return time.perf_counter() - began, len(jobs)


def main() -> None:
    print(processor())
    with opened(ClusterSettings()) as two:
        assert isinstance(two, Remote)
        one = Remote(replace(two.pool, settings=replace(two.settings, in_flight=1)), two.settings)
        ways = {"here": InProcess(), "one worker": one, "two workers": two}
        for way in ways.values():
            seconds(way, 1, seed=1)
        best: dict[tuple[int, str], float] = {}
        count = 0
        for number in range(ROUNDS):
            for epochs in EPOCHS:
                for name, way in ways.items():
                    found, count = seconds(way, epochs, seed=number)
                    best[epochs, name] = min(found, best.get((epochs, name), found))
    print(f"{count} jobs, best of {ROUNDS} rounds; milliseconds per job")
    print("| epochs | here | one worker | two workers | two against one | share of ideal | two against here |")
    print("|---|---|---|---|---|---|---|")
    for epochs in EPOCHS:
        here, alone, both = (best[epochs, name] for name in ways)
        times = " | ".join(f"{1000 * each / count:.0f}" for each in (here, alone, both))
        print(f"| {epochs:,} | {times} | {alone / both:.2f}x | {alone / both / 2:.0%} | {here / both:.2f}x |")
    overhead = (best[1, "one worker"] - best[1, "here"]) / count
    print(f"overhead: {1000 * overhead:.0f} ms per job (one worker, jobs of one epoch)")
    worth = [
        1000 * best[epochs, "here"] / count for epochs in EPOCHS if best[epochs, "here"] > best[epochs, "two workers"]
    ]
    print(
        f"smallest job that two workers computed faster: {min(worth):.0f} ms" if worth else "no job was worth sending"
    )


if __name__ == "__main__":
    main()
