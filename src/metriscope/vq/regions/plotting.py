"""Pictures of linear regions, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from jaxtyping import Float64

from metriscope.common.validation import real_array
from metriscope.rng import stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_regions"]


class Regions(Protocol):
    """What a picture needs to know of a partition."""

    vertices: Float64[np.ndarray, "v d"]
    corners: np.ndarray
    starts: np.ndarray

    @property
    def bounds(self) -> Any:
        """The lower and the upper corner of the window."""

    @property
    def dims(self) -> int:
        """The number of dimensions of the window."""

    @property
    def areas(self) -> Float64[np.ndarray, " r"]:
        """The area of each region."""

    @property
    def centers(self) -> Float64[np.ndarray, "r d"]:
        """A point inside each region."""

    def evaluate(self, points: Any) -> Float64[np.ndarray, "n o"]:
        """Return the network's outputs at some points."""

    def __len__(self) -> int: ...


_NAMED = ("random", "area", "output")


def draw_regions(partition: Regions, color: Any, ax: Axes | None, style: dict[str, Any]) -> Axes:
    """Draw the regions into axes, new ones if None, and return them."""
    from matplotlib import pyplot
    from matplotlib.collections import PolyCollection

    axes = pyplot.subplots()[1] if ax is None else ax
    shapes = np.split(partition.vertices[partition.corners], partition.starts[1:-1])
    values = _values(partition, color)
    looks: dict[str, Any] = {"linewidths": 0.4, "edgecolors": "0.35"}
    looks |= {"facecolors": "none"} if values is None else {"array": values, "cmap": "viridis"}
    axes.add_collection(PolyCollection(shapes, **(looks | style)))
    low, high = partition.bounds
    axes.set_xlim(low[0], high[0])
    axes.set_ylim(low[1], high[1])
    if partition.dims == 2:
        axes.set_aspect("equal")
    else:
        axes.set_yticks([])
    return axes


def _values(partition: Regions, color: Any) -> Float64[np.ndarray, " r"] | None:
    """Return the number by which each region is colored."""
    if color is None:
        return None
    if isinstance(color, str):
        if color not in _NAMED:
            raise ValueError(f"color must be one number a region, None, or one of {', '.join(_NAMED)}, got {color!r}")
        return {"random": _shuffled, "area": _log_areas, "output": _outputs}[color](partition)
    return real_array(color, "color", str(len(partition)))


def _shuffled(partition: Regions) -> Float64[np.ndarray, " r"]:
    return torch.randperm(len(partition), generator=stream(0, "colors")).numpy().astype(np.float64)


def _log_areas(partition: Regions) -> Float64[np.ndarray, " r"]:
    return np.log10(partition.areas)


def _outputs(partition: Regions) -> Float64[np.ndarray, " r"]:
    values = partition.evaluate(partition.centers)
    return values[:, 0] if values.shape[1] == 1 else values.argmax(1).astype(np.float64)
