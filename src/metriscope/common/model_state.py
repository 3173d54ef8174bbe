"""A model lent for a while: run in eval mode, perhaps on another device, and given back exactly as it was."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

__all__ = ["Runner", "in_eval_mode", "random_states_kept", "unwrapped"]


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode, and each back into the mode in which it was.

    Flags are set one by one: ``eval`` and ``train`` of some modules do more, such as merging weights, or refuse.
    """
    modes = [(module, module.training) for module in model.modules()]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Give every global random state back as it was: PyTorch's, NumPy's and Python's."""
    # Asking CUDA for its states would start it; where nothing has started it, no state is worth keeping.
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    states = torch.get_rng_state(), torch.cuda.get_rng_state_all() if cuda else []
    numpy, python = np.random.get_state(), random.getstate()  # noqa: NPY002  a model may draw from the legacy state
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        if cuda:
            torch.cuda.set_rng_state_all(states[1])
        np.random.set_state(numpy)  # noqa: NPY002
        random.setstate(python)


class Runner:
    """Calls a model without gradients; on a device that is not its own, with copies of its weights.

    The model itself is never moved, so that there is nothing to move back.
    """

    def __init__(self, model: nn.Module, device: torch.device | str | None) -> None:
        own = dict([*model.named_parameters(), *model.named_buffers()])
        lazy = [name for name, weight in own.items() if nn.parameter.is_lazy(weight)]
        if lazy:
            raise ValueError(f"the parameter {lazy[0]!r} has no shape yet; run the model once before it is captured")
        first = next((weight.device for weight in own.values()), None)
        self.device = first if device is None else torch.device(device)
        self._model, self._moved = model, None
        if device is not None and not all(_is_on(weight, torch.device(device)) for weight in own.values()):
            self._moved = {name: weight.detach().to(device) for name, weight in own.items()}
        self.weights: list[Tensor] = list((self._moved or own).values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns."""
        with torch.no_grad(), _uncompiled():
            if self._moved is None:
                return self._model(*args, **kwargs)
            return functional_call(self._model, self._moved, args, kwargs)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside what compiles it or spreads it over devices: those run where nothing can be seen."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    inner = getattr(model, "_orig_mod", model)
    return model if inner is model else unwrapped(inner)


def _is_on(weight: Tensor, device: torch.device) -> bool:
    return weight.device.type == device.type and device.index in (None, weight.device.index)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run what was compiled as it was written; a process without the compiler is spared its import."""
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        # The compiler would announce that hooks on all modules see its wrapper too; they pass over it.
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield
