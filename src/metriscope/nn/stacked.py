"""Many networks at once: their parameters stacked along a first axis, and one batched forward pass.

Axes: ``s`` networks, ``n`` points, ``d`` features.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, vmap

from metriscope.common.validation import described, instance, integer, require_tensors

__all__ = ["stack_state", "stacked_forward", "unstack"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def stack_state(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Return the states of several networks, stacked along a new first axis and detached.

    Parameters
    ----------
    modules : sequence of nn.Module
        Networks with the same layers.

    Returns
    -------
    dict of str to Tensor
        One tensor of shape (networks, ...) per entry of ``state_dict``.

    Raises
    ------
    ValueError
        If there are no modules, or their layers differ.

    Examples
    --------
    >>> stack_state([nn.Linear(3, 2), nn.Linear(3, 2)])["weight"].shape
    torch.Size([2, 2, 3])
    """
    if isinstance(modules, Tensor) or not modules:
        raise ValueError("stack_state needs at least one module, got none")
    states = [instance(module, "modules", nn.Module).state_dict() for module in modules]
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in states]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(f"modules must have the same layers; module {index} has {shape}, module 0 {shapes[0]}")
    return {name: torch.stack([state[name] for state in states]) for name in states[0]}


def unstack(template: ModuleT, state: Mapping[str, Tensor], index: int) -> ModuleT:
    """Return one network of a stack, as a copy of ``template`` with its state.

    Parameters
    ----------
    template : nn.Module
        A network with the same layers.
    state : mapping of str to Tensor
        A stacked state; see :func:`stack_state`.
    index : int
        Which network; negative numbers count from the end.

    Returns
    -------
    nn.Module
        The network.

    Raises
    ------
    ValueError
        If there is no such network in the stack.

    Examples
    --------
    >>> layers = [nn.Linear(3, 2), nn.Linear(3, 2)]
    >>> bool(unstack(layers[0], stack_state(layers), 1).weight.equal(layers[1].weight))
    True
    """
    size, index = _stack_size(state), integer(index, "index", least=None)
    if not -size <= index < size:
        raise ValueError(f"the stack holds {size} networks, so there is no network {described(index)}")
    module = copy.deepcopy(template)
    module.load_state_dict({name: value[index] for name, value in state.items()})
    return module


def stacked_forward(template: nn.Module) -> Callable[[Mapping[str, Tensor], Tensor], Tensor]:
    """Return a function that runs a whole stack of networks at once.

    Parameters
    ----------
    template : nn.Module
        A network with the same layers; its values are not used.

    Returns
    -------
    callable
        Takes a stacked state and points, of shape (n, d) for all networks or (s, n, d) with one set per network, and
        returns outputs of shape (s, n, ...).

    Raises
    ------
    ValueError
        When the returned function is called with points of another shape.

    Examples
    --------
    >>> layers = [nn.Linear(3, 2) for _ in range(4)]
    >>> stacked_forward(layers[0])(stack_state(layers), torch.zeros(5, 3)).shape
    torch.Size([4, 5, 2])
    """
    # On the meta device the copy holds shapes but no values, so none can leak into a result.
    skeleton = copy.deepcopy(template).to("meta")

    def one(state: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(skeleton, state, (x,), strict=True)

    def forward(
        state: Mapping[str, Tensor], x: Float[Tensor, "n d"] | Float[Tensor, "s n d"]
    ) -> Float[Tensor, "s n *out"]:
        require_tensors(x=x)
        size = _stack_size(state)
        if x.ndim not in (2, 3) or (x.ndim == 3 and x.shape[0] != size):
            shapes = f"(n, d) or ({size}, n, d)"
            raise ValueError(f"points for {size} networks must have the shape {shapes}, got {tuple(x.shape)}")
        return vmap(one, in_dims=(0, 0 if x.ndim == 3 else None))(dict(state), x)

    return forward


def _stack_size(state: Mapping[str, Tensor]) -> int:
    sizes = {value.shape[0] if value.ndim else 0 for value in state.values()}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"all entries of a stacked state must hold the same number of networks, got {sorted(sizes)}")
    return sizes.pop()
