"""Hostile names of layers, labels, texts and columns in every page and table that a user gets."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metriscope.cli import main
from metriscope.common.errors import shown
from metriscope.report import Page, Section, Table, render
from metriscope.report.document import Prose
from metriscope.report.html import csv_text

FIXED = settings(derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
UNSEEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]")
SOURCE = """\
import json
from pathlib import Path
from torch import manual_seed, nn

NAME = json.loads(Path("name.json").read_text())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        manual_seed(0)
        for i, (a, b) in enumerate([(3, 6), (6, 5)]):
            self._modules[f"{NAME}{i}"] = nn.Linear(a, b)
            self._modules[f"{NAME}act{i}"] = nn.ReLU()
        self._modules[f"head{NAME}"] = nn.Linear(5, 2)

    def forward(self, x):
        for module in self._modules.values():
            x = module(x)
        return x
"""
NAMES = {
    "tags": "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;]]>--></style>",
    "control characters": "re\x1b[31mlu\x00\x07\u202e\n",
    "mathematics": "$\\frac{$x^^_ {{7*7}}{% x %}",
    "a formula": "=cmd|'/c calc'!A1",
    "10,000 letters": "x" * 10_000,
}


class Tags(HTMLParser):
    """Collects tags, and attributes that run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.running: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.running += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]


def written(name: str, place, monkeypatch) -> dict[str, str]:
    """Return the pages and tables of `inspect` and `compare` in which everything has this name."""
    monkeypatch.chdir(place)
    (place / "net.py").write_text(SOURCE)
    (place / "name.json").write_text(json.dumps(name))
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    words = np.array([f"{name}{i % 2}" for i in range(12)])
    np.savez("data.npz", x=x, y=words, texts=words, columns=np.array([f"{name}{i}" for i in range(3)]))
    assert main(["inspect", "net.py:Net", "--data", "data.npz", "--explore"]) == 0
    assert main(["compare", "net.py:Net", "net.py:Net", "--data", "data.npz"]) == 0
    found = [*place.glob("out/*.html"), *place.glob("out/tables/*/*.csv")]
    return {path.relative_to(place).as_posix(): path.read_text("utf-8") for path in found}


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        return written("plain", tmp_path_factory.mktemp("plain"), patch)


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_adds_nothing_to_a_page_but_text(kind, plain, tmp_path, monkeypatch):
    pages = written(NAMES[kind], tmp_path, monkeypatch)
    assert {"out/inspect.html", "out/compare.html", "out/explore.html"} <= pages.keys()
    for file, text in pages.items():
        assert not UNSEEN.search(text), file
        if file.endswith(".html"):
            found, expected = Tags(text), Tags(plain[file])
            assert (found.tags.get("script"), found.tags.get("style")) == (
                expected.tags.get("script"),
                expected.tags.get("style"),
            )
            assert not {"img", "iframe", "object", "b"} & found.tags.keys() - expected.tags.keys()
            assert found.running == []
        else:
            cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
            assert not [cell for cell in cells if re.match(r"\s*[=@]", cell)], file


def test_a_refused_name_is_half_of_a_character(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(SOURCE)
    (tmp_path / "name.json").write_text('"a\\ud800"')
    np.save("x.npy", np.ones((4, 3), np.float32))
    assert main(["inspect", "net.py:Net", "--data", "x.npy"]) == 2
    said = "metriscope: the names of the model's modules must be text, got half of a character in 'a\\ud8000'\n"
    assert capsys.readouterr().err.endswith(said)


CELLS = st.text(st.sampled_from("=+-@\t\r\n 1.,eE%\"'<>&a\x1b\x00\u202e＝"), max_size=8)


def page_of(frame: pd.DataFrame) -> Page:
    return Page("p", "", (Section("s", (Table("t", "t", frame), Prose("p"))),))


@settings(FIXED, max_examples=150)
@given(st.lists(CELLS, min_size=1, max_size=4), CELLS)
def test_any_cell_stays_text_in_a_page_and_in_a_spreadsheet(cells, heading):
    frame = pd.DataFrame({f"h{heading}": cells, "number": np.arange(len(cells)) - 0.5})
    before = frame.copy()
    text = csv_text(Table("t", "t", frame))
    pd.testing.assert_frame_equal(frame, before)
    assert not UNSEEN.search(text + render(page_of(frame)))
    rows = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert [float(row[1]) for row in rows] == frame["number"].tolist()
    for row, cell in zip(rows, cells, strict=True):
        number = re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?%?", row[0], re.IGNORECASE)
        assert number or len(cell.strip()) < 2 or not re.match(r"[\s\x00-\x1f]*[=+\-@＝].", row[0])


def test_numbers_stay_numbers_and_formulas_get_an_apostrophe():
    words = {"b": ["-1.5", "=1+1"], "c": ["-", "-3%"], "d": [1, None], "e": [None, "@x"]}
    frame = pd.DataFrame({"a": [-1.5, np.inf]} | words)
    text = csv_text(Table("t", "t", frame))
    assert text == "a,b,c,d,e\n-1.5,-1.5,-,1.0,\ninf,'=1+1,-3%,,'@x\n"


@settings(FIXED, max_examples=100)
@given(st.text(max_size=60))
def test_a_message_is_one_line_that_a_terminal_can_show(text):
    assert shown(text).isprintable()
    assert len(shown(text * 100)) <= 2003
