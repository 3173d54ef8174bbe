"""What inspect and compare write and say: the explorer and its limits, where all came from, and what was left out."""

import json
import re
from base64 import b64decode
from hashlib import sha256
from html import unescape

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from metriscope.cli import main
from metriscope.reading.inspection import Subject, inspected
from metriscope.reading.points import UserPoints
from metriscope.reading.sources import digest
from metriscope.report.explorer import own_plane
from metriscope.vq import capture

SOURCE = """
import torch
from torch import nn

def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))

def smooth():
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(SOURCE)
    rng = np.random.default_rng(0)
    np.save("x.npy", (100 * rng.normal(size=(120, 3))).astype(np.float32))
    np.save("y.npy", np.arange(120) % 2)
    for seed in (1, 2):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        torch.save(net.state_dict(), f"w{seed}.pt")
    return tmp_path


def page(place, name="inspect"):
    text = (place / "out" / f"{name}.html").read_text("utf-8")
    return unescape(
        " ".join(re.sub("<script.*?</script>|<[^>]*>", " ", text.split("<body>")[1], flags=re.DOTALL).split())
    )


def shown(place):
    """Return the scene of the explorer."""
    text = (place / "out" / "explore.html").read_text("utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])["scenes"][0]


def decode(encoded):
    kind, text = encoded
    return np.frombuffer(b64decode(text), f"<{kind}")


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_a_network_that_the_explorer_cannot_draw_still_has_its_page(quiet, place, capsys):
    assert main(["inspect", "nets.py:smooth", "--data", "x.npy", "--explore", *quiet]) == 0
    printed = capsys.readouterr()
    why = "explore.html was left out: layer '1' (gelu) is not piecewise affine"
    assert next(line for line in printed.err.splitlines() if "explore" in line).startswith(f"metriscope: {why}")
    assert printed.out == "report: out/inspect.html\n"
    assert why in page(place)
    assert not (place / "out" / "explore.html").exists()


def test_the_help_says_what_the_explorer_can_draw(capsys):
    with pytest.raises(SystemExit):
        main(["inspect", "--help"])
    text = " ".join(re.sub("[│╭╰─]", " ", capsys.readouterr().out).split())
    assert "piecewise affine (ReLU, not GELU or SiLU)" in text


def test_the_explorer_measures_in_the_units_of_the_data_and_names_its_points(place, capsys):
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy", "--explore"]) == 0
    assert capsys.readouterr().out == "report: out/inspect.html\nexplore: out/explore.html\n"
    ids = re.search(r"through the points (\d+) \(white\), (\d+) \(black\), (\d+) \(orange\)\.", page(place, "explore"))
    x = np.load("x.npy")[[int(one) for one in ids.groups()]].astype(float)
    scene = shown(place)
    places = decode(scene["points"]).reshape(3, 2)
    np.testing.assert_allclose(
        np.linalg.norm(places[:, None] - places, axis=2), np.linalg.norm(x[:, None] - x, axis=2), rtol=1e-5, atol=1e-4
    )
    assert "zoomed" not in page(place, "explore")


def test_a_view_that_is_zoomed_in_says_so_and_keeps_the_units(place, monkeypatch):
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy", "--explore"]) == 0
    wide = shown(place)
    regions = len(decode(wide["starts"])) - 1
    monkeypatch.setattr(own_plane, "REGIONS", regions - 1)
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy", "--explore"]) == 0
    found = re.search(r"zoomed in (\d+) times.*?It holds (\w+) of the three points\.", page(place, "explore"))
    narrow = shown(place)
    assert narrow["bounds"][0][1] == pytest.approx(wide["bounds"][0][1] / int(found[1]))
    assert found[2] == ("none", "one", "two", "all")[len(decode(narrow["labels"]))]
    assert f"zoomed in {found[1]} times" in page(place)


def test_a_page_says_what_it_is_about(place, capsys):
    words = ["inspect", "nets.py:mlp", "--weights", "w1.pt", "--data", "x.npy", "--labels", "y.npy"]
    assert main(words) == 0
    text = page(place).split("Provenance")[-1]
    assert f"command metriscope {' '.join(words)}" in text
    for file in ("nets.py", "w1.pt", "x.npy", "y.npy"):
        assert sha256((place / file).read_bytes()).hexdigest()[:12] in text
    assert "no weights" not in capsys.readouterr().err


def test_a_network_without_weights_is_said_to_be_as_its_factory_returned_it(place, capsys):
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy"]) == 0
    assert "no weights were given for nets.py:mlp; those that the factory set are used" in capsys.readouterr().err
    assert "weights as the factory returned them" in page(place)
    assert "labels none" in page(place)
    assert main(["inspect", "nets.py:mlp", "--data", "x.npy", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_compare_names_both_networks_and_their_weights(place, capsys):
    assert main(["compare", "nets.py:mlp@w1.pt", "nets.py:mlp", "--data", "x.npy"]) == 0
    text = page(place, "compare").split("Provenance")[-1]
    assert f"weights w1.pt (SHA-256 of its content: {digest(place / 'w1.pt')})" in text
    assert "weights as the factory returned them" in text
    assert capsys.readouterr().err.count("no weights were given") == 1


def test_a_folder_has_the_digest_of_its_files_and_their_names(tmp_path):
    for name, content in (("a", b"1"), ("b/c", b"2")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    before = digest(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", before)
    (tmp_path / "b" / "c").rename(tmp_path / "b" / "d")
    assert digest(tmp_path) != before


def test_answers_of_both_networks_are_shown_and_kept_and_different_ones_listed(place):
    words = ["compare", "nets.py:mlp@w1.pt", "nets.py:mlp@w2.pt", "--data", "x.npy"]
    assert main(words) == 0
    x = torch.from_numpy(np.load("x.npy"))
    answers = {}
    for name, file in (("A answers", "w1.pt"), ("B answers", "w2.pt")):
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        net.load_state_dict(torch.load(file, weights_only=True))
        answers[name] = net(x).argmax(1).numpy()
    text, tables = page(place, "compare"), place / "out" / "tables" / "compare"
    assert "A answers B answers" in text
    assert "answered" not in text
    different = np.flatnonzero(answers["A answers"] != answers["B answers"])
    assert len(different) > 20, "the case should have more points than are listed"
    listed = pd.read_csv(tables / "different-answers.csv")
    assert len(listed) == 20
    assert set(listed["point"]) <= set(different)
    assert listed["agreement"].is_monotonic_increasing
    assert f"20 of {len(different)} points with different answers" in text
    for table in (listed, pd.read_csv(tables / "disagreements.csv")):
        for name, own in answers.items():
            np.testing.assert_array_equal(table[name], own[table["point"]])


def deep():
    """Return a network whose last layer is the cheapest, and points for it."""
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 6), nn.ReLU(),
        nn.Linear(6, 2),
    )  # fmt: skip
    x = np.random.default_rng(0).normal(size=(40, 1, 8, 8)).astype(np.float32)
    return Subject("net", capture(net, x), None, net, UserPoints(x))


def test_the_cheapest_layers_are_read_first_and_those_that_there_is_no_time_for_are_named():
    subject, said = deep(), []
    found = inspected(subject, said.append)
    assert [line for line in said if line.startswith("reading")] == [
        f"reading {name}" for name in ("5 (Linear)", "2 (Conv2d)", "0 (Conv2d)")
    ]
    assert (found.late, found.unread) == ((), {})
    short = inspected(subject, read_seconds=1e-9)
    assert (list(short.readings), short.late) == ([2], (0, 1))
    assert "--read-seconds 0" in short.unread[0]
    assert list(inspected(subject, read_seconds=0).readings) == [2, 1, 0]


def test_the_page_says_on_how_many_points_units_were_perturbed(place):
    words = ["inspect", "nets.py:mlp", "--weights", "w1.pt", "--data", "x.npy", "--labels", "y.npy"]
    count = len(np.load(place / "x.npy"))
    assert main([*words, "--read-seconds", "0"]) == 0
    assert f"found by perturbing it alone on {count} points." in page(place)
    assert main([*words, "--read-seconds", "1e-9"]) == 0
    assert "perturbing it alone" not in page(place)


def test_layers_that_were_left_out_are_named_on_standard_error(place, capsys):
    (place / "two.py").write_text(
        "from torch import nn\n"
        "def net():\n    return nn.Sequential(nn.Linear(3, 9), nn.ReLU(), nn.Linear(9, 2), nn.ReLU())\n"
    )
    assert main(["inspect", "two.py:net", "--data", "x.npy", "--read-seconds", "1e-9"]) == 0
    said = "metriscope: not read as distances within 1e-09 seconds: 0 (Linear); --read-seconds 0 sets no limit"
    assert said in capsys.readouterr().err.splitlines()
    assert main(["inspect", "two.py:net", "--data", "x.npy", "--read-seconds", "0"]) == 0
    assert "not read" not in capsys.readouterr().err
    assert main(["inspect", "two.py:net", "--data", "x.npy", "--read-seconds", "-1"]) == 2
    assert "--read-seconds must be 0 or more, got -1" in capsys.readouterr().err
