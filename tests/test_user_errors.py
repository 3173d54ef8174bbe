"""What the user's own network raises is told in one sentence that names the place in their code; --debug tells all."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from metriscope import cli
from metriscope.cli import main

SOURCE = """\
import metriscope
import torch
from torch import nn

class Picky(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        if x.shape[1] != 7:
            raise ValueError("seven features, please")
        return self.act(x)

class Strange(Picky):
    def forward(self, x):
        return {"x": self.act(x)}["no such key"]

class Misfit(Picky):
    def forward(self, x):
        return self.head(self.act(x))

def needs(width):
    return nn.Linear(width, 2)

def refuses():
    raise ValueError("no weights at hand")

def types():
    return nn.Linear(3, "2")

def ours():
    return metriscope.build("no-such-network", 3, 2, 1)

def plain():
    return nn.Sequential(nn.ReLU(), nn.Linear(4, 2))

def infinite():
    return nn.Sequential(nn.Linear(3, 4), Loud(), nn.ReLU())

class Reader(Picky):
    def load_state_dict(self, state):
        return state["missing"]

class Loud(nn.Module):
    def forward(self, x):
        return x / 0
"""

MODULES = {
    "syntax.py": "def net(:\n    pass\n",
    "imports.py": "import os\nimport no_such_package_of_theirs\n",
    "fails.py": "x = 1\n\nassert x == 2, 'wrong x'\n",
    "leaves.py": "import sys\nsys.exit(3)\n",
    "quiet.py": "raise RuntimeError\n",
}


def line_of(text):
    return next(number for number, line in enumerate(SOURCE.splitlines(), 1) if text in line)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "theirs.py").write_text(SOURCE)
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    np.save("x.npy", np.ones((6, 3), np.float32))
    return tmp_path


def told(words, capsys):
    """Return the one sentence that a failing command prints."""
    assert main(["inspect", *words, "--data", "x.npy"]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    return error.removeprefix("metriscope: ")


HINT = " (--debug shows the traceback)"


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("refuses", f"raised ValueError at theirs.py:{line_of('no weights at hand')}: no weights at hand"),
        ("types", f"raised TypeError at theirs.py:{line_of('Linear(3, ')}: "),
        ("ours", f"raised ValueError at theirs.py:{line_of('no-such-network')}: "),
    ],
)
def test_an_error_in_a_factory_names_its_line(factory, sentence, place, capsys):
    error = told([f"theirs.py:{factory}"], capsys)
    assert error.startswith(f"theirs.py:{factory} {sentence}")
    assert error.endswith(HINT)


def test_a_factory_that_needs_arguments_is_refused_with_their_names(place, capsys):
    error = told(["theirs.py:needs"], capsys)
    assert error == "theirs.py:needs needs arguments (width): name a function that needs none"


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("Picky", f"raised ValueError at theirs.py:{line_of('seven')}: seven features, please"),
        ("Strange", f"raised KeyError at theirs.py:{line_of('no such key')}: 'no such key'"),
        ("Misfit", f"raised RuntimeError at theirs.py:{line_of('self.head(self')}: mat1 and mat2 shapes"),
        ("plain", "raised RuntimeError in layer '1' (Linear): mat1 and mat2 shapes cannot be multiplied (6x3 and 4x2)"),
    ],
)
def test_an_error_in_the_forward_pass_names_its_line_or_its_layer(factory, sentence, place, capsys):
    error = told([f"theirs.py:{factory}"], capsys)
    assert error.startswith(f"the forward pass of theirs.py:{factory} ")
    assert sentence in error
    assert error.endswith(HINT)


@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("syntax", "raised SyntaxError at syntax.py:1: "),
        ("imports", "raised ModuleNotFoundError at imports.py:2: No module named 'no_such_package_of_theirs'"),
        ("fails", "raised AssertionError at fails.py:3: wrong x"),
        ("leaves", "raised SystemExit at leaves.py:2: 3"),
        ("quiet", "raised RuntimeError at quiet.py:1 (--debug"),
    ],
)
def test_an_error_while_a_module_is_imported_names_its_line(module, sentence, place, capsys):
    for named in (f"{module}.py", module):
        assert told([f"{named}:net"], capsys).startswith(f"{named} {sentence}")


def test_an_error_of_their_own_loading_of_weights_names_its_line(place, capsys):
    save_file({"w": torch.zeros(1)}, "w.safetensors")
    error = told(["theirs.py:Reader", "--weights", "w.safetensors"], capsys)
    line = line_of('state["missing"]')
    assert error == f"loading w.safetensors into the network raised KeyError at theirs.py:{line}: 'missing'{HINT}"


def test_what_capture_itself_refuses_stays_a_sentence_of_ours(place, capsys):
    error = told(["theirs.py:infinite"], capsys)
    assert error == "layer '2' (relu) has pre-activations that are NaN or infinite, although the points are finite"


@pytest.mark.parametrize("at", [0, 1, 4])
def test_debug_shows_the_whole_traceback_wherever_it_stands(at, place, capsys):
    words = ["inspect", "theirs.py:Picky", "--data", "x.npy"]
    assert main([*words[:at], "--debug", *words[at:]]) == 2
    error = capsys.readouterr().err
    assert "Traceback (most recent call last)" in error
    assert 'raise ValueError("seven features, please")' in error
    assert error.splitlines()[-1].startswith("metriscope: the forward pass of theirs.py:Picky raised ValueError")


def test_debug_is_in_the_help_and_loads_nothing(capsys):
    with pytest.raises(SystemExit):
        main(["--debug", "--help"])
    assert "--debug" in capsys.readouterr().out


def test_a_fault_of_our_own_is_not_swallowed(place, monkeypatch):
    def broken(found, provenance, explorer):
        return len(None)

    monkeypatch.setattr("metriscope.report.network_pages.inspection_page", broken)
    np.save("x.npy", np.ones((6, 4), np.float32))
    with pytest.raises(TypeError, match="NoneType"):
        main(["inspect", "theirs.py:plain", "--data", "x.npy"])


def test_an_error_that_we_did_not_foresee_says_so_and_where(capsys, monkeypatch):
    def broken(data_dir):
        return np.linalg.inv(np.zeros((2, 2)))

    monkeypatch.setattr("metriscope.data.loader.lines", broken)
    assert main(["data", "list"]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("metriscope: Singular matrix (LinAlgError below metriscope/cli.py:")
    assert error.endswith("unexpected: --debug shows the traceback)")


def test_the_command_itself_tells_it_too(place):
    command = [sys.executable, "-m", "metriscope", "inspect", "theirs.py:refuses", "--data", "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("metriscope: theirs.py:refuses raised ValueError at theirs.py:")
    assert cli.__file__ not in done.stderr
