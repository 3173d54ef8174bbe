"""Ask how much memory each computation takes: the peak of a fresh process above what it held before.

Every row is a process of its own with one thread, which imports, makes its input, runs the computation once on a tiny
input, and then on the real one. Peaks are those that the operating system reports.
"""

from __future__ import annotations

import os
import subprocess
import sys

from metriscope.benching import processor

BEGIN = """
import resource
import numpy as np
import torch
import metriscope as ms
from metriscope.vq import Layer, Patterns
torch.set_num_threads(1)
rng = np.random.default_rng(0)
def signs(n, units=256):
    return Patterns((Layer("act", units, "relu"),), rng.integers(0, 256, (n, units // 8), np.uint8))
def net(d=64, k=256):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(d, k), torch.nn.ReLU(), torch.nn.Linear(k, 10))
def data(n, d=64):
    return rng.standard_normal((n, d), np.float32)
def train(x, y):
    from metriscope.train import Cohort, Protocol, StackedEngine, fit
    protocol, seeds = Protocol(epochs=2, optimizer="sgd"), range(4)
    engine = StackedEngine(net(), torch.from_numpy(x), torch.from_numpy(y), protocol, seeds=tuple(seeds))
    fit([Cohort("m", engine, ms.nn.stack_state([net() for _ in seeds]), protocol)], workers=1)
def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 2**10 for line in file if line.startswith(name))
def peak():
    # getrusage would also count the peak of the process that started this one, until it became this one.
    try:
        return status("VmHWM")
    except OSError:
        # On macOS the unit is a byte, elsewhere a kilobyte.
        import sys
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**10 if sys.platform != "darwin" else 2**20)
def now():
    try:
        return status("VmRSS")
    except OSError:
        return peak()
"""
MEASURE = """
def run(n):
    {call}
given = None
{make_small}
run({small})
{make}
before = now()
run({points})
print(peak() - before, peak())
"""
# Name, number of points, input as an expression of n, and the call on `given`.
ROWS = {
    "`capture`, 64 features, 256 units": ((10_000, 100_000, 400_000), "net(), data(n)", "ms.capture(*given)"),
    "`vq_kernel`": ((1_000, 2_000, 4_000), "signs(n)", "ms.vq_kernel(given)"),
    "`VQMDS`": ((10_000, 100_000, 1_000_000), "signs(n)", "ms.VQMDS(3).fit(given)"),
    "`alignment`": ((10_000, 100_000, 1_000_000), "signs(n), signs(n)", "ms.alignment(*given)"),
    "`heat_cosine`": ((2_000, 4_000, 8_000), "signs(n), signs(n)", "ms.heat_cosine(*given, [1.0, 10.0])"),
    "`novelty`, of as many points": ((2_000, 4_000, 8_000), "signs(n), signs(n)", "ms.novelty(*given)"),
    "`utilization`": ((10_000, 100_000, 1_000_000), "signs(n)", "ms.utilization(given)"),
    "`read_layer`": ((10_000, 100_000, 200_000), "net(), data(n)", "ms.read_layer(given[0], '0', given[1])"),
    "training of 4 networks, 64-256-10": ((1_000, 10_000, 100_000), "data(n), data(n, 10)", "train(*given)"),
    "`similarity` of two networks": (
        (1_000, 10_000, 40_000), "net(), net(), data(n)", "ms.similarity(*given, permutations=3, interval=None)",
    ),
}  # fmt: skip


def source(points: int, make: str, call: str, small: int = 100) -> str:
    """Return the program of one row."""
    make_small, made = (f"n = {n}\ngiven = {make}" for n in (small, points))
    return BEGIN + MEASURE.format(call=call, make_small=make_small, make=made, small=small, points=points)


def peaks(points: int, make: str, call: str) -> tuple[float, float]:
    """Return the peak of a process above its start, and as a whole, in MiB."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    command = [sys.executable, "-c", source(points, make, call)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    above, whole = map(float, done.stdout.split())
    return above, whole


def main() -> None:
    print(processor())
    print("| computation | points | peak above its input, MiB | whole process, MiB |\n| --- | ---: | ---: | ---: |")
    for name, (counts, make, call) in ROWS.items():
        for points in counts:
            above, whole = peaks(points, make, call)
            print(f"| {name} | {points:,} | {above:,.0f} | {whole:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
