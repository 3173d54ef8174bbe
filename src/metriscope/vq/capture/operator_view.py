"""A view of the operators of a forward pass: which are nonlinear in the values of the points and belong to no layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass

from metriscope.vq.capture.activation_calls import Call
from metriscope.vq.capture.missed import MissedOperation
from metriscope.vq.capture.operators import (
    COMPARISONS,
    DEFERRED,
    LOOKUPS,
    PRODUCTS,
    USES,
    Recipe,
    operator_name,
    passes_values,
    recipe_for,
    verdict,
)

__all__ = ["Event", "OperatorView", "operations"]

# The name of an activation that is written with a comparison, by the operator that uses the comparison.
_USED_AS = {"mul": "product", "index": "selection", "masked_select": "selection", "_index_put_impl": "index_put"}
_USED_AS |= {"_unsafe_index_put": "index_put", **{name: name for name in ("where", "masked_fill", "masked_scatter")}}
_USED_AS |= {"index_put": "index_put", "index_fill": "index_fill"}


@dataclass(eq=False)
class Event:
    """An operator that ran on signals and that no layer explains.

    ``role`` is its type if it computes no units; ``below`` says whether compiled code called it; ``absorbed`` whether
    another event includes it. If it may be an activation written by hand, ``key`` and ``recipe`` say which operator it
    is and how to read it, and ``used`` is True once it is known to be one. ``source`` is the memory that it reads.
    """

    what: str
    path: str
    role: str = ""
    below: bool = False
    absorbed: bool = False
    key: str = ""
    recipe: Recipe | None = None
    used: bool = False
    source: int = 0

    @property
    def taken(self) -> bool:
        """Return whether this operator is captured."""
        return self.used and not self.role and not self.absorbed

    def use(self, kind: str = "", affine: bool = True) -> None:
        """Mark this operator as an activation of a kind."""
        if self.recipe and not self.used:
            self.used = True
            known = self.recipe
            self.recipe = replace(known, kind=kind or known.kind, piecewise_affine=known.piecewise_affine and affine)


def operations(events: list[Event]) -> Iterator[MissedOperation]:
    """Yield what is not captured: one entry per kind of operation and module."""
    left = [one for one in events if not one.absorbed and not one.taken]
    kept = Counter((one.what, one.role, one.path, one.below) for one in left)
    for (what, role, path, below), count in kept.items():
        reason = f"computes no units: {role}" if role else _REASONS[below]
        yield MissedOperation(what, role or "missed", reason, count, path)


_REASONS = ("not one of the known activations", "not one of the known activations; it ran in compiled code")


class OperatorView(TorchDispatchMode):
    """Watches operators on values of points, and collects those that nothing explains.

    Signals are values that depend on the points: floating-point inputs, embeddings, and what is computed from them.
    Decisions are integers and booleans that depend on the points, such as ``x > 0``; for each it is known whether it
    came from comparing signals. ``context`` is the role of a function that is running, if it computes no units;
    ``recorded`` counts captured activations. ``place`` returns the name and the type of the running module; ``before``
    is called with each operator, and returns its key.
    """

    def __init__(self, place: Callable[[], tuple[str, str]], before: Callable[..., str]) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.context, self.recorded, self.below = "", 0, False
        self.renamed: dict[int, str] = {}
        self._place, self._before = place, before
        # Weak references keep the address of a storage from being used again.
        self._signals: dict[int, StorageWeakRef] = {}
        self._decisions: dict[int, tuple[StorageWeakRef, frozenset[Event]]] = {}
        self._formulas = Formulas(self.renamed)

    def add_input(self, value: Tensor, mask: bool = False) -> None:
        """Mark an input of the model: real numbers are signals; whole numbers, and masks of any type, are decisions."""
        if mask:
            self._decisions.update((key, (storage, frozenset())) for key, storage in _storages(value))
        else:
            self._add(value, frozenset())

    def _add(self, value: Tensor, events: frozenset[Event]) -> None:
        real = value.is_floating_point() or value.is_complex() or value.is_quantized
        for key, storage in _storages(value):
            if real:
                self._signals[key] = storage
            else:
                self._decisions[key] = storage, events

    def is_signal(self, value: Tensor) -> bool:
        """Return whether a tensor depends on the points; a tensor without its own storage is assumed to."""
        keys = [key for key, _ in _storages(value)]
        return not keys or any(key in self._signals for key in keys)

    def depends(self, value: Tensor) -> bool:
        """Return whether a tensor depends on the points in any way."""
        return self.is_signal(value) or bool(self._decided([value]))

    def record(self, call: Call, source: Tensor, number: int) -> None:
        """Note a recorded activation, which may be part of another: softsign is computed from abs, GELU from tanh."""
        self.recorded += 1
        self._formulas.begin(call, _key(source), number)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Inside a function that Python called, the function mode is disabled.
        below, named = bool(_get_current_function_mode_stack()), kwargs or {}
        self.below, name = below, operator_name(func)
        given = list(_tensors((args, named)))
        signals = [value for value in given if self.is_signal(value)]
        recorded, key = self.recorded, self._before(func, args, named)
        # Before it runs, because it may overwrite what it reads.
        recipe = recipe_for(name, args, named, self.is_signal) if key and signals else None
        out = func(*args, **named)
        compared = frozenset[Event]().union(*(self._decisions[one][1] for one in self._decided(given)))
        if not signals and not self._decided(given):
            return out
        used = self._use(name, given, compared)
        event = None if used or self.recorded > recorded else self._judge(func, args, signals, compared, below)
        if event is not None:
            event.key, event.recipe, event.source = key, recipe, _key(signals[0]) if signals else 0
            if recipe and name not in DEFERRED:
                event.use()
        known = frozenset([event]) if event else frozenset() if used else compared
        self._mark(name, out, bool(signals or event or used), known)
        self._formulas.follow(name, args, [_key(value) for value in given], _key(next(_tensors(out), None)), event)
        return out

    def _decided(self, given: list[Tensor]) -> list[int]:
        keys = [key for value in given for key, _ in _storages(value)]
        return [key for key in keys if key in self._decisions and key not in self._signals]

    def _use(self, name: str, given: list[Tensor], compared: frozenset[Event]) -> bool:
        """Return whether an operator uses comparisons that can be read: they are an activation written by hand."""
        used_as = _USED_AS.get(name, "step" if name in PRODUCTS else "")
        if not used_as or not compared or not all(event.recipe for event in compared):
            return False
        bent = self._formulas.bent([_key(value) for value in given])
        inside = [one for one in bent if one not in compared]
        for event in compared:
            event.use(used_as, not inside)
            for one in inside:
                one.absorbed |= one.source == event.source
        return True

    def _judge(
        self, func: Any, args: Any, signals: list[Tensor], compared: frozenset[Event], below: bool
    ) -> Event | None:
        """Note an operator that is not linear, and return its event."""
        path, kind = self._place()
        what, role = verdict(func, args, signals, bool(compared), kind)
        if not what:
            return None
        if operator_name(func) in USES:
            for event in compared:
                event.absorbed = True
        found = Event(what, path, self.context or role, below)
        self.events.append(found)
        return found

    def _mark(self, name: str, out: Any, signal: bool, events: frozenset[Event]) -> None:
        """Mark the result of an operator; computed from decisions alone and without weights, it is a decision."""
        if not passes_values(name):
            return
        events = events if name in COMPARISONS or not signal else frozenset()
        for value in _tensors(out):
            if signal or name in PRODUCTS or name in LOOKUPS:
                self._add(value, events)
            else:
                self._decisions.update((key, (storage, events)) for key, storage in _storages(value))


class Formulas:
    """Recognizes what several operators compute together, by the memory that each reads and writes.

    Softsign is x / (1 + |x|), and tanhshrink is x - tanh(x); a GELU has powers inside its tanh; a sigmoid is 1 / (1 +
    exp(-x)) and softplus log(1 + exp(x)). A maximum that is subtracted from its own argument is part of a softmax, and
    a maximum that divides is part of a normalization. ``renamed`` collects the kinds of which recorded operators are
    parts.
    """

    def __init__(self, renamed: dict[int, str]) -> None:
        self._renamed = renamed
        self._begun: tuple[str, int] | None = None
        self._parts: dict[int, tuple[str, int, int]] = {}
        self._powers: dict[int, tuple[int, Event]] = {}
        # By the memory of a result: nonlinear events behind it, exponentials plus one, maxima, what it is the negative
        # of.
        self._bent: dict[int, Event] = {}
        self._sigmoids: dict[int, Event] = {}
        self._maxima: dict[int, Event] = {}
        self._negatives: set[int] = set()

    def begin(self, call: Call, source: int, number: int) -> None:
        """Note a recorded activation that may be part of a formula."""
        self._begun = (call.kind, number) if call.seen == "operator" and call.kind in ("abs", "tanh") else None
        if call.kind == "tanh" and source in self._powers:
            self._powers[source][1].absorbed = True

    def bent(self, keys: Sequence[int]) -> list[Event]:
        """Return the nonlinear events whose results were only scaled and shifted since."""
        return [self._bent[key] for key in keys if key in self._bent]

    def follow(self, name: str, args: Sequence[Any], keys: list[int], result: int, event: Event | None) -> None:
        """Note an operator on signals that has run, and its event, if any."""
        self._follow_activations(name, keys, result)
        self._follow_powers(name, keys, result, event)
        self._follow_exponentials(name, args, keys, result, event)
        if name in ("sub", "div") and len(keys) == 2 and keys[1] in self._maxima:
            found = self._maxima[keys[1]]
            if name == "div" or found.source == keys[0]:
                found.role = "softmax" if name == "sub" else "normalization"
        if event is not None and event.recipe and event.recipe.reads == "winner":
            self._maxima[result] = event
        if event is not None:
            self._bent[result] = event
        elif name in ("add", "sub", "mul", "div", "neg") and len(keys) == 1 and keys[0] in self._bent:
            self._bent[result] = self._bent[keys[0]]

    def _follow_activations(self, name: str, keys: list[int], result: int) -> None:
        if self._begun and self._begun[0] == name:
            self._parts[result] = (name, keys[0], self._begun[1])
            self._begun = None
        elif name in ("add", "mul") and len(keys) == 1 and keys[0] in self._parts:
            self._parts[result] = self._parts[keys[0]]
        elif len(keys) == 2 and keys[1] in self._parts:
            kind, source, number = self._parts[keys[1]]
            whole = {("div", "abs"): "softsign", ("sub", "tanh"): "tanhshrink"}.get((name, kind))
            if whole and keys[0] == source:
                self._renamed[number] = whole

    def _follow_powers(self, name: str, keys: list[int], result: int, event: Event | None) -> None:
        if name == "pow" and event is not None:
            self._powers[result] = keys[0], event
        elif name in ("add", "mul") and (inside := [key for key in keys if key in self._powers]):
            source, power = self._powers[inside[0]]
            if {*keys} <= {inside[0], source}:
                self._powers[result] = source, power

    def _follow_exponentials(
        self, name: str, args: Sequence[Any], keys: list[int], result: int, event: Event | None
    ) -> None:
        if name == "neg" or (name == "mul" and len(keys) == 1 and args[1] == -1):
            self._negatives.add(result)
        if event is not None and event.what == "exp" and event.recipe:
            event.recipe = replace(event.recipe, backward=keys[0] in self._negatives)
        bend = self._bent.get(keys[0]) if keys else None
        exponential = bend if bend is not None and bend.what == "exp" else None
        if name == "add" and len(keys) == 1 and args[1] == 1 and exponential:
            self._sigmoids[result] = exponential
        elif name == "log1p" and event is not None and exponential:
            exponential.use()
            event.absorbed = True
        divided = [key for key in keys[-1:] if name in ("div", "reciprocal", "log", "pow") and key in self._sigmoids]
        for key in divided:
            self._sigmoids[key].use()
            if event is not None and not event.role:
                event.absorbed = True


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, Mapping):
        yield from _tensors(list(value.values()))


def _storages(value: Tensor) -> Iterator[tuple[int, StorageWeakRef]]:
    """Yield the address of the memory that a tensor's values are in, and a weak reference to it."""
    if is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from _storages(getattr(value, name))
        return
    try:
        storage = value.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return
    yield storage._cdata, StorageWeakRef(storage)


def _key(value: Tensor | None) -> int:
    """Return the address of the memory that a tensor's values are in; 0 if it has none of its own."""
    return 0 if value is None else next((key for key, _ in _storages(value)), 0)
