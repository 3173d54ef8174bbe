"""What to capture: which layers, whether positions are units or pooled, and which values beside the bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

import numpy as np
from torch import nn

from metriscope.vq.capture.packing import Pooling
from metriscope.vq.capture.patterns import Layer

__all__ = ["Choice", "Conv", "Positions", "Tokens", "ValueChoice", "Wanted"]

One: TypeAlias = "str | type[nn.Module] | nn.Module | Callable[[Layer], bool]"
Wanted: TypeAlias = "One | Sequence[One] | None"
Conv = Literal["positions", "channels"]
Tokens = Literal["any", "first", "last", "mean"]


@dataclass(frozen=True)
class Positions:
    """How positions are treated: each is a unit of its own, or they are pooled into channels.

    ``conv`` says so for all layers; ``tokens`` says how to pool in layers whose channels come last.
    """

    conv: Conv = "positions"
    tokens: Tokens | None = None

    def pooling(self, layer: Layer, channels_last: bool, mask: np.ndarray | None) -> Pooling | None:
        """Return how to pool a layer, None if its positions are kept; positions that a mask leaves out do not count."""
        if layer.channel_axis is None:
            return None
        if self.tokens is None or not channels_last:
            return Pooling(layer.channel_axis) if self.conv == "channels" else None
        places = layer.shape[: layer.channel_axis]
        return Pooling(layer.channel_axis, self.tokens, mask if mask is not None and places == mask.shape[1:] else None)


class Choice:
    """The layers to capture, by name, glob, type of module, module or a test of the layer; None for all.

    It records which of its entries have matched a layer.
    """

    def __init__(self, wanted: Wanted) -> None:
        listed: Any = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
        self._wanted: list[One] | None = None if wanted is None else [_checked(one) for one in listed]
        self._matched: set[int] = set()

    def takes(self, layer: Layer, inside: Sequence[nn.Module]) -> bool:
        """Return whether to capture a layer; ``inside`` are the modules that were running, the innermost last."""
        if self._wanted is None:
            return True
        matches = [place for place, one in enumerate(self._wanted) if _matches(one, layer, inside)]
        self._matched.update(matches)
        return bool(matches)

    def unmatched(self) -> list[str]:
        """Return the entries that matched no layer, as text."""
        return [_text(one) for place, one in enumerate(self._wanted or []) if place not in self._matched]


def _checked(one: One) -> One:
    wrong = isinstance(one, type) and not issubclass(one, nn.Module)
    if wrong or not (isinstance(one, str) or callable(one)):
        raise ValueError(
            f"layers are chosen by name, glob, type of module, module or a function of the layer, got {one!r}"
        )
    return one


def _matches(one: One, layer: Layer, inside: Sequence[nn.Module]) -> bool:
    if isinstance(one, str):
        return layer.name == one or fnmatchcase(layer.name, one)
    if isinstance(one, type):
        return any(isinstance(module, one) for module in inside)
    if isinstance(one, nn.Module):
        return any(module is one for module in inside)
    return bool(one(layer))


def _text(one: One) -> str:
    if isinstance(one, nn.Module):
        return f"this {type(one).__name__}"
    return repr(one) if isinstance(one, str) else getattr(one, "__qualname__", repr(one))


@dataclass(frozen=True)
class ValueChoice:
    """Which values to keep beside the bits: in which precision, and whether those ``after`` the activation."""

    dtype: np.dtype[Any]
    after: bool = False
