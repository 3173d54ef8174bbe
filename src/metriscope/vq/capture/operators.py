"""Which operators of PyTorch are linear in the values of points, and which are not.

An operator is linear, a product of two signals (values that depend on the points), known not to compute units
(``NOT_UNITS``), or named as missed where no captured layer explains it. An operator that is in no table is named as
well: it is better to name too many than to miss one. Operators from which activations can be written by hand, such as
comparisons and maxima, have a ``Recipe``: what to read from their arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from metriscope.vq.capture.readings import REMOTE, Levels, Reading, winners_along

__all__ = ["BY_HAND", "COMPARISONS", "DEFERRED", "FUSED", "LOOKUPS", "NOT_UNITS", "PRODUCTS", "USES", "Recipe"]
__all__ += ["function_role", "fused_function", "operator_name", "passes_values", "recipe_for", "verdict"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Affine in the signal, or a choice of entries that does not depend on it.
_LINEAR = _words(
    """
    add sub rsub neg positive mean sum cumsum nansum nan_to_num trace diff lerp addcmul addcdiv cross kron real imag
    conj conj_physical _conj_physical view_as_real view_as_complex _neg_view resolve_conj resolve_neg complex
    linear addmm addmv addbmm addr convolution convolution_overrideable conv_tbc _conv_depthwise2d mkldnn_convolution
    _convolution slow_conv3d slow_conv_transpose2d slow_conv_transpose3d slow_conv_dilated2d conv_transpose2d
    conv1d conv2d conv3d
    _slow_conv2d_forward conv_depthwise3d mkldnn_linear _mkldnn_transpose to_mkldnn to_dense _to_dense
    avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool2d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d
    _upsample_bicubic2d_aa _upsample_nearest_exact3d grid_sampler_2d grid_sampler_3d affine_grid_generator
    pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle im2col col2im unfold fold
    _fft_r2c _fft_c2c _fft_c2r
    constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
    replication_pad3d _pad_circular native_dropout dropout alpha_dropout feature_dropout
    cat stack _stack hstack vstack split unsafe_split unsafe_split_with_sizes unsafe_chunk unbind_copy
    clone copy _to_copy to contiguous detach_copy alias_copy lift_fresh lift expand_copy repeat tile roll flip rot90
    repeat_interleave _unsafe_view _reshape_alias _reshape_copy reshape view_copy slice_copy select_copy permute_copy
    transpose_copy squeeze_copy unsqueeze_copy as_strided_copy slice_scatter select_scatter diagonal_scatter
    index index_select gather take take_along_dim embedding embedding_bag _embedding_bag _embedding_bag_forward_only
    index_put _index_put_impl _unsafe_index _unsafe_index_put index_add index_copy index_fill scatter scatter_add
    masked_select masked_scatter masked_fill where put tril triu diag diag_embed block_diag
    max_unpool2d max_unpool3d fill zero resize set _local_scalar_dense item _assert_async
    _nested_view_from_buffer _nested_view_from_jagged _nested_get_values narrow_copy nested_to_padded_tensor
    _nested_tensor_from_mask _padded_dense_to_jagged_forward _jagged_to_padded_dense_forward to_padded_tensor
    quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize q_scale q_zero_point int_repr
    _sparse_mm _sparse_addmm _sparse_sum sparse_mask mv dot vdot mm bmm baddbmm matmul mul div true_divide inner outer
    einsum tensordot _trilinear bilinear _dimI _dimV sym_size sym_numel sym_stride is_same_size
    isnan isinf isfinite isposinf isneginf equal allclose _assert_scalar _assert_tensor_metadata
    as_strided squeeze unsqueeze t transpose swapdims swapaxes permute detach alias view expand
    _pack_padded_sequence _pad_packed_sequence record_stream
    """
)
# The result has the shape of a signal, not its values.
_SHAPES = re.compile(
    r"^(new_(zeros|ones|full|empty|empty_strided)|(zeros|ones|full|empty|rand|randn|randint|bernoulli)_like)$"
)
_CHECKS = _words("isnan isinf isfinite isposinf isneginf equal allclose")
# Linear in each argument, but not in two signals at once.
PRODUCTS = _words(
    "mul div true_divide mm bmm baddbmm matmul addmm mv dot vdot inner outer einsum tensordot bilinear "
    "linear _trilinear convolution addcmul addcdiv lerp cross kron "
)
LOOKUPS = _words("embedding embedding_bag _embedding_bag _embedding_bag_forward_only index_select gather index")
COMPARISONS = _words("gt ge lt le eq ne greater less greater_equal less_equal not_equal")
# Uses of a comparison that make it an activation written by hand.
USES = {
    **{name: name for name in ("where", "masked_fill", "masked_scatter", "index_put", "_index_put_impl")},
    **{"mul": "product with a comparison", "masked_select": "selection by a comparison"},
    **{"index": "selection by a comparison", "index_fill": "index_fill", "_unsafe_index_put": "index_put"},
}

#: Operators that are not linear but compute no units: their type by name.
NOT_UNITS: dict[str, str] = {
    **dict.fromkeys(("_softmax", "softmax", "_log_softmax", "log_softmax", "logsumexp", "_safe_softmax"), "softmax"),
    **dict.fromkeys(("native_layer_norm", "native_batch_norm", "native_group_norm", "batch_norm"), "normalization"),
    **dict.fromkeys(("cudnn_batch_norm", "_native_batch_norm_legit", "_fused_rms_norm", "rms_norm"), "normalization"),
    **dict.fromkeys(("_native_batch_norm_legit_no_training", "_batch_norm_no_update"), "normalization"),
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm", "local_response_norm"), "normalization"),
    **dict.fromkeys(("var", "var_mean", "std", "std_mean"), "normalization"),
    **dict.fromkeys(("_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention"), "attention"),
    **dict.fromkeys(("_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"), "attention"),
    **dict.fromkeys(("_scaled_dot_product_attention_math", "_scaled_dot_product_cudnn_attention"), "attention"),
    **dict.fromkeys(("_native_multi_head_attention", "_scaled_dot_product_attention_math_for_mps"), "attention"),
    # Their inputs are never negative, so there are no two sides.
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), "function of positive values"),
    **dict.fromkeys(("linalg_vector_norm", "norm", "frobenius_norm", "_cdist_forward", "_euclidean_dist"), "distance"),
    **dict.fromkeys(("cdist", "dist", "pairwise_distance", "_pdist_forward"), "distance"),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss"), "loss"),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits", "_ctc_loss", "kl_div"), "loss"),
}

_RECURRENT = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_CELLS = {"lstm_cell": "LSTMCell", "gru_cell": "GRUCell", "rnn_tanh_cell": "RNNCell", "rnn_relu_cell": "RNNCell"}
#: Operators with activations inside: what to call them, by the operator's name.
FUSED: dict[str, str] = {
    **_RECURRENT,
    **_CELLS,
    **{"mkldnn_rnn_layer": "LSTM", "_cudnn_rnn": "RNN", "_thnn_fused_lstm_cell": "LSTMCell"},
    **{"_thnn_fused_gru_cell": "GRUCell", "_transformer_encoder_layer_fwd": "fused transformer layer"},
}
# A quantized kernel ends in the name of the activation inside it; others are linear.
_FUSED_QUANTIZED = re.compile(r"relu|tanh|sigmoid|elu|hardswish|gelu|silu|lstm|gru|rnn|softmax|clamp|threshold")

_QUANTIZED = frozenset(("quantized", "quantized_decomposed", "onednn", "_quantized"))

# Functions of PyTorch that consist of several operators, and their type.
_FUNCTIONS = {
    "normalization": "normalize layer_norm batch_norm group_norm instance_norm rms_norm local_response_norm",
    "softmax": "softmax log_softmax softmin gumbel_softmax logsumexp",
    "attention": "scaled_dot_product_attention",
    "distance": "pairwise_distance cosine_similarity cdist norm vector_norm pdist",
    "loss": "cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy"
    " binary_cross_entropy_with_logits ctc_loss cosine_embedding_loss margin_ranking_loss triplet_margin_loss"
    " hinge_embedding_loss soft_margin_loss multi_margin_loss poisson_nll_loss gaussian_nll_loss multilabel_margin_loss"
    " multilabel_soft_margin_loss triplet_margin_with_distance_loss",
}


def _everything_called(name: str) -> Iterator[Any]:
    """Yield the function and the operator of a name, with the operator's overloads."""
    packet = getattr(torch.ops.aten, name, None)
    if packet is not None:
        yield from (packet, *(getattr(packet, overload) for overload in packet.overloads()))
    if hasattr(torch, name):
        yield getattr(torch, name)


