"""Points of a user: arrays, named arrays and folders of pictures, and weights that are read without running code."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from metriscope.cli import main
from metriscope.reading.points import UserPoints, load_points

SOURCE = """
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.fc = nn.Embedding(20, 6), nn.Linear(6, 5)
    def forward(self, input_ids, attention_mask):
        return {"state": self.fc(self.words(input_ids)).relu() * attention_mask[..., None]}

def cnn():
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(300, 2))

def mlp():
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(SOURCE)
    rng = np.random.default_rng(0)
    np.save("x.npy", rng.normal(size=(20, 3)).astype(np.float32))
    return tmp_path


def pictures(folder, sizes=((12, 12),), mode="L"):
    rng = np.random.default_rng(0)
    for i in range(12):
        path = folder / ("cats" if i % 2 else "dogs") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        shape = (*sizes[i % len(sizes)], 3) if mode == "RGB" else sizes[i % len(sizes)]
        Image.fromarray(rng.integers(0, 256, shape).astype(np.uint8)).save(path)


def test_a_folder_of_pictures_is_read_with_its_subfolders_as_labels(place):
    pictures(place / "pets")
    found = load_points(place / "pets")
    assert (len(found), found.picture_shape) == (12, (1, 12, 12))
    assert sorted(set(found.labels)) == ["cats", "dogs"]
    first = np.asarray(Image.open(place / "pets" / "cats" / "1.png")) / 255
    np.testing.assert_allclose(found.take(np.array([0]))[0, 0], first, atol=1e-6)
    np.testing.assert_array_equal(found.pictures(np.array([0]))[0, :, :, 0], np.round(255 * first))
    assert main(["inspect", "nets.py:cnn", "--data", "pets", "--batch-size", "5"]) == 0
    text = (place / "out" / "inspect.html").read_text("utf-8")
    assert "label cats" in text
    assert "12 points, 300 signs per point" in text
    assert main(["inspect", "nets.py:cnn", "--data", "pets", "--conv", "channels"]) == 0
    assert "12 points, 3 signs per point" in (place / "out" / "inspect.html").read_text("utf-8")


def test_pictures_of_different_sizes_need_one_to_be_named(place, capsys):
    pictures(place / "pets", ((12, 12), (10, 14)), "RGB")
    assert main(["inspect", "nets.py:cnn", "--data", "pets"]) == 2
    error = capsys.readouterr().err.strip()
    assert "the pictures have different sizes" in error
    assert error.endswith("--image-size resizes them to one")
    assert load_points(place / "pets", 8).take(slice(0, 2)).shape == (2, 3, 8, 8)


def test_named_arrays_are_handed_over_by_name_with_their_labels_and_texts(place):
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(0, 20, (16, 5)), np.tile([1, 1, 1, 1, 0], (16, 1))
    texts = np.array([f"words {i}" for i in range(16)])
    np.savez("s.npz", input_ids=ids, attention_mask=mask, labels=np.arange(16) % 2, texts=texts)
    assert main(["inspect", "nets.py:Encoder", "--data", "s.npz"]) == 0
    text = (place / "out" / "inspect.html").read_text("utf-8")
    assert "16 points, 5 signs per point; tokens pooled (mean)" in text
    assert "words 3" in text
    assert "fc (Linear)" in text
    assert main(["inspect", "nets.py:Encoder", "--data", "s.npz", "--tokens", "positions"]) == 0
    assert "16 points, 25 signs per point" in (place / "out" / "inspect.html").read_text("utf-8")


def test_a_single_named_array_is_the_input_itself(place):
    np.savez("one.npz", x=np.load("x.npy"), y=np.arange(20) % 2, columns=np.array(["a", "b", "c"]))
    found = load_points(place / "one.npz")
    assert isinstance(found.inputs, np.ndarray)
    assert found.columns.tolist() == ["a", "b", "c"]
    assert main(["inspect", "nets.py:mlp", "--data", "one.npz"]) == 0
    assert "The network answers" in (place / "out" / "inspect.html").read_text("utf-8")


