"""Where a layer's pre-activations are in a running network, and the affine map that computes them.

Axes: N points, P positions of a point (pixels of a feature map, tokens; one for a plain layer), K units, D inputs of a
unit. The connections between modules are found from the tensors that they pass on, so the order in which a model
calls them need not be known. Batch normalization in eval mode is affine and is folded into the layer before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from metriscope.common.model_state import Runner, in_eval_mode, random_states_kept, unwrapped
from metriscope.common.validation import described, instance, label_array
from metriscope.nn.activations import ACTIVATIONS
from metriscope.vq.capture.batches import Batch, Reader, as_points, expected_points, split

__all__ = ["ACTIVATION_FUNCTIONS", "LayerSource", "Site", "label_codes", "locate", "site_inputs", "taken"]

Rows = Float[Tensor, "n p k"]

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_POINT_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d, nn.RMSNorm)
_PASSED = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
# Functions of PyTorch that are activations, by the name under which they are called.
ACTIVATION_FUNCTIONS = {
    **{name: name for name in ACTIVATIONS},
    "absolute": "abs",
    "__abs": "abs",
    "hardtanh": "hardtanh",
    "prelu": "prelu",
}
# Points on which the order of calls is followed.
_TRACED = 4
# Positions of a point whose inputs enter their mean and covariance.
_POSITIONS = 64


@dataclass(frozen=True)
class Site:
    """A layer's pre-activations: the output of ``module``, or its input if ``is_input``.

    ``linear`` computes them from ``D`` inputs, up to the batch normalizations ``folded``; it is None, with a
    ``reason``, if they are no affine function of the inputs of one layer. ``activation`` is the name of the function
    that is applied to them, empty if there is none, and ``axis`` the axis of their units.
    """

    name: str
    module: nn.Module
    is_input: bool
    axis: int
    activation: str = ""
    activate: Callable[[Tensor], Tensor] | None = None
    linear: nn.Module | None = None
    folded: tuple[nn.Module, ...] = ()
    reason: str = ""

    def rows(self, z: Tensor, points: int) -> Rows:
        """Return pre-activations as points, positions and units."""
        last = z.movedim(self.axis, -1)
        if last.ndim > 2 and last.shape[0] != points and last.shape[1] == points:
            last = last.transpose(0, 1)
        if last.numel() == 0 or last.shape[0] % points:
            raise ValueError(f"the layer {self.name!r} gives the shape {tuple(z.shape)} for {points} points")
        return last.reshape(points, -1, last.shape[-1])

    def affine(self) -> tuple[Float64[Tensor, "k d"], Float64[Tensor, " k"]] | None:
        """Return weight and bias in float64, with batch normalizations folded in; None if there are none."""
        if self.linear is None:
            return None
        weight = self.linear.get_parameter("weight").detach().cpu().double().flatten(1)
        given = self.linear.bias
        bias = torch.zeros(len(weight)).double() if given is None else given.detach().cpu().double()  # type: ignore[operator]
        for norm in self.folded:
            weight, bias = _fold(norm, weight, bias)
        return weight, bias

    @contextmanager
    def watched(self) -> Iterator[list[tuple[Tensor | None, Tensor]]]:
        """Collect the inputs of ``linear`` and the pre-activations, one pair per call, while the block runs."""
        calls: list[tuple[Tensor | None, Tensor]] = []
        inputs: list[Tensor] = []

        def seen(module: nn.Module, args: tuple[Any, ...], output: Any = None) -> None:
            z = args[0] if self.is_input else output
            # An activation may overwrite its input.
            calls.append((inputs.pop() if inputs else None, z.detach().clone()))

        register = self.module.register_forward_pre_hook if self.is_input else self.module.register_forward_hook
        handles = [register(seen)]
        if self.linear is not None:
            handles.append(self.linear.register_forward_pre_hook(lambda module, args: inputs.append(args[0].detach())))
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def changed(self, change: Callable[[Tensor], Tensor], outputs: Sequence[Tensor] = ()) -> Iterator[None]:
        """Replace the pre-activations by what ``change`` returns while the block runs.

        With the ``outputs`` of ``module`` in an earlier run, one per call, it is not run again.
        """
        given, own = iter(outputs), self.module.__dict__
        if self.is_input:
            handle = self.module.register_forward_pre_hook(lambda module, args: (change(args[0]), *args[1:]))
        else:
            handle = self.module.register_forward_hook(lambda module, args, output: change(output))
        if outputs:
            own["forward"] = lambda *args, **kwargs: next(given)
        try:
            yield
        finally:
            handle.remove()
            if outputs:
                del own["forward"]


def _fold(norm: Any, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    mean, variance = (each.detach().cpu().double() for each in (norm.running_mean, norm.running_var))
    scale = (variance + norm.eps).rsqrt()
    shift = torch.zeros_like(scale)
    if norm.affine:
        scale, shift = scale * norm.weight.detach().cpu().double(), norm.bias.detach().cpu().double()
    return weight * scale[:, None], (bias - mean) * scale + shift


class LayerSource:
    """A model and its data: runs the model on every batch; afterwards the model is unchanged."""

    def __init__(self, model: nn.Module, data: Any, batch_size: int) -> None:
        self.model = unwrapped(instance(model, "model", nn.Module))
        self._run = Runner(self.model, None)
        self._read = Reader(self.model, self._run.device)
        self.data, self.batch_size = as_points(data, "data"), batch_size
        if iter_is_spent(self.data):
            raise ValueError("data must be readable more than once, got an iterator: pass a list or a loader")
        self.expected = expected_points(self.data) if isinstance(self.data, Tensor | np.ndarray) else None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Run the block in eval mode, and restore modes and random states."""
        with random_states_kept(), in_eval_mode(self.model):
            yield

    def batches(self) -> Iterator[Batch]:
        """Yield the batches that hold points."""
        found = False
        for raw in split(self.data, self.batch_size):
            batch = self._read(raw)
            if batch.points:
                found = True
                yield batch
        if not found:
            raise ValueError("data must hold at least one point, got none")

    def run(self, batch: Batch) -> Any:
        """Return the model's outputs for a batch."""
        try:
            return self._run(*batch.args, **batch.kwargs)
        except RuntimeError as error:
            said = str(error).splitlines()[0]
            raise ValueError(f"the model does not run on a batch of {batch.points} points: {said}") from error


