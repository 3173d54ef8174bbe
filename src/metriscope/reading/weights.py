"""Read the weights of a network from a file, and say how they do not fit.

No pickle is loaded: a PyTorch file may hold only tensors and plain containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import first_line

if TYPE_CHECKING:
    from torch import nn

__all__ = ["check_kinds", "other_names", "read_weights", "unwrapped_names"]

_TORCH_FILES = (".pt", ".pth", ".bin", ".ckpt")
# Prefixes that DataParallel and torch.compile add to every name of a state dict.
_WRAPPERS = ("module.", "_orig_mod.")
# How many missing or unknown names of weights an error shows.
_NAMED = 3


def read_weights(path: Path) -> dict[str, Any]:
    """Return the state dict in a PyTorch or safetensors file."""
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    return _torch_state(path) if path.suffix in _TORCH_FILES else _safetensors_state(path)


def unwrapped_names(state: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return a state without the prefixes that DataParallel and torch.compile add to every name, in any order.

    ``names`` are those of the network, which may begin like this themselves.

    >>> unwrapped_names({"_orig_mod.module.weight": 1}, ["weight"])
    {'weight': 1}
    """
    for prefix in _WRAPPERS:
        if state and all(name.startswith(prefix) for name in state) and not any(n.startswith(prefix) for n in names):
            return unwrapped_names({name.removeprefix(prefix): value for name, value in state.items()}, names)
    return state


def other_names(found: set[str], wanted: set[str]) -> str:
    """Return which names of weights are missing and which are unknown, as a sentence; empty if all fit.

    >>> other_names({"fc.wieght", "fc.bias"}, {"fc.weight", "fc.bias"})
    "the file lacks 'fc.weight' and holds 'fc.wieght', which the network does not have"
    """
    lacks, has = map(_first_names, (wanted - found, found - wanted))
    parts = [f"lacks {lacks}" if lacks else "", f"holds {has}, which the network does not have" if has else ""]
    said = " and ".join(part for part in parts if part)
    return f"the file {said}" if said else ""


def _first_names(names: set[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def check_kinds(model: nn.Module, state: Mapping[str, Any], path: Path) -> None:
    """Refuse weights of another kind of number: PyTorch would drop imaginary parts, and use integer codes as values."""
    for name, own in model.state_dict().items():
        both = [str(one.dtype).removeprefix("torch.") for one in (state.get(name, own), own) if hasattr(one, "dtype")]
        if len({"complex" in kind or ("float" in kind) * 2 for kind in both}) > 1:
            raise ValueError(f"the weights in {path} do not fit the network: {name!r} holds {both[0]}, not {both[1]}")


def _safetensors_state(path: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a complete safetensors file: {error}") from None


def _torch_state(path: Path) -> dict[str, Any]:
    """Return the state dict in a PyTorch file; only tensors and plain containers are loaded, and no code runs."""
    import torch

    why = "it holds more than tensors, and only tensors are read: save model.state_dict() alone"
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # The restricted loader raises a different type for each kind of file it refuses.
        refused = "weights_only" in str(error) or "Unsupported" in str(error)
        raise ValueError(f"{path} cannot be read: {why if refused else first_line(error)}") from None
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    named = isinstance(state, dict) and all(isinstance(name, str) for name in state)
    if not named or not all(isinstance(each, torch.Tensor) for each in state.values()):
        raise ValueError(f"{path} holds no state dict: save model.state_dict()")
    return state