def _functions() -> Iterator[tuple[Any, str]]:
    for role, names in _FUNCTIONS.items():
        for name in names.split():
            places = (F, torch, Tensor, torch.linalg)
            yield from ((getattr(place, name), role) for place in places if callable(getattr(place, name, None)))


_ROLES: dict[Any, str] = dict(_functions())
_FUSED_FUNCTIONS = {found: what for name, what in FUSED.items() for found in _everything_called(name)}
# Operators of a hand-written normalization.
_OF_NORMALIZATION = _words("pow square mul sqrt rsqrt reciprocal abs clamp clamp_min div var std maximum")
_NORMALIZATION = re.compile(r"norm", re.IGNORECASE)


def function_role(function: Any) -> str:
    """Return the type of a function that computes no units, such as ``"softmax"``; empty if it may compute units.

    >>> function_role(F.normalize), function_role(torch.relu)
    ('normalization', '')
    """
    try:
        return _ROLES.get(function, "")
    except TypeError:  # not hashable
        return ""


def fused_function(function: Any) -> str:
    """Return the name of a function that has activations inside, such as ``"LSTM"``; empty for any other function.

    >>> fused_function(torch.lstm)
    'LSTM'
    """
    try:
        return _FUSED_FUNCTIONS.get(function, "")
    except TypeError:  # not hashable
        return ""


