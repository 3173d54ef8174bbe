"""Initialization of a whole network from data, layer by layer, each layer from the activations that reach it.

Axes: ``n`` inputs of a layer (rows of linear layers, patches of convolutions), ``d`` features, ``k`` units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from metriscope.common.model_state import Runner, in_eval_mode, random_states_kept, unwrapped
from metriscope.common.validation import (
    instance,
    integer,
    one_of,
    plain_array,
    real_tensor,
    require_finite,
    whole_array,
)
from metriscope.nn.clusters import ClusterCount, Planes, checked_count, cluster_planes, draw_integers

__all__ = ["init_lsuv_", "init_model_"]

Module: TypeAlias = "nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d"
# What sets the units of a layer: inputs, the weights and biases as they are, and whether there are biases.
Rule = Callable[[Tensor, Planes, bool], Planes]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
HEADS = ("keep", "scale", "clusters")
# The most rows or patches from which a layer is set: enough for covariances of a few hundred features.
MOST_INPUTS = 5_000
# The most directions in which a layer's inputs are described, since clusters of more would take minutes.
MOST_DIRECTIONS = 1_000
# How far beyond a hyperplane an input must lie to count as on that side, in root mean squares of the unit.
EDGE = 1e-3


def init_model_(
    model: nn.Module,
    x: Any,
    generator: torch.Generator | None = None,
    n_clusters: ClusterCount = 10,
    head: Literal["keep", "scale", "clusters"] = "keep",
    sample: int = 1_000,
) -> nn.Module:
    """Set all linear and convolutional layers of a network, in place, from the activations that reach them.

    Layers are set in the order in which they run, each from clusters of its own inputs, as in
    :func:`init_from_clusters_`; the inputs of a convolution are the patches that it sees. Units beyond the directions
    of a cluster are random mixtures of them through random points of the cluster. Each unit is then scaled so that its
    pre-activations have a mean square of 1. Its hyperplane has inputs on both sides, so no unit of a linear layer
    and no channel of a convolution is dead at the start.

    The network runs in eval mode; normalization and dropout therefore act as they would at test time. Modes, hooks,
    buffers and global random states are as before when the function returns. A layer that is used twice is set at its
    first use. Layers that do not run, frozen layers and layers with parametrizations are left as they are. A layer
    without bias gets weights only: its hyperplanes pass through the origin and, where
    possible, have inputs on both sides. If an error is raised, all weights are as before.

    Parameters
    ----------
    model : nn.Module
        The network, which is changed; any module that is called with one tensor.
    x : array of shape (n, ...)
        Inputs of the network.
    generator : torch.Generator or None
        Where random numbers are drawn from; None for a copy of PyTorch's global generator, whose state does not change.
    n_clusters : int, "silhouette" or "bic"
        The number of clusters of each layer's inputs, at most half the number of units, or how it is chosen.
    head : {"keep", "scale", "clusters"}
        What happens to the layer that runs last. ``"keep"``: nothing. ``"scale"``: only its scale and biases change, so
        that each output has standard deviation 1, and mean 0 if there are biases. ``"clusters"``: the same as to the
        other layers.
    sample : int
        How many rows of ``x``, drawn at random, are used at most. A layer is set from at most 5,000 of its inputs.

    Returns
    -------
    nn.Module
        The same network.

    Raises
    ------
    ValueError
        If there is no layer to set, ``x`` does not hold finite numbers, or all inputs of a layer are the same.

    Examples
    --------
    >>> x = torch.rand(200, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    >>> model = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 3))
    >>> z = init_model_(model, x)[0](x)
    >>> bool((z.amax((0, 2, 3)) > 0).all() and (z.amin((0, 2, 3)) < 0).all())
    True
    """
    n_clusters, source = checked_count(n_clusters), _copied(generator)
    rule = partial(_from_clusters, n_clusters=n_clusters, generator=source)
    last: dict[str, Rule | None] = {"keep": None, "scale": _standardized, "clusters": rule}
    _walk(model, x, rule, last[one_of(head, "head", HEADS)], _Sampling(integer(sample, "sample"), source))
    return model


def init_lsuv_(model: nn.Module, x: Any, generator: torch.Generator | None = None, sample: int = 1_000) -> nn.Module:
    """Set all linear and convolutional layers of a network, in place, by layer-sequential unit variance (LSUV).

    Weights are orthogonal, then scaled so that the layer's outputs have variance 1 on the data; biases are zero
    (Mishkin and Matas, "All you need is a good init", 2016). As a layer is linear, one scaling is enough. Which layers
    are set, in which order and under which conditions is the same as for :func:`init_model_`.

    Parameters
    ----------
    model : nn.Module
        The network, which is changed; any module that is called with one tensor.
    x : array of shape (n, ...)
        Inputs of the network.
    generator : torch.Generator or None
        Where random numbers are drawn from; None for a copy of PyTorch's global generator, whose state does not change.
    sample : int
        How many rows of ``x``, drawn at random, are used at most.

    Returns
    -------
    nn.Module
        The same network.

    Raises
    ------
    ValueError
        If there is no layer to set, ``x`` does not hold finite numbers, or all inputs of a layer are zero.

    Examples
    --------
    >>> x = torch.rand(200, 5, generator=torch.Generator().manual_seed(0))
    >>> model = init_lsuv_(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)), x)
    >>> [round(part(x).var(correction=0).item(), 3) for part in (model[:1], model)]
    [1.0, 1.0]
    """
    source = _copied(generator)
    rule = partial(_orthogonal, generator=source)
    _walk(model, x, rule, rule, _Sampling(integer(sample, "sample"), source))
    return model


def _copied(generator: torch.Generator | None) -> torch.Generator:
    if generator is not None:
        return generator
    own = torch.Generator()
    own.set_state(torch.get_rng_state())
    return own


@dataclass(frozen=True, eq=False)
class _Sampling:
    """How many rows are used, and where they are drawn from."""

    count: int
    generator: torch.Generator

    def rows(self, high: int, most: int | None = None) -> Tensor:
        """Return different numbers below ``high``, at most ``most`` of them."""
        seed = torch.Generator().manual_seed(int(draw_integers(2**31, 1, self.generator)))
        wanted = self.count if most is None else most
        if high <= wanted:
            return torch.arange(high)
        # A permutation of all patches of all images would take much memory; a patch may be drawn twice.
        return torch.randperm(high, generator=seed)[:wanted] if most is None else draw_integers(high, wanted, seed)


def _walk(model: nn.Module, x: Any, rule: Rule, last: Rule | None, sampling: _Sampling) -> None:
    """Set the layers of a model in the order in which they run; ``last`` is the rule of the last of them."""
    network = unwrapped(instance(model, "model", nn.Module))
    layers = [module for module in network.modules() if isinstance(module, (nn.Linear, *CONVOLUTIONS))]
    run = Runner(network, None)
    batch = _batch(network, x, sampling)
    with torch.no_grad(), random_states_kept(), in_eval_mode(network):
        order = _order(run, layers, batch)
        # By the identity of weights, as layers may share them.
        rules = {id(layer.weight): rule for layer in order[:-1] if _is_free(layer)}
        if last is not None and _is_free(order[-1]):
            rules[id(order[-1].weight)] = last
        if not rules:
            raise ValueError("model has no layer to initialize: all are frozen, or it has only a head, which is kept")
        names = {module: name for name, module in network.named_modules()}

        def begin(layer: Module, inputs: Tensor) -> None:
            found = None if parametrize.is_parametrized(layer) else rules.pop(id(layer.weight), None)
            if found is not None:
                _set(layer, names[layer], inputs, found, sampling)

        with _restored_on_error(order), _before_each(order, begin):
            run(batch)


def _is_free(layer: Module) -> bool:
    return not parametrize.is_parametrized(layer) and layer.weight.requires_grad


def _batch(model: nn.Module, x: Any, sampling: _Sampling) -> Tensor:
    kind = "f" if isinstance(x, Tensor) and x.is_floating_point() else plain_array(x, "x").dtype.kind
    # Whole numbers are words if there is a table to look them up in.
    words = kind in "iu" and any(isinstance(module, nn.Embedding | nn.EmbeddingBag) for module in model.modules())
    points = torch.from_numpy(whole_array(x, "x", "points ...")) if words else real_tensor(x, "x", "points ...")
    points, largest = points.detach(), float(points.detach().abs().max())
    if largest > (torch.finfo(torch.float64).max / points.numel()) ** 0.5:
        raise ValueError(f"x must be small enough to be squared, got entries up to {largest:.3g}")
    points = points[sampling.rows(len(points)).to(points.device)]
    like = next((value for value in model.parameters() if value.is_floating_point()), points)
    return points.to(like.device, points.dtype if words else like.dtype)


def _order(run: Runner, layers: Sequence[Module], batch: Tensor) -> list[Module]:
    """Return the layers with different weights in the order of their first use."""
    found: dict[int, Module] = {}

    def note(layer: Module, inputs: Tensor) -> None:
        found.setdefault(id(layer) if parametrize.is_parametrized(layer) else id(layer.weight), layer)

    with _before_each(layers, note):
        try:
            run(batch)
        except Exception as error:
            form = f"x of shape {tuple(batch.shape)} and type {str(batch.dtype).removeprefix('torch.')}"
            raise ValueError(f"the model does not run on {form}: {str(error).splitlines()[0]}") from error
    if not found:
        raise ValueError("model has no linear or convolutional layer that runs on x")
    return list(found.values())


@contextmanager
def _before_each(layers: Sequence[Module], call: Callable[[Any, Tensor], None]) -> Iterator[None]:
    """Call a function with each layer and its inputs before the layer runs, for the block."""

    def hook(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call(layer, args[0] if args else kwargs["input"])

    handles = [layer.register_forward_pre_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _restored_on_error(layers: Sequence[Module]) -> Iterator[None]:
    """Give all layers their old values back if the block raises an error."""
    old = [(value, value.detach().clone()) for layer in layers for value in layer.parameters(recurse=False)]
    try:
        yield
    except BaseException:
        for value, before in old:
            value.copy_(before)
        raise


def _set(layer: Module, name: str, inputs: Tensor, rule: Rule, sampling: _Sampling) -> None:
    """Set a layer's weights and biases; a convolution with groups is set group by group."""
    groups = getattr(layer, "groups", 1)
    rows = _patches(layer, inputs, sampling) if isinstance(layer, CONVOLUTIONS) else _rows(inputs, sampling)
    require_finite(rows, f"the inputs that x gives to the layer {name!r}")
    biased, weight = layer.bias is not None, layer.weight.detach().flatten(1).cpu().double()
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().cpu().double()
    parts = zip(rows.cpu().double().chunk(groups, 1), weight.chunk(groups), bias.chunk(groups), strict=True)
    try:
        planes = [rule(part, (own, offset), biased) for part, own, offset in parts]
    except ValueError as error:
        raise ValueError(f"the layer {name!r} cannot be initialized from x: {error}") from None
    layer.weight.copy_(torch.cat([weight for weight, _ in planes]).reshape(layer.weight.shape))
    if layer.bias is not None:
        layer.bias.copy_(torch.cat([bias for _, bias in planes]))


