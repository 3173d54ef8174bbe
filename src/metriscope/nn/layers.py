"""Layers that measure distances, as plain modules over the functions of ``metriscope.functional``.

Axes: ``n`` points, ``d`` features, ``k`` units.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.validation import check_shape, covariance, integer, real_tensor, require_tensors
from metriscope.functional import OffsetForm, norm, offset_l2, whitening_factor
from metriscope.functional.distances import require_form
from metriscope.nn.activations import activation_row

__all__ = ["Mahalanobis", "Neg", "OffsetL2", "draw_", "empty_linear", "fresh_linear"]


def draw_(target: Tensor, fill: Callable[[Tensor], object], generator: torch.Generator | None) -> None:
    """Fill ``target`` in place, drawing on the device of the generator."""
    with torch.no_grad():
        # A CPU stream must give the same numbers to a layer on another device.
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
    """Return a linear layer with unset values; creating it draws no random numbers."""
    place = torch.get_default_device() if device is None else device
    return nn.utils.skip_init(nn.Linear, in_features, out_features, bias=bias, device=place, dtype=dtype)


def fresh_linear(
    in_features: int, out_features: int, bias: bool = True, generator: torch.Generator | None = None
) -> nn.Linear:
    """Return a linear layer with PyTorch's default initialization, uniform within ``1/sqrt(in_features)``.

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


class Neg(nn.Module):
    """The negative of each entry, so that the nearest prototype gives the largest output.

    Examples
    --------
    >>> Neg()(torch.tensor([-2.0, 3.0]))
    tensor([ 2., -3.])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Return ``-x``."""
        require_tensors(x=x)
        return -x


