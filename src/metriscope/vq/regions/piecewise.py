"""A network on a plane through its inputs: what each of its activations compares, at any points of the plane.

Axes: V points of the plane, U values that an activation is given, O outputs. Everything runs in float64, on a copy of
the network in eval mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor, nn

from metriscope.common.model_state import Runner, in_eval_mode, random_states_kept, unwrapped
from metriscope.common.validation import described, float64_tensor, instance
from metriscope.vq.capture.packing import Pooling
from metriscope.vq.capture.patterns import Layer
from metriscope.vq.capture.readings import Levels, Reading, Winners
from metriscope.vq.capture.selection import Choice, Positions
from metriscope.vq.capture.watching import Watch
from metriscope.vq.regions.polygons import Mesh, runs

__all__ = ["KinkSite", "Network", "Plane", "check_affine", "plane_of"]

# Points that are run at once.
_BATCH = 4096
# Piecewise affine, but with jumps: values at the edge of a region do not determine the values inside.
_JUMPS = ("threshold", "hardshrink")


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane of inputs: the point (s, t) is ``origin + s u + t v``."""

    origin: Float64[Tensor, "*i"]
    u: Float64[Tensor, "*i"]
    v: Float64[Tensor, "*i"]

    def inputs(self, points: Float64[np.ndarray, "n 2"]) -> Float64[Tensor, "n ..."]:
        """Return the inputs at points of the plane."""
        return self.at(torch.from_numpy(np.ascontiguousarray(points)).to(self.origin.device))

    def at(self, places: Float64[Tensor, "n 2"]) -> Float64[Tensor, "n ..."]:
        """Return the inputs at places of the plane, where gradients may flow."""
        s, t = places.unbind(1)
        each = (-1, *[1] * self.origin.ndim)
        return self.origin + s.reshape(each) * self.u + t.reshape(each) * self.v


def plane_of(plane: Any, dims: int) -> Plane:
    """Return the given plane; if None, the plane of the inputs themselves, which must have one or two features."""
    if plane is None:
        unit = torch.eye(2, dims, dtype=torch.float64)
        return Plane(torch.zeros(dims, dtype=torch.float64), unit[0], unit[1])
    if isinstance(plane, str | bytes | Mapping) or not isinstance(plane, Iterable):
        raise ValueError(f"plane must be an origin and two directions, got {described(plane)}")
    given = list(plane)
    if len(given) != 3:
        raise ValueError(f"plane must be an origin and two directions, got {len(given)} parts")
    parts = [float64_tensor(part, "each part of plane") for part in given]
    shapes = [tuple(part.shape) for part in parts]
    if len(set(shapes)) != 1 or not shapes[0]:
        raise ValueError(f"plane must be an origin and two directions of one shape, got the shapes {shapes}")
    if dims == 2 and int(torch.linalg.matrix_rank(torch.stack(parts[1:]).flatten(1))) < 2:
        raise ValueError("plane must have two directions that span it, got parallel or zero ones")
    return Plane(*parts)


@dataclass(frozen=True, eq=False)
class KinkSite:
    """One activation: its layer, and its thresholds or the places in its input that each window of a pool compares."""

    layer: Layer
    levels: tuple[float, ...] = ()
    windows: Int64[np.ndarray, "w k"] | None = None


