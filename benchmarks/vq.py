"""Ask what measures of sign patterns cost beside the plain ways to the same numbers.

Peers are interleaved and the best of several rounds counts; compilation is left out. A peer that would take minutes is
timed on some of the rows and scaled by the number of pairs, and the line says so. Peak memory is that of a process of
its own, all libraries included.

Kernel: ``scipy.spatial.distance.cdist``, and ``faiss.hammings`` where faiss is installed, both into fresh memory; again
in a process in which no library uses AVX-512, if the processor has it. Embedding and alignment: the
bare float32 products of sign matrices that lie in memory already. Heat: float32 kernels, tile by tile in memory that
is used again, two exponentials and three products per pair and scale.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial

import numkong as nk
import numpy as np
import torch
from scipy.spatial.distance import cdist
from torch import nn

from metriscope.benching import processor
from metriscope.vq import VQMDS, Layer, Patterns, heat_cosine, vq_kernel
from metriscope.vq.capture import capture
from metriscope.vq.measures import alignment

POINTS, MANY, PAIRED = 10_000, 1_000_000, 60_000
# Points and units of the networks whose points are shuffled.
SHUFFLED = ((2_000, 288), (2_000, 16_384), (60_000, 288), (MANY, 288))
UNITS, SCALES = 288, np.geomspace(10, 1000, 50)
# Bits per point; rounds; rows that faiss and scipy are timed on; what is asked against faiss.
KERNELS = ((128, 7, 10_000, 300, 1.3), (1_536, 5, 10_000, 40, 2.5), (16_384, 3, 300, 4, 2.5))
# What keeps numba, faiss and PyTorch from using AVX-512; numkong is told by a call.
NARROW = {"NUMBA_CPU_NAME": "haswell", "FAISS_SIMD_LEVEL": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}

Run = Callable[[], object]


def patterns(points: int, units: int, seed: int = 0) -> Patterns:
    packed = np.random.default_rng(seed).integers(0, 256, (points, units // 8), dtype=np.uint8)
    return Patterns((Layer("units", units, "relu"),), packed)


def timed(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def best(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    """Return the least seconds of each, after one call of each that is not counted."""
    for run in runs.values():
        run()
    times = [{name: timed(run) for name, run in runs.items()} for _ in range(rounds)]
    return {name: min(each[name] for each in times) for name in runs}


def verdict(name: str, ratio: float, wanted: float) -> str:
    return f"{ratio:7.1f}x {name} (asked {wanted:g}x: {'met' if ratio >= wanted else 'MISSED'})"


def limit(name: str, value: float, most: float, unit: str = "") -> str:
    return f"{name} {value:.3g}{unit} (asked at most {most:g}{unit}: {'met' if value <= most else 'MISSED'})"


def by_faiss(packed: np.ndarray, rows: int) -> np.ndarray:
    import faiss

    some, out = packed[:rows], np.empty((rows, len(packed)), np.int32)
    pointers = faiss.swig_ptr(some), faiss.swig_ptr(packed)
    faiss.hammings(*pointers, rows, len(packed), packed.shape[1], faiss.swig_ptr(out))
    return out


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401
    except ImportError:
        return False
    return True


def kernel_lines() -> Iterator[str]:
    yield f"\nDense kernel, {POINTS:,} points, seconds"
    if not has_faiss():
        yield "faiss is not installed; its lines are left out"
    for bits, rounds, rows, few, asked in KERNELS:
        p = patterns(POINTS, bits)
        signs = p.signs() > 0
        peers: dict[str, tuple[int, Run, float]] = {
            "scipy": (few, lambda signs=signs, few=few: cdist(signs[:few], signs, "hamming"), 6),
        }
        if has_faiss():
            peers["faiss"] = rows, lambda p=p, rows=rows: by_faiss(p.packed, rows), asked
        assert (vq_kernel(p)[:few] == np.rint(cdist(signs[:few], signs, "hamming") * bits)).all()
        ours = {"ours": lambda p=p: vq_kernel(p), "ours, int16": lambda p=p: vq_kernel(p, dtype=np.int16)}
        found = best({**ours, **{name: run for name, (_, run, _) in peers.items()}}, rounds)
        yield f"{bits:6,} bits  ours {found['ours']:.4f}  in int16 {found['ours, int16']:.4f}"
        for name, (timed_rows, _, wanted) in peers.items():
            seconds = found[name] * POINTS / timed_rows
            timed_on = "" if timed_rows == POINTS else f", timed on {timed_rows:,} rows and scaled"
            yield f"    {name} {seconds:.3f}{timed_on}: {verdict('faster', seconds / found['ours'], wanted)}" + (
                f"; {seconds / found['ours, int16']:.1f}x in int16"
            )


def narrow_kernel_lines() -> Iterator[str]:
    """Yield the lines of the dense kernel from a process without AVX-512."""
    if not any(nk.get_capabilities()[name] for name in AVX512):
        yield "\nThis processor has no AVX-512: the lines above are those without it"
        return
    command, narrow = [sys.executable, __file__, "--narrow"], {**os.environ, **NARROW}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=narrow)
    yield f"\nWithout AVX-512 ({', '.join(f'{name}={value}' for name, value in NARROW.items())}; numkong too)"
    yield done.stdout.strip("\n")


# The families of numkong's kernels that use AVX-512.
AVX512 = ("skylake", "icelake", "genoa", "turin", "sapphire", "sapphireamx", "graniteamx", "diamond")


PEAK = """
import resource, sys, numpy as np
from pathlib import Path
from metriscope.vq import Layer, Patterns, VQMDS, heat_cosine
from metriscope.vq.measures import alignment
def patterns(points, units, seed):
    packed = np.random.default_rng(seed).integers(0, 256, (points, units // 8), dtype=np.uint8)
    return Patterns((Layer("units", units, "relu"),), packed)
{call}
status = Path("/proc/self/status")
if status.exists():
    print(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
else:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1))
"""


def peak(call: str) -> float:
    """Return the peak megabytes of a process that does one thing."""
    done = subprocess.run([sys.executable, "-c", PEAK.format(call=call)], capture_output=True, text=True, check=True)
    return float(done.stdout) * 1024 / 1e6


def floats(p: Patterns) -> torch.Tensor:
    return torch.from_numpy(p.signs()).float()


def embedding_lines() -> Iterator[str]:
    yield f"\nVQMDS, {MANY:,} points x {UNITS} units, seconds"
    p = patterns(MANY, UNITS)
    signs = floats(p)
    found = best({"ours": lambda: VQMDS().fit(p), "bare": lambda: signs.T @ signs}, 4)
    yield f"    ours {found['ours']:.3f}, bare float32 product {found['bare']:.3f}: " + verdict(
        "faster", found["bare"] / found["ours"], 1
    )
    sizes = (10_000, 100_000, MANY)
    times = [best({"ours": lambda size=size: VQMDS().fit(p[:size])}, 4)["ours"] for size in sizes]
    slope = math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])
    steps = ", ".join(f"{size:,}: {seconds:.4f}" for size, seconds in zip(sizes, times, strict=True))
    yield f"    {steps}: {limit('exponent', slope, 1.05)}"
    call = f"VQMDS().fit(patterns({MANY}, {UNITS}, 0))"
    yield "    " + limit("peak", peak(call), 3_000, " MB")


def alignment_lines() -> Iterator[str]:
    yield f"\nAlignment, {MANY:,} points, two networks of {UNITS} units, seconds"
    p, q = patterns(MANY, UNITS), patterns(MANY, UNITS, 1)
    signs = floats(p)
    runs = {name: partial(alignment, p, q, name) for name in ("debiased", "biased")}
    found = best({**runs, "bare": lambda: signs.T @ signs}, 3)
    bare = 3 * found["bare"]
    yield f"    three bare float32 products (one, timed, times three) {bare:.3f}"
    for name in runs:
        yield f"    {name} {found[name]:.3f}: {verdict('faster', bare / found[name], 1)}"
    seconds = timed(lambda: alignment(p, q, interval=0.95))
    yield f"    debiased, with its interval {seconds:.2f}: {seconds / found['debiased']:.1f} times the value alone"
    call = f"alignment(patterns({MANY}, {UNITS}, 0), patterns({MANY}, {UNITS}, 1), interval=0.95)"
    yield "    " + limit("peak", peak(call), 3_000, " MB")
    for points, units in SHUFFLED:
        yield permutation_line(points, units)


def permutation_line(points: int, units: int) -> str:
    """Return how many permutations per second there are, beyond what the value itself takes."""
    p, q = patterns(points, units), patterns(points, units, 1)
    # So many that they take about as long as the value, whose own time is taken away.
    few, many = 10, 10 + max(10, 2_000_000 // points)
    found = best({str(count): partial(alignment, p, q, permutations=count) for count in (few, many)}, 2)
    seconds = (found[str(many)] - found[str(few)]) / (many - few)
    rate = f"{1 / seconds:,.0f} per second, {1e3 * seconds:.2f} ms each"
    return f"    permutations, {points:,} points, {units:,} units: {rate}"


def block_sums(first: torch.Tensor, second: torch.Tensor, rows: int) -> torch.Tensor:
    """Return the sums of h1 h2, h1² and h2² of some rows of both heat kernels, for every scale."""
    sums = torch.zeros(3, len(SCALES), dtype=torch.float64)
    for tile in range(0, len(first), 4096):
        distances = [(side.shape[1] - side[:rows] @ side[tile : tile + 4096].T).div_(2) for side in (first, second)]
        heats = [torch.empty_like(d) for d in distances]
        for i, scale in enumerate(SCALES):
            one, two = (torch.mul(d, -1 / scale, out=h).exp_().view(-1) for d, h in zip(distances, heats, strict=True))
            sums[:, i] += torch.stack([one.dot(two), one.dot(one), two.dot(two)])
    return sums


def heat_lines() -> Iterator[str]:
    yield f"\nHeat cosine, {PAIRED:,} points, networks of 64 and 96 units, {len(SCALES)} scales, seconds"
    p, q, rows = patterns(PAIRED, 64), patterns(PAIRED, 96, 1), 128
    sides = floats(p), floats(q)
    small = block_sums(sides[0][:1000], sides[1][:1000], 1000)
    gap = np.abs((small[0] / (small[1] * small[2]).sqrt()).numpy() - heat_cosine(p[:1000], q[:1000], SCALES)).max()
    found = best({"ours": lambda: heat_cosine(p, q, SCALES), "blocks": lambda: block_sums(*sides, rows)}, 3)
    blocks = found["blocks"] * PAIRED / rows
    yield (
        f"    ours {found['ours']:.2f}, float32 kernels by blocks {blocks:.1f} (timed on {rows} rows and scaled): "
        + (verdict("faster", blocks / found["ours"], 5))
    )
    yield f"    both agree to {gap:.0e} on 1,000 points"
    call = f"heat_cosine(patterns({PAIRED}, 64, 0), patterns({PAIRED}, 96, 1), np.geomspace(10, 1000, 50))"
    yield "    " + limit("peak", peak(call), 600, " MB")


def networks() -> Iterator[tuple[str, nn.Module, torch.Tensor]]:
    wide = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()]
    yield "3 x 512 MLP", nn.Sequential(*wide, nn.Linear(512, 10)), torch.rand(16_384, 784)
    body = [nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.Flatten()]
    yield (
        "small CNN",
        nn.Sequential(*body, nn.Linear(4_608, 64), nn.ReLU(), nn.Linear(64, 10)),
        torch.rand(4_096, 1, 28, 28),
    )


def forward(model: nn.Module, x: torch.Tensor, size: int = 1024) -> None:
    with torch.inference_mode():
        for part in x.split(size):
            model(part)


def capture_lines() -> Iterator[str]:
    yield "\nCapture beside the bare forward pass, seconds"
    for name, model, x in networks():
        runs: dict[str, Run] = {"ours": partial(capture, model, x), "bare": partial(forward, model.eval(), x)}
        found = best(runs, 7)
        line = limit("ratio", found["ours"] / found["bare"], 1.5)
        yield f"    {name}, {len(x):,} points: ours {found['ours']:.3f}, bare {found['bare']:.3f}: {line}"


def million_lines() -> Iterator[str]:
    """Yield what a million points of 256 bits cost: the capture, and an alignment with its interval."""
    yield f"\n{MANY:,} points x 256 bits, 64 features"
    layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)]
    model, x = nn.Sequential(*layers).eval(), torch.rand(MANY, 64)
    for size in (1024, 8192):
        runs: dict[str, Run] = {
            "ours": partial(capture, model, x, batch_size=size),
            "bare": partial(forward, model, x, size),
        }
        found = best(runs, 7)
        line = limit("ratio", found["ours"] / found["bare"], 1.35)
        yield f"    capture, batches of {size:,}: ours {found['ours']:.3f}, bare {found['bare']:.3f}: {line}"
    p, q = patterns(MANY, 256), patterns(MANY, 256, 1)
    seconds = best({"ours": partial(alignment, p, q, interval=0.95)}, 2)["ours"]
    yield "    " + limit("alignment with its interval", seconds, 3, " s")


def main() -> None:
    print(processor())
    if "--narrow" in sys.argv:
        for name in AVX512:
            nk.disable_capability(name)
        for line in kernel_lines():
            print(line, flush=True)
        return
    print(f"{torch.get_num_threads()} threads; best of several rounds, interleaved")
    for lines in (
        capture_lines,
        million_lines,
        kernel_lines,
        narrow_kernel_lines,
        embedding_lines,
        alignment_lines,
        heat_lines,
    ):
        for line in lines():
            print(line, flush=True)


if __name__ == "__main__":
    main()
