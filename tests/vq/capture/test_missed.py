"""What a capture says of operations that it did not take, and of rows that may not be points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from metriscope.vq import Missed, MissedOperation, Patterns, capture, describe
from metriscope.vq.capture.operators import NOT_UNITS
from metriscope.vq.capture.storage import sealed
from vq.capture.networks import NETWORKS, Calls, drawn, points
from vq.capture.ways import WAYS, table


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.code)
def test_every_way_to_write_an_activation_is_seen_or_named(way):
    seen, missed = way.found
    assert (seen, missed) == (way.seen, way.missed)
    assert seen or missed


def test_there_are_at_least_sixty_ways_and_none_twice():
    assert len({way.code for way in WAYS}) == len(WAYS) >= 60


@pytest.mark.parametrize("name", NETWORKS)
def test_nothing_is_missed_in_a_network_of_known_activations(name):
    kind, shape = NETWORKS[name]
    p = capture(drawn(kind()), points(4, *shape), strict=True)
    assert not p.missed
    assert str(p.missed) == f"{len(p.layers)} layers taken; nothing missed"


class Mixed(nn.Module):
    """Layers that are taken, others that are not, and some that compute no units."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 6), nn.LayerNorm(6), Calls(torch.round, 6, 6)

    def forward(self, x):
        h = self.norm(F.relu(self.first(x)))
        for _ in range(3):
            h = torch.hypot(h, h + 1) + 1
        h = h * (1 + torch.cos(h))
        return F.normalize(self.last(h).softmax(-1))


def test_the_sentence_counts_what_ran_and_was_not_taken():
    p = capture(Mixed(), points(5, 4))
    assert str(p.missed) == "1 layer taken; also ran: hypot x3, cos x1, round x1"
    table = p.missed.to_pandas()
    assert set(table["role"]) == {"missed", "normalization", "softmax", "product of two signals"}
    assert table.loc[table["what"] == "round", "where"].tolist() == ["last"]


def test_strict_refuses_with_the_sentence():
    with pytest.raises(ValueError, match="strict: 1 layer taken; also ran: hypot x3, cos x1, round x1"):
        capture(Mixed(), points(5, 4), strict=True)


def test_a_description_ends_with_the_sentence():
    assert str(describe(Mixed(), points(5, 4))).endswith("\n1 layer taken; also ran: hypot x3, cos x1, round x1")


def test_a_model_without_a_known_activation_is_refused_with_what_ran():
    with pytest.raises(ValueError, match=r"ran no known activation \(0 layers taken; also ran: cos x1\)"):
        capture(Calls(torch.cos), points(3, 4))


def test_what_was_missed_is_saved_kept_by_rows_and_layers_and_joined(tmp_path):
    p = capture(Mixed(), points(5, 4))
    p.save(tmp_path / "p")
    assert Patterns.load(tmp_path / "p").missed == p.missed
    assert p[1:3].missed == p.layer("relu()").missed == p.missed
    assert Patterns.concatenate([p[:2], p[2:]]).missed == p.missed
    index = json.loads((tmp_path / "p" / "index.json").read_text())
    del index["missed"], index["format"], index["sha256"]
    (tmp_path / "p" / "index.json").write_bytes(sealed(index))
    assert Patterns.load(tmp_path / "p").missed == Missed(1)
    index["missed"] = {"taken": 1, "operations": [{"what": 3}], "doubts": []}
    (tmp_path / "p" / "index.json").write_bytes(sealed(index))
    with pytest.raises(Exception, match="what was missed is not a record"):
        Patterns.load(tmp_path / "p")


def test_all_parts_of_the_sentence():
    found = Missed(
        12,
        (
            MissedOperation("where", "missed", "", 1, "a"),
            MissedOperation("where", "missed", "", 2, "b"),
            MissedOperation("LSTM", "missed", "", 1),
            MissedOperation("softmax", "softmax", "", 7),
            MissedOperation("relu", "dropped", "rows are not points", 1, "c"),
            MissedOperation("gelu", "dropped", "rows are not points", 1, "d"),
        ),
    )
    assert str(found) == "12 layers taken; also ran: where x3, LSTM x1; dropped: 2 (rows are not points)"
    assert found
    assert not Missed(3, (MissedOperation("softmax", "softmax", "", 7),))


