"""What each operator of PyTorch does to the values of points: keep them linear, or bend them.

An operator is linear, a product of two signals (values that depend on the points), known not to compute units
(``NOT_UNITS``), or named as missed where no captured layer explains it. An operator that no table knows is named: it is
better to name one too many than to miss one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["COMPARISONS", "FUSED", "LOOKUPS", "NOT_UNITS", "PRODUCTS", "USES", "function_role"]
__all__ += ["fused_function", "operator_name", "passes_values", "verdict"]


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

#: What an operator is that bends values and is no unit, by the operator's name.
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
    # Never given a negative value, so that there is no side to tell.
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), "function of positive values"),
    **dict.fromkeys(("linalg_vector_norm", "norm", "frobenius_norm", "_cdist_forward", "_euclidean_dist"), "distance"),
    **dict.fromkeys(("cdist", "dist", "pairwise_distance", "_pdist_forward"), "distance"),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward", "mse_loss", "smooth_l1_loss", "huber_loss"), "loss"),
    **dict.fromkeys(("binary_cross_entropy", "binary_cross_entropy_with_logits", "_ctc_loss", "kl_div"), "loss"),
}

_RECURRENT = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
_CELLS = {"lstm_cell": "LSTMCell", "gru_cell": "GRUCell", "rnn_tanh_cell": "RNNCell", "rnn_relu_cell": "RNNCell"}
#: Kernels with activations inside, by the operator's name, and what they are called.
FUSED: dict[str, str] = {
    **_RECURRENT,
    **_CELLS,
    **{"mkldnn_rnn_layer": "LSTM", "_cudnn_rnn": "RNN", "_thnn_fused_lstm_cell": "LSTMCell"},
    **{"_thnn_fused_gru_cell": "GRUCell", "_transformer_encoder_layer_fwd": "fused transformer layer"},
}
# A quantized kernel ends in the name of the activation inside it; others are linear.
_FUSED_QUANTIZED = re.compile(r"relu|tanh|sigmoid|elu|hardswish|gelu|silu|lstm|gru|rnn|softmax|clamp|threshold")

_QUANTIZED = frozenset(("quantized", "quantized_decomposed", "onednn", "_quantized"))

# Functions of PyTorch that are made of several operators, and what they are.
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
# What a hand-written normalization is made of.
_OF_NORMALIZATION = _words("pow square mul sqrt rsqrt reciprocal abs clamp clamp_min div var std maximum")
_NORMALIZATION = re.compile(r"norm", re.IGNORECASE)


def function_role(function: Any) -> str:
    """Return what a PyTorch function is that computes no units, such as ``"softmax"``; empty if it may compute some.

    >>> function_role(F.normalize), function_role(torch.relu)
    ('normalization', '')
    """
    try:
        return _ROLES.get(function, "")
    except TypeError:  # not hashable
        return ""


def fused_function(function: Any) -> str:
    """Return what a function is called that has activations inside, such as ``"LSTM"``; empty for any other.

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
    """Return what an operator on signals is called if it bends values, and its role if it computes no units.

    Parameters
    ----------
    func : operator
        The operator, and ``args`` its positional arguments.
    args : sequence
        The positional arguments.
    signals : sequence of Tensor
        Those arguments that depend on the points.
    compared : bool
        Whether an argument is the outcome of a comparison of signals.
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
    """Return what a linear operator is if signals are multiplied or divided by signals; empty if they are not."""
    if name not in PRODUCTS:
        return ""
    if len(signals) > 1:
        return "square" if name == "mul" and signals[0] is signals[1] else "product"
    divides = name in ("div", "true_divide") and len(args) > 1 and args[1] is signals[0]
    return "reciprocal" if divides else ""
