"""What the command line says when a network, its weights or its points are not what they should be."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from metriscope.cli import main
from metriscope.reading.networks import load_model, network_name
from metriscope.reading.points import UserPoints
from metriscope.vq import Patterns
from metriscope.vq.capture.patterns import Layer
from metriscope.vq.capture.storage import sealed

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
    assert capsys.readouterr().out.count("report: out/inspect.html") == 2
    assert (
        (place / "out" / "tables" / "inspect" / "layers.csv")
        .read_text()
        .splitlines()[1]
        .startswith("0 (Linear),1,relu,4")
    )


def test_networks_of_different_width_and_saved_patterns_are_compared(place):
    from metriscope.reading.networks import patterns_of

    assert main(["compare", "nets.py:net@w.safetensors", "nets.py:wider", "--data", "x.npy"]) == 0
    patterns_of("nets.py:net", UserPoints(np.load("x.npy"))).save(place / "saved")
    assert main(["compare", "saved", "nets.py:wider", "--data", "x.npy", "--out", "two"]) == 0


def test_pages_of_ones_own_networks_stand_beside_a_studys_report(place):
    tables = place / "out" / "tables"
    tables.mkdir(parents=True)
    theirs = [place / "out" / "report.html", tables / "layers.csv", tables / "units.csv"]
    for path in theirs:
        path.write_text("a study's")
    assert main(["inspect", "nets.py:net", "--data", "x.npy"]) == 0
    assert main(["compare", "nets.py:net", "nets.py:wider", "--data", "x.npy"]) == 0
    assert all(path.read_text() == "a study's" for path in theirs)
    assert {path.name for path in (place / "out").iterdir()} == {
        "report.html",
        "inspect.html",
        "compare.html",
        "tables",
    }
    for page in ("inspect", "compare"):
        links = re.findall(r'href="(tables/[^"]*)"', (place / "out" / f"{page}.html").read_text("utf-8"))
        assert links
        assert all(link.startswith(f"tables/{page}/") and (place / "out" / link).is_file() for link in links)


@pytest.mark.parametrize("folder", ["at@home", "a:b@c"])
def test_paths_may_hold_what_stands_between_a_network_and_its_weights(folder, place, capsys):
    (place / folder).mkdir()
    for name in ("nets.py", "w.safetensors"):
        (place / folder / name).write_bytes((place / name).read_bytes())
    named = f"{folder}/nets.py:net@{folder}/w.safetensors"
    assert main(["compare", named, "nets.py:net@w.safetensors", "--data", "x.npy"]) == 0
    assert "A: net, w against B: net, w" in (place / "out" / "compare.html").read_text("utf-8")
    words = ["--weights", f"{folder}/w.safetensors", "--data", "x.npy"]
    assert main(["inspect", f"{folder}/nets.py:net", *words]) == 0
    assert main(["inspect", named, "--data", "x.npy"]) == 0
    assert main(["inspect", named, *words]) == 2
    assert f"weights are given twice: {folder}/w.safetensors and {folder}/w.safetensors" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("named", "parts"),
    [
        ("pkg.mod:net", ("pkg.mod", "net", None)),
        ("pkg.mod:net@w.safetensors", ("pkg.mod", "net", Path("w.safetensors"))),
        ("me@work/m.py:net", ("me@work/m.py", "net", None)),
        ("m.py:net@runs@2/w@1.safetensors", ("m.py", "net", Path("runs@2/w@1.safetensors"))),
        (r"C:\\m@1.py:net@D:\\w.safetensors", (r"C:\\m@1.py", "net", Path(r"D:\\w.safetensors"))),
        ("m.py:net@s3:bucket", ("m.py", "net", Path("s3:bucket"))),
    ],
)
def test_a_name_is_split_where_the_factory_ends(named, parts):
    assert network_name(named) == parts


@pytest.mark.parametrize("named", ["net", "m.py", "m.py:", ":net", "m.py:net@", "m.py:2", "saved@w.safetensors"])
def test_what_names_no_network_is_refused(named):
    with pytest.raises(ValueError, match=f"^{re.escape(repr(named))} does not name a network"):
        network_name(named)


ONE_LAYER = (Layer("1", 4, "relu"),)


def save(path, points=40, layers=ONE_LAYER, ids=None, fill=0):
    row = sum(layer.bytes for layer in layers)
    Patterns(layers, np.full((points, row), fill, np.uint8), ids).save(path)
    return path


def broken_index(path, **fields):
    index = json.loads((path / "index.json").read_text())
    del index["format"], index["sha256"]
    (path / "index.json").write_bytes(sealed(index | fields))


def flipped(path):
    shard = path / "shard-00000.safetensors"
    data = bytearray(shard.read_bytes())
    data[-1] ^= 255
    shard.write_bytes(bytes(data))


def strange_shape(path):
    index = json.loads((path / "index.json").read_text())
    index["layers"][0]["width"] = -8
    broken_index(path, layers=index["layers"])


def headless(path):
    shard = path / "shard-00000.safetensors"
    data = shard.read_bytes()
    shard.write_bytes((2).to_bytes(8, "little") + b"[]" + data[10:])


DAMAGES = {
    "no index": (lambda p: (p / "index.json").unlink(), r"cannot load the patterns from saved: index\.json: missing"),
    "no shard": (
        lambda p: (p / "shard-00000.safetensors").unlink(),
        r"cannot load the patterns from saved: shard-00000\.safetensors: missing",
    ),
    "a flipped bit": (flipped, "cannot load the patterns from saved: .* its content is not what was written"),
    "another count": (lambda p: broken_index(p, points=7), "cannot load the patterns from saved: .*7 points"),
    "a negative width": (strange_shape, "cannot load the patterns from saved: "),
    "no header": (headless, "cannot load the patterns from saved: .* not safetensors"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_of_patterns_is_one_sentence(damage, place, capsys):
    harm, sentence = DAMAGES[damage]
    harm(save(place / "saved"))
    assert main(["compare", "saved", "nets.py:net", "--data", "x.npy"]) == 2
    error = capsys.readouterr().err.strip()
    assert re.match(f"metriscope: {sentence}", error)
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("saved", "words", "sentence"),
    [
        (
            {"points": 30},
            [],
            "saved and good cannot be compared: the patterns are of different points: 30 of them against",
        ),
        ({"ids": [f"p{i}" for i in range(40)]}, [], "saved and good cannot be compared: the patterns are of different"),
        (
            {"ids": [*range(39), 77]},
            [],
            "saved and good cannot be compared: .* 1 of 40 ids differ, the first at row 39",
        ),
        ({"points": 0}, [], "saved holds patterns of no points"),
        ({"layers": (Layer("1", 4, "relu"), Layer("void", 0, "relu"))}, [], "saved holds no signs in layer 'void'"),
        ({"layers": ()}, [], "saved holds no signs: it has no layers"),
        ({"fill": 255}, [], "saved is not a folder of saved patterns: layer '1' has 4 bits per point, but bits beyond"),
        ({"points": 30}, ["--data", "x.npy"], "saved holds patterns of 30 points, but --data has 40"),
    ],
)
def test_saved_patterns_that_cannot_be_compared_are_one_sentence(saved, words, sentence, place, capsys):
    save(place / "saved", **saved)
    save(place / "good")
    assert main(["compare", "saved", "good", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert re.match(f"metriscope: {sentence}", error)
    assert len(error.splitlines()) == 1
    assert not (place / "out").exists()


def test_a_folder_that_is_not_there_is_not_taken_for_a_network(place, capsys):
    assert main(["compare", "gone", "nets.py:net"]) == 2
    assert "'gone' does not name a network or a folder of saved patterns" in capsys.readouterr().err


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


def misspelled(place):
    state = load_file(place / "w.safetensors")
    save_file({"wieght" if at == 0 else name: value for at, (name, value) in enumerate(state.items())}, "w.safetensors")


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_weights_saved_from_a_wrapped_network_are_loaded(prefix, place):
    state = load_file(place / "w.safetensors")
    save_file({f"{prefix}{name}": value for name, value in state.items()}, "wrapped.safetensors")
    model = load_model("nets.py:net", place / "wrapped.safetensors")
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


MISFIT = "the weights in w.safetensors do not fit the network"


@pytest.mark.parametrize(
    ("prepare", "words", "sentence"),
    [
        (leave, ["nets.py"], "'nets.py' does not name a network"),
        (leave, ["gone.py:net"], "there is no file gone.py"),
        (leave, ["no.such.package:net"], "cannot import no.such.package"),
        (leave, ["nets.py:gone"], "nets.py has no function or class 'gone'"),
        (leave, ["nets.py:nothing"], "nets.py:nothing returned a NoneType, not a torch.nn.Module"),
        (leave, ["nets.py:plain"], ""),
        (leave, ["nets.py:wider", "--weights", "w.safetensors"], MISFIT),
        (
            misspelled,
            ["nets.py:net", "--weights", "w.safetensors"],
            f"{MISFIT}: the file lacks '0.bias' and holds 'wieght', which",
        ),
        (leave, ["nets.py:net", "--weights", "gone.safetensors"], "there is no file gone.safetensors"),
        (damaged, ["nets.py:net", "--weights", "w.safetensors"], "w.safetensors is not a complete safetensors file"),
        (with_nan, ["nets.py:net"], "x.npy holds NaN or infinite values"),
        (cut, ["nets.py:net"], "x.npy is not a complete .npy file of numbers"),
        (objects, ["nets.py:net"], "x.npy holds Python objects, which are not read: save numbers"),
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
