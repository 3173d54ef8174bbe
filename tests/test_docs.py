"""The documentation site: every page can be reached, every link and public name is there, and the whole is built."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path, PurePosixPath

import pytest

from test_documentation import PUBLIC

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
MADE = ("gallery", "_extensions")  # the gallery is written by the build
TOCTREE = re.compile(r"^(?:```\{toctree\}\n(.*?)^```|\.\. toctree::\n((?: +.*\n|\n)+))", re.MULTILINE | re.DOTALL)
AUTODOC = re.compile(r"^\.\. (?:auto(?:class|function)|py:data):: ([\w.]+)$", re.MULTILINE)
CELL = re.compile(r"^```\{code-cell\}.*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = ("sphinx", "furo", "myst_nb", "sphinx_gallery", "sphinx_copybutton", "sphinx_design")


def sources() -> dict[str, Path]:
    """Return every page by its name on the site."""
    found = [path for path in DOCS.rglob("*") if path.suffix in (".md", ".rst", ".ipynb")]
    found = [path for path in found if path.relative_to(DOCS).parts[0] not in MADE]
    return {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in found}


PAGES = sources()
NOTEBOOKS = [path for path in PAGES.values() if path.suffix == ".ipynb"]


def entries(text: str) -> list[str]:
    """Return what the toctrees of a page list."""
    blocks = [first or second for first, second in TOCTREE.findall(text)]
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith(":")]


def listed(name: str, pages: dict[str, str]) -> set[str]:
    """Return the pages that the toctrees of one page lead to; a pattern stands for all that match."""
    folder = PurePosixPath(name).parent
    wanted = [(folder / entry).as_posix() for entry in entries(pages[name])]
    return {page for page in pages for entry in wanted if page == entry or PurePosixPath(page).match(entry)}


def reached(pages: dict[str, str]) -> set[str]:
    """Return every page that can be reached from the first one through toctrees."""
    found, waiting = set(), ["index"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += listed(name, pages)
    return found


def prose(path: Path) -> str:
    """Return the text of a page; of a notebook, that of its cells that are no code."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".ipynb":
        return text
    return "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


def cells(path: Path) -> list[tuple[str, str]]:
    """Return the code of each cell of a page, and its settings."""
    if path.suffix == ".ipynb":
        found = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
        return [("".join(cell["source"]), json.dumps(cell["metadata"])) for cell in found]
    parts = [
        cell.partition("\n---\n") if cell.startswith("---\n") else ("", "", cell) for cell in CELL.findall(prose(path))
    ]
    return [(code, settings) for settings, _, code in parts]


def documented() -> set[str]:
    """Return every name that the API reference describes, in full."""
    found = set()
    for path in (DOCS / "api").glob("*.rst"):
        text = path.read_text(encoding="utf-8")
        module = re.search(r"^\.\. currentmodule:: ([\w.]+)$", text, re.MULTILINE)
        prefix = f"{module[1]}." if module else ""
        found |= {name if name.startswith("metriscope.") else prefix + name for name in AUTODOC.findall(text)}
    return found


def test_every_page_is_in_a_toctree():
    pages = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
    assert len(pages) > 35
    assert sorted(set(pages) - reached(pages)) == []


def test_every_entry_of_a_toctree_is_a_page():
    pages = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()} | {"gallery/index": ""}
    missing = [
        (name, entry)
        for name in PAGES
        for entry in entries(pages[name])
        if not any(PurePosixPath(page).match((PurePosixPath(name).parent / entry).as_posix()) for page in pages)
    ]
    assert missing == []


def test_a_page_that_no_toctree_lists_is_found():
    pages = {
        "index": "```{toctree}\n:glob:\n\na\nb/*\n```\n",
        "a": "",
        "b/c": ".. toctree::\n   :x:\n\n   d\n",
        "b/d": "",
        "e": "",
    }
    assert set(pages) - reached(pages) == {"e"}


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())
def test_every_internal_link_leads_to_a_file(path):
    links = re.findall(r"\]\(([^)\s#]+)\)", prose(path)) + re.findall(r"^:link: (\S+)$", prose(path), re.MULTILINE)
    inside = [link for link in links if not link.startswith("http")]
    known = {link for link in inside if (path.parent / link).exists() or link in PAGES}
    assert sorted(set(inside) - known) == []


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_api_reference(module):
    names = documented()
    ends = {name.rpartition(".")[2] for name in names}
    wanted = import_module(module).__all__
    # A name that the package itself exports is described there, and not again in its module.
    missing = [
        name for name in wanted if f"{module}.{name}" not in names and not (module != "metriscope" and name in ends)
    ]
    assert [name for name in missing if name not in ("probes", "sklearn")] == []


def test_names_of_the_api_reference_exist():
    for name in documented():
        module, _, last = name.rpartition(".")
        assert hasattr(import_module(module), last), name


def test_every_number_of_the_page_on_speed_is_one_of_the_benchmarks():
    measured = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?!task|-)(.*) \|$", (DOCS / "scale.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 4
    numbers = [number for row in rows for number in re.findall(r"\d[\d,.]*\d|\d", row.partition("|")[2])]
    assert [number for number in numbers if number not in measured] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path):
    found = [cell for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert found
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in found)


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES.keys())
def test_every_figure_of_a_page_has_a_text_for_those_who_cannot_see_it(path):
    drawn = [(code, settings) for code, settings in cells(path) if re.search(r"plt\.subplots|\.plot\.\w+\(", code)]
    assert [code for code, settings in drawn if "alt" not in settings] == []
    assert drawn or path.stem not in ("concepts", "start", "inspect", "open-a-network")


def extension(name: str):
    """Return a module of the site's own extensions."""
    spec = spec_from_file_location(name, DOCS / "_extensions" / f"{name}.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_out_of_the_documentation_lead_to_pages_or_name_the_file():
    on_site = extension("repository_links").on_site
    text = "[a](../examples/small_cnn.py) [b](../results/reading) [c](tour.md) [d](https://x.org) [e](../CHANGELOG.md)"
    assert on_site(text, DOCS / "studies.md", DOCS) == (
        "[a](/gallery/small_cnn.rst) b (`results/reading`) [c](/tour.md) [d](https://x.org) [e](/changelog.md)"
    )


def test_an_example_that_cannot_run_says_why(monkeypatch):
    gallery = extension("gallery_examples")
    monkeypatch.setattr(gallery, "NOT_RUN", {"small_cnn": ("abc",)})
    assert gallery.heading("small_cnn").startswith("Small CNN\n=========\n\n.. note:: Not run")
    assert "it needs abc." in gallery.heading("small_cnn")
    assert gallery.heading("read_a_layer") == "Read a layer\n============\n\n"


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_all_its_code_runs(tmp_path):
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}: pip install -c constraints.txt -e '.[docs]'")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", str(DOCS), str(tmp_path / "site")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*command, "-d", str(tmp_path / "doctrees")], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-4_000:]
    pages = {name: (tmp_path / "site" / f"{name}.html").read_text(encoding="utf-8") for name in PAGES}
    assert [name for name, text in pages.items() if sys.prefix in text] == []
    # Opened from a disk without a network, nothing is missing.
    assert [name for name, text in pages.items() if re.search(r'<(script|link)[^>]+(src|href)="http', text)] == []
    executed = [path for path in PAGES.values() if cells(path)]
    assert len(executed) >= 9
    assert "of 1,000 new digits right" in pages["notebooks/open-a-network"]
    assert "networks by directions kept" in pages["notebooks/learn-a-distance"]
    assert "bit-identical" in (tmp_path / "site" / "gallery" / "many_networks.html").read_text(encoding="utf-8")
