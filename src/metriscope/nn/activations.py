"""The table of activations: what each computes, where it bends, and how it is named and drawn.

Layers, engines, capture, studies and figures read it. A new activation is one row here. To be trained by compiled code
it also needs a kernel in :mod:`metriscope.train.compiled` or :mod:`metriscope.train.classifier_passes`; without one,
stacked autograd trains it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.common.validation import number, one_of, require_tensors

__all__ = ["ACTIVATIONS", "Abs", "AbsReLU", "Activation", "activation_row"]

Elementwise = Callable[[Float[Tensor, "*shape"]], Float[Tensor, "*shape"]]


class Abs(nn.Module):
    """The absolute value of each entry.

    Examples
    --------
    >>> Abs()(torch.tensor([-2.0, 3.0]))
    tensor([2., 3.])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return ``|x|``."""
        require_tensors(x=x)
        return x.abs()


class AbsReLU(nn.Module):
    """The absolute value of a share of the units, and ReLU of the others; units are along the axis ``dim``.

    Parameters
    ----------
    share : float
        The share of the units, from 0 (ReLU) to 1 (Abs), whose absolute value is taken. These are the first units;
        their number is rounded.
    dim : int
        The axis of the units: -1 after a linear layer, 1 after a convolution.

    Raises
    ------
    ValueError
        If the share is not between 0 and 1.

    Examples
    --------
    >>> AbsReLU(0.5)(torch.tensor([-2.0, 3.0, -2.0, 3.0]))
    tensor([2., 3., 0., 3.])
    """

    def __init__(self, share: float = 0.5, dim: int = -1) -> None:
        super().__init__()
        self.share, self.dim = number(share, "share", "[0, 1]"), dim

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return ``|x|`` of the first units and ``max(x, 0)`` of the others.

        Raises
        ------
        ValueError
            If ``x`` has no axis of units.
        """
        require_tensors(x=x)
        if not -x.ndim <= self.dim < x.ndim:
            raise ValueError(f"x must have an axis {self.dim} of units, got the shape {tuple(x.shape)}")
        units = x.shape[self.dim]
        first = round(self.share * units)
        mirrored, others = x.split([first, units - first], dim=self.dim)
        return torch.cat([mirrored.abs(), others.relu()], dim=self.dim)

    def extra_repr(self) -> str:
        """Return the share."""
        return f"share={self.share:g}"


@dataclass(frozen=True)
class Activation:
    """One row of the table of activations.

    Parameters
    ----------
    title : str
        The name that figures and tables show.
    module : type of nn.Module
        The layer.
    function : callable
        The same activation as a function of a tensor.
    kinks : tuple of float
        The values at which the function bends; between them it is affine. A smooth function has none.
    distance_like : bool
        Whether the output grows with the distance to the hyperplane on both of its sides, so that one unit per
        feature is enough to measure a distance. Other activations see only one side and need two units.
    color : str
        The color in figures; without one, the figure chooses.

    Examples
    --------
    >>> ACTIVATIONS["relu6"].title, ACTIVATIONS["relu6"].kinks
    ('ReLU6', (0.0, 6.0))
    """

    title: str
    module: type[nn.Module]
    function: Elementwise
    kinks: tuple[float, ...] = ()
    distance_like: bool = False
    color: str = ""

    @property
    def piecewise_affine(self) -> bool:
        """Whether the function is affine between its kinks."""
        return bool(self.kinks)

    @property
    def units_per_feature(self) -> int:
        """The number of units per feature that are needed to measure both sides of a hyperplane."""
        return 1 if self.distance_like else 2

    def derivative(self, z: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return the derivative at each entry, as autograd defines it at a kink.

        >>> ACTIVATIONS["relu"].derivative(torch.tensor([-1.0, 2.0]))
        tensor([0., 1.])
        """
        with torch.enable_grad():
            point = z.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.function(point).sum(), point)
        return found


ACTIVATIONS: dict[str, Activation] = {
    "abs": Activation("Abs", Abs, torch.abs, kinks=(0.0,), distance_like=True, color="#0a5fae"),
    "relu": Activation("ReLU", nn.ReLU, torch.relu, kinks=(0.0,), color="#d55e00"),
    "sigmoid": Activation("Sigmoid", nn.Sigmoid, torch.sigmoid, color="#009e73"),
    "leaky_relu": Activation("Leaky ReLU", nn.LeakyReLU, F.leaky_relu, kinks=(0.0,)),
    "relu6": Activation("ReLU6", nn.ReLU6, F.relu6, kinks=(0.0, 6.0)),
    "hardsigmoid": Activation("Hard sigmoid", nn.Hardsigmoid, F.hardsigmoid, kinks=(-3.0, 3.0)),
    "gelu": Activation("GELU", nn.GELU, F.gelu),
    "silu": Activation("SiLU", nn.SiLU, F.silu),
    "mish": Activation("Mish", nn.Mish, F.mish),
    "hardswish": Activation("Hard swish", nn.Hardswish, F.hardswish),
    "elu": Activation("ELU", nn.ELU, F.elu),
    "selu": Activation("SELU", nn.SELU, F.selu),
    "celu": Activation("CELU", nn.CELU, F.celu),
    "tanh": Activation("Tanh", nn.Tanh, torch.tanh),
    "softplus": Activation("Softplus", nn.Softplus, F.softplus),
    "softsign": Activation("Softsign", nn.Softsign, F.softsign),
    "tanhshrink": Activation("Tanhshrink", nn.Tanhshrink, F.tanhshrink),
    "logsigmoid": Activation("Log-sigmoid", nn.LogSigmoid, F.logsigmoid),
}


def activation_row(name: str) -> Activation:
    """Return the row of an activation in the table.

    Parameters
    ----------
    name : str
        A key of ``ACTIVATIONS``.

    Returns
    -------
    Activation
        The row.

    Raises
    ------
    ValueError
        If there is no such activation; the error lists all names.

    Examples
    --------
    >>> activation_row("relu").units_per_feature
    2
    """
    return ACTIVATIONS[one_of(name, "activation", ACTIVATIONS)]
