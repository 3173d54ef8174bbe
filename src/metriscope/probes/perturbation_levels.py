"""What the levels of a perturbation mean: they are shares of the range of a unit's values.

Axes: N points, K units of the perturbed layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.validation import instance, one_of, require_tensors
from metriscope.nn.activations import ACTIVATIONS, activation_row

__all__ = ["DEFINITIONS", "LEVELS", "Definition", "UnitRanges", "activation_after", "definition_of", "perturb"]

# Shares of a unit's range, 1 % to 1000 % for scale and clip and -200 % to 100 % for offset, finest near zero offset.
_GRID = tuple(float(level) for level in np.geomspace(0.01, 10.0, 16))
_NEAR = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0)
LEVELS: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "scale": tuple(sorted({*_GRID, 0.1, 0.5, 1.0, 2.0})),
        "offset": (-2.0, -1.5, *(-level for level in reversed(_NEAR)), 0.0, *_NEAR),
        "clip": tuple(sorted({*_GRID, 0.1, 0.2, 0.3, 0.5, 1.0})),
    }
)


@dataclass(frozen=True)
class Definition:
    """What offsets and ceilings are shares of.

    Parameters
    ----------
    activated : bool
        Whether the range of a unit is that of its activations, and ceilings are counted from the lowest of them.
        Otherwise the range is that of the pre-activations, and ceilings are counted from zero.
    kept : bool
        Whether an offset also scales the pre-activations, so that the largest activation does not change.
    activation : str, callable or None
        The activation after the layer: a name in ``metriscope.nn.ACTIVATIONS`` or a function of a tensor. None: the
        module after the layer in its ``nn.Sequential``.

    Examples
    --------
    >>> DEFINITIONS["post-activation-kept"]
    Definition(activated=True, kept=True, activation=None)
    """

    activated: bool = False
    kept: bool = False
    activation: str | Callable[[Tensor], Tensor] | None = None


# Oursland 2024b: its text describes "post-activation", and its author's program does "post-activation-kept".
DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {
        "pre-activation": Definition(),
        "pre-activation-kept": Definition(kept=True),
        "post-activation": Definition(activated=True),
        "post-activation-kept": Definition(activated=True, kept=True),
    }
)


def definition_of(definition: str | Definition) -> Definition:
    """Return a definition by its name, or as it is."""
    if isinstance(definition, str):
        return DEFINITIONS[one_of(definition, "definition", DEFINITIONS)]
    return instance(definition, "definition", Definition)


def perturb(
    z: Float[Tensor, "*n k"],
    reach: Float[Tensor, " k"],
    scale: float = 1.0,
    offset: float = 0.0,
    clip: float = math.inf,
    ends: Float[Tensor, "2 k"] | None = None,
) -> Float[Tensor, "*n k"]:
    """Return ``min(s * z + offset * reach, low + clip * reach)``: pre-activations scaled, shifted or clipped.

    Here ``s`` is ``scale`` and ``low`` is zero, unless ``ends`` is given.

    Parameters
    ----------
    z : Tensor of shape (..., k)
        Pre-activations.
    reach : Tensor of shape (k,)
        The range of each unit: its largest value minus its smallest.
    scale : float
        A factor; 1 changes nothing.
    offset : float
        A shift, as a share of the unit's range; 0 changes nothing.
    clip : float
        A ceiling, as a share of the unit's range; infinity changes nothing.
    ends : Tensor of shape (2, k), optional
        For each unit, the value ``low`` from which its ceiling is counted, and a value that an offset does not
        change: ``s = scale * (1 - offset * reach / value)``. Infinity or 0 means no such value, and ``s = scale``.

    Returns
    -------
    Tensor of shape (..., k)
        The perturbed pre-activations.

    Raises
    ------
    ValueError
        If ``reach`` does not have one entry per unit, or ``ends`` two.

    Examples
    --------
    >>> perturb(torch.tensor([[1.0, 4.0]]), torch.tensor([2.0, 4.0]), scale=2.0, offset=-0.5, clip=1.0)
    tensor([[1., 4.]])
    >>> perturb(torch.tensor([[0.0], [4.0]]), torch.tensor([4.0]), offset=0.25, ends=torch.tensor([[0.0], [4.0]]))
    tensor([[1.],
            [4.]])
    """
    require_tensors(z=z, reach=reach)
    if reach.ndim and reach.shape[-1] != (z.shape[-1] if z.ndim else 0):
        raise ValueError(
            f"reach must have one entry per unit of z, got the shapes {tuple(reach.shape)}, {tuple(z.shape)}"
        )
    shift = offset * reach
    if ends is None:
        moved, ceiling = scale * z + shift, clip * reach
    else:
        require_tensors(ends=ends)
        if ends.shape != (2, *reach.shape):
            raise ValueError(f"ends must have the shape {(2, *reach.shape)}, got {tuple(ends.shape)}")
        low, kept = ends
        factor = scale * torch.where(kept == 0, 1.0, 1 - shift / kept)
        moved, ceiling = torch.addcmul(shift, z, factor), low + clip * reach
    # Infinity times a range of zero would be NaN, but an infinite clip means no ceiling.
    return moved if math.isinf(clip) else torch.minimum(moved, ceiling)


class UnitRanges(NamedTuple):
    """What :func:`perturb` needs to know of each unit.

    ``silent`` is the number of units whose largest activation is 0, so that an offset does not scale them; None where
    activations were not computed.
    """

    reach: Float[Tensor, " k"]
    ends: Float[Tensor, "2 k"] | None = None
    silent: int | None = None

    @classmethod
    def of(
        cls, z: Iterable[Float[Tensor, "n k"]], definition: Definition, activation: Callable[[Tensor], Tensor] | None
    ) -> UnitRanges:
        """Return the ranges over batches of pre-activations: of their activations, if ``activation`` is given."""
        low, high = _extremes(parts := list(z))
        if activation is None:
            return cls(high - low)
        least, most = _extremes([_activated(part, activation) for part in parts])
        reach = most - least if definition.activated else high - low
        floor = least if definition.activated else torch.zeros_like(least)
        kept = most if definition.kept else torch.full_like(most, math.inf)
        return cls(reach, torch.stack([floor, kept]), int((most == 0).sum()))


def _extremes(parts: list[Float[Tensor, "n k"]]) -> tuple[Float[Tensor, " k"], Float[Tensor, " k"]]:
    ends = torch.stack([end for part in parts for end in (part.amin(0), part.amax(0))])
    return ends.amin(0), ends.amax(0)


def _activated(z: Tensor, activation: Callable[[Tensor], Tensor]) -> Tensor:
    # An activation may overwrite its input.
    found = activation(z.clone())
    if not isinstance(found, Tensor) or found.shape != z.shape:
        got = f"the shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"activation must return one value per unit and point, shape {tuple(z.shape)}, got {got}")
    return found


def activation_after(model: nn.Module, layer: nn.Module, definition: Definition) -> Callable[[Tensor], Tensor] | None:
    """Return the activation that a definition needs, or None if it needs none; raise an error if it is not known."""
    if not (definition.activated or definition.kept):
        return None
    if isinstance(definition.activation, str):
        return activation_row(definition.activation).function
    if definition.activation is not None:
        if not callable(definition.activation):
            raise ValueError(f"activation must be a name or a function, got {type(definition.activation).__name__}")
        return definition.activation
    known = tuple(row.module for row in ACTIVATIONS.values())
    after = [b for a, b in _neighbors(model) if a is layer]
    if len(after) == 1 and isinstance(after[0], known):
        return after[0]
    found = ", ".join(type(module).__name__ for module in after) or "no module of an nn.Sequential"
    raise ValueError(
        f"this definition needs the activation after the layer, which is followed by {found}: name it, as in "
        'Definition(activated=True, kept=True, activation="relu")'
    )


def _neighbors(model: nn.Module) -> Iterable[tuple[nn.Module, nn.Module]]:
    for module in model.modules():
        if isinstance(module, nn.Sequential):
            yield from zip(list(module)[:-1], list(module)[1:], strict=True)
