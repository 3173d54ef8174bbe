"""The shape of the code: no circle of imports between modules, every study of the same six modules."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import metriscope
from metriscope.studies import STUDIES

PACKAGE = Path(metriscope.__file__).parent
SIX = ("plan", "train", "measure", "judge", "figures", "page")
STUDY_FILES = [path for name in STUDIES for path in sorted((PACKAGE / "studies" / name).rglob("*.py"))]


def modules() -> dict[str, Path]:
    names = {
        path: ".".join(("metriscope", *path.relative_to(PACKAGE).with_suffix("").parts))
        for path in PACKAGE.rglob("*.py")
    }
    return {name.removesuffix(".__init__"): path for path, name in names.items()}


def imported(source: str, known: set[str]) -> set[str]:
    """Return the modules that a source imports, wherever in it, also only for the type checker."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found & known


def circle(edges: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_another_in_a_circle():
    found = modules()
    # A package's own module only passes names on; what counts is the module that defines them.
    known = {name for name, path in found.items() if path.name != "__init__.py"}
    edges = {name: imported(found[name].read_text(encoding="utf-8"), known) - {name} for name in known}
    assert circle(edges) == []


def test_a_circle_is_found_also_inside_functions_and_for_the_type_checker():
    sources = {
        "metriscope.a": "def f():\n    from metriscope import b",
        "metriscope.b": "if TYPE_CHECKING:\n    from metriscope.a import f",
    }
    edges = {name: imported(source, set(sources)) for name, source in sources.items()}
    assert set(circle(edges)) == set(sources)


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_has_the_six_modules_and_no_others(study):
    folder = PACKAGE / "studies" / study
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *SIX}
    for path in folder.rglob("*.py"):
        assert path.stem in ("__init__", *SIX), path


def holds_number(node: ast.AST) -> bool:
    numbers = (n for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) in (int, float))
    return any(True for _ in numbers)


def own_numbers(source: str) -> list[int]:
    """Return the lines on which a module defines a number of its own: a constant, or the default of an argument."""
    tree = ast.parse(source)
    assigned = [n.value for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    defaults = [d for f in functions for d in (*f.args.defaults, *f.args.kw_defaults) if d is not None]
    fields = [
        n.value for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body if isinstance(n, ast.AnnAssign)
    ]
    # Counters that begin at 0 and flags are no choices.
    chosen = [n for n in (*assigned, *defaults, *fields) if n is not None and holds_number(n)]
    return [n.lineno for n in chosen if not (isinstance(n, ast.Constant) and n.value == 0)]


@pytest.mark.parametrize("path", [p for p in STUDY_FILES if p.stem in ("train", "measure")], ids=str)
def test_what_trains_and_measures_has_no_numbers_of_its_own(path):
    assert own_numbers(path.read_text(encoding="utf-8")) == []


def test_a_number_of_a_modules_own_is_found():
    assert own_numbers(
        "A = 3\nB = ('x', 0.5)\ndef f(a, b=2):\n    c = 7\n\nclass D:\n    e: int = 4\n    f: int = 0"
    ) == [1, 2, 3, 7]
