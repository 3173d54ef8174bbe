"""What the command line says when a network, its weights or its points are not what they should be."""

import numpy as np
import pytest
from safetensors.torch import save_file
from torch import nn

from metriscope.cli import main

SOURCE = """
from torch import nn

def net():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

def wider():
    return nn.Sequential(nn.Linear(3, 9), nn.Abs() if hasattr(nn, "Abs") else nn.ReLU(), nn.Linear(9, 2))

def nothing():
    return None

def plain():
    return nn.Linear(3, 2)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(SOURCE)
    np.save("x.npy", np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32))
    np.save("y.npy", np.arange(40) % 3)
    save_file(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).state_dict(), "w.safetensors")
    return tmp_path


def test_a_network_from_a_file_is_inspected_with_and_without_weights_and_labels(place, capsys):
    assert main(["inspect", "nets.py:net", "--data", "x.npy"]) == 0
    assert main(["inspect", "nets.py:net", "--weights", "w.safetensors", "--data", "x.npy", "--labels", "y.npy"]) == 0
    assert capsys.readouterr().out.count("report: out/report.html") == 2
    assert (place / "out" / "tables" / "layers.csv").read_text().splitlines()[1].startswith("1,relu,4")


def test_networks_of_different_width_and_saved_patterns_are_compared(place):
    from metriscope.loading import patterns_of

    assert main(["compare", "nets.py:net@w.safetensors", "nets.py:wider", "--data", "x.npy"]) == 0
    patterns_of("nets.py:net", np.load("x.npy")).save(place / "saved")
    assert main(["compare", "saved", "nets.py:wider", "--data", "x.npy", "--out", "two"]) == 0


def damaged(place):
    (place / "w.safetensors").write_bytes(b"not weights")


def with_nan(place):
    np.save("x.npy", np.full((4, 3), np.nan))


def cut(place):
    (place / "x.npy").write_bytes((place / "x.npy").read_bytes()[:90])


def objects(place):
    np.save("x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)


def leave(place):
    pass


@pytest.mark.parametrize(
    ("prepare", "words", "sentence"),
    [
        (leave, ["nets.py"], "'nets.py' does not name a network"),
        (leave, ["gone.py:net"], "there is no file gone.py"),
        (leave, ["no.such.package:net"], "cannot import no.such.package"),
        (leave, ["nets.py:gone"], "nets.py has no function or class 'gone'"),
        (leave, ["nets.py:nothing"], "nets.py:nothing returned a NoneType, not a torch.nn.Module"),
        (leave, ["nets.py:plain"], ""),
        (leave, ["nets.py:wider", "--weights", "w.safetensors"], "the weights in w.safetensors do not fit the network"),
        (leave, ["nets.py:net", "--weights", "gone.safetensors"], "there is no file gone.safetensors"),
        (damaged, ["nets.py:net", "--weights", "w.safetensors"], "w.safetensors is not a whole safetensors file"),
        (with_nan, ["nets.py:net"], "x.npy holds NaN or infinite values"),
        (cut, ["nets.py:net"], "x.npy is not a whole .npy file of plain numbers"),
        (objects, ["nets.py:net"], "x.npy is not a whole .npy file of plain numbers"),
        (leave, ["nets.py:net", "--layers", "gone*"], ""),
        (leave, ["nets.py:net", "--labels", "x.npy"], "x.npy holds an array of shape (40, 3), not one label for each"),
    ],
)
def test_bad_input_is_one_sentence(prepare, words, sentence, place, capsys):
    prepare(place)
    status = main(["inspect", *words, "--data", "x.npy"])
    error = capsys.readouterr().err.strip()
    assert status == 2
    assert error.startswith(f"metriscope: {sentence}")
    assert len(error.splitlines()) == 1
