"""Last layers of classifiers that measure distances; each returns one logit per class, and the largest wins.

Axes: ``n`` points, ``d`` features, ``c`` classes. All heads are made as ``Head(in_features, out_features)``, work in
any training loop, and can start from the features and labels of some points (:func:`metriscope.nn.init_head_`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.common.validation import check_shape, integer, one_of, require_tensors
from metriscope.functional import norm
from metriscope.nn.layers import Neg, OffsetL2, draw_, fresh_linear

__all__ = ["HEADS", "CosineHead", "Head", "MahalanobisHead", "NearestMean", "RBFHead", "build_head"]


class Whereabouts(TypedDict):
    """Where parameters are made."""

    device: torch.device | str | None
    dtype: torch.dtype | None


class _Prototypes(nn.Module):
    """What heads have in common: sizes, and one prototype per class, drawn from a normal distribution."""

    in_features: int
    out_features: int

    def __init__(
        self, sizes: tuple[int, int], spread: float, generator: torch.Generator | None, place: Whereabouts
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = integer(sizes[0], "in_features"), integer(sizes[1], "out_features")
        self.mu = nn.Parameter(torch.empty(self.out_features, self.in_features, **place))
        draw_(self.mu, lambda mu: mu.normal_(0.0, spread, generator=generator), generator)

    def _check(self, x: Tensor) -> None:
        require_tensors(x=x)
        check_shape(tuple(x.shape), "x", f"* {self.in_features}", None, empty=True)

    def extra_repr(self) -> str:
        """Return the sizes."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


