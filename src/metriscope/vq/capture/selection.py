"""Which of the activations of a network are wanted: by name, glob, type of module, module, or a test of the layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from torch import nn

from metriscope.vq.capture.patterns import Layer

__all__ = ["Choice", "Wanted"]

One: TypeAlias = "str | type[nn.Module] | nn.Module | Callable[[Layer], bool]"
Wanted: TypeAlias = "One | Sequence[One] | None"


class Choice:
    """A choice of layers that remembers which of its parts have matched something."""

    def __init__(self, wanted: Wanted) -> None:
        listed: Any = wanted if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
        self._wanted: list[One] | None = None if wanted is None else [_checked(one) for one in listed]
        self._matched: set[int] = set()

    @property
    def everything(self) -> bool:
        """Say whether nothing was chosen, which means all."""
        return self._wanted is None

    def takes(self, layer: Layer, inside: Sequence[nn.Module]) -> bool:
        """Say whether a layer is wanted; ``inside`` are the modules that were running, the innermost last."""
        if self._wanted is None:
            return True
        matches = [place for place, one in enumerate(self._wanted) if _matches(one, layer, inside)]
        self._matched.update(matches)
        return bool(matches)

    def unmatched(self) -> list[str]:
        """Return what was asked for and is not there."""
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
    if isinstance(one, str):
        return repr(one)
    if isinstance(one, nn.Module):
        return f"this {type(one).__name__}"
    return getattr(one, "__qualname__", repr(one))
