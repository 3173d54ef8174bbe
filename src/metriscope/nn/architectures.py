"""Two-layer networks by name: each variant is a row of a table and builds a plain ``nn.Sequential``.

Axes: ``d`` input features, ``k`` hidden units, ``c`` outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from metriscope.common.validation import integer, one_of
from metriscope.nn.activations import activation_row
from metriscope.nn.heads import HEADS
from metriscope.nn.layers import Neg, fresh_linear

__all__ = ["ARCHITECTURES", "Architecture", "architectures", "build"]


@dataclass(frozen=True)
class Architecture:
    """One row of the table of networks: a linear layer, an activation, a head, and what follows it.

    Parameters
    ----------
    hidden : str
        The activation after the first layer, a key of ``ACTIVATIONS``.
    output : str or None
        The activation after the head.
    negate : bool
        Whether outputs change their sign at the end, so that the smallest distance becomes the largest output.
    head : str
        The last layer, a key of ``HEADS``.
    bias : bool
        Whether a linear head has a bias; distances to prototypes have none.

    Examples
    --------
    >>> ARCHITECTURES["abs2-neg"]
    Architecture(hidden='abs', output='abs', negate=True, head='linear', bias=False)
    """

    hidden: str
    output: str | None = None
    negate: bool = False
    head: str = "linear"
    bias: bool = False


ARCHITECTURES = {
    "relu": Architecture(hidden="relu"),
    "abs": Architecture(hidden="abs"),
    "relu2": Architecture(hidden="relu", output="relu"),
    "abs2": Architecture(hidden="abs", output="abs"),
    "relu2-neg": Architecture(hidden="relu", output="relu", negate=True),
    "abs2-neg": Architecture(hidden="abs", output="abs", negate=True),
    "relu-bias": Architecture(hidden="relu", bias=True),
    "abs-bias": Architecture(hidden="abs", bias=True),
    "relu2-bias": Architecture(hidden="relu", output="relu", bias=True),
    "abs2-bias": Architecture(hidden="abs", output="abs", bias=True),
    "relu2-neg-bias": Architecture(hidden="relu", output="relu", negate=True, bias=True),
    "abs2-neg-bias": Architecture(hidden="abs", output="abs", negate=True, bias=True),
    "relu-l2": Architecture(hidden="relu", head="offset-l2"),
    "relu-l2-neg": Architecture(hidden="relu", head="offset-l2", negate=True),
    "abs-l2": Architecture(hidden="abs", head="offset-l2"),
    "abs-l2-neg": Architecture(hidden="abs", head="offset-l2", negate=True),
    # As in the author's code, where alpha weighs the squared difference and not the difference.
    "relu-l2-code": Architecture(hidden="relu", head="offset-l2-code"),
    "relu-l2-neg-code": Architecture(hidden="relu", head="offset-l2-code", negate=True),
    "abs-l2-code": Architecture(hidden="abs", head="offset-l2-code"),
    "abs-l2-neg-code": Architecture(hidden="abs", head="offset-l2-code", negate=True),
    # Smooth activations under the same constraints.
    **{
        f"{name}{suffix}": Architecture(hidden=name, output=name if suffix else None, negate=suffix == "2-neg")
        for name in ("gelu", "silu", "softplus", "tanh", "elu")
        for suffix in ("", "2", "2-neg")
    },
}


def architectures() -> dict[str, tuple[str, ...]]:
    """Return the names of all networks with their layers, first to last.

    Returns
    -------
    dict of str to tuple of str
        The names that :func:`build` takes, and the layers of each.

    Examples
    --------
    >>> architectures()["abs2-neg"]
    ('Linear', 'Abs', 'Linear (no bias)', 'Abs', 'Neg')
    """
    return {name: _describe(row) for name, row in ARCHITECTURES.items()}


def build(
    name: str, in_features: int, hidden: int, out_features: int, generator: torch.Generator | None = None
) -> nn.Sequential:
    """Return a network by name, with PyTorch's default initialization.

    Parameters
    ----------
    name : str
        A name that :func:`architectures` lists.
    in_features : int
        The number of input features.
    hidden : int
        The number of hidden units.
    out_features : int
        The number of outputs.
    generator : torch.Generator or None
        The source of all random values; None for PyTorch's global generator. The first layer is drawn first, so
        networks of the same sizes that use the same stream start with the same first layer.

    Returns
    -------
    nn.Sequential
        The network.

    Raises
    ------
    ValueError
        If the name is unknown, or a size is not a positive integer.

    Examples
    --------
    >>> build("relu2-neg", in_features=784, hidden=128, out_features=10)
    Sequential(
      (0): Linear(in_features=784, out_features=128, bias=True)
      (1): ReLU()
      (2): Linear(in_features=128, out_features=10, bias=False)
      (3): ReLU()
      (4): Neg()
    )
    """
    row = ARCHITECTURES[one_of(name, "name", ARCHITECTURES)]
    in_features, hidden = integer(in_features, "in_features"), integer(hidden, "hidden")
    out_features = integer(out_features, "out_features")
    first = fresh_linear(in_features, hidden, generator=generator)
    head = HEADS[row.head].make(hidden, out_features, row.bias, generator)
    tail = [activation_row(row.output).module()] if row.output else []
    return nn.Sequential(first, activation_row(row.hidden).module(), head, *tail, *[Neg()] * row.negate)


def _describe(row: Architecture) -> tuple[str, ...]:
    activations = [activation_row(name).module.__name__ for name in (row.hidden, row.output) if name]
    head = HEADS[row.head].title + (" (no bias)" if row.head == "linear" and not row.bias else "")
    return ("Linear", activations[0], head, *activations[1:], *["Neg"] * row.negate)
