"""Turn what a user names on the command line into objects: networks, weights, saved patterns.

An error in the user's code becomes a ``NetworkError``: one sentence that names the line in that code.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from metriscope.common.errors import first_line
from metriscope.reading.weights import check_kinds, other_names, read_weights, unwrapped_names

if TYPE_CHECKING:
    from types import FrameType

    from torch import nn

    from metriscope.reading.points import UserPoints
    from metriscope.vq import Patterns

__all__ = [
    "NetworkError",
    "NetworkName",
    "Reading",
    "check_comparable",
    "load_model",
    "network_name",
    "patterns_of",
    "read_network",
    "short_name",
]

_FACTORY = re.compile(r"(?P<factory>[^\W\d]\w*)(?:@(?P<weights>.+))?", re.DOTALL)
_PACKAGE = "metriscope"
# The functions of capture that call the PyTorch functions which a running network uses.
_HANDOVERS = {"_call", "__torch_function__", "__torch_dispatch__"}


class NetworkError(RuntimeError):
    """The user's network could not be created or run; the message gives the exception and its place in their code."""


class NetworkName(NamedTuple):
    """A network as it is named on the command line: where its factory is, the factory, and its weights if any."""

    place: str
    factory: str
    weights: Path | None

    @property
    def target(self) -> str:
        """Return the name without the weights."""
        return f"{self.place}:{self.factory}"

    @property
    def is_there(self) -> bool:
        """Return whether the file exists (or the name could be a module), and the weights file, if any, exists."""
        is_file = self.place.endswith(".py")
        placed = Path(self.place).is_file() if is_file else all(map(str.isidentifier, self.place.split(".")))
        return placed and (self.weights is None or self.weights.is_file())


def network_name(named: str) -> NetworkName:
    """Return the parts of ``place:factory`` or ``place:factory@weights.safetensors``.

    Paths may contain ``:`` and ``@``; a factory is a Python name, which cannot. If the text can be split in several
    ways, the first one whose files exist is used.

    >>> network_name("nets@v2/small.py:cnn@runs@home/1.safetensors")
    NetworkName(place='nets@v2/small.py', factory='cnn', weights=...Path('runs@home/1.safetensors'))
    """
    colons = [at for at, letter in enumerate(named) if letter == ":" and at]
    found = [(named[:at], match) for at in colons if (match := _FACTORY.fullmatch(named, at + 1))]
    names = [NetworkName(place, m["factory"], Path(m["weights"]) if m["weights"] else None) for place, m in found]
    if not names:
        raise ValueError(
            f"{named!r} does not name a network or a folder of saved patterns: write package.module:factory or "
            "path/to/file.py:factory, followed by @weights.safetensors if it has weights"
        )
    return next((name for name in names if name.is_there), names[0])


def short_name(named: str) -> str:
    """Return the name of a network on a page: its factory, and its weights' file if it has one.

    >>> short_name("models/small.py:cnn@seeds/1.safetensors"), short_name("models/saved")
    ('cnn, 1', 'saved')
    """
    if Path(named).is_dir() or ":" not in named:
        return Path(named).name or named
    name = network_name(named)
    return f"{name.factory}, {name.weights.stem}" if name.weights else name.factory


def load_model(target: str, weights: Path | None = None) -> nn.Module:
    """Return the network that ``package.module:factory`` or ``path/to/file.py:factory`` makes.

    ``weights`` is a file with its ``state_dict``, .safetensors or .pt; names and shapes must match.
    """
    from torch import nn

    from metriscope.vq.capture.batches import required_parameters

    make = _factory(target)
    if needed := required_parameters(make):
        raise ValueError(f"{target} needs arguments ({', '.join(needed)}): name a function that needs none")
    with _users_code(target):
        model = make()
    if not isinstance(model, nn.Module):
        raise ValueError(f"{target} returned a {type(model).__name__}, not a torch.nn.Module")
    if weights is not None:
        _load_weights(model, weights)
    return model


