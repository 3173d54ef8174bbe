"""Every public name says in numpy style what it takes, returns and raises, with an example that the doctests run."""

from __future__ import annotations

import ast
import doctest
import inspect
import re
import sys
import textwrap
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

PUBLIC = (
    "metriscope",
    *(f"metriscope.{name}" for name in ("functional", "data", "nn", "probes", "vq", "sklearn", "rng")),
)
PUBLIC += ("metriscope.train", "metriscope.runs")
SECTION = re.compile(
    r"^(Parameters|Returns|Yields|Raises|Examples|Attributes|Notes|References|See Also)\n-+$", re.MULTILINE
)
ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: :.*)?$", re.MULTILINE)
REFERENCE = Path(__file__).parents[1] / "docs" / "api"
# A public function checks its arguments itself, or calls a check, which may call the function that raises.
DEPTH = 2


def is_own(value: object) -> bool:
    """Say whether a value is a function or class of the package."""
    return (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("metriscope")


def public_names() -> list[str]:
    """Return the full names that modules export, and those that only the API reference documents."""
    names = [f"{module}.{name}" for module in PUBLIC for name in import_module(module).__all__]
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(REFERENCE.glob("*.rst")))
    return names + re.findall(r"^\.\. auto(?:class|function):: (metriscope\.\S+)$", text, re.MULTILINE)


def public_objects() -> dict[str, object]:
    """Return every public function and class by the first name under which it can be reached."""
    found: dict[int, tuple[str, object]] = {}
    for full in public_names():
        module, _, name = full.rpartition(".")
        value = getattr(import_module(module), name)
        if is_own(value):
            found.setdefault(id(value), (full, value))
    return dict(found.values())


def public_methods() -> dict[str, object]:
    """Return the public methods and properties that the public classes have from this package, by their names."""
    found = {}
    for value in filter(inspect.isclass, OBJECTS.values()):
        for name in [name for name in dir(value) if not name.startswith("_")]:
            member = inspect.getattr_static(value, name)
            member = getattr(member, "fget", None) or getattr(member, "__func__", member)
            if inspect.isfunction(member) and is_own(member) and member.__name__ != "<lambda>":
                found[f"{member.__module__}.{member.__qualname__}"] = member
    return found


OBJECTS = public_objects()
METHODS = public_methods()


