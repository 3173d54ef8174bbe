"""Where calls are intercepted: modules by hooks, functions and operators by the modes of PyTorch's dispatch.

Following every module and every function of a small network takes longer than the network itself. Where all
activations are modules inside plain containers, only those modules are followed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import get_ident
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as module_hooks
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Functions", "HandUp", "can_follow_leaves", "leaves_followed", "modules_followed"]

# Types whose own code calls no activation; a subclass may.
_WITHOUT_ACTIVATIONS = {
    *(nn.Sequential, nn.Linear, nn.Embedding, nn.LayerNorm, nn.GroupNorm),
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
}


@contextmanager
def modules_followed(names: dict[nn.Module, str], inside: list[nn.Module]) -> Iterator[None]:
    """Keep the list ``inside`` of known modules that are running in this thread, the innermost last.

    It uses PyTorch's global hooks, so the model's own hooks are not changed.
    """
    thread = get_ident()

    def enter(module: nn.Module, _: Any) -> None:
        if module in names and get_ident() == thread:
            inside.append(module)

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        if inside and inside[-1] is module and get_ident() == thread:
            inside.pop()

    entering = register_module_forward_pre_hook(enter)
    leaving = register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        entering.remove()
        leaving.remove()


def can_follow_leaves(model: nn.Module, leaves: Collection[nn.Module]) -> bool:
    """Return whether only these ``leaves`` can run activations: all else is PyTorch's own code, unchanged by hooks."""
    if module_hooks._global_forward_hooks or module_hooks._global_forward_pre_hooks:
        return False
    return all(
        (module in leaves or (type(module) in _WITHOUT_ACTIVATIONS and "forward" not in vars(module)))
        and not (module._forward_hooks or module._forward_pre_hooks)
        for module in model.modules()
    )


@contextmanager
def leaves_followed(
    leaves: Collection[nn.Module],
    inside: list[nn.Module],
    call: Callable[..., Any],
    at_input: Mapping[nn.Module, Callable[[Tensor], None]],
) -> Iterator[None]:
    """Pass each function that runs in one of the ``leaves`` to ``call``; ``inside`` holds the leaf that is running.

    Of a leaf in ``at_input``, only the input is passed, to the function given there.
    """
    mode = Functions(call)

    def enter(module: nn.Module, _: Any) -> None:
        inside.append(module)
        mode.__enter__()

    def leave(_: nn.Module, __: Any, ___: Any) -> None:
        mode.__exit__(None, None, None)
        inside.pop()

    with ExitStack() as undo:
        for leaf in leaves:
            if leaf in at_input:
                undo.callback(leaf.register_forward_pre_hook(partial(_first, at_input[leaf])).remove)
                continue
            undo.callback(leaf.register_forward_pre_hook(enter).remove)
            undo.callback(leaf.register_forward_hook(leave, always_call=True).remove)
        yield


def _first(read: Callable[[Tensor], None], _: nn.Module, args: tuple[Tensor]) -> None:
    read(args[0])


class Functions(TorchFunctionMode):
    """Passes on every call of a PyTorch function or method."""

    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self._call = call

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._call(func, args, kwargs or {})


class HandUp(TorchDispatchMode):
    """Calls every operator from Python, so that a function mode also sees those that compiled code runs.

    ``before`` is called with each operator before it runs.
    """

    def __init__(self, before: Callable[..., Any]) -> None:
        super().__init__()
        self._before = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._before(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))