def _factory(target: str) -> Callable[[], Any]:
    place, _, name = target.rpartition(":")
    found = getattr(_module(place), name, None)
    if not callable(found):
        raise ValueError(f"{place} has no function or class {name!r}")
    return found


def _module(place: str) -> Any:
    if place.endswith(".py"):
        return _module_from(Path(place))
    if not all(place.split(".")):
        raise ValueError(f"cannot import {place}: write package.module:factory or path/to/file.py:factory")
    # The console script's own folder is on the path, the user's is not.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with _users_code(place):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            # The module exists, but imports one that does not: its author should see that error.
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise
            absent = str(error)
    raise ValueError(f"cannot import {place}: {absent}")


def _module_from(path: Path) -> Any:
    if not path.is_file():
        raise ValueError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Before it runs: dataclasses and the like look their own module up.
    placed = sys.modules.setdefault(path.stem, module) is module
    try:
        with _users_code(str(path)):
            spec.loader.exec_module(module)
    except NetworkError:
        if placed:
            del sys.modules[path.stem]
        raise
    return module


def _load_weights(model: nn.Module, path: Path) -> None:
    state = unwrapped_names(read_weights(path), list(model.state_dict()))
    check_kinds(model, state, path)
    misfit = ""
    with _users_code(f"loading {path} into the network"):
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            last = str(error).splitlines()[-1].strip()
            misfit = other_names(set(state), set(model.state_dict())) or last
    if misfit:
        raise ValueError(f"the weights in {path} do not fit the network: {misfit}")


@dataclass(frozen=True)
class Reading:
    """How a network is read: which layers, positions or channels, where, and how many points at once."""

    layers: tuple[str, ...] = ()
    conv: Literal["positions", "channels"] = "positions"
    tokens: Literal["any", "first", "last", "mean"] | None = None
    device: str | None = None
    batch_size: int = 256


def patterns_of(named: str, points: UserPoints | None, weights: Path | None = None) -> Patterns:
    """Return the patterns of ``factory``, ``factory@weights.safetensors``, or a folder of saved patterns."""
    return read_network(named, points, weights)[0]


def read_network(
    named: str, points: UserPoints | None, weights: Path | None = None, how: Reading | None = None
) -> tuple[Patterns, nn.Module | None]:
    """Return the patterns of ``factory``, ``factory@weights``, or a folder of saved patterns, and the network if known.

    ``weights`` is the weights file of a factory that is named without one.
    """
    if Path(named).is_dir():
        return _saved_patterns(Path(named), points), None
    name = network_name(named)
    if points is None:
        raise ValueError(f"{named} is a network: its patterns need --data")
    if weights is not None and name.weights is not None:
        raise ValueError(f"weights are given twice: {name.weights} and {weights}")
    model = load_model(name.target, weights or name.weights)
    return _captured(name.target, model, points, how or Reading()), model


class _Batches:
    """The batches of some points, as often as they are asked for, with a progress bar."""

    def __init__(self, points: UserPoints, size: int, what: str) -> None:
        self.points, self.size, self.what = points, size, what

    def __iter__(self) -> Iterator[Any]:
        from metriscope.common.progress import progress

        with progress(self.what, len(self.points)) as show:
            for done, batch in enumerate(self.points.batches(self.size)):
                yield batch
                show(min((done + 1) * self.size, len(self.points)))


def _captured(target: str, model: nn.Module, points: UserPoints, how: Reading) -> Patterns:
    from metriscope.reading.layer_names import activations_of
    from metriscope.vq import capture

    if how.device is not None:
        try:
            model.to(how.device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"the device {how.device!r} cannot be used: {first_line(error)}") from None
    if how.batch_size < 1:
        raise ValueError(f"--batch-size must be at least 1, got {how.batch_size}")
    batches = _Batches(points, how.batch_size, f"running {target}")
    with _users_code(f"the forward pass of {target}", model, points.hint):
        first = next(points.batches(how.batch_size))
        layers = activations_of(model, first, how.layers) if how.layers else None
        return capture(model, batches, layers=layers, conv=how.conv, tokens=how.tokens)


