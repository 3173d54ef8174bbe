"""Whether a network is affine where it should be, and which of its modules is to blame where it is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor, nn

from metriscope.vq.mesh import Mesh
from metriscope.vq.piecewise import Network, Site
from metriscope.vq.state import in_eval_mode

__all__ = ["check_affine"]

# Polygons that are looked at: the largest, where a curve shows most.
_LOOK = 256
# Share of the largest value by which an affine function may miss the mean of its corners.
_ROUNDING = 1e-9


def check_affine(
    mesh: Mesh, network: Network, site: Site | None, values: Float64[np.ndarray, "v u"], units: Any = None
) -> None:
    """Refuse a network whose values (an activation's, or the output's if None) are not affine on the polygons.

    The value at a mixture of a polygon's corners must be that mixture of the values there.
    """
    part = _part(mesh, np.argsort(mesh.areas)[-_LOOK:])
    points = _mixtures(part, part.vertices[part.corners])
    inside = network.outputs(points) if site is None else network.values(points, site, units)
    gap = np.abs(inside - _mixtures(part, values[part.corners])).max(initial=0.0)
    if gap > _ROUNDING * max(np.abs(values).max(initial=0.0), 1e-300):
        where = "the output" if site is None else f"layer {site.layer.name!r} ({site.layer.kind})"
        raise ValueError(f"what reaches {where} is not piecewise affine{_culprit(part, network)}")


def _part(mesh: Mesh, chosen: np.ndarray) -> Mesh:
    runs = [mesh.corners[mesh.starts[one] : mesh.starts[one + 1]] for one in chosen]
    starts = np.concatenate([[0], np.cumsum([len(run) for run in runs])])
    return Mesh(mesh.vertices, np.concatenate(runs), starts)


def _mixtures(mesh: Mesh, corners: Float64[np.ndarray, "c f"]) -> Float64[np.ndarray, "r f"]:
    """Return one mixture a polygon of values at its corners; uneven, as an even one would miss what is symmetric."""
    shares = (0.1 + 0.6180339887 * np.arange(len(corners)) % 1)[:, None]
    starts = mesh.starts[:-1]
    return np.add.reduceat(shares * corners, starts) / np.add.reduceat(shares, starts)


def _culprit(mesh: Mesh, network: Network) -> str:
    """Return the first module that is given affine values and returns others, as the end of a sentence."""
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
    return bool(
        np.abs(_mixtures(mesh, corners) - inside).max(initial=0.0)
        <= _ROUNDING * max(np.abs(flat).max(initial=0.0), 1e-300)
    )