def _rows(inputs: Tensor, sampling: _Sampling) -> Float[Tensor, "n d"]:
    flat = inputs.reshape(-1, inputs.shape[-1])
    return flat[sampling.rows(len(flat), MOST_INPUTS).to(flat.device)]


def _patches(layer: Any, inputs: Tensor, sampling: _Sampling) -> Float[Tensor, "n d"]:
    """Return patches of a convolution's inputs, each flattened as its weights are."""
    dims = len(layer.kernel_size)
    view = inputs if inputs.ndim == dims + 2 else inputs[None]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    view = F.pad(view, _padding(layer), mode)
    for axis, (size, step, gap) in enumerate(zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)):
        view = view.unfold(axis + 2, gap * (size - 1) + 1, step)
    dilated: Any = (..., *(slice(None, None, gap) for gap in layer.dilation))
    view = view[dilated]
    places = [view.shape[0], *view.shape[2 : 2 + dims]]
    rows = sampling.rows(torch.Size(places).numel(), MOST_INPUTS).to(view.device)
    first, *rest = torch.unravel_index(rows, places)
    # Indices on both sides of a slice put the chosen patches in front: patches, channels, kernel.
    chosen: Any = (first, slice(None), *rest)
    return view[chosen].flatten(1)


def _padding(layer: Any) -> list[int]:
    """Return the padding on both sides of each axis, the last axis first, as ``pad`` takes it."""
    if layer.padding == "valid":
        return [0] * 2 * len(layer.kernel_size)
    if layer.padding == "same":
        whole = [gap * (size - 1) for size, gap in zip(layer.kernel_size, layer.dilation, strict=True)]
        return [side for total in reversed(whole) for side in (total // 2, total - total // 2)]
    return [side for side in reversed(layer.padding) for _ in range(2)]


def _from_clusters(
    x: Float[Tensor, "n d"], planes: Planes, biased: bool, n_clusters: ClusterCount, generator: torch.Generator
) -> Planes:
    units, mean = len(planes[0]), x.mean(0)
    axes = _span(x - mean)
    if len(axes) == 0:
        raise ValueError("its inputs are all the same")
    # In the coordinates of the span every direction varies, and the number of directions is limited.
    inputs = (x - mean) @ axes.mT
    if isinstance(n_clusters, int):
        n_clusters = max(1, min(n_clusters, units // 2, len(inputs.unique(dim=0)) - 1))
    weight, bias = cluster_planes(inputs, units, n_clusters, generator, mixed=True)
    weight = weight @ axes
    return _crossing(x, weight, bias - weight @ mean, biased)


def _span(centered: Float[Tensor, "n d"]) -> Float[Tensor, "r d"]:
    """Return the principal axes of the inputs; of a sample of them if there are very many features."""
    some = centered[:MOST_DIRECTIONS]
    wide = centered.shape[1] > MOST_DIRECTIONS
    values, vectors = torch.linalg.eigh(some @ some.mT if wide else centered.mT @ centered)
    usable = values > max(centered.shape) * torch.finfo(values.dtype).eps * values[-1].clamp_min(0)
    axes = vectors[:, usable].mT
    return axes @ some / values[usable].sqrt()[:, None] if wide else axes


def _crossing(x: Float[Tensor, "n d"], weight: Float[Tensor, "k d"], bias: Float[Tensor, " k"], biased: bool) -> Planes:
    """Return units with pre-activations of mean square 1, moved to the mean if all points lie on one side."""
    mean, bias = x.mean(0), bias if biased else torch.zeros_like(bias)
    z = x @ weight.mT + bias
    edge = EDGE * z.square().mean(0).sqrt()
    aside = (z.amin(0) > -edge) | (z.amax(0) < edge)
    if biased:
        bias = torch.where(aside, -(weight @ mean), bias)
    elif bool(aside.any()) and bool(mean.any()):
        level = weight - (weight @ mean)[:, None] * mean / mean.square().sum()
        flat = (x @ level.mT).square().mean(0).sqrt() <= edge
        # Points on one ray from the origin lie on one side of every unit: choose the side that ReLU keeps.
        weight = torch.where(aside[:, None], torch.where(flat[:, None], mean.expand_as(level), level), weight)
    scale = (x @ weight.mT + bias).square().mean(0).sqrt()
    return weight / scale[:, None], bias / scale


def _standardized(x: Float[Tensor, "n d"], planes: Planes, biased: bool) -> Planes:
    weight, _ = planes
    z = x @ weight.mT
    spread = z.std(0, correction=0)
    if not bool((spread > 0).all()):
        raise ValueError("an output is the same for all inputs")
    weight = weight / spread[:, None]
    return weight, -(weight @ x.mean(0))


def _orthogonal(x: Float[Tensor, "n d"], planes: Planes, biased: bool, generator: torch.Generator) -> Planes:
    weight = nn.init.orthogonal_(torch.empty_like(planes[0]), generator=generator)
    spread = float((x @ weight.mT).std(correction=0))
    if not spread > 0:
        raise ValueError("its inputs are all zero")
    return weight / spread, torch.zeros_like(planes[1])