def taken(batch: Batch, rows: Tensor) -> Batch:
    """Return some points of a batch."""

    def part(value: Any) -> Any:
        per_point = isinstance(value, Tensor) and value.ndim > 0 and len(value) == batch.points
        return value[rows.to(value.device)] if per_point else value

    kwargs = {name: part(value) for name, value in batch.kwargs.items()}
    return Batch(tuple(map(part, batch.args)), kwargs, len(rows), batch.form)


def iter_is_spent(data: Any) -> bool:
    """Return whether data can be read only once.

    >>> iter_is_spent(iter([1])), iter_is_spent([1])
    (True, False)
    """
    return isinstance(data, Iterator)


def label_codes(labels: Any, points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct labels in order, and the number of each point's label among them."""
    classes, codes = np.unique(label_array(labels, "labels", points), return_inverse=True)
    return classes, codes.reshape(-1)


class _Call(NamedTuple):
    """One call of a module without submodules: its inputs and its output."""

    name: str
    module: nn.Module
    given: Tensor | None
    returned: Tensor | None


class _Functions(TorchFunctionMode):
    """Notes which known activation functions are applied to which tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Tensor, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the call, then make it."""
        name = ACTIVATION_FUNCTIONS.get(getattr(func, "__name__", "").rstrip("_"))
        if name and args and isinstance(args[0], Tensor):
            self.calls.append((args[0], name))
        return func(*args, **(kwargs or {}))

    def applied_to(self, z: Tensor | None) -> str:
        """Return the name of the first activation applied to a tensor; empty if there is none."""
        return next((name for tensor, name in self.calls if tensor is z), "")


def _trace(source: LayerSource) -> tuple[list[_Call], _Functions]:
    """Return the calls of all innermost modules on the first batch, in order."""
    calls: list[_Call] = []
    leaves = [(name, m) for name, m in source.model.named_modules() if not any(True for _ in m.children())]
    functions = _Functions()

    def note(name: str) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            first, last = (one if isinstance(one, Tensor) else None for one in (args[0] if args else None, output))
            calls.append(_Call(name, module, first, last))

        return hook

    handles = [module.register_forward_hook(note(name)) for name, module in leaves]
    try:
        with source.opened(), functions:
            batch = next(source.batches())
            source.run(taken(batch, torch.arange(min(batch.points, _TRACED))))
    finally:
        for handle in handles:
            handle.remove()
    return calls, functions


def locate(source: LayerSource, layer: str | nn.Module) -> Site:
    """Return the site of a linear or convolutional layer, or of an activation, by the module or its name."""
    modules = dict(source.model.named_modules(remove_duplicate=False))
    if isinstance(layer, str):
        if layer not in modules:
            call = layer.partition("#")[0] in modules or "()" in layer
            why = ", which names a call of an activation: name the layer before it" if call else ""
            raise ValueError(f"the model has no module {layer!r}{why}; there are {', '.join(_readable(modules))}")
        name, module = layer, modules[layer]
    else:
        module = instance(layer, "layer", nn.Module)
        name = next((name for name, one in modules.items() if one is module), "")
        if all(one is not module for one in modules.values()):
            raise ValueError(f"layer must be a layer of the model or its name, got {described(layer)} of no such model")
    calls, functions = _trace(source)
    own = [at for at, call in enumerate(calls) if call.module is module]
    if any(True for _ in module.children()):
        raise ValueError(
            f"layer must be a single layer, got {name!r}, which holds others: {', '.join(_readable(modules))}"
        )
    if not own:
        raise ValueError(f"the model does not call the layer {name!r}")
    if isinstance(module, (nn.Linear, *_CONVS)):
        return _after(replace(_plain(name, module, False), linear=module), calls, own[0], functions)
    if isinstance(module, (*_BATCH_NORMS, *_POINT_NORMS)):
        raise ValueError(f"layer must be linear, convolutional or an activation, got the normalization {name!r}")
    if len(own) > 1:
        raise ValueError(f"the activation {name!r} is called {len(own)} times: name the linear layer before it instead")
    return _before(name, calls, own[0], functions)


def _readable(modules: dict[str, nn.Module]) -> list[str]:
    return [repr(name) for name, one in modules.items() if isinstance(one, (nn.Linear, *_CONVS))]


def _plain(name: str, module: nn.Module, is_input: bool) -> Site:
    return Site(name, module, is_input, axis=1 if isinstance(module, _CONVS) else -1)


def _activating(site: Site, z: Tensor | None, calls: list[_Call], functions: _Functions) -> Site:
    """Return the site with the activation that is applied to its pre-activations, if any."""
    kind = functions.applied_to(z)
    module = next((c.module for c in calls if c.given is z and c.module is not site.module and kind), None)
    known = ACTIVATIONS[kind].function if kind in ACTIVATIONS else getattr(F, kind, None) if kind else None
    return replace(site, activation=kind, activate=module or known)


def _after(site: Site, calls: list[_Call], at: int, functions: _Functions) -> Site:
    """Follow a linear layer's output through normalizations to its activation."""
    z = calls[at].returned
    once = sum(call.module is site.module for call in calls) == 1
    found = _activating(site, z, calls, functions)
    for call in calls[at + 1 :] if once else ():
        if call.given is not z or z is None or found.activation:
            continue
        if isinstance(call.module, _BATCH_NORMS) and call.module.running_mean is not None:
            site = replace(site, module=call.module, axis=1, folded=(*site.folded, call.module))
        elif isinstance(call.module, _POINT_NORMS) and functions.applied_to(call.returned):
            why = f"{type(call.module).__name__} {call.name!r} after it scales each point differently"
            site = replace(site, module=call.module, linear=None, folded=(), reason=why)
        elif not isinstance(call.module, _PASSED):
            continue
        z = call.returned
        found = _activating(site, z, calls, functions)
    return found


def _before(name: str, calls: list[_Call], at: int, functions: _Functions) -> Site:
    """Find the linear layer whose output, possibly normalized, is the input of an activation."""
    z = calls[at].given
    if z is None:
        raise ValueError(f"the activation {name!r} is not given a tensor")
    for start in range(at - 1, -1, -1):
        if isinstance(calls[start].module, (nn.Linear, *_CONVS)) and isinstance(calls[start].returned, Tensor):
            site = _after(
                replace(_plain(name, calls[start].module, False), linear=calls[start].module), calls, start, functions
            )
            reached = next((c.returned for c in calls if c.module is site.module), None)
            if reached is z or _passes(calls, reached, z):
                return site
    axis = 1 if z.ndim > 3 else -1
    why = "its pre-activations are not the output of one linear layer"
    site = Site(name, calls[at].module, True, axis, linear=None, reason=why)
    return replace(site, activation=functions.applied_to(z), activate=calls[at].module)


def _passes(calls: list[_Call], start: Tensor | None, end: Tensor) -> bool:
    """Return whether a tensor reaches another through modules that change nothing in eval mode."""
    for call in calls:
        if call.given is start and isinstance(call.module, _PASSED):
            start = call.returned
    return start is end


def site_inputs(linear: nn.Module, given: Tensor, points: int) -> Float[Tensor, "n q d"] | None:
    """Return the inputs of each unit, at no more than 64 positions of a point; None for grouped convolutions."""
    if isinstance(linear, nn.Linear):
        rows = given.reshape(points, -1, given.shape[-1]) if given.shape[0] == points else given.transpose(0, 1)
        rows = rows.reshape(points, -1, given.shape[-1])
        return rows[:, _spread(rows.shape[1])]
    if linear.groups != 1:
        return None
    mode = "constant" if linear.padding_mode == "zeros" else linear.padding_mode
    windows = F.pad(given, linear._reversed_padding_repeated_twice, mode=str(mode))  # type: ignore[arg-type]
    sizes = zip(linear.kernel_size, linear.stride, linear.dilation, strict=True)  # type: ignore[arg-type]
    for axis, (size, stride, dilation) in enumerate(sizes, start=2):
        windows = windows.unfold(axis, (size - 1) * dilation + 1, stride)[..., ::dilation]
    places = windows.shape[2 : given.ndim]
    chosen = np.unravel_index(_spread(int(np.prod(places))), places)
    where: tuple[Any, ...] = (slice(None), *map(torch.as_tensor, chosen))
    picked = windows.movedim(1, given.ndim - 1)[where]
    return picked.flatten(2)


def _spread(count: int) -> np.ndarray:
    """Return evenly spaced positions, all of them if there are few."""
    return np.unique(np.linspace(0, count - 1, min(count, _POSITIONS)).round().astype(int))
