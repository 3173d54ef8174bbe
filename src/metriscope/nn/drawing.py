"""What goes into a layer: checked sizes, tensors, and values drawn from a generator of the caller's.

Axes: ``d`` features, ``k`` units. With a generator given, PyTorch's global random state stays as it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["as_tensor", "draw_", "empty_linear", "fresh_linear", "require_positive"]


def require_positive(**sizes: int) -> None:
    """Refuse sizes that are not whole numbers above zero.

    >>> require_positive(hidden=0)
    Traceback (most recent call last):
    ValueError: hidden must be a positive integer, got 0
    """
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name} must be a positive integer, got {size!r}")


def as_tensor(values: Any) -> Tensor:
    """Return a tensor as it is, and a copy of anything else, so that read-only arrays are welcome.

    >>> as_tensor([1.0, 2.0])
    tensor([1., 2.])
    """
    return values if isinstance(values, Tensor) else torch.tensor(values)


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
