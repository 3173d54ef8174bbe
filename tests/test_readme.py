"""The README and the pages in docs keep their word: code prints what they say, commands and links exist."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from metriscope.cli import main
from metriscope.studies import STUDIES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUDIES_PAGE = (ROOT / "docs" / "studies.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PROGRAMS = [ROOT / "README.md", ROOT / "docs" / "tour.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
OWN_COMMAND = re.compile(r"^(?:metriscope|\./run)\b")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def blocks(text: str) -> list[tuple[str, str]]:
    """Return (language, content) of every fenced block, in order."""
    return [(match[1], match[2]) for match in BLOCK.finditer(text)]


def code_and_output(text: str) -> tuple[str, str]:
    """Return all Python of a page as one program, and everything it should print."""
    found = blocks(text)
    program = "".join(content for language, content in found if language == "python")
    printed = "".join(
        after for (before, _), (language, after) in pairwise(found) if (before, language) == ("python", "text")
    )
    return program, printed


def commands(text: str) -> list[list[str]]:
    """Return the words of each metriscope command in a page's shell blocks and inline code."""
    lines = [line for language, content in blocks(text) if language == "sh" for line in content.splitlines()]
    lines += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", BLOCK.sub("", text))
    words = [shlex.split(line.replace("\\|", "|"), comments=True) for line in lines if OWN_COMMAND.match(line)]
    return [line[1:] for line in words if line[1:]]


def help_of(command: str, capsys: pytest.CaptureFixture[str], *study: str) -> str:
    with pytest.raises(SystemExit) as stop:
        main([command, *study, "--help"])
    assert not stop.value.code
    return capsys.readouterr().out


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith(("http", "#"))]


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 120


def test_the_verdicts_of_the_readme_are_those_of_the_page_of_claims():
    row = re.compile(r"^\| (C\d\d): (.*) \| (\w+) \| (\w[\w ]*) \|$", re.MULTILINE)
    claims = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
    known = {
        cells[0][:3]: (cells[0][5:], *cells[3:5])
        for line in claims.splitlines()
        if (cells := line[2:].split(" | "))[5:]
    }
    shown = {found[0]: found[1:] for found in row.findall(README)}
    assert len(shown) > 5
    assert shown == {name: known[name] for name in shown}


def test_the_readme_counts_the_architectures_as_their_page_does():
    zoo = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")
    every, same, refused = re.search(r"(\d+) architectures: (\d+) bit-identical, (\d+) refused, 0 wrong", zoo).groups()
    assert f"[{every} architectures of timm and transformers](docs/zoo.md) were tried: {same} captured" in README
    assert refused == "1"
    assert "one refused" in README


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.stem)
def test_the_code_of_a_page_prints_what_the_page_says(tmp_path, page):
    program, printed = code_and_output(page.read_text(encoding="utf-8"))
    assert program.count("\n") > 10
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    assert done.stdout == printed


def test_the_readme_shows_every_command():
    assert {line[0] for line in commands(README)} == {
        "reproduce",
        "inspect",
        "compare",
        "runs",
        "bench",
        "data",
        "demo",
    }


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_command_and_option_of_a_page_exists(page, capsys):
    found = commands(page.read_text(encoding="utf-8"))
    for name, *words in found:
        study = [word for word in words[:1] if name == "reproduce" and word in STUDIES]
        text = help_of(name, capsys, *study)
        assert all(word in text for word in words if word.startswith("--"))


def test_every_option_of_the_studies_is_documented(capsys):
    texts = [help_of("reproduce", capsys, *study) for study in ([], *([name] for name in STUDIES))]
    # An option begins its line; elsewhere a text may speak of one.
    options = {found for text in texts for found in re.findall(r"^[^\w-]*(--[a-z]+)", text, re.MULTILINE)} - {"--help"}
    assert options == set(re.findall(r"^\| `(--[a-z]+)", STUDIES_PAGE, re.MULTILINE))


def test_the_two_commands_of_the_first_screen_are_there_and_can_be_run():
    scripts = [line.split()[0] for line in README.splitlines() if line.startswith(("./run ", "./test "))]
    assert scripts == ["./run", "./test"]
    assert all((ROOT / script).stat().st_mode & 0o111 for script in scripts)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_file_that_a_page_links_to_exists(page):
    assert [link for link in links(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()] == []


def test_every_place_that_the_architecture_names_exists():
    folders = re.findall(r"`(src/[^`]+)`", ARCHITECTURE)
    assert "src/metriscope/nn/" in folders
    assert [folder for folder in folders if not (ROOT / folder).exists()] == []


def test_every_benchmark_that_is_documented_exists():
    from metriscope.benching import benchmarks

    page = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert {line[1] for line in commands(page) if line[0] == "bench"} == set(benchmarks())


def test_a_wrong_link_a_wrong_output_and_a_command_are_found():
    page = "[a](b.md) [c](https://d)\n```python\nprint(1)\n```\n```text\n2\n```\n```sh\nmetriscope runs list # x\n```\n"
    assert links(page) == ["b.md"]
    assert code_and_output(page) == ("print(1)\n", "2\n")
    assert commands(page + "Use `metriscope bench` or `./run`.") == [["runs", "list"], ["bench"]]