class Network:
    """A network of affine layers and piecewise affine activations, on a plane of its inputs."""

    def __init__(self, model: nn.Module, plane: Plane) -> None:
        self.model, device = _copy(model)
        self._plane = Plane(*(part.to(device) for part in (plane.origin, plane.u, plane.v)))
        self._runner = Runner(self.model, None)
        self._seen: dict[str, KinkSite] = {}
        self._run(np.zeros((2, 2)), self._note)
        self.sites = tuple(self._seen.values())

    def values(
        self, points: Float64[np.ndarray, "v 2"], site: KinkSite, units: Any = None
    ) -> Float64[np.ndarray, "v u"]:
        """Return the inputs of an activation at some points, or only those of the chosen ``units``."""

        def take(layer: Layer, reading: Reading, _: Pooling | None) -> np.ndarray:
            if layer.name != site.layer.name:
                return np.empty(0)
            given = reading.source if isinstance(reading, Winners) else reading.values
            flat = given.reshape(len(given), -1)
            return (flat if units is None else flat[:, torch.as_tensor(units)]).cpu().numpy().copy()

        at = [one.layer.name for one in self.sites].index(site.layer.name)
        parts = [self._run(part, take)[1][at] for part in _batches(points)]
        return _finite(np.concatenate(parts), f"layer {site.layer.name!r} ({site.layer.kind})")

    def outputs(self, points: Float64[np.ndarray, "v 2"]) -> Float64[np.ndarray, "v o"]:
        """Return the network's outputs at some points."""
        parts = [
            _output(self._run(part, lambda *_: np.empty(0))[0], len(part)).cpu().numpy() for part in _batches(points)
        ]
        return _finite(np.concatenate(parts), "the output")

    def slopes(self, points: Float64[np.ndarray, "v 2"]) -> Float64[np.ndarray, "v o 2"]:
        """Return how the outputs change along the plane's two directions, at points where they are affine."""
        return np.concatenate([self._slopes(part) for part in _batches(points)])

    def inputs(self, points: Float64[np.ndarray, "v 2"]) -> Tensor:
        """Return the network's inputs at some points."""
        return self._plane.inputs(points)

    def _slopes(self, points: np.ndarray) -> np.ndarray:
        places = torch.from_numpy(points).to(self._plane.origin.device).requires_grad_()
        with random_states_kept(), in_eval_mode(self.model), torch.enable_grad():
            found = _output(self.model(self._plane.at(places)), len(points))
            if not found.requires_grad:
                return np.zeros((*found.shape, 2))
            # A point's outputs depend on its own place alone, so a sum over points has every point's slope.
            totals = found.sum(0)
            parts = [torch.autograd.grad(one, places, retain_graph=True)[0] for one in totals]
        return torch.stack(parts, 1).cpu().numpy()

    def _run(self, points: np.ndarray, keep: Callable[..., np.ndarray]) -> tuple[Any, list[np.ndarray]]:
        watch = Watch(self.model, self._runner.weights, Choice(None), Positions(), keep)
        x = self._plane.inputs(points)
        with random_states_kept(), in_eval_mode(self.model):
            try:
                with watch.batch(len(points)):
                    found = self._runner(x)
            except RuntimeError as error:
                wanted = f"inputs of shape {tuple(x.shape[1:])} in float64"
                raise ValueError(f"the model does not run on {wanted}: {str(error).splitlines()[0]}") from error
        faults = [site.fault for site in watch.sites.values() if site.fault]
        if faults:
            raise ValueError(faults[0])
        return found, watch.parts()

    def _note(self, layer: Layer, reading: Reading, _: Pooling | None) -> np.ndarray:
        """Record an activation, or raise an error that names it."""
        if not layer.piecewise_affine:
            raise ValueError(f"layer {layer.name!r} ({layer.kind}) is not piecewise affine, so there are no regions")
        if layer.kind in _JUMPS:
            raise ValueError(f"layer {layer.name!r} ({layer.kind}) jumps at its threshold; regions need continuity")
        if isinstance(reading, Winners):
            channels = reading.source[0].numel() // int(np.prod(reading.windows.sizes))
            self._seen[layer.name] = KinkSite(layer, windows=_in_every_channel(reading, channels))
        elif isinstance(reading, Levels):
            self._seen[layer.name] = KinkSite(layer, reading.levels)
        return np.empty(0)


def _copy(model: nn.Module) -> tuple[nn.Module, torch.device]:
    instance(model, "model", nn.Module)
    try:
        copied = deepcopy(unwrapped(model)).double()
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"the model cannot be copied into float64: {str(error).splitlines()[0]}") from error
    first = next((weight for weight in [*copied.parameters(), *copied.buffers()]), torch.empty(0))
    return copied, first.device


def _in_every_channel(reading: Winners, channels: int) -> Int64[np.ndarray, "w k"]:
    members = reading.windows.members
    size = int(np.prod(reading.windows.sizes))
    moved = members + size * np.arange(channels)[:, None, None]
    return np.where(members < 0, -1, moved).reshape(-1, members.shape[1])


