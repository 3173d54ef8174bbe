"""What goes into a layer: values drawn from a generator of the caller's.

Axes: ``d`` features, ``k`` units. With a generator given, PyTorch's global random state stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

__all__ = ["draw_", "empty_linear", "fresh_linear"]


def draw_(target: Tensor, fill: Callable[[Tensor], object], generator: torch.Generator | None) -> None:
    """Fill ``target`` in place, drawing on the device the generator lives on."""
    with torch.no_grad():
        # A CPU stream must give the same numbers to a layer that lives elsewhere.
        device = target.device if generator is None else generator.device
        drawn = torch.empty_like(target, device=device, requires_grad=False)
        fill(drawn)
        target.copy_(drawn)


def empty_linear(
    in_features: int,
    out_features: int,
    bias: bool = True,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> nn.Linear:
    """Return a linear layer with unset values; creating it draws nothing."""
    place = torch.get_default_device() if device is None else device
    return nn.utils.skip_init(nn.Linear, in_features, out_features, bias=bias, device=place, dtype=dtype)


def fresh_linear(
    in_features: int,
    out_features: int,
    bias: bool = True,
    generator: torch.Generator | None = None,
) -> nn.Linear:
    """Return a linear layer with PyTorch's default initialisation, uniform within ``1/sqrt(in_features)``.

    >>> from metriscope.rng import stream
    >>> first, second = (fresh_linear(3, 2, generator=stream(0, "init")) for _ in range(2))
    >>> bool(first.weight.equal(second.weight))
    True
    """
    linear = empty_linear(in_features, out_features, bias)

    draw_(linear.weight, lambda w: nn.init.kaiming_uniform_(w, a=math.sqrt(5), generator=generator), generator)
    if linear.bias is not None:
        bound = 1 / math.sqrt(in_features)
        draw_(linear.bias, lambda b: b.uniform_(-bound, bound, generator=generator), generator)
    return linear
