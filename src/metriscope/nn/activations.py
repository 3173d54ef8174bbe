"""The one table of activations: what each computes, where it bends, and how it is named and drawn.

Layers, engines, capture, studies and figures read it. A new activation is one row here; if it should be compiled,
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

from metriscope.common.validation import one_of

__all__ = ["ACTIVATIONS", "Abs", "Activation", "activation_row"]

Elementwise = Callable[[Float[Tensor, "*shape"]], Float[Tensor, "*shape"]]


class Abs(nn.Module):
    """The absolute value of each entry.

    >>> Abs()(torch.tensor([-2.0, 3.0]))
    tensor([2., 3.])
    """

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return ``|x|``."""
        return x.abs()


@dataclass(frozen=True)
class Activation:
    """One row of the table.

    ``kinks`` are the values at which the function bends; between them it is affine, and a smooth function has none.
    A ``distance_like`` activation measures how far a point lies from the hyperplane on either side, so that one unit
    per feature is enough for a distance; others see one side and need two. Without a ``color`` of its own an
    activation is drawn in one that figures choose.
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
        """How many units a feature needs to be measured on both sides of a hyperplane."""
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
    """Return the row of an activation, or say which there are.

    >>> activation_row("relu").units_per_feature
    2
    """
    return ACTIVATIONS[one_of(name, "activation", ACTIVATIONS)]