def operator_name(operator: Any) -> str:
    """Return the name of an operator without its library, its overload and the mark of its in-place form.

    >>> operator_name(torch.ops.aten.relu_.default)
    'relu'
    """
    name = str(operator._schema.name).split("::")[-1]
    return name.removesuffix("_") if not name.endswith("__") else name


def passes_values(name: str) -> bool:
    """Return whether the values of an operator's result depend on those of its arguments, beyond their shapes.

    >>> passes_values("add"), passes_values("zeros_like")
    (True, False)
    """
    return not _SHAPES.match(name) and name not in _CHECKS


def verdict(func: Any, args: Sequence[Any], signals: Sequence[Tensor], compared: bool, module: str) -> tuple[str, str]:
    """Return the name of an operator on signals if it is not linear, and its role if it computes no units.

    Parameters
    ----------
    func : operator
        The operator.
    args : sequence
        The positional arguments.
    signals : sequence of Tensor
        The arguments that depend on the points.
    compared : bool
        Whether an argument is the result of a comparison of signals.
    module : str
        The type of the module that runs it.

    Returns
    -------
    tuple of str
        The name, empty for a linear operator; and the role, empty for one that may compute units.
    """
    name = operator_name(func)
    by_hand = compared and name in USES
    if func.namespace == "prim" or not (signals or by_hand) or func.is_view or not passes_values(name):
        return "", ""
    if name in FUSED:
        return FUSED[name], ""
    if func.namespace != "aten":
        linear = func.namespace in _QUANTIZED and not _FUSED_QUANTIZED.search(name)
        return ("", "") if linear else (f"{func.namespace} {name}", "")
    if by_hand:
        return USES[name], ""
    what = name if name not in _LINEAR else _product(name, args, signals)
    if what and name in _OF_NORMALIZATION and _NORMALIZATION.search(module):
        return what, "normalization"
    return what, "product of two signals" if what == "product" else NOT_UNITS.get(name, "")


def _product(name: str, args: Sequence[Any], signals: Sequence[Tensor]) -> str:
    """Return the role of a linear operator that multiplies or divides signals by signals; empty if it does not."""
    if name not in PRODUCTS:
        return ""
    if len(signals) > 1:
        return "square" if name == "mul" and signals[0] is signals[1] else "product"
    divides = name in ("div", "true_divide") and len(args) > 1 and args[1] is signals[0]
    return "reciprocal" if divides else ""


