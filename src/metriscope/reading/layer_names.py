"""The module that computes the input of each captured activation: ``fc1`` (Linear), not only ``relu()``.

The connections between modules are found from the tensors that they pass on. If an activation is a function, its signs
tell which module's output was its input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metriscope.common.model_state import Runner, in_eval_mode, random_states_kept
from metriscope.vq import Patterns, capture
from metriscope.vq.capture.batches import Reader, split
from metriscope.vq.capture.patterns import Layer

__all__ = ["LayerName", "activations_of", "layer_names", "plain_names"]

_LINEAR = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_TRACED = 8
# Signs that may differ: the same sums in batches of another size round differently.
_AGREEMENT = 0.99


@dataclass(frozen=True)
class LayerName:
    """The name of a captured layer on a page: the path and the type of the module that its signs come from.

    ``readable`` is the name of that module if it is linear or convolutional, otherwise empty; ``tokens`` says whether
    it has several rows per point, and ``outputs`` is the number of its outputs (rows times units) on a few points.

    Examples
    --------
    >>> str(LayerName("features.0", "Conv2d", "relu", "features.0"))
    '`features.0` (Conv2d)'
    """

    path: str
    type: str
    activation: str
    readable: str = ""
    tokens: bool = False
    outputs: int = 0

    def __str__(self) -> str:
        return f"`{self.path}` ({self.type})"

    @property
    def plain(self) -> str:
        """Return the name without marks."""
        return f"{self.path} ({self.type})"


def plain_names(patterns: Patterns) -> tuple[LayerName, ...]:
    """Return the names of layers whose network is not known: those of the activations."""
    return tuple(LayerName(layer.name, layer.kind, layer.kind) for layer in patterns.layers)


@dataclass
class _Call:
    name: str
    module: nn.Module
    given: Tensor | None
    returned: Tensor
    signs: np.ndarray


def layer_names(model: nn.Module, batch: Any, patterns: Patterns) -> tuple[LayerName, ...]:
    """Return the name of every captured layer; ``batch`` holds the first points of the patterns.

    >>> from metriscope.vq import capture
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> x = torch.ones(2, 2)
    >>> [str(name) for name in layer_names(net, x, capture(net, x))]
    ['`0` (Linear)']
    """
    few = next(split(batch, _TRACED))
    # Not the given patterns: their tokens or channels may be pooled.
    signs = capture(model, few) if any(layer.seen != "module" for layer in patterns.layers) else patterns[:0]
    bits = {layer.name: (layer, np.asarray(signs.layer(layer.name))) for layer in signs.layers}
    calls = _calls(model, few)
    found = [_producer(layer, bits.get(layer.name), calls) for layer in patterns.layers]
    names = [_name(layer, call) for layer, call in zip(patterns.layers, found, strict=True)]
    often = Counter(name.path for name in names)
    return tuple(
        replace(name, path=f"{name.path} → {layer.name}") if often[name.path] > 1 and name.path != layer.name else name
        for name, layer in zip(names, patterns.layers, strict=True)
    )


def activations_of(model: nn.Module, batch: Any, wanted: Sequence[str]) -> list[str]:
    """Return the activations that names or glob patterns match: by their own name, or by the name of the layer before.

    A name that matches nothing is returned unchanged, so that :func:`capture` raises its error.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2), nn.Tanh())
    >>> activations_of(net, torch.ones(2, 2), ["2", "1", "9"])
    ['3', '1', '9']
    """
    found = capture(model, next(split(batch, _TRACED)))
    paths = [
        (layer.name, name.path) for layer, name in zip(found.layers, layer_names(model, batch, found), strict=True)
    ]
    fitting = [[own for own, path in paths if _fits(own, one) or _fits(path, one)] or [one] for one in wanted]
    return list(dict.fromkeys(name for names in fitting for name in names))


def _fits(name: str, pattern: str) -> bool:
    # Equality first: names may contain the brackets of a glob pattern.
    return name == pattern or fnmatchcase(name, pattern)


def _name(layer: Layer, call: _Call | None) -> LayerName:
    if call is None or not call.name:
        return LayerName(layer.name, layer.kind, layer.kind)
    readable = call.name if isinstance(call.module, _LINEAR) else ""
    several, outputs = call.returned.ndim > 2, call.returned.numel()
    return LayerName(call.name, type(call.module).__name__, layer.kind, readable, several, outputs)


def _calls(model: nn.Module, batch: Any) -> list[_Call]:
    """Return the calls of all innermost modules, in order."""
    run, calls = Runner(model, None), list[_Call]()
    read = Reader(model, run.device)(batch)

    def note(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if isinstance(output, Tensor) and len(output) and not output.is_complex():
                # An activation may overwrite its input, so the signs are kept now.
                signs = (output.detach() >= 0).reshape(len(output), -1).cpu().numpy()
                calls.append(_Call(name, module, args[0] if args else None, output, signs))

        return hook

    leaves = [(name, one) for name, one in model.named_modules() if not any(True for _ in one.children())]
    handles = [
        one.register_forward_hook(note(name)) for name, one in leaves if not isinstance(one, torch.jit.ScriptModule)
    ]
    try:
        with random_states_kept(), in_eval_mode(model), torch.no_grad():
            run(*read.args, **read.kwargs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _producer(layer: Layer, whole: tuple[Layer, np.ndarray] | None, calls: Sequence[_Call]) -> _Call | None:
    """Return the call whose output a layer's signs are of: linear if only normalization lies between."""
    own = [at for at, call in enumerate(calls) if call.name == layer.name]
    known = layer.seen == "module" and len(own) == 1
    found = _giver(calls, own[0]) if known else None if whole is None else _by_signs(*whole, calls)
    if found is None:
        return None
    at = found
    while not isinstance(calls[at].module, _LINEAR):
        before = _giver(calls, at) if _passes(calls[at]) else None
        if before is None:
            return calls[found]
        at = before
    return calls[at]


def _passes(call: _Call) -> bool:
    return "Norm" in type(call.module).__name__ or isinstance(call.module, nn.Identity | nn.Dropout | nn.Dropout2d)


def _giver(calls: Sequence[_Call], at: int) -> int | None:
    """Return the last call before this one whose output is its input."""
    given = calls[at].given
    earlier = (k for k in range(at - 1, -1, -1) if calls[k].returned is given)
    return next(earlier, None) if given is not None else None


def _by_signs(layer: Layer, bits: np.ndarray, calls: Sequence[_Call]) -> int | None:
    """Return the first call whose signs are those of the layer at the points that were run."""
    first = bits[:, :: layer.bits_per_unit]
    shares = [float((call.signs == first).mean()) if call.signs.shape == first.shape else 0.0 for call in calls]
    best = int(np.argmax(shares)) if shares else 0
    return best if shares and shares[best] >= _AGREEMENT else None
