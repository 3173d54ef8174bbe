"""The package's laws of layout: one-way imports, quiet imports, a quick command line, no pickle."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import metriscope

PACKAGE = Path(metriscope.__file__).parent
MODULES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
ORDER = ("common", "rng", "functional", "data", "nn", "train", "runs", "probes", "vq")
ORDER += ("reading", "report", "studies", "cli")
# The package's own module opens the door to all the others: whoever imports through it may load anything.
TOP = ORDER.index("cli")
LEVELS = {name: level for level, name in enumerate(ORDER)}
LEVELS |= dict.fromkeys(("benching", "benchmarks", "commands", "demo", "__main__"), TOP)
# The estimators stand beside the patterns: both are what builders and readers of networks call.
LEVELS["sklearn"] = LEVELS["vq"]
HEAVY = {"torch", "numpy", "numba", "pandas", "matplotlib", "scipy", "sklearn", "pyarrow"}
PICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
PICKLING = {"torch.load", "torch.save", "pd.read_pickle", "pandas.read_pickle"}


def folder_of(path: str) -> str:
    return Path(path).parts[0].removesuffix(".py")


def absolute(node: ast.ImportFrom, path: str) -> str:
    package = ("metriscope", *Path(path).parent.parts)
    base = package[: len(package) - node.level + 1] if node.level else ()
    return ".".join([*base, *([node.module] if node.module else [])])


def names_imported(node: ast.AST, path: str) -> list[str]:
    """Return the dotted names a node imports; a string that is one counts, as import_module takes strings."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = absolute(node, path)
        return [f"{base}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value] if re.fullmatch(r"metriscope(\.\w+)+", node.value) else []
    return []


def level_of(name: str) -> int | None:
    """Return the level an imported name stands on; None if it is not of this package, or no code at all."""
    root, _, rest = name.partition(".")
    first = rest.split(".")[0]
    if root != "metriscope" or (first.startswith("__") and first.endswith("__")):
        return None
    return LEVELS.get(first, TOP)


def upward_imports(source: str, path: str) -> list[str]:
    """Return the names that a module imports from above its own folder."""
    own = LEVELS[folder_of(path)]
    found = [name for node in ast.walk(ast.parse(source)) for name in names_imported(node, path)]
    return [name for name in found if (level := level_of(name)) is not None and level > own]


def test_every_module_has_a_place_in_the_order():
    assert {folder_of(path) for path in MODULES} - {"__init__"} <= set(LEVELS)


@pytest.mark.parametrize("path", [path for path in MODULES if path != "__init__.py"])
def test_a_folder_imports_only_from_folders_before_it(path):
    assert upward_imports(MODULES[path].read_text(encoding="utf-8"), path) == []


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from metriscope.nn import Abs", "functional/distances.py"),
        ("import metriscope.studies.runner", "train/loop.py"),
        ("from metriscope import probes", "nn/layers.py"),
        ("from metriscope import Abs", "functional/distances.py"),
        ("import metriscope", "report/html.py"),
        ("from ..train import fit", "nn/layers.py"),
        ("from .. import vq", "probes/linear.py"),
        ("from . import functional", "rng.py"),
        ("def f():\n    from metriscope.cli import main", "studies/runner.py"),
        ("if TYPE_CHECKING:\n    from metriscope.report import Page", "runs/store.py"),
        ("import_module('metriscope.nn.layers')", "data/synthetic.py"),
        ("from metriscope.benching import benchmarks", "studies/runner.py"),
    ],
)
def test_an_import_from_above_is_found(source, path):
    assert len(upward_imports(source, path)) == 1


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("from metriscope.rng import stream", "functional/distances.py"),
        ("from metriscope import functional, rng", "nn/layers.py"),
        ("from metriscope import __version__", "runs/provenance.py"),
        ("from .layers import Abs\nfrom . import layers", "nn/stacked.py"),
        ("from ..functional import norm", "nn/layers.py"),
        ("import torch.nn.functional\nfrom report import x", "rng.py"),
        ("'metriscope reproduces metriscope.studies'", "rng.py"),
        ("from metriscope import studies", "cli.py"),
    ],
)
def test_an_import_from_below_or_beside_is_none(source, path):
    assert upward_imports(source, path) == []


def dotted(node: ast.AST) -> str:
    return ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""


def loads_tensors_only(call: ast.Call) -> bool:
    """Return whether a call is PyTorch's restricted loader, which runs no code of the file."""
    literal = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return dotted(call.func) == "torch.load" and literal.get("weights_only") == "True"


