"""Turn what a user names on the command line into objects: networks, weights, arrays, saved patterns."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from metriscope.vq import Patterns

__all__ = ["load_array", "load_labels", "load_model", "patterns_of", "short_name"]


def load_array(path: Path) -> np.ndarray:
    """Return the points in a ``.npy`` file."""
    import numpy as np

    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path} is not a whole .npy file of plain numbers: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim == 0 or len(array) == 0:
        raise ValueError(f"{path} holds no points")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"{path} holds NaN or infinite values")
    return array


def load_labels(path: Path | None, points: int) -> np.ndarray | None:
    """Return one label a point from a ``.npy`` file, or nothing where none is named."""
    if path is None:
        return None
    labels = load_array(path)
    if labels.shape != (points,):
        raise ValueError(f"{path} holds an array of shape {labels.shape}, not one label for each of {points} points")
    return labels


def load_model(target: str, weights: Path | None = None) -> nn.Module:
    """Return the network that ``package.module:factory`` or ``path/to/file.py:factory`` makes.

    ``weights`` is a safetensors file of its state; every entry must fit.
    """
    from torch import nn

    model = _factory(target)()
    if not isinstance(model, nn.Module):
        raise ValueError(f"{target} returned a {type(model).__name__}, not a torch.nn.Module")
    if weights is not None:
        _load_weights(model, weights)
    return model


def _factory(target: str) -> Callable[[], Any]:
    place, _, name = target.rpartition(":")
    if not place or not name:
        raise ValueError(f"{target!r} does not name a network: write package.module:factory or path/to/file.py:factory")
    found = getattr(_module(place), name, None)
    if not callable(found):
        raise ValueError(f"{place} has no function or class {name!r}")
    return found


def _module(place: str) -> Any:
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        # Before it runs: dataclasses and the like look their own module up.
        sys.modules.setdefault(path.stem, module)
        spec.loader.exec_module(module)
        return module
    # The console script's own folder is on the path, the user's is not.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ValueError(f"cannot import {place}: {error}") from None


def _load_weights(model: nn.Module, path: Path) -> None:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} is not a whole safetensors file: {error}") from None
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        first = str(error).splitlines()[-1].strip()
        raise ValueError(f"the weights in {path} do not fit the network: {first}") from None


def short_name(named: str) -> str:
    """Return what a network is called on a page: its factory, and its weights' file if it has one.

    >>> short_name("models/small.py:cnn@seeds/1.safetensors")
    'cnn, 1'
    """
    target, _, weights = named.partition("@")
    factory = target.rpartition(":")[2] or target
    return f"{factory}, {Path(weights).stem}" if weights else Path(factory).name


def patterns_of(named: str, data: np.ndarray | None, layers: tuple[str, ...] = ()) -> Patterns:
    """Return the patterns of ``factory``, ``factory@weights.safetensors``, or a folder of saved patterns."""
    from metriscope.vq import Patterns, capture

    if Path(named).is_dir():
        return Patterns.load(Path(named))
    if data is None:
        raise ValueError(f"{named} is a network: its patterns need --data")
    import torch

    target, _, weights = named.partition("@")
    model = load_model(target, Path(weights) if weights else None)
    points = torch.from_numpy(data)
    kind = next((p.dtype for p in model.parameters()), torch.float32)
    return capture(model, points.to(kind) if points.is_floating_point() else points, layers=list(layers) or None)
