"""Penalties on the directions of a layer's units, to be added to any loss: orthogonality, whitening, spread.

Axes: ``n`` points, ``d`` features, ``k`` units. Each function returns one number, zero if there is
nothing to penalize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from metriscope.common.validation import check_shape, number, one_of, require_tensors

__all__ = [
    "PENALTIES", "Penalty", "double_soft_orthogonality", "hyperplane_spread", "soft_orthogonality", "srip", "whitening",
]  # fmt: skip

# Steps of the power iteration: the published method takes two, which gives a lower bound of the largest eigenvalue.
POWER_STEPS = 8
Kind = Literal["soft-orthogonality", "double-soft-orthogonality", "srip", "whitening", "spread"]


def _check_matrix(weight: Tensor) -> None:
    require_tensors(weight=weight)
    check_shape(tuple(weight.shape), "weight", "units features", None, empty=True)


def _excess(weight: Float[Tensor, "k d"]) -> Float[Tensor, "m m"]:
    """Return the smaller Gram matrix minus the identity: rows cannot be orthogonal if they outnumber the features."""
    _check_matrix(weight)
    rows = weight if weight.shape[0] <= weight.shape[1] else weight.mT
    return rows @ rows.mT - torch.eye(len(rows), device=weight.device, dtype=weight.dtype)


def soft_orthogonality(weight: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Return ``‖W Wᵀ - 1‖²``, or ``‖Wᵀ W - 1‖²`` if there are more units than features.

    Parameters
    ----------
    weight : Tensor of shape (k, d)
        One row per unit.

    Returns
    -------
    Tensor
        One number, zero for orthonormal rows (or columns).

    Examples
    --------
    >>> soft_orthogonality(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor(2.)
    """
    return _excess(weight).square().sum()


