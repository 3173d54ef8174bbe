"""Architectures of timm and transformers with random weights and small inputs.

A line of ``timm.txt`` is a name that ``timm.create_model`` knows. A row of ``TRANSFORMERS`` is the stem of a class of
configuration and of a class of model, with the sizes that make it small.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["TIMM", "TRANSFORMERS", "architectures", "build", "is_there"]

# As few points as leave the axis of points easy to tell from the others.
POINTS = 5
TIMM = tuple(Path(__file__).with_name("timm.txt").read_text(encoding="utf-8").split())
_SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
_TEXT = {**_SMALL, "vocab_size": 50, "max_position_embeddings": 32, "pad_token_id": 0}
_KEYS = {**_TEXT, "num_key_value_heads": 2}
_D_MODEL = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2}
_D_MODEL |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "vocab_size": 50}
_GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50}
_VISION = {**_SMALL, "image_size": 32, "patch_size": 8}
TRANSFORMERS: Mapping[str, Mapping[str, Any]] = {
    "Albert": {**_TEXT, "embedding_size": 16},
    "Bart": _D_MODEL,
    "Bert": _TEXT,
    "Bert erf": {**_TEXT, "hidden_act": "gelu_python"},
    "BigBird": {**_TEXT, "attention_type": "original_full"},
    "Bloom": {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 50},
    "Camembert": _TEXT,
    "CodeGen": {**_GPT, "n_head": 4, "rotary_dim": 4},
    "ConvBert": {**_TEXT, "embedding_size": 16},
    "ConvNext": {"image_size": 32, "hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]},
    "Data2VecText": _TEXT,
    "Deberta": _TEXT,
    "DebertaV2": _TEXT,
    "DeiT": _VISION,
    "Dinov2": _VISION,
    "DistilBert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": 50},
    "Electra": {**_TEXT, "embedding_size": 16},
    "Ernie": _TEXT,
    "Falcon": {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50},
    "Funnel": {"block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "vocab_size": 50},
    "GPT2": _GPT,
    "GPTBigCode": _GPT,
    "GPTJ": {**_GPT, "rotary_dim": 4},
    "GPTNeo": {
        "hidden_size": 16,
        "num_layers": 2,
        "num_heads": 2,
        "attention_types": [[["global", "local"], 1]],
        "vocab_size": 50,
    },
    "GPTNeoX": _TEXT,
    "Gemma": {**_KEYS, "head_dim": 8},
    "Gemma2": {**_KEYS, "head_dim": 8},
    "IBert": _TEXT,
    "Llama": _KEYS,
    "Longformer": {**_TEXT, "attention_window": 4},
    "MBart": _D_MODEL,
    "MPNet": _TEXT,
    "Mamba": {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 50, "state_size": 4},
    "Marian": {**_D_MODEL, "pad_token_id": 0},
    "MegatronBert": _TEXT,
    "Mistral": _KEYS,
    "Mixtral": {**_KEYS, "num_local_experts": 3},
    "MobileBert": {**_TEXT, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
    "Nystromformer": {**_TEXT, "num_landmarks": 4, "segment_means_seq_len": 8},
    "OPT": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "ffn_dim": 24,
        "vocab_size": 50,
        "max_position_embeddings": 32,
        "word_embed_proj_dim": 16,
    },
    "Pegasus": _D_MODEL,
    "Persimmon": _TEXT,
    "Phi": _TEXT,
    "Phi3": _KEYS,
    "Qwen2": _KEYS,
    "RemBert": {**_TEXT, "input_embedding_size": 16},
    "ResNet": {"image_size": 32, "embedding_size": 8, "hidden_sizes": [8, 8], "depths": [1, 1]},
    "RoFormer": {**_TEXT, "embedding_size": 16},
    "Roberta": _TEXT,
    "SqueezeBert": {**_TEXT, "embedding_size": 16},
    "StableLm": _KEYS,
    "Starcoder2": _KEYS,
    "Swin": {
        "image_size": 32,
        "patch_size": 4,
        "embed_dim": 8,
        "depths": [1, 1],
        "num_heads": [2, 2],
        "window_size": 4,
    },
    "T5": {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, "vocab_size": 50},
    "ViT": _VISION,
    "ViTMSN": _VISION,
    "XGLM": {"d_model": 16, "num_layers": 2, "attention_heads": 2, "ffn_dim": 24, "vocab_size": 50},
    "XLM": {"emb_dim": 16, "n_layers": 2, "n_heads": 2, "n_words": 50},
    "XLMRoberta": _TEXT,
    "XLNet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "vocab_size": 50},
    "Yoso": _TEXT,
}


def architectures() -> Iterator[tuple[str, str]]:
    """Yield the library and the name of every architecture."""
    yield from (("timm", name) for name in TIMM)
    yield from (("transformers", name) for name in TRANSFORMERS)


def build(library: str, name: str) -> tuple[nn.Module, Tensor | dict[str, Tensor]]:
    """Return a model with random weights in eval mode, and five points for it."""
    _prepare()
    logging.disable(logging.WARNING)  # both libraries warn that weights are random
    torch.manual_seed(0)
    try:
        return _timm(name) if library == "timm" else _transformers(name)
    finally:
        logging.disable(logging.NOTSET)


def is_there(library: str) -> bool:
    """Return whether timm or transformers is installed."""
    _prepare()
    return find_spec(library) is not None


@cache
def _prepare() -> torch.library.Library:
    """Add the folder of timm and torchvision to the path, and define the operators that torchvision expects.

    They are missing because its compiled part does not fit this PyTorch; none is called. The folder is separate because
    transformers cannot be imported beside a torchvision whose operators are missing.
    """
    sys.path.append(str(Path(sys.prefix) / "zoo"))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
    return library


def _timm(name: str) -> tuple[nn.Module, Tensor]:
    import timm

    model = timm.create_model(name, pretrained=False).eval()
    small, own = torch.randn(POINTS, 3, 64, 64), torch.randn(POINTS, *model.default_cfg["input_size"])
    try:
        with torch.no_grad():
            model(small[:2])
    except Exception:  # most architectures of transformers and some others take one size of image only
        return model, own
    return model, small


def _transformers(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    import transformers

    stem = name.partition(" ")[0]
    sizes = TRANSFORMERS[name]
    model = getattr(transformers, f"{stem}Model")(getattr(transformers, f"{stem}Config")(**sizes)).eval()
    if "image_size" in sizes:
        return model, {"pixel_values": torch.randn(POINTS, 3, sizes["image_size"], sizes["image_size"])}
    words = torch.randint(3, 50, (POINTS, 8))
    inputs = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = words[:, :4]
    return model, inputs
