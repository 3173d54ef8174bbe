"""The recipes of CONTRIBUTING, performed: a study, an activation, a head and a data set cost one row each."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import metriscope as ms
from metriscope import data
from metriscope.cli import main
from metriscope.data.dataset import Labeled
from metriscope.data.registry import ROWS, Row
from metriscope.nn import ACTIVATIONS, ARCHITECTURES, HEADS, Activation, Architecture, Head, Mahalanobis
from metriscope.report.style import COLORS
from metriscope.rng import stream
from metriscope.studies import STUDIES
from metriscope.studies.ledger import entries
from metriscope.train import Protocol, StackedEngine, engine_for
from metriscope.train.classifiers import advance, classifier, examples


@pytest.fixture
def sketch(monkeypatch):
    """The registration row of a fourth study, and nothing else."""
    monkeypatch.setitem(STUDIES, "sketch", "studies.sketch")


def verdicts(out):
    with (out / "tables" / "verdicts.csv").open(encoding="utf-8") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_a_study_is_a_folder_and_its_registration_row(sketch, tmp_path, capsys):
    assert main(["reproduce", "sketch", "--coins", "7", "--out", str(tmp_path)]) == 0
    assert "sketch: training (runs: 7 computed, 0 from the store)" in capsys.readouterr().out
    assert {entry.id: entry.study for entry in entries()}["X01"] == "sketch"
    found = verdicts(tmp_path)
    assert len(found) == 33
    assert (found["X01"]["verdict"], found["X01"]["strength"], found["X01"]["origin"]) == ("supported", "hint", "run")
    assert (found["C01"]["verdict"], found["C01"]["strength"]) == ("undecided", "not run")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Coins fall on heads." in page
    assert re.search(r"<b>1</b> supported \(1 hint\)", page[: page.index("<h2>")])


def test_the_help_of_a_study_shows_its_own_options_and_how_long_it_takes(sketch, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["reproduce", "sketch", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "--coins" in text
    assert "quick: a moment" in text
    assert "--dims" not in text
    assert "--budget" in text


def test_a_budget_that_is_used_up_is_said_and_the_same_command_goes_on(sketch, tmp_path, capsys):
    small = ["reproduce", "sketch", "--out", str(tmp_path)]
    assert main([*small, "--budget", "0.000001s"]) == 0
    assert "run the same command to continue" in capsys.readouterr().out
    assert verdicts(tmp_path)["X01"]["strength"] == "not run"
    assert verdicts(tmp_path)["X01"]["reason"].startswith("The budget ended before this study was done")
    assert main(small) == 0
    assert verdicts(tmp_path)["X01"]["verdict"] == "supported"


def test_what_the_runs_record_is_reported_and_not_what_renders_the_page(sketch, tmp_path, monkeypatch):
    from metriscope.runs import provenance as module

    small = ["reproduce", "sketch", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(module, "_code", lambda: {"commit": "a" * 40, "dirty": False})
        assert main(small) == 0
    assert main(small) == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "a" * 40 in page


def test_an_activation_is_one_row(monkeypatch):
    row = Activation("Cubic", type("Cubic", (nn.Module,), {"forward": lambda self, z: z**3}), lambda z: z**3)
    monkeypatch.setitem(ACTIVATIONS, "cubic", row)
    monkeypatch.setitem(ARCHITECTURES, "cubic", Architecture(hidden="cubic"))
    layer = Mahalanobis(3, activation="cubic", generator=stream(0, "start"))
    assert layer.linear.out_features == 6
    assert row.derivative(torch.tensor([2.0])).item() == pytest.approx(12.0)
    x = torch.randn(20, 3, generator=stream(0, "x"))
    assert isinstance(engine_for(layer, x, x.norm(dim=1), Protocol(epochs=1), (0,)), StackedEngine)
    assert COLORS["cubic"].startswith("#")
    assert ms.architectures()["cubic"] == ("Linear", "Cubic", "Linear (no bias)")
    model = ms.build("cubic", 3, 4, 2, stream(1, "start"))
    labels = (np.arange(20) % 2).astype(np.int64)
    losses, _ = advance([classifier("cubic", model.state_dict())], examples(x.numpy(), labels), 30, lr=0.05)
    assert losses[0, -1] < losses[0, 0]


def test_gelu_is_read_by_capture_from_the_same_row():
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU())
    (layer,) = ms.capture(model, torch.randn(5, 3, generator=stream(2, "x"))).layers
    assert (layer.kind, layer.piecewise_affine) == ("gelu", ACTIVATIONS["gelu"].piecewise_affine)


class Cosine(nn.Module):
    """Cosine similarity to learned directions."""

    def __init__(self, units: int, outputs: int, generator: torch.Generator | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, units, generator=generator))

    def forward(self, h):
        return F.normalize(h, dim=-1) @ F.normalize(self.weight, dim=-1).mT


def test_a_head_is_one_row(monkeypatch):
    monkeypatch.setitem(HEADS, "cosine", Head("Cosine", lambda units, outputs, bias, g: Cosine(units, outputs, g)))
    monkeypatch.setitem(ARCHITECTURES, "relu-cosine", Architecture(hidden="relu", head="cosine"))
    assert ms.architectures()["relu-cosine"] == ("Linear", "ReLU", "Cosine")
    model = ms.build("relu-cosine", 3, 8, 2, stream(0, "start"))
    x = torch.randn(40, 3, generator=stream(3, "x")).numpy()
    labels = (x[:, 0] > 0).astype(np.int64)
    losses, _ = advance([classifier("relu-cosine", model.state_dict())], examples(x, labels), 40, lr=0.5)
    assert losses[0, -1] < losses[0, 0]


def test_a_data_set_is_one_row(monkeypatch):
    x, y = np.arange(8, dtype=np.uint8).reshape(4, 2), np.array([0, 1, 0, 1])
    read = lambda paths: (Labeled(x, y), Labeled(x[:2], y[:2]))  # noqa: E731
    monkeypatch.setitem(ROWS, "tiny", Row("table", 4, 2, 2, read))
    assert "tiny" in data.names()
    assert len(data.load("tiny").train) == 4