def _saved_patterns(path: Path, data: UserPoints | None) -> Patterns:
    """Return the patterns in a folder, after checking every byte."""
    from metriscope.vq import Patterns

    try:
        found = Patterns.load(path, verify=True)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Its files are what was written, yet do not fit together.
        raise ValueError(f"{path} is not a folder of saved patterns: {first_line(error)}") from error
    if not len(found):
        raise ValueError(f"{path} holds patterns of no points")
    empty = [layer.name for layer in found.layers if layer.width < 1]
    if empty or not found.layers:
        raise ValueError(f"{path} holds no signs{f' in layer {empty[0]!r}' if empty else ': it has no layers'}")
    if data is not None and len(data) != len(found):
        raise ValueError(f"{path} holds patterns of {len(found)} points, but --data has {len(data)}")
    return found


def check_comparable(first: str, one: Patterns, second: str, two: Patterns) -> None:
    """Check that two networks' patterns are of the same points in the same order."""
    from metriscope.vq import check_same_points

    try:
        check_same_points(one, two)
    except ValueError as error:
        raise ValueError(f"{first} and {second} cannot be compared: {error}") from None


@contextmanager
def _users_code(what: str, model: nn.Module | None = None, hint: str = "") -> Iterator[None]:
    """Turn an error of the user's code inside the block into a ``NetworkError``.

    Where ``model`` runs inside ``capture``, errors of capture itself pass unchanged.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        # If a model does not run, capture raises an error of its own, with the model's exception as its cause.
        error = raised.__cause__ if model is not None and isinstance(raised.__cause__, RuntimeError) else raised
        frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if _module_name(frame) != __name__]
        if model is not None and not _raised_by_network([frame for frame, _ in frames]):
            raise
        where = _place_of(error, frames) or _layer_of(model, frames)
        said = f": {text}" if (text := first_line(error)) else ""
        said += hint if isinstance(error, RuntimeError) else ""
        raise NetworkError(
            f"{what} raised {type(error).__name__}{where}{said} (--debug shows the traceback)"
        ) from error


def _raised_by_network(frames: list[FrameType]) -> bool:
    """Return whether the network's code, not capture's, was running when an exception was raised."""
    from metriscope.common.model_state import Runner

    entrance = Runner.__call__.__code__
    own = [f.f_code for f in frames if f.f_code is entrance or _module_name(f).startswith(f"{_PACKAGE}.vq.")]
    return entrance in own and (own[-1] is entrance or own[-1].co_name in _HANDOVERS)


def _place_of(error: BaseException, frames: list[tuple[FrameType, int]]) -> str:
    """Return the last line of the user's code that an exception passed through, as text; empty if there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" at {_shown(error.filename)}:{error.lineno}"
    places = [(frame.f_code.co_filename, line) for frame, line in frames if _is_users(frame)]
    return f" at {_shown(places[-1][0])}:{places[-1][1]}" if places else ""


def _is_users(frame: FrameType) -> bool:
    """Return whether code is the user's: not this package's, not installed, and not Python's own."""
    if _module_name(frame).split(".")[0] == _PACKAGE or frame.f_code.co_filename.startswith("<"):
        return False
    path = Path(frame.f_code.co_filename)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return not installed and not path.is_relative_to(sysconfig.get_path("stdlib"))


def _module_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _layer_of(model: nn.Module | None, frames: list[tuple[FrameType, int]]) -> str:
    """Return the innermost module of a network that was running, or else the last line that ran, as text."""
    names = {} if model is None else {id(module): name for name, module in model.named_modules()}
    running = [frame.f_locals.get("self") for frame, _ in frames]
    inside = [module for module in running if names.get(id(module))]
    if inside:
        return f" in layer {names[id(inside[-1])]!r} ({type(inside[-1]).__name__})"
    place = _shown(frames[-1][0].f_code.co_filename) if frames else "<"
    return "" if place.startswith("<") else f" at {place}:{frames[-1][1]}"


def _shown(filename: str) -> str:
    """Return a path relative to the current folder if it lies inside, otherwise as it is."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