def _batches(points: np.ndarray) -> list[np.ndarray]:
    return np.split(points, range(_BATCH, len(points), _BATCH))


def _output(found: Any, points: int) -> Tensor:
    if not isinstance(found, Tensor) or found.ndim == 0 or len(found) != points:
        what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"the model must return one tensor with a row for each of {points} points, got {what}")
    return found.reshape(points, -1)


def _finite(values: np.ndarray, what: str) -> np.ndarray:
    if not np.isfinite(values).all():
        raise ValueError(f"{what} is NaN or infinite within the bounds")
    return values


# How many polygons to check: the largest, where a curve is most visible.
_LOOK = 256
# Share of the largest value by which an affine function may miss the mean of its corners.
_ROUNDING = 1e-9


def check_affine(
    mesh: Mesh, network: Network, site: KinkSite | None, values: Float64[np.ndarray, "v u"], units: Any = None
) -> None:
    """Raise if a network's values (an activation's, or the output's if None) are not affine on the polygons.

    The value at a weighted mean of a polygon's corners must be the weighted mean of the values at the corners.
    """
    part = _part(mesh, np.argsort(mesh.areas)[-_LOOK:])
    points = _mixtures(part, part.vertices[part.corners])
    inside = network.outputs(points) if site is None else network.values(points, site, units)
    if not _close(_mixtures(part, values[part.corners]), inside, values):
        where = "the output" if site is None else f"layer {site.layer.name!r} ({site.layer.kind})"
        raise ValueError(f"what reaches {where} is not piecewise affine{_culprit(part, network)}")


def _part(mesh: Mesh, chosen: np.ndarray) -> Mesh:
    at, counts = runs(mesh.starts, chosen)
    return Mesh(mesh.vertices, mesh.corners[at], np.concatenate([[0], np.cumsum(counts)]))


def _mixtures(mesh: Mesh, corners: Float64[np.ndarray, "c f"]) -> Float64[np.ndarray, "r f"]:
    """Return one weighted mean per polygon of values at its corners; equal weights would miss symmetric errors."""
    shares = (0.1 + 0.6180339887 * np.arange(len(corners)) % 1)[:, None]
    starts = mesh.starts[:-1]
    return np.add.reduceat(shares * corners, starts) / np.add.reduceat(shares, starts)


def _culprit(mesh: Mesh, network: Network) -> str:
    """Return the first module that turns affine values into others, as the end of a sentence."""
    corners = mesh.vertices[mesh.corners]
    points = np.concatenate([corners, _mixtures(mesh, corners)])
    found: list[str] = []

    def look(name: str) -> Any:
        def hook(module: nn.Module, given: Any, returned: Any) -> None:
            values = [one for one in given if isinstance(one, Tensor)]
            given_affine = values and all(_affine(mesh, one) for one in values)
            if given_affine and isinstance(returned, Tensor) and not _affine(mesh, returned):
                found.append(f": layer {name!r} ({type(module).__name__}) is not affine")

        return hook

    inner = list(network.model.named_modules())[1:]
    leaves = [(name, module) for name, module in inner if not any(module.children())]
    hooks = [module.register_forward_hook(look(name)) for name, module in leaves]
    try:
        with torch.no_grad(), in_eval_mode(network.model):
            network.model(network.inputs(points))
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else ""


def _affine(mesh: Mesh, given: Tensor) -> bool:
    flat = given.detach().reshape(len(given), -1).cpu().numpy()
    corners, inside = flat[: len(mesh.corners)], flat[len(mesh.corners) :]
    if len(inside) != len(mesh):
        return True
    return _close(_mixtures(mesh, corners), inside, flat)


def _close(a: np.ndarray, b: np.ndarray, among: np.ndarray) -> bool:
    """Return whether two arrays are equal up to the rounding error of values as large as ``among``."""
    return bool(np.abs(a - b).max(initial=0.0) <= _ROUNDING * max(np.abs(among).max(initial=0.0), 1e-300))
