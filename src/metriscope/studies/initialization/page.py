"""The study's part of the report: losses, times, units and directions of every start, and the verdict."""

from __future__ import annotations

import pandas as pd

from metriscope.functional import summarize
from metriscope.report import Block, Claim, Details, Ledger, Prose, Section, Table, interval
from metriscope.studies.initialization import figures
from metriscope.studies.initialization.measure import gains, references
from metriscope.studies.initialization.plan import ACTIVATIONS, ENTRIES, KINDS, TITLE, InitializationPlan
from metriscope.studies.tidy_tables import TidyTables, matching

__all__ = ["HIGHLIGHTS", "QUESTION", "overview", "sections"]

QUESTION = (
    "Should hyperplanes start where the data is? Starts from clusters and principal axes against Kaiming, Xavier, "
    "orthogonal and LSUV starts, on Gaussians, mixtures and eight real data sets."
)
HIGHLIGHTS = ("starts-losses", "starts-curves")

TEXT = (
    "Oursland 2024a proposes to start a layer from the data: clusters from k-means, and in each of them units along "
    "its principal axes, scaled to unit variance (`init_from_clusters_`). Here it is compared with random starts "
    "(Kaiming, Xavier, orthogonal), others that look at the data (LSUV; Kaiming's weights with hyperplanes through "
    "random points) and `init_model_`, which sets all hidden layers from clusters of their own inputs. The number of "
    "clusters is that of the classes, half of it, twice as many, or chosen from the data by silhouette or BIC.\n\n"
    "On Gaussians, one layer and a norm learn the distance to the mean. On mixtures in ten dimensions and on real "
    "data, networks of two hidden layers learn the class; starts from clusters set their first layer. Every start has "
    "the same learning rates to choose from, on a validation part and with a start of its own, and Adam trains with "
    "falling rates. Abs and ReLU are averaged."
)


def sections(plan: InitializationPlan | None, results: TidyTables, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    shown = (
        "" if plan is None or plan.computed else "\n\nNothing is computed in this profile: what is shown was recorded."
    )
    missing = (
        ""
        if plan is None or not plan.missing
        else f"\n\nLeft out, because they are not available: {', '.join(plan.missing)}."
    )
    return (
        Section(TITLE, (Prose(TEXT + shown + missing),)),
        Section("Starts compared", _blocks(results)),
        Section("Verdict C08", (Ledger(claims),)),
    )


def _blocks(results: TidyTables) -> tuple[Block, ...]:
    table, curves = results.tables["starts"], results.tables["curves"]
    if table.empty:
        return (Prose("No run of this experiment is recorded."),)
    drawn = [figures.ranks(table, kind) for kind in ("mixture", "real")]
    tables = [_table(table, kind) for kind in references(table)]
    return (figures.losses(table), figures.curves(curves), *(one for one in drawn if one), *tables, _details(table))


def overview(table: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Return one row per start: its mean loss beside the reference's, its time, its units, its directions."""
    rows, less = matching(table, kind=kind), gains(table, kind)
    found = []
    for entry in less.columns:
        part, ends = matching(rows, entry=entry), summarize(less[entry].to_numpy())
        row = {
            "start": ENTRIES[entry],
            "log10 loss less reference": ends.mean,
            "95 % interval": interval(ends.low, ends.high),
            "share of training to the loss": float(part["share"].mean()),
            "dead units": float(part["dead"].mean()),
            "units of one sign": float(part["aside"].mean()),
        }
        kept = {"directions kept": float(part["kept"].mean())} if kind.startswith("gaussian") else {}
        found.append(row | kept)
    return pd.DataFrame(found)


def _table(table: pd.DataFrame, kind: str) -> Table:
    frame = overview(table, kind)
    count = matching(table, kind=kind)["unit"].nunique()
    formats = {"log10 loss less reference": "+.3f", "share of training to the loss": ".2f", "dead units": ".1%"}
    formats |= {"units of one sign": ".1%"} | ({"directions kept": ".0%"} if "directions kept" in frame else {})
    note = (
        f"Mean over {count} {'Gaussians' if kind.startswith('gaussian') else 'data sets'}. The reference is "
        f"{ENTRIES[references(table)[kind]]}; the loss that others are timed to is its own halfway, and 1 means never. "
        "Units are counted at the start, over the training points: dead ones are positive at none."
    )
    return Table(f"starts-{kind}", f"Starts: {KINDS[kind]}", frame, note, formats)


def _details(table: pd.DataFrame) -> Details:
    """Return the losses and the numbers of clusters by data set, and the rates that were chosen."""
    classes = table[table["kind"].isin(["mixture", "real"])]
    tables = []
    for activation, title in ACTIVATIONS.items():
        rows = matching(classes, activation=activation)
        if rows.empty:
            continue
        for column, text in {"loss": "loss on new points", "rate": "learning rate"}.items():
            wide = rows.pivot_table(index="entry", columns="data", values=column, sort=False)
            wide = wide.reindex([name for name in ENTRIES if name in wide.index]).rename(index=ENTRIES)
            formats = dict.fromkeys(map(str, wide.columns), ".3f" if column == "loss" else ".3g")
            tables.append(
                Table(
                    f"starts-{activation}-{column}",
                    f"{title}: {text}",
                    wide.reset_index(),
                    "Mean over starts.",
                    formats,
                )
            )
    chosen = classes[classes["entry"].isin(["clusters", "clusters-silhouette", "clusters-bic"])]
    counts = chosen.pivot_table(index="entry", columns="data", values="clusters", sort=False).rename(index=ENTRIES)
    formats = dict.fromkeys(map(str, counts.columns), ".0f")
    tables.append(Table("starts-clusters", "Numbers of clusters", counts.reset_index(), "", formats))
    return Details("By data set", tuple(tables))
