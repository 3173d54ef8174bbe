"""Running a model without changing it: eval mode, random states, another device."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from metriscope.common.validation import require_text

__all__ = ["Runner", "attributes_kept", "hooks_aside", "in_eval_mode", "random_states_kept", "unwrapped"]


@contextmanager
def in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode for the block, then restore the mode of each.

    Flags are set one by one, because ``eval`` and ``train`` of some modules do more, such as merging weights, or raise.
    """
    # A frozen TorchScript module has no mode.
    modes = [(module, module.training) for module in model.modules() if hasattr(module, "training")]
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Restore the global random states of PyTorch, NumPy and Python after the block."""
    # Reading CUDA's states would initialize CUDA; if it is not initialized, it has no state to keep.
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


@contextmanager
def attributes_kept(model: nn.Module) -> Iterator[None]:
    """Restore what a forward pass assigns to attributes or writes into buffers, such as hidden states and counters."""
    modules = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
    attributes = [(vars(module), dict(vars(module)), dict(module._buffers)) for module in modules]
    buffers = [(one, one._version, one.detach().clone()) for one in model.buffers()]
    try:
        yield
    finally:
        for now, before, held in attributes:
            now.clear()
            now.update(before)
            now["_buffers"].clear()
            now["_buffers"].update(held)
        for one, version, value in buffers:
            if one._version != version:
                with torch.no_grad():
                    one.copy_(value)


@contextmanager
def hooks_aside(model: nn.Module, kept: bool) -> Iterator[None]:
    """Leave out hooks, which may collect values, but not PyTorch's own, which compute weights, unless all are kept."""
    held = [hooks for module in model.modules() for hooks in (module._forward_hooks, module._forward_pre_hooks)]
    before = [dict(hooks) for hooks in held]
    try:
        for hooks in held if not kept else []:
            for key in [key for key, hook in hooks.items() if not _is_pytorchs(hook)]:
                del hooks[key]
        yield
    finally:
        for hooks, all_ in zip(held, before, strict=True):
            hooks.clear()
            hooks.update(all_)


def _is_pytorchs(hook: Any) -> bool:
    named = getattr(hook, "func", hook)
    return str(getattr(named, "__module__", type(named).__module__)).split(".")[0] == "torch"


class Runner:
    """Calls a model without gradients; on another device than its own, with copies of its weights.

    The model itself is never moved, so it need not be moved back.
    """

    def __init__(self, model: nn.Module, device: torch.device | str | None) -> None:
        require_text((name for name, _ in model.named_modules()), "the names of the model's modules")
        own = dict([*model.named_parameters(), *model.named_buffers()])
        lazy = [name for name, weight in own.items() if nn.parameter.is_lazy(weight)]
        if lazy:
            raise ValueError(f"the parameter {lazy[0]!r} has no shape yet; run the model once before it is captured")
        empty = [name for name, weight in own.items() if weight.is_meta]
        if empty:
            raise ValueError(f"the parameter {empty[0]!r} has no values: it is on the meta device")
        first = next((weight.device for weight in own.values()), None)
        self.device = first if device is None else torch.device(device)
        self._model, self._moved = model, None
        if device is not None and not all(_is_on(weight, torch.device(device)) for weight in own.values()):
            self._moved = {name: weight.detach().to(device) for name, weight in own.items()}
        self.weights: list[Tensor] = list((self._moved or own).values())
        self._calls: ExitStack | None = None
        self._eager = False

    @contextmanager
    def many_calls(self) -> Iterator[None]:
        """Prepare once for all calls inside the block, between which no other model may run."""
        try:
            with ExitStack() as self._calls:
                yield
        finally:
            self._calls, self._eager = None, False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns."""
        with torch.no_grad(), self._prepared():
            if self._moved is None:
                return self._model(*args, **kwargs)
            return functional_call(self._model, self._moved, args, kwargs)

    def _prepared(self) -> AbstractContextManager[None]:
        """Return a context without compiled functions, entered once for many calls."""
        if self._eager or "torch._dynamo" not in sys.modules:
            return nullcontext()
        if self._calls is None:
            return _uncompiled()
        self._calls.enter_context(_uncompiled())
        self._eager = True
        return nullcontext()


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside ``torch.compile`` or data-parallel wrappers, inside which hooks do not work."""
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        return unwrapped(model.module)
    inner = getattr(model, "_orig_mod", model)
    return model if inner is model else unwrapped(inner)


def _is_on(weight: Tensor, device: torch.device) -> bool:
    return weight.device.type == device.type and device.index in (None, weight.device.index)


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Run compiled functions eagerly."""
    with warnings.catch_warnings(), torch.compiler.set_stance("force_eager"):
        # The compiler warns that global module hooks also see its wrapper; ours ignore it.
        warnings.filterwarnings("ignore", message="Using `torch.compile")
        yield
