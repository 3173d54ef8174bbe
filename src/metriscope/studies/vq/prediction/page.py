"""The section on sixty architectures."""

from __future__ import annotations

import pandas as pd

from metriscope.nn import ACTIVATIONS
from metriscope.report import Prose, Section, Table, mean_text, number
from metriscope.studies.vq.prediction.figures import forecasts
from metriscope.studies.vq.prediction.measure import PredictionResults
from metriscope.studies.vq.prediction.plan import REFERENCE, SCORES

__all__ = ["section"]

TITLE = "Does the kernel tell a network's worth before training?"


def section(results: PredictionResults) -> Section:
    """Return what was asked, the figure and the table; without rows, that nothing was run."""
    if results.rows.empty:
        return Section(TITLE, (Prose(f"{_text(results)}\n\nNot run in this profile, and there is no record of it."),))
    return Section(TITLE, (Prose(_text(results)), forecasts(results), _table(results)))


def _text(results: PredictionResults) -> str:
    part, spec = results.part, results.part.contests()[0]
    planned = len(part.depths) * len(part.widths) * len(part.activations)
    count = planned if results.rows.empty else len(results.architectures)
    names = " or ".join(ACTIVATIONS[a].title for a in part.activations)
    return (
        "Roddenberry et al. name architecture search as future work: could a network's kernel tell, before or early in "
        f"training, how good the network will be? Here {count} architectures ({part.depths[0]} to {part.depths[-1]} "
        f"hidden layers of {part.widths[0]} to {part.widths[-1]} units, {names}) learn {part.images.train:,} images of "
        f"`{part.images.name}` for {spec.recipe.epochs} epochs from {part.starts} starts each. Scores and accuracies "
        "are averaged over the starts; the unit of replication is the architecture.\n\n"
        f"NASWOT's score is the log determinant of the kernel H − d, here on batches of {spec.batch} images; the "
        "effective rank and the alignment with the labels are those of the centered kernel on "
        f"{spec.points:,} training images. Larger networks have larger scores and are more accurate, so the question "
        "is what a score adds to the number of parameters and the depth, which are known without drawing a network. "
        "The partial rank correlation answers it, and so does the error on held-out architectures: each one's rank is "
        "predicted from all others, with and without the score."
    )


def _table(results: PredictionResults) -> Table:
    found, each = results.tables["forecast correlations"].set_index("score"), results.tables["forecasts"]
    lines = []
    for score, title in {**SCORES, **REFERENCE}.items():
        rows = each[each["score"] == score]
        lines.append(
            {
                "score": title,
                "nothing else known": number(found["plain"][score], 2),
                "given parameters and depth": mean_text(rows["partial"]),
                "p, permutation": number(found["p"][score], 2),
                "held-out error removed": mean_text(rows["gain"]),
            }
        )
    note = (
        f"Rank correlations with final test accuracy over {len(results.architectures)} architectures; jackknife mean "
        f"[95 % t interval]. p: one-sided, {results.part.permutations:,} permutations of what parameters and depth "
        "leave of the score. Held-out error removed: share of the squared error of predicted ranks, leave one out. "
        "The last row is no score of the kernel."
    )
    return Table("vq-forecasts", "What each score predicts", pd.DataFrame(lines), note)
