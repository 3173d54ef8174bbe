"""Ask what exact linear regions cost on one core, beside a loop over regions written in Python.

The loop is the way it is usually done: region by region and layer by layer, values of all units at the corners in one
product, then one polygon after the other cut by each unit that changes sign in it. Both are interleaved, the best of
several rounds counts, and both must find the same regions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import nn

from metriscope.benching import processor
from metriscope.vq import linear_regions

ROUNDS = 7
SHAPES = ((64, 64, 64), (96, 96, 96), (32, 32, 32, 32, 32, 32))
LEAST_REGIONS, LEAST_RATIO = 10_000, 5


def network(widths: tuple[int, ...], seed: int = 0) -> nn.Sequential:
    generator, layers, before = torch.Generator().manual_seed(seed), [], 2
    for width in (*widths, 1):
        linear = nn.Linear(before, width)
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -(before**-0.5), before**-0.5, generator=generator)
        layers += [linear, nn.ReLU()]
        before = width
    return nn.Sequential(*layers[:-1])


def weights_of(model: nn.Sequential) -> list[tuple[np.ndarray, np.ndarray]]:
    hidden = [layer for layer in model if isinstance(layer, nn.Linear)][:-1]
    return [(one.weight.detach().double().numpy(), one.bias.detach().double().numpy()) for one in hidden]


def cut(polygon: np.ndarray, heights: np.ndarray, values: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return both sides of a polygon, with the values of all units at their corners."""
    sides: list[tuple[list[np.ndarray], list[np.ndarray]]] = [([], []), ([], [])]
    for i in range(len(polygon)):
        j = (i + 1) % len(polygon)
        for side, inside in zip(sides, (heights[i] >= 0, heights[i] <= 0), strict=True):
            if inside:
                side[0].append(polygon[i])
                side[1].append(values[i])
        if heights[i] * heights[j] < 0:
            share = heights[i] / (heights[i] - heights[j])
            for points, rest in sides:
                points.append(polygon[i] + share * (polygon[j] - polygon[i]))
                rest.append(values[i] + share * (values[j] - values[i]))
    return [(np.array(points), np.array(rest)) for points, rest in sides]


def by_loop(model: nn.Sequential, bound: float = 1.0) -> list[np.ndarray]:
    """Return the polygons of all regions of a ReLU network on a square, one after the other."""
    square = np.array([[-bound, -bound], [bound, -bound], [bound, bound], [-bound, bound]])
    regions = [(square, square)]
    for weight, bias in weights_of(model):
        following = []
        for polygon, reached in regions:
            pieces = [(polygon, reached @ weight.T + bias)]
            for unit in range(len(weight)):
                cuts = []
                for points, values in pieces:
                    heights = values[:, unit]
                    crossed = heights.min() < 0 < heights.max()
                    cuts += cut(points, heights, values) if crossed else [(points, values)]
                pieces = cuts
            following += [(points, np.maximum(values, 0)) for points, values in pieces]
        regions = following
    return [polygon for polygon, _ in regions]


def timed(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def lines() -> Iterator[str]:
    yield f"Linear regions on the square, one core, best of {ROUNDS} interleaved rounds"
    for widths in SHAPES:
        model = network(widths)
        found, looped = linear_regions(model), by_loop(model)
        times = [(timed(lambda m=model: linear_regions(m)), timed(lambda m=model: by_loop(m))) for _ in range(ROUNDS)]
        ours, loop = (min(each) for each in zip(*times, strict=True))
        assert len(found) == len(looped), f"{len(found)} regions against {len(looped)} by the loop"
        rate, ratio = len(found) / ours, loop / ours
        yield f"{len(widths)} x {widths[0]}: {len(found):,} regions, ours {ours:.4f} s, loop {loop:.3f} s"
        met = [("met" if ok else "MISSED") for ok in (rate >= LEAST_REGIONS, ratio >= LEAST_RATIO)]
        yield f"    {rate:,.0f} regions per second (asked {LEAST_REGIONS:,}: {met[0]})"
        yield f"    {ratio:.1f}x faster (asked {LEAST_RATIO}x: {met[1]})"


def main() -> None:
    print(processor())
    torch.set_num_threads(1)
    for line in lines():
        print(line, flush=True)


if __name__ == "__main__":
    main()
