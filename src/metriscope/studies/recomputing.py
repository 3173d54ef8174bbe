"""Compute stored runs again from their specifications, and compare: ``metriscope runs verify --recompute N``.

Bits are compared where the run was computed by the same versions on the same kind of processor; otherwise numbers are
compared within a tolerance, because the rounding of sums differs. The outcome says which.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, is_dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from metriscope.common.files import read, replaced
from metriscope.runs.address import address
from metriscope.runs.codec import to_json
from metriscope.runs.driver import Driver
from metriscope.runs.jobs import Work, once
from metriscope.runs.provenance import provenance, same_kind
from metriscope.runs.run import Run
from metriscope.runs.store import Store

__all__ = ["TOLERANCE", "Recomputed", "recomputable", "recompute", "recomputed"]

# A share of the largest value in the same tensor or column. Trainings are chaotic: on another processor a difference in
# rounding grows with every step, so a longer training may differ by more although it is correct.
TOLERANCE = 1e-3
_HERE = "metriscope.studies"
# What computes each kind of run: a Work, or a function of the job, or of the job and the run of its training. Other
# measurements are made from many runs at once, and a report computes them again where they are missing.
_TRAININGS = {
    "DistanceTraining": "mahalanobis.train:WORK",
    "PopulationTraining": "mahalanobis.landscape:WORK",
    "SecondLayer": "mahalanobis.second_layer:read",
    "Chance": "mahalanobis.trials:chance",
    "RepresentationTraining": "representation.train:WORK",
    "CollapseCell": "representation.collapse:WORK",
    "Group": "vq.train:WORK",
    "OffsetTraining": "heads.train:WORK",
    "HeadContest": "heads.train:contested",
    "StartContest": "initialization.train:WORK",
    "TransferTraining": "transfer.train:WORK",
    "ReadNetworks": "reading.train:WORK",
}
_READINGS = {
    "Measurement": "mahalanobis.trials:measured",
    "Diagnosis": "mahalanobis.diagnosis:diagnosed",
    "OffsetReading": "heads.offsets:read",
}


@dataclass(frozen=True)
class Recomputed:
    """The outcome of computing one run again.

    Parameters
    ----------
    address, kind : str
        The run.
    compared : str
        "bits", "tolerance", or "nothing" if it could not be computed.
    difference : float
        Largest difference, as a share of the largest value in the same tensor or column.
    fault : str
        What is different; empty if nothing is.

    Examples
    --------
    >>> print(Recomputed("ab" * 20, "Training", "bits", 0.0, ""))
    abababababab  Training  bits are equal (the same kind of processor and the same versions)
    """

    address: str
    kind: str
    compared: str
    difference: float
    fault: str

    def __str__(self) -> str:
        said = "bits are equal (the same kind of processor and the same versions)"
        if self.compared == "tolerance":
            said = f"differs by {self.difference:.1e}, within {TOLERANCE:.0e} (another processor or other versions)"
        return f"{self.address[:12]}  {self.kind}  {self.fault or said}"


def recomputable(store: Store) -> list[Run]:
    """Return the runs that can be computed again one by one."""
    return [run for run in store.runs() if run.kind in _TRAININGS or run.kind in _READINGS]


def recompute(store: Store, count: int, announce: Callable[[str], None], path: Path) -> list[Recomputed]:
    """Compute ``count`` random runs again, write the outcomes to ``path``, and return those that differ.

    ``announce`` is called with a line on each run as soon as it is compared.
    """
    if count < 1:
        raise ValueError(f"--recompute must be at least 1, not {count}")
    held, found = recomputable(store), []
    for run in Random().sample(held, min(count, len(held))):
        found.append(recomputed(run, store))
        announce(str(found[-1]))
    here = provenance()
    fields = {"date": here["date"], "platform": here["platform"], "packages": here["packages"], "tolerance": TOLERANCE}
    with replaced(path) as file:
        file.write(to_json({**fields, "runs": [asdict(one) for one in found]}, path.name))
    differing = [one for one in found if one.fault]
    alone = f"{len(held)} of {len(store.runs())} runs can be computed again one by one"
    announce(f"computed again: {len(found)}, different: {len(differing)} ({alone}; {path})")
    return differing


def recomputed(run: Run, store: Store) -> Recomputed:
    """Compute a run again and compare every byte, or within the tolerance where bits are not promised to be equal."""
    try:
        work, job = _asked(run, store)
        with tempfile.TemporaryDirectory() as folder:
            again = Driver(Store(Path(folder))).perform([job], work, run.kind)[job]
            return _compared(run, again)
    except (ValueError, TypeError, KeyError, AttributeError, OSError, RuntimeError) as error:
        return Recomputed(run.address, run.kind, "nothing", float("nan"), f"cannot be computed again: {error}")


def _compared(run: Run, again: Run) -> Recomputed:
    different = [name for name in _names(run, again) if _content(run, name) != _content(again, name)]
    share = _difference(run, again) if different else 0.0
    if same_kind(run.provenance, again.provenance):
        fault = f"differs by {share:.1e} on the same kind of processor: {', '.join(different)}" if different else ""
        return Recomputed(run.address, run.kind, "bits", share, fault)
    fault = "" if share <= TOLERANCE else f"differs by {share:.1e}, more than the tolerance of {TOLERANCE:.0e}"
    return Recomputed(run.address, run.kind, "tolerance", share, fault)


def _asked(run: Run, store: Store) -> tuple[Work, Any]:
    """Return the job of a run, and the work that computes it."""
    where = _TRAININGS.get(run.kind) or _READINGS[run.kind]
    module, _, name = where.partition(":")
    found = getattr(import_module(f"{_HERE}.{module}"), name)
    job = _rebuilt(run.spec)
    if address(job) != run.address:
        raise ValueError("no job of this version has its specification")
    if isinstance(found, Work):
        return found, job
    if run.kind in _TRAININGS:
        return once(found), job
    training = store.get(job.training)
    if training is None:
        raise ValueError(f"the run of its training, {address(job.training)[:12]}, is not in the store")
    return once(lambda spec: found(spec, training)), job


def _rebuilt(value: Any) -> Any:
    """Return the job that a specification describes: lists become tuples, and mappings with a kind dataclasses."""
    if isinstance(value, list):
        return tuple(map(_rebuilt, value))
    if not isinstance(value, dict):
        return value
    fields = {name: _rebuilt(one) for name, one in value.items() if name != "kind"}
    modules = [module for name, module in sys.modules.items() if name.startswith("metriscope.")]
    kinds = [vars(module).get(str(value.get("kind"))) for module in modules]
    kind = next((one for one in kinds if isinstance(one, type) and is_dataclass(one)), None)
    if kind is None:
        raise ValueError(f"this version has no {value.get('kind')}")
    return kind(**fields)


def _names(*runs: Run) -> list[str]:
    tables = dict.fromkeys(f"{name}.parquet" for run in runs for name in run.tables)
    return ["record.json", "weights.safetensors", *tables]


def _content(run: Run, name: str) -> bytes | None:
    path = run.path / name
    return read(path) if path.exists() else None


def _difference(run: Run, again: Run) -> float:
    """Return the largest difference of two runs; infinite where something cannot differ by rounding."""
    ours, theirs = dict(_parts(run)), dict(_parts(again))
    if ours.keys() != theirs.keys():
        return float("inf")
    return max((_share(ours[name], theirs[name]) for name in ours), default=0.0)


def _parts(run: Run) -> Iterator[tuple[str, np.ndarray]]:
    """Yield every number and word of a run, in arrays."""
    for name, tensor in run.tensors().items():
        yield f"tensor {name}", tensor.numpy()
    for name in run.tables:
        yield from ((f"table {name} {column}", values.to_numpy()) for column, values in run.table(name).items())
    yield from ((f"record {name}", np.asarray(value)) for name, value in run.record.items())


def _share(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference as a share of the largest value; infinite for words and whole numbers that differ.

    >>> _share(np.array([1.0, 2.0]), np.array([1.0, 2.5])), _share(np.array([1]), np.array([2]))
    (0.2, inf)
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return float("inf")
    if one.dtype.kind != "f":
        return 0.0 if one.tolist() == other.tolist() else float("inf")
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    one, other = one[np.isfinite(one)].astype(np.float64), other[np.isfinite(other)].astype(np.float64)
    difference = np.abs(one - other).max(initial=0.0)
    return float(difference / np.abs(other).max(initial=0.0)) if difference else 0.0
