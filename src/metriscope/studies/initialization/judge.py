"""The claim C08 as criteria, fixed before the numbers are seen.

"Beats" means both: a lower loss on new points at the end, and fewer epochs to a given loss. The unit is the Gaussian,
the mixture or the real data set; its starts and both activations are averaged. Starts from clusters have as many
clusters as there are Gaussians or classes, which is the best case. They are compared with the random start of the
source's experiment on Gaussians (Kaiming, hyperplanes through random points) and with Kaiming's start elsewhere, with
the same tuning of the learning rate.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from metriscope.report import Evidence, number
from metriscope.studies.evidence import Below
from metriscope.studies.initialization.plan import ENTRIES, KINDS
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import Criterion, Statement, Values

if TYPE_CHECKING:
    from metriscope.studies.verdicts import Tables

__all__ = ["PAIRS", "STATEMENTS"]

SOURCE = "Oursland 2024a, arXiv:2410.19352"
# Half the loss and a twentieth less, in powers of ten; a tenth of the training.
HALVED, LESS, SOONER = -0.3, -0.022, -0.1
# With fewer pairs no criterion can fail: 2^-8 is the largest power of 1/2 below 0.05 / 8, which is Holm's level for
# the first of eight criteria.
PAIRS = 8
WHY_HALVED = (
    "Half the loss: on Gaussians a start from the right whitening leaves only the sampling error to be learned."
)
WHY_LESS = "A twentieth less loss: a smaller gain would not justify the clustering."
WHY_SOONER = "A tenth of the training, three of the thirty times at which the loss is noted."

_on_pairs = partial(Criterion, test="rank", paired=True, fewest=PAIRS, unit="unit")


def _beats(kind: str) -> tuple[Criterion, ...]:
    reference = "points" if kind.startswith("gaussian") else "kaiming"
    margin, why = (HALVED, WHY_HALVED) if reference == "points" else (LESS, WHY_LESS)
    units = "Gaussians" if reference == "points" else "mixtures" if kind == "mixture" else "data sets"
    texts = {
        "log_loss": (f"log10 of the loss on new points, clusters less {ENTRIES[reference]}", margin, why),
        "share": (f"share of training to the loss of {ENTRIES[reference]} halfway, difference", SOONER, WHY_SOONER),
    }
    return tuple(
        _on_pairs(
            text,
            Values.of("starts", column, kind=kind, entry="clusters"),
            Below(edge),
            reason,
            units=units,
            minus=Values.of("starts", column, kind=kind, entry=reference),
            level=KINDS[kind],
        )
        for column, (text, edge, reason) in texts.items()
    )


def _evidence(tables: Tables) -> list[Evidence]:
    """Return the mean log10 of the loss of every start on each kind of data."""
    found = []
    for (kind, entry), part in tables["starts"].groupby(["kind", "entry"], sort=False):
        label = f"{KINDS[str(kind)]}, {ENTRIES[str(entry)]}"
        found.append(Evidence(f"{label}: log10 of the loss on new points", float(part["log_loss"].mean())))
    return found


def _notes(tables: Tables) -> str:
    """Say how many directions are kept on Gaussians, from clusters and from the random start."""
    parts = []
    for kind in KINDS:
        rows = matching(tables["starts"], kind=kind)
        if len(rows) and "kept" in rows and rows["kept"].notna().all():
            kept = rows.groupby("entry")["kept"].mean()
            both = ", ".join(f"{ENTRIES[name]} {number(float(kept[name]))}" for name in ("clusters", "points"))
            parts.append(f"{KINDS[kind]}: {both}")
    return f"Share of directions kept after training: {'; '.join(parts)}." if parts else ""


STATEMENTS = (
    Statement(
        "C08",
        "Initializing from clusters and their principal axes beats random initialization.",
        SOURCE,
        tuple(criterion for kind in KINDS for criterion in _beats(kind)),
        factor="kind of data",
        notes=_notes,
        evidence=_evidence,
    ),
)