class RBFHead(_Prototypes):
    """Radial basis functions around prototypes: the logit of a class is ``-exp(log_gamma_c) ‖x - mu_c‖²``.

    Prototypes start near the origin, with a standard deviation of 0.1, and the widths at ``gamma = 1 / in_features``.

    Parameters
    ----------
    in_features : int
        The number of features of a point.
    out_features : int
        The number of classes.
    generator : torch.Generator or None
        Where the prototypes are drawn from; None for PyTorch's global generator.
    device : torch.device, str or None
        The device of the parameters; None for PyTorch's default.
    dtype : torch.dtype or None
        The precision of the parameters; None for PyTorch's default.

    Raises
    ------
    ValueError
        If a size is not a positive integer.

    Examples
    --------
    >>> head = RBFHead(2, 3)
    >>> head(torch.zeros(5, 2)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: Whereabouts = {"device": device, "dtype": dtype}
        super().__init__((in_features, out_features), 0.1, generator, place)
        self.log_gamma = nn.Parameter(torch.full((out_features,), -math.log(in_features), **place))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n c"]:
        """Return the logit of each class."""
        self._check(x)
        return -self.log_gamma.exp() * (x.unsqueeze(-2) - self.mu).square().sum(-1)


class MahalanobisHead(_Prototypes):
    """Gaussian classes: the logit is the log-density of a Gaussian with learned mean, factor and weight.

    ``logit_c = -‖L_c (x - mu_c)‖² / 2 + log |det L_c| + bias_c``, where ``L_c`` is lower triangular with a positive
    diagonal. With ``shared=True`` all classes have one factor, as in linear discriminant analysis.

    Parameters
    ----------
    in_features : int
        The number of features of a point.
    out_features : int
        The number of classes.
    shared : bool
        Whether all classes share one factor.
    generator : torch.Generator or None
        Where the means are drawn from; None for PyTorch's global generator.
    device : torch.device, str or None
        The device of the parameters; None for PyTorch's default.
    dtype : torch.dtype or None
        The precision of the parameters; None for PyTorch's default.

    Raises
    ------
    ValueError
        If a size is not a positive integer.

    Examples
    --------
    >>> head = MahalanobisHead(2, 3)
    >>> head(torch.zeros(5, 2)).shape, head.factor().shape
    (torch.Size([5, 3]), torch.Size([3, 2, 2]))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        shared: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: Whereabouts = {"device": device, "dtype": dtype}
        super().__init__((in_features, out_features), 0.1, generator, place)
        self.shared, factors = shared, 1 if shared else out_features
        self.below = nn.Parameter(torch.zeros(factors, in_features, in_features, **place))
        self.log_diagonal = nn.Parameter(torch.zeros(factors, in_features, **place))
        self.bias = nn.Parameter(torch.zeros(out_features, **place))

    def factor(self) -> Float[Tensor, "c d d"]:
        """Return the lower triangular factors, one per class, or one for all."""
        return self.below.tril(-1) + torch.diag_embed(self.log_diagonal.exp())

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n c"]:
        """Return the logit of each class."""
        self._check(x)
        flat = x.reshape(-1, x.shape[-1])
        # Points by classes: (c, n, d) @ (c, d, d). Differences come first, so that no digits cancel.
        white = (flat - self.mu.unsqueeze(1)) @ self.factor().mT
        logits = -white.square().sum(-1).mT / 2 + self.log_diagonal.sum(-1) + self.bias
        return logits.reshape(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """Return the sizes, and whether the factor is shared."""
        return f"{super().extra_repr()}, shared={self.shared}"


class CosineHead(_Prototypes):
    """Directions as prototypes: the logit is the cosine between point and prototype, times a learned scale.

    Parameters
    ----------
    in_features : int
        The number of features of a point.
    out_features : int
        The number of classes.
    generator : torch.Generator or None
        Where the prototypes are drawn from; None for PyTorch's global generator.
    device : torch.device, str or None
        The device of the parameters; None for PyTorch's default.
    dtype : torch.dtype or None
        The precision of the parameters; None for PyTorch's default.

    Raises
    ------
    ValueError
        If a size is not a positive integer.

    Examples
    --------
    >>> head = CosineHead(2, 3)
    >>> bool((head(torch.ones(1, 2)) - head(torch.full((1, 2), 7.0))).abs().max() < 1e-5)
    True
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: Whereabouts = {"device": device, "dtype": dtype}
        super().__init__((in_features, out_features), 1.0, generator, place)
        # Cosines are at most 1: without a scale, softmax over many classes could not come close to probability 1.
        self.log_scale = nn.Parameter(torch.tensor(math.log(10.0), **place))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n c"]:
        """Return the logit of each class."""
        self._check(x)
        return self.log_scale.exp() * F.linear(F.normalize(x, dim=-1), F.normalize(self.mu, dim=-1))


class NearestMean(_Prototypes):
    """Class means that are set and not trained: the logit is minus the distance to the mean of a class.

    Only the temperature, ``exp(log_scale)``, is trained. Means are random until
    :func:`metriscope.nn.init_head_` sets them.

    Parameters
    ----------
    in_features : int
        The number of features of a point.
    out_features : int
        The number of classes.
    generator : torch.Generator or None
        Where the means are drawn from before they are set; None for PyTorch's global generator.
    device : torch.device, str or None
        The device of the means; None for PyTorch's default.
    dtype : torch.dtype or None
        The precision of the means; None for PyTorch's default.

    Raises
    ------
    ValueError
        If a size is not a positive integer.

    Examples
    --------
    >>> from metriscope.nn import init_head_
    >>> head = init_head_(NearestMean(1, 2), torch.tensor([[0.0], [2.0], [8.0]]), [0, 0, 1])
    >>> head(torch.tensor([[2.0]])).tolist()
    [[-1.0, -6.0]]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        place: Whereabouts = {"device": device, "dtype": dtype}
        super().__init__((in_features, out_features), 0.1, generator, place)
        self.mu.requires_grad_(False)
        self.log_scale = nn.Parameter(torch.tensor(0.0, **place))

    def forward(self, x: Float[Tensor, "*n d"]) -> Float[Tensor, "*n c"]:
        """Return the logit of each class."""
        self._check(x)
        return -self.log_scale.exp() * norm(x.unsqueeze(-2) - self.mu)


@dataclass(frozen=True)
class Head:
    """One row of the table of heads: how the last layer of a network is made.

    Parameters
    ----------
    title : str
        The name of the layer.
    make : callable
        Takes the number of features, the number of outputs, whether there is a bias, and a generator or None;
        returns the layer.
    distance : bool
        Whether the outputs are distances, the smallest of which wins; otherwise they are logits.

    Examples
    --------
    >>> HEADS["offset-l2"].make(4, 2, False, None)
    OffsetL2(in_features=4, out_features=2, form='formula')
    """

    title: str
    make: Callable[[int, int, bool, torch.Generator | None], nn.Module]
    distance: bool = False


HEADS: dict[str, Head] = {
    "linear": Head("Linear", fresh_linear),
    "offset-l2": Head("OffsetL2", lambda d, c, bias, g: OffsetL2(d, c, generator=g), distance=True),
    "offset-l2-code": Head(
        "OffsetL2 (squared weights)",
        lambda d, c, bias, g: OffsetL2(d, c, "squared-weights", generator=g),
        distance=True,
    ),
    "offset-l1": Head("OffsetL1", lambda d, c, bias, g: OffsetL2(d, c, p=1, generator=g), distance=True),
    "offset-l4": Head("OffsetL4", lambda d, c, bias, g: OffsetL2(d, c, p=4, generator=g), distance=True),
    "rbf": Head("RBF", lambda d, c, bias, g: RBFHead(d, c, generator=g)),
    "mahalanobis": Head("Mahalanobis", lambda d, c, bias, g: MahalanobisHead(d, c, generator=g)),
    "mahalanobis-shared": Head(
        "Mahalanobis (shared factor)", lambda d, c, bias, g: MahalanobisHead(d, c, shared=True, generator=g)
    ),
    "cosine": Head("Cosine", lambda d, c, bias, g: CosineHead(d, c, generator=g)),
    "nearest-mean": Head("Nearest class mean", lambda d, c, bias, g: NearestMean(d, c, generator=g)),
}


def build_head(name: str, in_features: int, out_features: int, generator: torch.Generator | None = None) -> nn.Module:
    """Return a head by name, which gives one logit per class, ready for cross-entropy.

    Distances are negated, so that the nearest prototype has the largest logit.

    Parameters
    ----------
    name : str
        A key of ``HEADS``.
    in_features : int
        The number of features that the backbone gives.
    out_features : int
        The number of classes.
    generator : torch.Generator or None
        Where the parameters are drawn from; None for PyTorch's global generator.

    Returns
    -------
    nn.Module
        The head.

    Raises
    ------
    ValueError
        If the name is unknown, or a size is not a positive integer.

    Examples
    --------
    >>> build_head("offset-l2", 64, 10)
    Sequential(
      (0): OffsetL2(in_features=64, out_features=10, form='formula')
      (1): Neg()
    )
    """
    row = HEADS[one_of(name, "name", HEADS)]
    head = row.make(integer(in_features, "in_features"), integer(out_features, "out_features"), True, generator)
    return nn.Sequential(head, Neg()) if row.distance else head
