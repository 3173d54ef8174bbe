"""The section on the replayed perturbation experiment: every printed level, and how much the definition matters."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Details, Prose, Section, Table
from metriscope.studies.representation.accuracy.measure import select
from metriscope.studies.representation.perturbations import figures
from metriscope.studies.representation.perturbations.plan import NETWORKS, PROGRAM, TEXT, per_cent
from metriscope.studies.representation.plan import title
from metriscope.studies.representation.starts.plan import PERTURBED, REPLAYS

__all__ = ["sections"]

Tables = Mapping[str, pd.DataFrame]

MEANINGS = {
    PROGRAM: "range of the activation, maximum kept (the author's program)",
    TEXT: "range of the activation (the paper's text)",
    "pre-activation-kept": "range of the pre-activation, maximum kept",
    "pre-activation": "range of the pre-activation (first used here)",
}
SHORT = {
    PROGRAM: "the author's program",
    TEXT: "the paper's text",
    "pre-activation-kept": "the pre-activation's range with the maximum kept",
    "pre-activation": "the pre-activation's range alone",
}
# An offset at which definitions are compared.
SMALL = 0.1
# Which definitions differ for a kind of perturbation: none for a scale, and only in the range for a ceiling.
DIFFERENT = {"scale": (PROGRAM,), "clip": (PROGRAM, "pre-activation"), "offset": tuple(MEANINGS)}
PAIRS = {"ours": ("mean", "sd"), "published": ("published mean", "published sd")}
QUANTITIES = {"train_accuracy": "training accuracy, %", "test_accuracy": "test accuracy, %", "train_loss": "loss"}


def sections(found: Tables) -> tuple[Section, ...]:
    """Return the section; none where no network was replayed and no record of one exists."""
    if "replays" not in found:
        return ()
    runs = found["replays"]
    counts = runs.groupby("network", sort=False)["seed"].nunique()
    listed = ", ".join(f"{n} of {REPLAYS[PERTURBED].runs} runs of {title(str(name))}" for name, n in counts.items())
    text = (
        "The networks start from the random numbers of the published runs. Between the first layer and the activation "
        "stands y = min(s z + t, c), with numbers of its own for each unit. With lo and hi the unit's least and "
        "largest activation over the training images and r = hi − lo, a scale p is s = p, a clip p is c = lo + p r, "
        "and an offset p is t = p r with s = (hi − p r) / hi, so that the largest value stays where it was. The text "
        "of Oursland (2024b) leaves this last factor out; its author's program has it. "
        f"{runs['setting'].iloc[0]}; {listed}{_origin(runs)}. {_silent(runs)}"
    )
    shown = (_baselines(found), figures.levels(found), _levels(found), Prose(_matters(found)), _definitions(found))
    return (Section("The perturbation experiment, replayed", (Prose(text), *shown, _everything(found))),)


def _origin(runs: pd.DataFrame) -> str:
    count = int((runs["origin"] == "record").sum())
    return f" ({count} of them from records)" if count else ""


def _silent(runs: pd.DataFrame) -> str:
    """Say how many units have the largest activation 0, for which the factor is undefined and taken as 1."""
    most = runs.groupby("network", sort=False)["silent"].agg(["sum", "max"])
    if not most["sum"].any():
        return "No unit of any run has the largest activation 0, for which that factor would be undefined."
    texts = [f"{all_} in all runs of {title(str(n))}, at most {one} in one" for n, all_, one in most.itertuples()]
    return f"Units whose largest activation is 0, for which the factor is taken as 1: {'; '.join(texts)}."


def _baselines(found: Tables) -> Table:
    rows = []
    for _, row in found["replayed baselines"].iterrows():
        digits = 4 if row["quantity"] == "train_loss" else 2
        texts = {k: f"{row[mean]:.{digits}f} ± {row[sd]:.{digits}f}" for k, (mean, sd) in PAIRS.items()}
        names = {"network": title(row["network"]), "quantity": QUANTITIES[row["quantity"]], "runs": row["runs"]}
        difference = f"{row['mean'] - row['published mean']:+.{digits}f}"
        rows.append({**names, **texts, "difference": difference.replace("-", "−")})
    note = "At the end of training, before any perturbation: mean ± standard deviation over runs."
    return Table("replayed-baselines", "Where training ends", pd.DataFrame(rows), note, labels={"difference": "Δ"})


def _levels(found: Tables) -> Table:
    """Return one row per printed level: ours and the printed mean of both networks."""
    rows = select(found["replayed beside"], definition=PROGRAM)
    parts, groups = [], {}
    for network, part in rows.groupby("network", sort=False):
        wide = part.set_index(["kind", "level"])[["mean", "sd", "published", "difference"]]
        parts.append(wide.add_prefix(f"{network} "))
        groups[f"{title(str(network))} ({part['runs'].max()} runs)"] = tuple(parts[-1].columns)
    frame = pd.concat(parts, axis=1).reset_index().rename(columns={"kind": "perturbation"})
    frame["level"] = frame["level"].map(per_cent)
    words = {"mean": "ours", "sd": "sd", "published": "published", "difference": "Δ"}
    labels = {column: words[column.split()[-1]] for members in groups.values() for column in members}
    formats = {column: "+.2f" if label == "Δ" else ".2f" for column, label in labels.items()}
    note = (
        "Per cent of the training images: our mean and standard deviation over runs, and the mean that Oursland "
        "(2024b) prints. Δ: ours less the printed. By the definition of the author's program."
    )
    return Table("replayed-published", "Every printed level", frame, note, formats, groups, labels)


def _definitions(found: Tables) -> Table:
    """Return how far our means are from the printed ones, by network, kind and definition."""
    largest = found["replayed largest"]
    rows = [
        {
            "network": title(network), "perturbation": kind,
            "definition": MEANINGS[definition] if len(names) > 1 else "any",
            "levels": row["levels"], "largest": row["largest"], "at": per_cent(row["level"]), "mean": row["mean"],
        }
        for network in NETWORKS
        for kind, names in DIFFERENT.items()
        for definition in names
        for _, row in select(largest, network=network, kind=kind, definition=definition).iterrows()
    ]  # fmt: skip
    labels = {"largest": "largest Δ", "mean": "mean of |Δ|"}
    note = "Points of training accuracy, our mean less the printed one, over all printed levels of the kind."
    formats = {"largest": "+.2f", "mean": ".2f"}
    name, heading = "replayed-definitions", "Distance from the printed numbers, by definition"
    return Table(name, heading, pd.DataFrame(rows), note, formats, labels=labels)


def _matters(found: Tables) -> str:
    """Say how much the choice of the definition matters."""
    parts = []
    for network in dict.fromkeys(found["replayed largest"]["network"]):
        for kind in ("offset", "clip"):
            own = select(found["replayed largest"], network=network, kind=kind).set_index("definition")
            own = own.loc[list(DIFFERENT[kind])]
            texts = [
                f"{row['mean']:.2f} (at most {abs(row['largest']):.2f}) by {SHORT[str(n)]}" for n, row in own.iterrows()
            ]
            parts.append(f"{title(network)}, {kind}: {', '.join(texts)}.")
    return (
        "**How much the definition matters.** Two choices are open: whether the range is that of the activation or of "
        "the pre-activation, and whether an offset keeps the largest activation where it was. The mean distance of our "
        f"accuracies from the printed ones, in points: {' '.join(parts)} A scale means the same by every definition. "
        f"{_small(found['replayed levels'])}"
    )


def _small(levels: pd.DataFrame) -> str:
    """Say how many points a small offset costs by each definition."""
    rows = levels[(levels["kind"] == "offset") & levels["level"].abs().isin([SMALL])]
    means = rows.groupby(["network", "definition"], sort=False)["change"].mean()
    parts = []
    for network in dict.fromkeys(rows["network"]):
        texts = [f"{-means[network, name]:.2f} by {words}" for name, words in SHORT.items()]
        parts.append(f"{title(network)} loses {', '.join(texts)}")
    return f"To offsets of ±{per_cent(SMALL)}, {'; '.join(parts)}."


def _everything(found: Tables) -> Details:
    """Return the accuracy of every replayed run at every printed level, by every definition."""
    long = found["replayed levels"]
    wide = long.pivot(index=["network", "seed", "kind", "level"], columns="definition", values="accuracy")
    frame = wide[list(MEANINGS)].reset_index().rename_axis(columns=None)
    table = Table("representation-all-replayed", "Every replayed run at every printed level", frame)
    return Details("Every run at every printed level", (table,))