def pickling(source: str) -> list[str]:
    """Return whatever in a module could read or write a pickle."""
    found, tree = [], ast.parse(source)
    safe = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and loads_tensors_only(node)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = names_imported(node, "rng.py")
            found += [name for name in names if name.split(".")[0] in PICKLERS or name in PICKLING]
        elif isinstance(node, ast.Attribute) and (dotted(node) in PICKLING or node.attr == "to_pickle"):
            found += [] if node in safe else [dotted(node)]
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            found += [] if ast.unparse(node.value) == "False" else ["allow_pickle"]
    return found


@pytest.mark.parametrize("path", MODULES)
def test_no_module_reads_or_writes_a_pickle(path):
    assert pickling(MODULES[path].read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import dump",
        "import cloudpickle.x as y",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=safe)",
        "save = torch.save",
        "from torch import load",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "frame.to_pickle(path)",
    ],
)
def test_a_pickle_is_found(source):
    assert len(pickling(source)) == 1


def test_what_is_no_pickle_is_left_alone():
    assert pickling("np.load(path, allow_pickle=False)\njson.load(file)\nsafetensors.torch.load(raw)") == []
    assert pickling("torch.load(path, map_location='cpu', weights_only=True)") == []


def run_alone(code: str) -> dict[str, object]:
    """Return what a fresh interpreter leaves in ``answer``."""
    command = [sys.executable, "-B", "-c", f"import json\nanswer = {{}}\n{code}\nprint(json.dumps(answer))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout.splitlines()[-1])


LIGHT = f"""
import contextlib, io, sys, threading
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import metriscope
answer["opened"] = [name for name in opened if not name.endswith((".py", ".pyc"))]
answer["heavy on import"] = sorted({HEAVY!r} & set(sys.modules))
answer["threads"] = threading.active_count()
from metriscope.cli import main
text = io.StringIO()
with contextlib.redirect_stdout(text):
    try:
        answer["status"] = main(["--help"])
    except SystemExit as stop:
        answer["status"] = stop.code
answer["heavy on help"] = sorted({HEAVY!r} & set(sys.modules))
answer["help"] = text.getvalue()
"""


def test_import_and_help_are_instant_and_quiet():
    answer = run_alone(LIGHT)
    assert answer["opened"] == []
    assert answer["threads"] == 1
    assert answer["heavy on import"] == answer["heavy on help"] == []
    assert not answer["status"]
    assert all(command in answer["help"] for command in ("reproduce", "runs", "bench"))


# Everything is imported twice: the second time all other packages are there already, and whatever is
# opened, drawn or started then is the doing of this package's own modules.
WHOLE = """
import importlib, pkgutil, random, sys, threading
from pathlib import Path
import numpy, torch

def load():
    root = importlib.import_module("metriscope")
    for module in pkgutil.walk_packages(root.__path__, "metriscope."):
        importlib.import_module(module.name)

def states():
    tasks = Path("/proc/self/task")
    legacy = [numpy.asarray(part).tolist() for part in numpy.random.get_state()]
    numbers = [torch.get_rng_state().tolist(), legacy, random.getstate()]
    return numbers, threading.active_count(), len(list(tasks.iterdir())) if tasks.is_dir() else 0

load()
for name in [name for name in sys.modules if name.split(".")[0] == "metriscope"]:
    del sys.modules[name]
opened, before = [], states()
watching = True
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if watching and event == "open" else None)
load()
watching = False
answer["same"] = [a == b for a, b in zip(before, states())]
answer["opened"] = [name for name in opened if not name.endswith((".py", ".pyc"))]
answer["modules"] = sum(name.split(".")[0] == "metriscope" for name in sys.modules)
"""


def test_no_module_draws_opens_or_starts_anything_on_import():
    answer = run_alone(WHOLE)
    assert answer["same"] == [True, True, True]
    assert answer["opened"] == []
    assert answer["modules"] >= len(MODULES)


def test_every_public_name_is_there_and_listed():
    assert all(getattr(metriscope, name) is not None for name in metriscope.__all__)
    assert set(metriscope.__all__) <= set(dir(metriscope))
    assert len(set(metriscope.__all__)) == len(metriscope.__all__)


REACHABLE = """
import metriscope
for name in ("rng", "functional", "data", "nn", "probes", "vq", "sklearn"):
    answer[name] = [name in dir(metriscope), getattr(metriscope, name).__name__]
"""


def test_modules_are_reachable_after_importing_the_package_alone():
    answer = run_alone(REACHABLE)
    assert len(answer) == 7
    assert all(found == [True, f"metriscope.{name}"] for name, found in answer.items())


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(AttributeError, match="module 'metriscope' has no attribute 'absent'"):
        _ = metriscope.absent
    assert not hasattr(metriscope, "__wrapped__")
