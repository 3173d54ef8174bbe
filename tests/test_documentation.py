"""Every public name says in numpy style what it takes, returns and raises, with an example that the doctests run."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from importlib import import_module

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


def public_objects() -> dict[str, object]:
    """Return every public function and class by the first name under which it can be reached."""
    found: dict[int, tuple[str, object]] = {}
    for module_name in PUBLIC:
        module = import_module(module_name)
        for name in module.__all__:
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and value.__module__.startswith("metriscope"):
                found.setdefault(id(value), (f"{module_name}.{name}", value))
    return dict(found.values())


OBJECTS = public_objects()


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


def raises(value: object) -> bool:
    """Say whether a function itself holds a raise statement."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(value)))
    return any(isinstance(node, ast.Raise) and node.exc is not None for node in ast.walk(tree))


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