def sections(text: str) -> dict[str, str]:
    """Return the sections of a numpy-style docstring by heading."""
    heads = list(SECTION.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {head[1]: text[head.end() : end] for head, end in zip(heads, ends, strict=False)}


def documented(text: str) -> list[str]:
    return [name.strip() for entry in ENTRY.findall(text) for name in entry.split(",")]


def parameters(value: object) -> list[str]:
    """Return the arguments of a function or of a class's constructor as a docstring writes them."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    if inspect.isclass(value) and value.__init__ is object.__init__:
        return []
    found = inspect.signature(value).parameters.values()
    return [stars.get(p.kind, "") + p.name for p in found if p.name not in ("self", "_")]


@cache
def tree(value: object) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(value)))


def own_raises(function: object) -> bool:
    """Say whether a function itself holds a raise statement."""
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree(function)))


def called(function: object) -> list[object]:
    """Return the functions and classes of the package that a function calls by a name of its module."""
    known = vars(sys.modules[function.__module__])
    names = [node.func for node in ast.walk(tree(function)) if isinstance(node, ast.Call)]
    found = [known.get(name.id) for name in names if isinstance(name, ast.Name)]
    return [value for value in found if is_own(value)]


def raises(value: object, depth: int = DEPTH) -> bool:
    """Say whether a function or constructor raises an error, itself or in what it calls, ``depth`` calls deep."""
    parts = [value]
    if inspect.isclass(value):
        parts = [vars(value).get(name) for name in ("__init__", "__post_init__")]
        parts = [part for part in parts if part is not None and not generated(part)]
    return any(own_raises(one) or (depth and any(raises(it, depth - 1) for it in called(one))) for one in parts)


def generated(function: object) -> bool:
    """Say whether a function has no source, as the constructor that ``dataclass`` makes."""
    return function.__code__.co_filename == "<string>"


@cache
def doctests(module: str) -> dict[str, list[doctest.Example]]:
    """Return the examples that pytest finds in a module, by the name of the function or class."""
    return {test.name: test.examples for test in doctest.DocTestFinder().find(import_module(module))}


def run(examples: list[doctest.Example]) -> bool:
    """Say whether there are examples, and none of them is skipped."""
    return bool(examples) and not any(example.options.get(doctest.SKIP) for example in examples)


def missing(value: object) -> list[str]:
    """Return what the docstring of a function or class lacks."""
    text = inspect.cleandoc(value.__doc__ or "")
    if inspect.isclass(value) and (issubclass(value, BaseException) or getattr(value, "_is_protocol", False)):
        return [] if text else ["a docstring"]
    found, wanted = sections(text), parameters(value)
    lacks = [f"Parameters: {name}" for name in wanted if name not in documented(found.get("Parameters", ""))]
    lacks += [f"no such parameter: {name}" for name in documented(found.get("Parameters", "")) if name not in wanted]
    if inspect.isfunction(value):
        result = inspect.signature(value).return_annotation
        lacks += ["Returns"] if result not in (None, "None") and not {"Returns", "Yields"} & set(found) else []
    lacks += ["Raises"] if raises(value) and "Raises" not in found else []
    return lacks + ([] if ">>>" in found.get("Examples", "") else ["Examples"])


@pytest.mark.parametrize("name", OBJECTS)
def test_a_public_name_is_documented(name):
    assert missing(OBJECTS[name]) == []


@pytest.mark.parametrize("name", [name for name, value in OBJECTS.items() if "Examples" in (value.__doc__ or "")])
def test_the_example_of_a_public_name_runs(name):
    value = OBJECTS[name]
    assert run(doctests(value.__module__).get(f"{value.__module__}.{value.__qualname__}", []))


@pytest.mark.parametrize("name", METHODS)
def test_a_public_method_is_documented_with_the_errors_that_it_raises(name):
    text = inspect.cleandoc(METHODS[name].__doc__ or "")
    assert text
    assert "Raises" in sections(text) or not own_raises(METHODS[name])


def test_classes_that_public_functions_return_are_public():
    hidden = []
    for name, value in {**OBJECTS, **METHODS}.items():
        words = re.findall(r"\w+", str(getattr(value, "__annotations__", {}).get("return", "")))
        known = vars(sys.modules[value.__module__])
        found = [known[word] for word in words if inspect.isclass(known.get(word)) and is_own(known[word])]
        hidden += [(name, one) for one in found if one not in OBJECTS.values()]
    assert hidden == []


def check_sign(x):
    if x < 0:
        raise ValueError(x)


class Root:
    """A square root.

    Parameters
    ----------
    x : float
        A number.
    """

    def __init__(self, x: float) -> None:
        check_sign(x)


def test_what_is_missing_is_found():
    def half(x: int, /) -> float:
        """Return half of a number.

        Parameters
        ----------
        y : int
            Something else.
        """
        if x < 0:
            raise ValueError(x)
        return x / 2

    assert missing(half) == ["Parameters: x", "no such parameter: y", "Returns", "Raises", "Examples"]


def test_an_error_of_a_check_is_found(monkeypatch):
    monkeypatch.setattr(check_sign, "__module__", "metriscope.made_up")
    assert missing(Root) == ["Raises", "Examples"]


def test_an_example_that_does_not_run_is_found():
    read = doctest.DocTestParser().get_examples
    assert run(read(">>> 1\n1\n"))
    assert not run([])
    assert not run(read(">>> 1\n1\n>>> 1 / 0  # doctest: +SKIP\n"))
