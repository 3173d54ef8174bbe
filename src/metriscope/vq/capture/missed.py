"""What ran in a model and was not captured, with the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Missed", "MissedOperation"]


@dataclass(frozen=True)
class MissedOperation:
    """One kind of operation that ran in one module and was not captured.

    Parameters
    ----------
    what : str
        The operation, such as ``"where"`` or ``"LSTM"``, or the kind of a layer that was dropped.
    role : str
        ``"missed"`` for what may be an activation; ``"dropped"`` for an activation whose rows are not points; otherwise
        the type of an operation that computes no units: ``"softmax"``, ``"normalization"``, ``"attention"``,
        ``"distance"``, ``"loss"``, ``"product of two signals"`` or ``"function of positive values"``.
    reason : str
        Why it was not captured.
    count : int
        How often it ran.
    where : str
        Name of the module, or of the dropped layer.

    Examples
    --------
    >>> MissedOperation("where", "missed", "not an activation that is known", 2, "block").count
    2
    """

    what: str
    role: str
    reason: str
    count: int
    where: str = ""


@dataclass(frozen=True, repr=False)
class Missed:
    """What ran in a model besides the captured layers; printing it gives one sentence.

    As a truth value it is True if the patterns may be incomplete: an operation may be an activation, a layer was
    dropped, or there is a doubt. Operations that compute no units, such as softmax, are listed but do not count.

    Parameters
    ----------
    taken : int
        Number of layers that were captured.
    operations : tuple of MissedOperation
        What was not captured, one entry per operation and module.
    doubts : tuple of str
        What could not be checked, or is unusual about the captured rows.

    Examples
    --------
    >>> from torch import cos, nn, ones
    >>> from metriscope.vq import capture
    >>> class Model(nn.Sequential):
    ...     def forward(self, x):
    ...         return cos(super().forward(x))
    >>> str(capture(Model(nn.Linear(2, 3), nn.ReLU()), ones(2, 2)).missed)
    '1 layer taken; also ran: cos x1'
    """

    taken: int
    operations: tuple[MissedOperation, ...] = ()
    doubts: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.doubts) or any(one.role in ("missed", "dropped") for one in self.operations)

    def __str__(self) -> str:
        taken = f"{self.taken} layer{'' if self.taken == 1 else 's'} taken"
        ran, dropped = _counted(self._of("missed"), "what"), _counted(self._of("dropped"), "reason")
        parts = [", ".join(f"{what} x{count}" for what, count in ran.items())]
        parts += [", ".join(f"{count} ({reason})" for reason, count in dropped.items())]
        found = [f"{head}: {part}" for head, part in zip(("also ran", "dropped"), parts, strict=True) if part]
        return "; ".join([taken, *(found or ["nothing missed"] if not self.doubts else found), *self.doubts])

    __repr__ = __str__

    def to_pandas(self) -> DataFrame:
        """Return one row per operation and module, also of the operations that compute no units."""
        from pandas import DataFrame

        return DataFrame(
            [asdict(one) for one in self.operations], columns=[one.name for one in fields(MissedOperation)]
        )

    @staticmethod
    def joined(parts: Sequence[Missed]) -> Missed:
        """Return what was missed in several captures of the same layers; each operation is listed once."""
        found = {one: None for part in parts for one in part.operations}
        doubts = {one: None for part in parts for one in part.doubts}
        return Missed(parts[0].taken, tuple(found), tuple(doubts))

    def _of(self, role: str) -> Iterable[MissedOperation]:
        return (one for one in self.operations if one.role == role)

    def to_record(self) -> dict[str, Any]:
        """Return a dictionary that can be written as JSON."""
        return {**asdict(self), "operations": [asdict(one) for one in self.operations], "doubts": list(self.doubts)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Missed:
        """Return the object from a dictionary that :meth:`to_record` returned."""
        operations = tuple(MissedOperation(**one) for one in record["operations"])
        return cls(record["taken"], operations, tuple(record["doubts"]))


def _counted(operations: Iterable[MissedOperation], key: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in operations:
        found[getattr(one, key)] += one.count
    return found