class OffsetL2(nn.Module):
    """Weighted distances to learned prototypes, ``y_i = ‖alpha_i * (x - mu_i)‖₂``, or another p-norm.

    Prototypes ``mu`` start near the origin, with a standard deviation of 0.1, and weights ``alpha`` at 1.

    Parameters
    ----------
    in_features : int
        The number of features of a point.
    out_features : int
        The number of prototypes.
    form : "formula" or "squared-weights"
        Whether ``alpha`` multiplies the difference or the squared difference; see
        :func:`metriscope.functional.offset_l2`.
    p : float
        The exponent of the norm, at least 1; other values than 2 need the form ``"formula"``.
    generator : torch.Generator or None
        Where the prototypes are drawn from; None for PyTorch's global generator.
    device : torch.device, str or None
        The device of the parameters; None for PyTorch's default.
    dtype : torch.dtype or None
        The precision of the parameters; None for PyTorch's default.

    Raises
    ------
    ValueError
        If a size is not a positive integer, or ``form`` is unknown.

    Examples
    --------
    >>> layer = OffsetL2(2, 3)
    >>> layer(torch.zeros(5, 2)).shape, layer
    (torch.Size([5, 3]), OffsetL2(in_features=2, out_features=3, form='formula'))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        form: OffsetForm = "formula",
        p: float = 2.0,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        in_features, out_features = integer(in_features, "in_features"), integer(out_features, "out_features")
        require_form(form, p)
        self.in_features, self.out_features, self.form, self.p = in_features, out_features, form, float(p)
        self.mu = nn.Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        self.alpha = nn.Parameter(torch.ones(out_features, in_features, device=device, dtype=dtype))
        draw_(self.mu, lambda mu: mu.normal_(0.0, 0.1, generator=generator), generator)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n k"]:
        """Return the distance of each point to each prototype."""
        return offset_l2(x, self.mu, self.alpha, self.form, self.p)

    def extra_repr(self) -> str:
        """Return the sizes, the form and, if it is not 2, the exponent."""
        exponent = "" if self.p == 2 else f", p={self.p:g}"
        return f"in_features={self.in_features}, out_features={self.out_features}, form={self.form!r}{exponent}"


class Mahalanobis(nn.Module):
    """One distance per point: a linear layer, an activation, and the Euclidean norm over the units.

    With ``W = L^-1/2 Vᵀ``, ``b = -W mean`` (see ``from_gaussian``) and ``activation="abs"`` this is the Mahalanobis
    distance. Otherwise weights start with Kaiming's normal initialization, and biases at zero.

    Parameters
    ----------
    in_features : int
        The number of features of a point.
    hidden : int or None
        The number of units; None for one per feature if the activation is ``"abs"``, and two otherwise.
    activation : str
        A key of ``ACTIVATIONS``.
    generator : torch.Generator or None
        Where the weights are drawn from; None for PyTorch's global generator.
    device : torch.device, str or None
        The device of the parameters; None for PyTorch's default.
    dtype : torch.dtype or None
        The precision of the parameters; None for PyTorch's default.

    Raises
    ------
    ValueError
        If a size is not a positive integer, or the activation is unknown.

    Examples
    --------
    >>> Mahalanobis(2, activation="relu")(torch.zeros(5, 2)).shape
    torch.Size([5])
    """

    def __init__(
        self,
        in_features: int,
        hidden: int | None = None,
        activation: str = "abs",
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        row = activation_row(activation)
        in_features = integer(in_features, "in_features")
        hidden = in_features * row.units_per_feature if hidden is None else integer(hidden, "hidden")
        self.activation_name = activation
        self.linear = empty_linear(in_features, hidden, device=device, dtype=dtype)
        self.activation = row.module()
        kaiming = partial(nn.init.kaiming_normal_, nonlinearity="relu", generator=generator)
        draw_(self.linear.weight, kaiming, generator)
        nn.init.zeros_(self.linear.bias)

    @classmethod
    def from_gaussian(cls, mean: Any, cov: Any, dtype: torch.dtype | None = None) -> Mahalanobis:
        """Return the exact Mahalanobis distance of a Gaussian, with parameters that do not train.

        Parameters
        ----------
        mean : array of shape (d,)
            The mean of the Gaussian.
        cov : array of shape (d, d)
            Its covariance, positive definite; the parameters are computed from it in float64.
        dtype : torch.dtype or None
            The precision of the parameters; None for that of ``mean`` and ``cov``.

        Returns
        -------
        Mahalanobis
            The layer.

        Raises
        ------
        ValueError
            If the shapes do not fit together, or ``cov`` is not positive definite.

        Examples
        --------
        >>> Mahalanobis.from_gaussian([1.0, 1.0], [[4.0, 0.0], [0.0, 1.0]])(torch.tensor([3.0, 1.0]))
        tensor(1.)
        """
        given, sizes = (mean, cov), dict[str, int]()
        mean = real_tensor(mean, "mean", "features", sizes)
        cov = covariance(cov, "cov", sizes=sizes)
        check_shape(tuple(cov.shape), "cov", "features features", sizes, empty=False)
        factor = whitening_factor(cov)
        # The initial values are overwritten: a separate generator leaves the global random state as it is.
        unused = torch.Generator()
        layer = cls(len(mean), generator=unused, device=cov.device, dtype=dtype or _precision(*given))
        with torch.no_grad():
            layer.linear.weight.copy_(factor)
            layer.linear.bias.copy_(-factor @ mean.to(factor))
        return layer.requires_grad_(False)

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n"]:
        """Return one distance for each point.

        Raises
        ------
        ValueError
            If ``x`` is not a tensor that ends in the layer's features.
        """
        require_tensors(x=x)
        if x.ndim == 0 or x.shape[-1] != self.linear.in_features:
            features = self.linear.in_features
            raise ValueError(f"x must end in the layer's {features} features, got the shape {tuple(x.shape)}")
        return norm(self.activation(self.linear(x)))

    def extra_repr(self) -> str:
        """Return the sizes and the activation."""
        sizes = f"in_features={self.linear.in_features}, hidden={self.linear.out_features}"
        return f"{sizes}, activation={self.activation_name!r}"


def _precision(*given: Any) -> torch.dtype:
    """Return the widest floating-point type of the arrays; lists and whole numbers count as PyTorch's default."""
    found = [dtype for one in given if (dtype := _floating(one)) is not None]
    return reduce(torch.promote_types, found) if found else torch.get_default_dtype()


def _floating(value: Any) -> torch.dtype | None:
    if isinstance(value, Tensor):
        return value.dtype if value.is_floating_point() else None
    if isinstance(value, list | tuple):
        return torch.get_default_dtype()
    dtype = np.asarray(value).dtype
    return {2: torch.float16, 4: torch.float32}.get(dtype.itemsize, torch.float64) if dtype.kind == "f" else None