_LOWER, _UPPER = _words("maximum fmax clamp_min"), _words("minimum fmin clamp_max")
_SIDES = _words("gt ge lt le")
_PAIRS = _LOWER | _UPPER | _SIDES | _words("logaddexp clamp")
_ALONG = _words("amax amin max min")
#: Operators that may be an activation written by hand.
BY_HAND = _PAIRS | _ALONG | _words("sign sgn heaviside exp")
#: Those that are an activation only if their result is used in certain ways.
DEFERRED = _SIDES | {"exp"}


@dataclass(frozen=True)
class Recipe:
    """What to read where an activation is written by hand.

    Parameters
    ----------
    kind : str
        Name of the activation.
    reads : str
        ``"value"``: on which side of a number the first argument lies; ``"difference"``: the sign of the difference of
        two arguments; or ``"winner"``: the largest value along the given axes.
    piecewise_affine : bool
        Whether the activation is piecewise affine.
    backward : bool
        Whether the value is negated, or the first argument subtracted from the second.
    """

    kind: str
    reads: str
    piecewise_affine: bool = True
    backward: bool = False

    def read(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Reading:
        """Return the reading of an operator that is about to run."""
        x = args[0].detach()
        if self.reads == "winner":
            return winners_along(x, _axes(args, kwargs), smallest=name.endswith("min"))
        bounds = _bounds(name, args, kwargs)
        if self.reads == "difference":
            return Levels(bounds[0] - x if self.backward else x - bounds[0])
        return Levels(-x if self.backward else x, tuple(float(bound) for bound in bounds) or (0.0,))


def _bounds(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return what the first argument of an operator is compared with."""
    if name not in _PAIRS:
        return []
    return [one for one in (*args[1:], *kwargs.values()) if one is not None]


def _axes(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[int]:
    """Return the axes of a maximum; empty if it is over all axes."""
    found = args[1] if len(args) > 1 else kwargs.get("dim", [])
    return [found] if isinstance(found, int) else list(found)


def recipe_for(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], is_signal: Callable[[Tensor], bool]
) -> Recipe | None:
    """Return how to read an operator that may be an activation written by hand; ``is_signal`` takes tensors."""
    x = args[0] if args else None
    if name not in BY_HAND or not isinstance(x, Tensor) or not x.is_floating_point() or x.layout != torch.strided:
        return None
    given = [one for one in (x, *_bounds(name, args, kwargs)) if isinstance(one, Tensor)]
    if not all(one.numel() and bool(one.isfinite().all()) for one in given) or not any(one.ndim for one in given):
        return None
    if name in _ALONG:
        axes = _axes(args, kwargs)
        return Recipe("maxout", "winner") if prod(x.shape[axis] for axis in axes) > 1 else None
    if name not in _PAIRS:
        return Recipe(name, "value", name != "exp")
    bounds = _bounds(name, args, kwargs)
    if not any(isinstance(bound, Tensor) for bound in bounds):
        return Recipe(name, "value") if name in _SIDES else None
    kind = "clamp" if name.startswith("clamp") else name
    if len(bounds) > 1:
        plain = all(isinstance(bound, Tensor) and bound.numel() == 1 and not is_signal(bound) for bound in bounds)
        holds = plain and _holds_zero("maximum", bounds[0]) and _holds_zero("minimum", bounds[1])
        return Recipe(kind, "value") if holds else None
    if name == "clamp":
        name = "clamp_max" if "max" in kwargs or (len(args) > 1 and args[1] is None) else "clamp_min"
    other, constant = bounds[0], not is_signal(bounds[0])
    if is_signal(x) and not constant:
        return None if _is_same(x, other) else Recipe(kind, "difference", name != "logaddexp")
    if name not in _SIDES and not _holds_zero(name, other if constant else x):
        return None
    return Recipe(kind, "difference", name != "logaddexp", backward=not constant)


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Return whether two tensors are the same values in memory."""
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata and a.data_ptr() == b.data_ptr()


def _holds_zero(name: str, bound: Tensor) -> bool:
    """Return whether a bound does not clip zero and is not far from it; other bounds only limit a value."""
    if name == "logaddexp":
        return not bool(bound.any())
    if bool((bound.abs() >= REMOTE).any()):
        return False
    return bool(((bound <= 0) if name in _LOWER else (bound >= 0)).all())
