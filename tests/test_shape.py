"""The shape of the code: no circle of imports, no long module, every study of the same six modules."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import metriscope
from metriscope.studies import STUDIES

PACKAGE = Path(metriscope.__file__).parent
SIX = ("plan", "train", "measure", "judge", "figures", "page")
# The modules of a study that hold specifications: options and jobs, and the numbers that choose what is computed.
SPECIFICATIONS = ("plan", "experiments", "networks")
STUDY_FILES = [(name, path) for name in STUDIES for path in sorted((PACKAGE / "studies" / name).glob("*.py"))]


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


def test_no_module_is_longer_than_400_lines():
    lengths = {name: len(path.read_text(encoding="utf-8").splitlines()) for name, path in modules().items()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_one_folder_with_the_six_modules_and_one_or_two_per_experiment(study):
    folder = PACKAGE / "studies" / study
    found = {path.stem for path in folder.glob("*.py")}
    assert list(folder.glob("*/*.py")) == [], "an experiment is a module, not a folder"
    assert set(SIX) <= found
    for name in found:
        assert not name.endswith("_page") or name.removesuffix("_page") in found


def holds_number(node: ast.AST) -> bool:
    numbers = (n for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) in (int, float))
    return any(True for _ in numbers)


def own_numbers(tree: ast.Module) -> list[int]:
    """Return the lines on which code defines a number of its own: a constant, or the default of an argument."""
    assigned = [n.value for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.Lambda)]
    defaults = [d for f in functions for d in (*f.args.defaults, *f.args.kw_defaults) if d is not None]
    fields = [
        n.value for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body if isinstance(n, ast.AnnAssign)
    ]
    # Counters that begin at 0 and flags are no choices.
    chosen = [n for n in (*assigned, *defaults, *fields) if n is not None and holds_number(n)]
    return [n.lineno for n in chosen if not (isinstance(n, ast.Constant) and n.value == 0)]


def defined(tree: ast.Module) -> dict[str, ast.stmt]:
    """Return the statements of a module by the names that they define."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id: node for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def origins(tree: ast.Module) -> dict[str, str]:
    """Return where the imported names of a module come from, wherever in it they are imported."""
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    return {alias.asname or alias.name: f"{n.module}.{alias.name}" for n in nodes for alias in n.names}


def uses(node: ast.AST, known: dict[str, str]) -> set[str]:
    """Return what a statement refers to: names of its own module, and dotted names of others."""
    found = {known.get(n.id, n.id) for n in ast.walk(node) if isinstance(n, ast.Name)}
    attributes = [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)]
    return found | {f"{known[n.value.id]}.{n.attr}" for n in attributes if n.value.id in known}


def reached(sources: dict[str, str], roots: set[str]) -> dict[str, set[int]]:
    """Return, by module, the lines of numbers in whatever the root modules use, directly or through other modules.

    ``sources``: the modules that are followed, by dotted name.
    """
    trees = {name: ast.parse(source) for name, source in sources.items()}
    statements = {name: defined(tree) for name, tree in trees.items()}
    known = {name: origins(tree) for name, tree in trees.items()}
    open_, seen = {(module, name) for module in roots for name in statements[module]}, set()
    numbers: dict[str, set[int]] = {}
    while open_:
        module, name = place = open_.pop()
        seen.add(place)
        statement = statements[module][name]
        if lines := own_numbers(ast.Module([statement], [])):
            numbers.setdefault(module, set()).update(lines)
        for used in uses(statement, known[module]):
            owner, _, last = used.rpartition(".")
            owner = owner or module
            if last in statements.get(owner, {}) and (owner, last) not in seen:
                open_.add((owner, last))
    return numbers


def test_what_trains_and_measures_has_no_numbers_of_its_own():
    # An experiment's module also judges and draws, with numbers that choose nothing that is computed. So whatever
    # `train` and `measure` of the studies use is followed from function to function, also into such modules.
    names = {f"metriscope.studies.{study}.{path.stem}": path for study, path in STUDY_FILES}
    sources = {
        name: path.read_text(encoding="utf-8") for name, path in names.items() if path.stem not in SPECIFICATIONS
    }
    roots = {name for name in sources if name.rpartition(".")[2] in ("train", "measure")}
    assert reached(sources, roots) == {}


def test_a_number_of_codes_own_is_found():
    source = "A = 3\nB = ('x', 0.5)\ndef f(a, b=2):\n    c = 7\n\nclass D:\n    e: int = 4\n    f: int = 0"
    assert own_numbers(ast.parse(source)) == [1, 2, 3, 7]


def test_a_number_is_found_wherever_it_is_used_from_and_not_where_it_is_only_drawn():
    train = "from metriscope.studies import other\nfrom metriscope.studies.third import h\ndef f():\n    other.g(h)"
    other = "A = 3\nWIDTH = 4\ndef g(x):\n    return A * x\ndef draw():\n    return WIDTH"
    third = "\ndef h(x=0.1):\n    return x"
    sources = {f"metriscope.studies.{k}": v for k, v in {"train": train, "other": other, "third": third}.items()}
    found = reached(sources, {"metriscope.studies.train"})
    assert found == {"metriscope.studies.other": {1}, "metriscope.studies.third": {2}}


def test_specifications_load_nothing_slow():
    names = [f"metriscope.studies.{study}.{path.stem}" for study, path in STUDY_FILES if path.stem in SPECIFICATIONS]
    code = f"import sys, importlib\nfor name in {names!r}: importlib.import_module(name)\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(names) >= len(STUDIES)
    assert {"torch", "numpy", "pandas", "scipy", "matplotlib"} & set(loaded) == set()
