"""The section on the perturbations of Oursland 2024b, beside the printed numbers, and the claim C17 as criteria.

A change is that of a run's training accuracy, in points, from the same run without any perturbation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from metriscope.report import Details, Evidence, Figure, Prose, Section, Table, mean_text, theory, to_svg
from metriscope.report.plots import band
from metriscope.report.style import COLORS, figure, legend, log_axes
from metriscope.studies.evidence import Below, Within
from metriscope.studies.representation.accuracy import by_seed, printed
from metriscope.studies.representation.experiments import ALL, NETWORKS, PROGRAM, TEXT, per_cent
from metriscope.studies.representation.figures import SPREAD, color
from metriscope.studies.representation.plan import PERTURBED, REPLAYS, title
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import Criterion, Statement, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["HARMLESS", "OFFSETS", "perturbation_statement", "sections", "tried"]

Tables = Mapping[str, pd.DataFrame]

SOURCE = "Oursland 2024b"
UNHARMED = "Half a point: at levels that the paper calls unchanged, its own table is up to 0.39 below its baseline."
FALLS = "The paper says that accuracy falls outside of its range, and not by how much: the next level that it prints."
HARM = "More than what counts as unharmed, at a tenth of the range: scaling to a tenth and clipping half are harmless."

# The ends of the ranges within which scaling and clipping are said to change nothing.
HARMLESS = (("scale", 0.1, "scaled to 10 %"), ("scale", 2.0, "scaled to 200 %"), ("clip", 0.5, "clipped at 50 %"))
# By network, the ends of the range of offsets that it is said to withstand, and the next printed levels outside of it.
OFFSETS = {"relu-bias": ((-0.03, -0.05), (0.02, 0.03)), "abs-bias": ((-0.01, -0.02), (0.01, 0.02))}
HARMFUL = (-0.1, 0.1)


def _criteria(network: str) -> Iterator[Criterion]:
    def change(kind: str, level: float) -> Values:
        return Values.of("harm", "change", network=network, kind=kind, level=level)

    text, name = "points of training accuracy, pre-activations", title(network)
    unharmed = [*HARMLESS, *(("offset", end, f"moved by {per_cent(end)}") for end, _ in OFFSETS[network])]
    for kind, level, words in unharmed:
        yield Criterion(f"{text} {words}", change(kind, level), Within(0.5), UNHARMED, level=name)
    for end, beyond in OFFSETS[network]:
        words, inside = f"{text} moved by {per_cent(beyond)} in place of {per_cent(end)}", change("offset", end)
        yield Criterion(words, change("offset", beyond), Below(0.0), FALLS, minus=inside, paired=True, level=name)
    for level in HARMFUL:
        words = f"{text} moved by {per_cent(level)}"
        yield Criterion(words, change("offset", level), Below(-0.5), HARM, level=name)


def perturbation_statement(runs: Callable[[pd.DataFrame], str]) -> Statement:
    """Return the claim; ``runs`` says where the rows of a table were measured."""

    def notes(tables: Tables) -> str:
        return f"{runs(tables['harm'])} {REPLAYED if 'replays' in tables else OWN}"

    text = "Scaling and clipping of pre-activations are harmless, small offsets are not."
    criteria = tuple(criterion for network in OFFSETS for criterion in _criteria(network))
    return Statement("C17", text, f"{SOURCE}, Oursland 2025", criteria, "network", notes, _evidence)


REPLAYED = (
    "These networks start from the random numbers of the published runs, and levels are those of the author's program: "
    "shares of the range of the activation, and an offset leaves the largest activation where it was."
)
OWN = (
    "No replayed network is available: these start from our own random numbers. Levels are those of the author's "
    "program. Its networks have a bias in both layers; without one in the second, scaling cannot change which output "
    "is largest."
)


def _evidence(tables: Tables) -> tuple[Evidence, ...]:
    return tuple(_levels(tables) if "replays" in tables else _ranges(tables))


def _levels(tables: Tables) -> Iterator[Evidence]:
    """Yield the accuracy of the replayed networks at the levels of the criteria, beside the printed one."""
    theirs = printed("perturbation_level").set_index(["network", "kind", "level"])["mean"]
    for network, part in tables["harm"].groupby("network", sort=False):
        offsets = sorted({*HARMFUL, *(level for pair in OFFSETS[str(network)] for level in pair)})
        for kind, level in (*((kind, level) for kind, level, _ in HARMLESS), *(("offset", level) for level in offsets)):
            label = f"{title(str(network))}: training accuracy, %, {kind} {per_cent(level)}"
            known = theirs.get((network, kind, level))
            ours = mean_text(matching(part, kind=kind, level=level)["accuracy"])
            yield Evidence(label, ours, known and f"{known:.2f}", SOURCE if known else "")


def _ranges(tables: Tables) -> Iterator[Evidence]:
    """Yield the levels between which accuracy holds, beside the printed ones."""
    theirs = printed("perturbation").set_index(["network", "kind"])
    for (network, kind), part in tables["ranges"].groupby(["network", "kind"], sort=False):
        known = (network, kind) in theirs.index
        there = _ends(float(theirs.loc[(network, kind), end]) for end in ("low", "high")) if known else None
        label = f"{title(str(network))}: {kind} within which accuracy holds, medians"
        ours = _ends(float(part[end].median()) for end in ("low", "high"))
        yield Evidence(label, ours, there, SOURCE if known else "")


def _ends(ends: Iterable[float]) -> str:
    return " to ".join("any" if math.isinf(v) or math.isnan(v) else per_cent(float(f"{v:.3g}")) for v in ends)


# Title, kind, and the per cent and accuracies shown; None for all.
PANELS: tuple[tuple[str, str, tuple[int, int] | None, tuple[int, int]], ...] = (
    ("Scale", "scale", None, (0, 103)),
    ("Clip", "clip", None, (0, 103)),
    ("Offset", "offset", (-205, 105), (0, 103)),
    ("Small offsets", "offset", (-10, 10), (80, 101)),
)


def levels(tables: Mapping[str, pd.DataFrame]) -> Figure:
    """Draw training accuracy against the level of each perturbation, with every printed point."""
    table, theirs = tables["replayed grid"], printed("perturbation_level")
    found = [network for network in NETWORKS if network in set(table["network"])]
    drawing, axes = figure(9.2, 6.0, 2, 2)
    for ax, (heading, kind, reach, heights) in zip(axes.flat, PANELS, strict=True):
        for network in found:
            x, values = by_seed(matching(table, network=network, kind=kind), "level", "accuracy")
            band(ax, 100 * x, values, title(network), color(network))
            _points(ax, matching(theirs, network=network, kind=kind))
        ax.set(title=heading, xlabel="%" if kind == "scale" else "% of the unit's range", ylim=heights)
        if reach is None:
            log_axes(ax, "x")
        else:
            ax.set_xlim(*reach)
    for ax in axes[:, 0]:
        ax.set(ylabel="training accuracy, %")
    legend(axes[0, 0], "lower right")
    caption = (
        f"By the definition of the author's program. {SPREAD.replace('seeds', 'runs')}. Hollow diamonds: every printed "
        "mean of Oursland (2024b). Offsets within ±10 % once more, enlarged."
    )
    means = table.groupby(["kind", "level", "network"])["accuracy"].mean().reset_index()

    def at(kind: str, level: float) -> pd.Series:
        return matching(means, kind=kind, level=level).set_index("network")["accuracy"]

    whole = at("offset", 0.0)
    costs = max((whole - at("offset", side * SMALL)).max() for side in (-1, 1)), (whole - at("scale", SMALL)).max()
    heading = (
        f"Offsets of {per_cent(SMALL)} cost up to {costs[0]:.1f} points, scaling to {per_cent(SMALL)} {costs[1]:.1f}"
    )
    return Figure("replayed-levels", heading, to_svg(drawing, "replayed-levels", focus=(2,)), caption)


def _points(ax: Axes, theirs: pd.DataFrame) -> None:
    looks: dict[str, Any] = {"markeredgecolor": COLORS["published"], "markersize": 4.5, "zorder": 4}
    ax.plot(100 * theirs["level"], theirs["mean"], "D", color="white", linestyle="none", **looks)


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
    shown = (_baselines(found), levels(found), _level_table(found), Prose(_matters(found)), _definitions(found))
    return (Section("The perturbation experiment, replayed", (Prose(text), *shown, _everything(found))),)


def tried(tables: Tables) -> tuple[Section, ...]:
    """Return the section in which one hidden unit, or all, are perturbed; none without a trained network."""
    rows = tables["single units"]
    if rows.empty:
        return ()
    kinds = {str(kind): sorted(set(part["level"])) for kind, part in rows.groupby("kind", sort=False)}
    theirs, networks, words = printed("perturbation_level"), [], []
    for name, own in rows.groupby("network", sort=False):
        single = matching(own[own["unit"] != ALL], network=name).sort_values(["unit", "level"])
        whole = matching(own, unit=ALL).sort_values("level")
        known = matching(theirs, network=name)
        one = {
            kind: matching(single, kind=kind)["right"].to_numpy().reshape(-1, len(some)) for kind, some in kinds.items()
        }
        every = {kind: matching(whole, kind=kind)["right"].to_numpy() for kind in kinds}
        pairs = {
            kind: list(matching(known, kind=kind)[["level", "mean"]].itertuples(index=False, name=None))
            for kind in kinds
        }
        plain, images = int(own["plain"].iloc[0]), int(own["images"].iloc[0])
        activation = str(name).partition("-")[0]
        networks.append(theory.PerturbedNetwork(str(name), title(str(name)), activation, plain, one, every, pairs))
        at = kinds["offset"].index(SMALL)
        drops = [100 * (plain - count) / images for count in (every["offset"][at], one["offset"][:, at].min())]
        words.append(
            f"{title(str(name))} loses {drops[0]:.1f} points if all units are shifted, "
            f"and at most {drops[1]:.1f} if one unit is."
        )
    setting = rows["setting"].iloc[0]
    told = f"An offset of {per_cent(SMALL)} of each unit's range: {' '.join(words)} First start; {setting}."
    text = (
        "The same perturbations of networks that were trained here, of all hidden units at once and of each alone, by "
        "the definition of the author's program. Between measured levels, accuracy is interpolated."
    )
    panel = theory.perturbation(networks, kinds, images, told)
    return (Section("One unit, and all of them", (Prose(text), panel)),)


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


def _level_table(found: Tables) -> Table:
    """Return one row per printed level: ours and the printed mean of both networks."""
    rows = matching(found["replayed beside"], definition=PROGRAM)
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
        "(2024b) prints. Δ: ours minus the printed. By the definition of the author's program."
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
        for _, row in matching(largest, network=network, kind=kind, definition=definition).iterrows()
    ]  # fmt: skip
    labels = {"largest": "largest Δ", "mean": "mean of |Δ|"}
    note = "Points of training accuracy, our mean minus the printed one, over all printed levels of the kind."
    formats = {"largest": "+.2f", "mean": ".2f"}
    name, heading = "replayed-definitions", "Distance from the printed numbers, by definition"
    return Table(name, heading, pd.DataFrame(rows), note, formats, labels=labels)


def _matters(found: Tables) -> str:
    """Say how much the choice of the definition matters."""
    parts = []
    for network in dict.fromkeys(found["replayed largest"]["network"]):
        for kind in ("offset", "clip"):
            own = matching(found["replayed largest"], network=network, kind=kind).set_index("definition")
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