def double_soft_orthogonality(weight: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Return ``‖W Wᵀ - 1‖² + ‖Wᵀ W - 1‖²`` (Bansal, Chen & Wang 2018).

    Parameters
    ----------
    weight : Tensor of shape (k, d)
        One row per unit.

    Returns
    -------
    Tensor
        One number; zero only for square orthogonal matrices, and at least ``|k - d|``.

    Examples
    --------
    >>> double_soft_orthogonality(torch.eye(2, 3))
    tensor(1.)
    """
    # Both Gram matrices have the same non-zero eigenvalues; the larger one has |k - d| zeros more.
    return 2 * soft_orthogonality(weight) + abs(weight.shape[0] - weight.shape[1])


def srip(weight: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Return the largest absolute eigenvalue of ``W Wᵀ - 1``, the spectral restricted isometry property.

    Bansal, Chen & Wang, "Can we gain more from orthogonality regularizations in training deep networks?" (2018). It is
    found by power iteration from a fixed start, through whose last step gradients flow.

    Parameters
    ----------
    weight : Tensor of shape (k, d)
        One row per unit.

    Returns
    -------
    Tensor
        One number, zero for orthonormal rows.

    Examples
    --------
    >>> round(float(srip(torch.diag(torch.tensor([3.0, 1.0])))), 4)
    8.0
    """
    excess = _excess(weight)
    vector = torch.linspace(1.0, 2.0, len(excess), device=weight.device, dtype=weight.dtype)
    with torch.no_grad():
        for _ in range(POWER_STEPS):
            vector = F.normalize(excess @ vector, dim=0, eps=torch.finfo(weight.dtype).tiny)
    # For a unit eigenvector v of E, |vᵀ E v| is the absolute eigenvalue, and has its gradient.
    return (vector @ excess @ vector).abs()


def whitening(z: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Return the mean squared difference between the covariance of activations and the identity.

    Parameters
    ----------
    z : Tensor of shape (n, ..., k)
        Activations of at least two points; axes between the first and the last count as further points.

    Returns
    -------
    Tensor
        One number, zero for uncorrelated units of variance 1.

    Raises
    ------
    ValueError
        If there are fewer than two points.

    Examples
    --------
    >>> whitening(torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]]))
    tensor(0.)
    """
    require_tensors(z=z)
    check_shape(tuple(z.shape), "z", "* units", None, empty=True)
    flat = z.reshape(-1, z.shape[-1])
    if len(flat) < 2:
        raise ValueError(f"a covariance needs at least two points, got {len(flat)}")
    centered = flat - flat.mean(0)
    cov = centered.mT @ centered / len(flat)
    return (cov - torch.eye(len(cov), device=z.device, dtype=z.dtype)).square().mean()


def hyperplane_spread(weight: Float[Tensor, "k d"]) -> Float[Tensor, ""]:
    """Return the mean squared cosine between the directions of different units.

    Lengths do not matter. Opposite directions count as the same, because their hyperplanes are parallel.

    Parameters
    ----------
    weight : Tensor of shape (k, d)
        One row per unit.

    Returns
    -------
    Tensor
        One number from 0, for orthogonal directions, to 1, for parallel ones.

    Examples
    --------
    >>> hyperplane_spread(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
    tensor(1.)
    """
    _check_matrix(weight)
    rows = F.normalize(weight, dim=-1)
    count = len(rows)
    if count < 2:
        return rows.sum() * 0
    return ((rows @ rows.mT).square().sum() - rows.square().sum()) / (count * (count - 1))


@dataclass(frozen=True)
class _Row:
    """One penalty: its function, and whether it takes a layer's weights or its outputs."""

    function: Callable[[Tensor], Tensor]
    of_outputs: bool = False


PENALTIES: dict[str, _Row] = {
    "soft-orthogonality": _Row(soft_orthogonality),
    "double-soft-orthogonality": _Row(double_soft_orthogonality),
    "srip": _Row(srip),
    "whitening": _Row(whitening, of_outputs=True),
    "spread": _Row(hyperplane_spread),
}


@dataclass(frozen=True)
class Penalty:
    """A penalty on the layers of any network, for any training loop.

    Inside the ``with`` block the network is watched; afterwards nothing is left on it. Convolutions count as linear
    layers over patches: one row per channel, one point per position.

    Parameters
    ----------
    kind : {"soft-orthogonality", "double-soft-orthogonality", "srip", "whitening", "spread"}
        What is penalized; all but ``"whitening"`` depend on weights alone.
    strength : float
        Factor of the penalty, at least 0.
    layers : sequence of str or None
        Names of the layers as in ``model.named_modules()``; None for every linear layer and convolution, except one
        that is the last layer with parameters: its outputs are logits.

    Raises
    ------
    ValueError
        If the kind is unknown or the strength negative, and when the network has no such layer.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> x, y = torch.ones(5, 4), torch.zeros(5, dtype=torch.long)
    >>> with Penalty("srip", 0.1).on(model) as extra:
    ...     loss = F.cross_entropy(model(x), y) + extra()
    >>> loss.backward()
    """

    kind: Kind
    strength: float
    layers: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        one_of(self.kind, "kind", PENALTIES)
        number(self.strength, "strength", "[0, inf)")

    @contextmanager
    def on(self, model: nn.Module) -> Iterator[Callable[[], Tensor]]:
        """Watch a network, and yield a function that returns the penalty, averaged over the layers.

        Parameters
        ----------
        model : nn.Module
            The network; call it inside the block, before the penalty on outputs is asked for.

        Yields
        ------
        callable
            Takes nothing and returns ``strength`` times the penalty.

        Raises
        ------
        ValueError
            If the network has no such layer, or if the penalty needs outputs and the model was not called.

        Examples
        --------
        >>> with Penalty("spread", 1.0).on(nn.Sequential(nn.Linear(2, 1), nn.Linear(1, 1))) as extra:
        ...     float(extra().detach())
        0.0
        """
        row, chosen = PENALTIES[self.kind], self._chosen(model)
        outputs: dict[str, Tensor] = {}
        handles = [
            module.register_forward_hook(lambda m, _, out, name=name: outputs.update({name: _channels_last(m, out)}))
            for name, module in chosen.items()
            if row.of_outputs
        ]

        def value() -> Tensor:
            if row.of_outputs and len(outputs) < len(chosen):
                silent = ", ".join(name for name in chosen if name not in outputs)
                raise ValueError(f"the penalty {self.kind!r} needs outputs: call the model first (nothing of {silent})")
            weights = {name: module.weight.flatten(1) for name, module in chosen.items()}
            found = outputs if row.of_outputs else weights
            return self.strength * torch.stack([row.function(found[name]) for name in chosen]).mean()

        try:
            yield value
        finally:
            for handle in handles:
                handle.remove()

    def _chosen(self, model: nn.Module) -> dict[str, Any]:
        held = {name: m for name, m in model.named_modules() if list(m.parameters(recurse=False))}
        known = {name: m for name, m in held.items() if isinstance(m, _LAYERS)}
        names = [name for name in known if name != list(held)[-1]] if self.layers is None else list(self.layers)
        if missing := [name for name in names if name not in known]:
            listed = ", ".join(known) or "none"
            raise ValueError(f"the model has no linear layer or convolution named {missing[0]!r}; it has {listed}")
        if not names:
            raise ValueError("the model has no linear layer or convolution before the last layer; name the layers")
        return {name: known[name] for name in names}


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LAYERS = (nn.Linear, *_CONVOLUTIONS)


def _channels_last(module: nn.Module, outputs: Tensor) -> Tensor:
    return outputs.movedim(-1 - len(module.kernel_size), -1) if isinstance(module, _CONVOLUTIONS) else outputs