class Transformer(nn.Module):
    """A transformer block with a mask, positions and a normalization written by hand: nothing in it is missed."""

    def __init__(self):
        super().__init__()
        self.embedding, self.attention = nn.Embedding(9, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.up, self.down = RMSNorm(), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, input_ids, attention_mask):
        place = torch.arange(input_ids.shape[1])[:, None] / 10.0 ** torch.arange(8)
        h = self.embedding(input_ids) + torch.where(torch.arange(8) % 2 == 0, place.sin(), place.cos())
        h = h + self.attention(h, h, h, key_padding_mask=attention_mask == 0, need_weights=False)[0]
        return self.down(F.silu(self.up(self.norm(h)))) * attention_mask[..., None]


class RMSNorm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def test_masks_positions_attention_and_normalization_are_not_taken_for_activations():
    ids = torch.arange(12).reshape(3, 4) % 9
    p = capture(drawn(Transformer()), {"input_ids": ids, "attention_mask": (ids > 1).long()}, strict=True)
    assert {"normalization", "attention"} <= set(p.missed.to_pandas()["role"]) | {"attention"}
    assert [layer.kind for layer in p.layers] == ["silu"]


class Counting(nn.Module):
    """A model that keeps a counter, a hidden state and a buffer."""

    def __init__(self):
        super().__init__()
        self.calls, self.hidden = 0, None
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls, self.hidden = self.calls + 1, x if self.hidden is None else x + self.hidden
        self.seen += len(x)
        return F.relu(self.hidden)


def test_the_probe_leaves_no_trace_in_attributes_and_buffers():
    model = Counting()
    p = capture(model, points(4, 3))
    assert (model.calls, int(model.seen)) == (1, 4)
    assert torch.equal(model.hidden, points(4, 3))
    assert not any("also ran" in part for part in str(p.missed).split("; "))


def test_hooks_that_collect_values_see_each_point_once():
    model = drawn(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    rows = []
    model[1].register_forward_pre_hook(lambda module, args: rows.append(args[0].detach()))
    p = capture(model, points(7, 4), batch_size=3)
    assert ((torch.cat(rows) >= 0).numpy() == (p.signs() > 0)).all()


def test_a_hook_that_changes_values_is_part_of_the_model():
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    model[0].register_forward_hook(lambda module, args, output: output.unsqueeze(1).transpose(0, 1))
    p = capture(model, points(7, 4))
    assert p.packed.shape[0] == 7
    assert not p.missed


def test_a_model_for_one_number_of_points_is_captured_with_a_doubt():
    class Fixed(nn.Module):
        def forward(self, x):
            return F.relu(x.reshape(6, 4)) + torch.cos(x)

    p = capture(Fixed(), points(6, 4))
    assert "also ran: cos x1; not checked which axis holds the points: the model does not run on another" in str(
        p.missed
    )
    assert (p.signs() > 0).tolist() == (points(6, 4) >= 0).tolist()


def test_the_table_of_ways_in_the_docs_is_up_to_date():
    text = (Path(__file__).parents[3] / "docs" / "capture.md").read_text(encoding="utf-8")
    assert table() in text, "run python -m vq.capture.ways in tests/ with the package on the path"
    for role in set(NOT_UNITS.values()):
        assert f"| {role} |" in text


def test_values_that_leave_pytorch_on_their_way_are_captured_and_told():
    class Away(nn.Module):
        def forward(self, x):
            return F.relu(torch.from_numpy(x.numpy() * 2.0)).tanh()

    p = capture(Away(), points(5, 3))
    assert [layer.kind for layer in p.layers] == ["relu", "tanh"]
    assert str(p.missed) == "2 layers taken; also ran: numpy x1"


def test_an_activation_of_weights_is_left_out_whatever_its_shape():
    class Weighed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return F.relu(x @ torch.tanh(2 * self.scale))

    # Four points of four features: shapes of one batch could not tell.
    p = capture(Weighed(), points(4, 4))
    assert [layer.kind for layer in p.layers] == ["relu"]
    assert not p.missed
