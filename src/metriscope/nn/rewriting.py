"""Exact rewriting of networks through ``Abs(z) = ReLU(z) + ReLU(-z)``, in both directions.

Axes: ``d`` features, ``k`` units, ``o`` outputs of the layer that follows. An activation is rewritten if it directly
follows a ``Linear`` in an ``nn.Sequential``, at any depth, or is inside ``Mahalanobis``. Anywhere else it cannot be
rewritten, and that is an error.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metriscope.common.validation import instance
from metriscope.nn.activations import ACTIVATIONS
from metriscope.nn.layers import Mahalanobis, empty_linear

__all__ = ["abs_to_relu", "relu_to_abs"]

Named: TypeAlias = tuple[str, nn.Module]


@dataclass(frozen=True)
class _Rule:
    """One direction of rewriting: the activation that is replaced, its replacement, and how its neighbors change."""

    source: str
    target: str
    in_sequence: Callable[[nn.Linear, nn.Linear | None, str], tuple[nn.Linear, nn.Linear | None]]
    under_norm: Callable[[nn.Linear, str], nn.Linear]

    def applies_to(self, module: nn.Module) -> bool:
        return isinstance(module, ACTIVATIONS[self.source].module)


def abs_to_relu(model: nn.Module) -> nn.Module:
    """Return a network that computes the same with two mirrored ReLU units in place of each Abs unit.

    If a ``Linear`` follows, its weights are used for both units of a pair. Otherwise a ``Linear`` that does not train
    is inserted to sum each pair.

    Parameters
    ----------
    model : nn.Module
        A network with Abs layers; it is not changed.

    Returns
    -------
    nn.Module
        The rewritten copy.

    Raises
    ------
    ValueError
        If the network has no Abs layer, or one that does not follow a ``Linear`` in an ``nn.Sequential``.

    Examples
    --------
    >>> from metriscope.nn import Abs
    >>> abs_to_relu(nn.Sequential(nn.Linear(3, 2), Abs(), nn.Linear(2, 1)))
    Sequential(
      (0): Linear(in_features=3, out_features=4, bias=True)
      (1): ReLU()
      (2): Linear(in_features=4, out_features=1, bias=True)
    )
    """
    return _rewrite_model(model, _Rule("abs", "relu", _split_in_sequence, _split_under_norm))


def relu_to_abs(model: nn.Module) -> nn.Module:
    """Return a network that computes the same with one Abs unit in place of each mirrored pair of ReLU units.

    The weights and biases of a mirrored pair are exact negatives of each other, and its outgoing weights are equal.

    Parameters
    ----------
    model : nn.Module
        A network with ReLU layers, all of whose units are in mirrored pairs; it is not changed.

    Returns
    -------
    nn.Module
        The rewritten copy.

    Raises
    ------
    ValueError
        If the network has no ReLU layer, one that does not follow a ``Linear`` in an ``nn.Sequential``, or one with a
        unit that is not in a mirrored pair.

    Examples
    --------
    >>> from metriscope.nn import Abs
    >>> model = nn.Sequential(nn.Linear(3, 2), Abs(), nn.Linear(2, 1))
    >>> relu_to_abs(abs_to_relu(model))
    Sequential(
      (0): Linear(in_features=3, out_features=2, bias=True)
      (1): Abs()
      (2): Linear(in_features=2, out_features=1, bias=True)
    )
    """
    return _rewrite_model(model, _Rule("relu", "abs", _merge_in_sequence, _merge_under_norm))


def _rewrite_model(model: nn.Module, rule: _Rule) -> nn.Module:
    if not any(rule.applies_to(module) for module in instance(model, "model", nn.Module).modules()):
        kind = ACTIVATIONS[rule.source].module.__name__
        raise ValueError(f"{type(model).__name__} has no {kind} layer to rewrite")
    return _rewrite(copy.deepcopy(model), "", rule)


def _rewrite(module: nn.Module, path: str, rule: _Rule) -> nn.Module:
    if rule.applies_to(module):
        kind = type(module).__name__
        raise ValueError(f"{kind} layer {path!r} cannot be rewritten: it does not follow a Linear in a Sequential")
    if isinstance(module, Mahalanobis):
        return _rewrite_mahalanobis(module, path, rule)
    if type(module).forward is nn.Sequential.forward:
        return _rewrite_sequential(module, path, rule)
    # named_children() would skip a child that is used under two names.
    for name, child in module._modules.items():
        if child is not None:
            module.add_module(name, _rewrite(child, _join(path, name), rule))
    return module


def _rewrite_mahalanobis(module: Mahalanobis, path: str, rule: _Rule) -> Mahalanobis:
    if module.activation_name != rule.source:
        return module
    module.linear = rule.under_norm(module.linear, _join(path, "activation"))
    module.activation = ACTIVATIONS[rule.target].module()
    module.activation_name = rule.target
    return module


def _rewrite_sequential(module: nn.Module, path: str, rule: _Rule) -> nn.Sequential:
    waiting: list[Named] = [(name, child) for name, child in module._modules.items() if child is not None]
    numbered = [name for name, _ in waiting] == [str(i) for i in range(len(waiting))]
    done: list[Named] = []
    while waiting:
        name, layer = waiting.pop(0)
        before = done[-1][1] if done else None
        if not (rule.applies_to(layer) and isinstance(before, nn.Linear)):
            done.append((name, _rewrite(layer, _join(path, name), rule)))
            continue
        after_name, after = _pop_linear(waiting, default_name=f"{name}_sum")
        linear, after = rule.in_sequence(before, after, _join(path, name))
        done[-1:] = [(done[-1][0], linear), (name, ACTIVATIONS[rule.target].module())]
        waiting[:0] = [(after_name, after)] if after is not None else []
    rewritten = nn.Sequential(*[layer for _, layer in done]) if numbered else nn.Sequential(OrderedDict(done))
    # train() would also set the layers inside, which keep the mode they had.
    rewritten.training = module.training
    return rewritten


def _pop_linear(waiting: list[Named], default_name: str) -> tuple[str, nn.Linear | None]:
    name, layer = waiting[0] if waiting else (default_name, None)
    if not isinstance(layer, nn.Linear):
        return default_name, None
    waiting.pop(0)
    return name, layer


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _linear_like(source: nn.Linear, weight: Float[Tensor, "k d"], bias: Tensor | None) -> nn.Linear:
    """Return a linear layer with these values that requires gradients exactly where ``source`` does."""
    linear = empty_linear(weight.shape[1], weight.shape[0], bias is not None, weight.device, weight.dtype)
    linear.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    linear.weight.requires_grad_(source.weight.requires_grad)
    if bias is not None:
        linear.bias.requires_grad_(source.bias.requires_grad)
    return linear.train(source.training)


def _split_under_norm(linear: nn.Linear, path: str) -> nn.Linear:
    bias = None if linear.bias is None else torch.cat([linear.bias, -linear.bias])
    return _linear_like(linear, torch.cat([linear.weight, -linear.weight]), bias)


def _split_in_sequence(before: nn.Linear, after: nn.Linear | None, path: str) -> tuple[nn.Linear, nn.Linear]:
    if after is not None:
        summing = _linear_like(after, torch.cat([after.weight, after.weight], dim=1), after.bias)
    else:
        identity = torch.eye(before.out_features).to(before.weight)
        summing = _linear_like(before, torch.cat([identity, identity], dim=1), None).requires_grad_(False)
    return _split_under_norm(before, path), summing


def _merge_under_norm(linear: nn.Linear, path: str) -> nn.Linear:
    # The norm adds the squares of all units, so there are no outgoing weights to compare.
    return _keep_units(linear, _first_of_pairs(linear, linear.weight[:, :0], path))


def _merge_in_sequence(before: nn.Linear, after: nn.Linear | None, path: str) -> tuple[nn.Linear, nn.Linear | None]:
    if after is None:
        raise ValueError(f"ReLU layer {path!r} cannot be rewritten: no Linear after it sums its mirrored pairs")
    kept = _first_of_pairs(before, after.weight.mT, path)
    merged = _linear_like(after, after.weight[:, kept], after.bias)
    return _keep_units(before, kept), None if _does_nothing(merged) else merged


def _keep_units(linear: nn.Linear, units: list[int]) -> nn.Linear:
    return _linear_like(linear, linear.weight[units], None if linear.bias is None else linear.bias[units])


def _does_nothing(linear: nn.Linear) -> bool:
    """Return whether this is a fixed identity: a summing layer with no pairs left to sum."""
    if linear.bias is not None or linear.weight.requires_grad or linear.in_features != linear.out_features:
        return False
    return bool(linear.weight.equal(torch.eye(linear.in_features).to(linear.weight)))


def _first_of_pairs(linear: nn.Linear, outgoing: Float[Tensor, "k o"], path: str) -> list[int]:
    """Return the first unit of each mirrored pair; an error names the units without a mirror."""
    bias = linear.weight[:, :0] if linear.bias is None else linear.bias[:, None]
    incoming = torch.cat([linear.weight, bias], dim=1)
    waiting: dict[bytes, list[int]] = defaultdict(list)
    firsts = []
    keys = zip(_row_keys(incoming, outgoing), _row_keys(-incoming, outgoing), strict=True)
    for unit, (key, mirrored_key) in enumerate(keys):
        if waiting[mirrored_key]:
            firsts.append(waiting[mirrored_key].pop(0))
        else:
            waiting[key].append(unit)
    unpaired = sorted(unit for units in waiting.values() for unit in units)
    if unpaired:
        raise ValueError(f"ReLU layer {path!r} is not made of mirrored pairs: {_name_units(unpaired)} without mirror")
    return sorted(firsts)


def _row_keys(*parts: Tensor) -> list[bytes]:
    # Adding zero gives 0.0 and -0.0, which are equal, the same bytes.
    rows = torch.cat(parts, dim=1).detach().double().cpu() + 0.0
    return [row.tobytes() for row in rows.numpy()]


def _name_units(units: list[int], most: int = 10) -> str:
    listed = ", ".join(str(unit) for unit in units[:most])
    more = f" and {len(units) - most} more" if len(units) > most else ""
    return f"unit{'s' if len(units) > 1 else ''} {listed}{more}"
