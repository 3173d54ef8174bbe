"""What every activation of a network returns for every point: one row of features per point and layer.

Axes: N points, K features. Positions of a convolution and tokens of a sequence are averaged. Layers are named as
:func:`metriscope.capture` names them: by their module, or by function and the module that calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from metriscope.reading.layer_inputs import ACTIVATION_FUNCTIONS, LayerSource

__all__ = ["batch_features", "layer_features"]

_CHANNELS_FIRST = (nn.Conv1d, nn.BatchNorm1d, nn.GroupNorm, nn.InstanceNorm1d)


class _Values(TorchFunctionMode):
    """Collects what known activation functions return, and in which module they were called."""

    def __init__(self, model: nn.Module, points: int) -> None:
        super().__init__()
        self.found: dict[str, Float[Tensor, "n k"]] = {}
        self._points, self._stack, self._handles = points, [""], []
        self._channels_first: Tensor | None = None
        names = {module: name for name, module in model.named_modules()}
        for module, name in names.items():
            self._handles += [
                module.register_forward_pre_hook(self._entering(name)), module.register_forward_hook(self._leaving())
            ]  # fmt: skip
        self._leaves = {name for module, name in names.items() if name and not any(True for _ in module.children())}

    def _entering(self, name: str) -> Callable[..., None]:
        return lambda module, args: self._stack.append(name)

    def _leaving(self) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            self._stack.pop()
            if isinstance(module, _CHANNELS_FIRST) and isinstance(output, Tensor):
                self._channels_first = output

        return hook

    def close(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call, and keep the output of a known activation."""
        kind = ACTIVATION_FUNCTIONS.get(getattr(func, "__name__", "").rstrip("_"))
        # An in-place activation returns its input: whether channels come first must be determined before the call.
        first = bool(args) and args[0] is self._channels_first
        returned = func(*args, **(kwargs or {}))
        if kind and isinstance(returned, Tensor) and returned.is_floating_point():
            rows = self._pooled(returned.detach(), first)
            if rows is not None:
                self.found[self._name(kind)] = rows
        return returned

    def _name(self, kind: str) -> str:
        place = self._stack[-1]
        name = place if place in self._leaves else f"{place}.{kind}()" if place else f"{kind}()"
        repeats = sum(one == name or one.startswith(f"{name}#") for one in self.found)
        return f"{name}#{repeats + 1}" if repeats else name

    def _pooled(self, values: Tensor, channels_first: bool) -> Float[Tensor, "n k"] | None:
        """Return one row per point; None if rows are not points."""
        if values.ndim < 2 or values.numel() == 0 or len(values) % self._points:
            return None
        if values.ndim > 3 or (values.ndim == 3 and channels_first):
            values = values.flatten(2).mean(2)
        return values.reshape(self._points, -1, values.shape[-1]).mean(1).cpu().float()


def batch_features(source: LayerSource, batch: Any) -> dict[str, Float[Tensor, "n k"]]:
    """Return the features of every layer on a batch, in the order in which the layers run."""
    values = _Values(source.model, batch.points)
    try:
        with values:
            source.run(batch)
    finally:
        values.close()
    for name, found in values.found.items():
        if not bool(found.isfinite().all()):
            raise ValueError(f"the outputs of {name!r} must be finite in float32, got NaN or infinity")
    if not values.found:
        raise ValueError("the model runs no known activation whose rows are points")
    return values.found


def layer_features(model: nn.Module, data: Any, batch_size: int) -> dict[str, Float[Tensor, "n k"]]:
    """Return the features of every layer on all points."""
    source, parts = LayerSource(model, data, batch_size), []
    with source.opened():
        parts = [batch_features(source, batch) for batch in source.batches()]
    names = [name for name in parts[0] if all(name in part for part in parts)]
    return {name: torch.cat([part[name] for part in parts]) for name in names}