@pytest.mark.parametrize("wrap", [lambda state: state, lambda state: {"state_dict": state, "epoch": 3}])
def test_a_state_dict_in_a_pt_file_is_loaded(wrap, place):
    torch.save(wrap(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).state_dict()), "w.pt")
    assert main(["inspect", "nets.py:mlp", "--weights", "w.pt", "--data", "x.npy"]) == 0
    assert main(["compare", "nets.py:mlp@w.pt", "nets.py:mlp", "--data", "x.npy"]) == 0


def whole(path):
    torch.save(nn.Linear(3, 4), path)


def numbers(path):
    torch.save([1, 2], path)


def noise(path):
    path.write_bytes(b"noise")


@pytest.mark.parametrize(
    ("write", "sentence"),
    [
        (whole, "w.pt cannot be read: it holds more than tensors, and only tensors are read"),
        (numbers, "w.pt holds no state dict: save model.state_dict()"),
        (noise, "w.pt cannot be read: "),
    ],
)
def test_a_pt_file_of_anything_else_is_refused_in_one_sentence(write, sentence, place, capsys):
    write(place / "w.pt")
    assert main(["inspect", "nets.py:mlp", "--weights", "w.pt", "--data", "x.npy"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"metriscope: {sentence}")
    assert len(error.splitlines()) == 1


def lengths(place):
    np.savez("bad.npz", a=np.zeros((3, 2)), b=np.zeros((4, 2)))


def labels_only(place):
    np.savez("bad.npz", labels=np.zeros(3))


def words(place):
    np.savez("bad.npz", a=np.array(["x", "y"]))


def empty(place):
    (place / "bad.npz").mkdir()


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lengths, "the arrays of bad.npz have different numbers of points: {'a': 3, 'b': 4}"),
        (labels_only, "bad.npz holds no points: beside labels and texts it has no array"),
        (words, "a of bad.npz holds words, not numbers"),
        (empty, "bad.npz holds no pictures"),
    ],
)
def test_points_that_cannot_be_read_are_one_sentence(prepare, sentence, place, capsys):
    prepare(place)
    assert main(["inspect", "nets.py:mlp", "--data", "bad.npz"]) == 2
    assert capsys.readouterr().err.strip().startswith(f"metriscope: {sentence}")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--device", "nowhere"], "the device 'nowhere' cannot be used"),
        (["--batch-size", "0"], "--batch-size must be at least 1, got 0"),
    ],
)
def test_options_that_cannot_be_are_one_sentence(options, sentence, place, capsys):
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy", *options]) == 2
    assert capsys.readouterr().err.strip().startswith(f"metriscope: {sentence}")


def test_the_explorer_shows_a_plane_through_three_of_the_points(place):
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy", "--explore"]) == 0
    assert 'href="explore.html"' in (place / "out" / "inspect.html").read_text("utf-8")
    assert (place / "out" / "explore.html").is_file()


def test_three_points_fit_on_their_plane():
    from metriscope.report.explorer.own_plane import _plane

    points = np.random.default_rng(0).normal(size=(3, 2, 5))
    (origin, u, v), places = _plane(points)
    np.testing.assert_allclose(
        origin + np.einsum("n,ij->nij", places[:, 0], u) + np.einsum("n,ij->nij", places[:, 1], v), points
    )
    assert np.abs(places).max() < 1
    assert np.vdot(u, v) == pytest.approx(0)
    assert np.linalg.norm(u) == pytest.approx(np.linalg.norm(v))


@pytest.mark.parametrize(
    ("shape", "picture"),
    [
        ((5, 3, 8, 8), (3, 8, 8)),
        ((5, 8, 8, 3), (8, 8, 3)),
        ((5, 28, 28), (1, 28, 28)),
        ((5, 784), (1, 28, 28)),
        ((5, 30), None),
        ((5, 7, 9), None),
    ],
)
def test_points_are_pictures_where_their_shape_is_that_of_one(shape, picture):
    found = UserPoints(np.random.default_rng(0).random(shape))
    assert found.picture_shape == picture
    if picture is not None:
        channels = picture[0] if picture[0] in (1, 3) else picture[2]
        assert found.pictures(np.arange(2)).shape[-1] == channels
