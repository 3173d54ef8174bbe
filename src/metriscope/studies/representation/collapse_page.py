"""The section on the factorial experiment, and the claim C26 as criteria on its cells.

The cause that the paper names is removed by evening the pushes: then the targets of an output push it up exactly as
much as all other images push it down. Cells are paired by start: all begin from the same weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from metriscope.report import Details, Evidence, Figure, Prose, Section, Table, interval, mean_text, to_svg
from metriscope.report.plots import band, strip
from metriscope.report.style import COLORS, CYCLE, INK, figure, legend
from metriscope.studies.evidence import Above, Below
from metriscope.studies.representation.accuracy import by_seed, section_of
from metriscope.studies.representation.experiments import BALANCE, EVENED, FACTORS, RATES, WARM, CollapseCell
from metriscope.studies.representation.plan import PIXELS, title
from metriscope.studies.tidy_tables import matching
from metriscope.studies.verdicts import Criterion, Statement, Values

__all__ = ["STATEMENT", "section"]

COLLAPSE = "C12 calls a loss of more than 10 points against ReLU a collapse; a network that loses less is saved."
TENTH = "One of ten outputs, as in C12."
EARLY = "Early: the first twentieth of training, half as long as the warm-up."


def _criteria(pixels: str) -> tuple[Criterion, ...]:
    level = PIXELS[pixels]

    def of(column: str, factors: str, network: str = "relu2") -> Values:
        table = "collapse controls" if factors == EVENED else "collapse"
        return Values.of(table, column, network=network, pixels=pixels, factors=factors)

    def lost(text: str, factors: str, kind: str) -> Criterion:
        region = Above(-10.0) if kind == "above" else Below(-10.0)
        values, minus = of("test_accuracy", factors), of("test_accuracy", "none", "relu")
        return Criterion(text, values, region, COLLAPSE, units="starts", minus=minus, paired=True, level=level)

    def of_outputs(text: str, column: str, factors: str, kind: str) -> Criterion:
        margin, why = (0.05, EARLY) if column == "early" else (0.1, TENTH)
        region = Above(margin) if kind == "above" else Below(margin)
        return Criterion(text, of(column, factors), region, why, units="starts", level=level)

    return (
        lost("ReLU2 − ReLU, points", "none", "below"),
        of_outputs("share of ReLU2's outputs that are dead at the end", "dead", "none", "above"),
        of_outputs("share of training after which half of them are dead", "early", "none", "below"),
        lost("ReLU2 with evened pushes − ReLU, points", EVENED, "above"),
        of_outputs("share of outputs dead with evened pushes", "dead", EVENED, "below"),
    )


def _notes(tables: Mapping[str, pd.DataFrame]) -> str:
    """Say which factors change accuracy and dead outputs, averaged over the cells that do not diverge."""
    effects = tables["collapse effects"]
    main = effects[(effects["with"] == "") & (effects["cells"] == "plain gradient")]
    if main.empty:
        return ""
    parts = []
    for outcome, scale, unit in (("test_accuracy", 1, "points of accuracy"), ("dead", 10, "dead outputs of ten")):
        rows = main[main["outcome"] == outcome]
        ends = [(f"{scale * row.mean:+.1f}", interval(scale * row.low, scale * row.high)) for row in rows.itertuples()]
        texts = [f"{factor} {mean} {span}" for factor, (mean, span) in zip(rows["factor"], ends, strict=True)]
        parts.append(f"{unit}: {', '.join(texts)}".replace(" -", " −"))
    return f"What saves it, on average over the other factors [95 % interval], in {'; in '.join(parts)}."


def _evidence(tables: Mapping[str, pd.DataFrame]) -> tuple[Evidence, ...]:
    found = []
    for (network, pixels, factors), part in tables["collapse"].groupby(["network", "pixels", "factors"], sort=False):
        if network == "relu2" and "," not in str(factors):
            label = f"ReLU2, {PIXELS[str(pixels)]}, {factors}: test accuracy, %, and dead outputs of ten"
            texts = (mean_text(part["test_accuracy"]), mean_text(10 * part["dead"]))
            found.append(Evidence(label, "; ".join(texts)))
    return tuple(found)


STATEMENT = Statement(
    "C26",
    "ReLU2 fails because nine of ten labels push an output down: outputs die early under the 90/10 imbalance.",
    "Oursland 2025, §6.2",
    (*_criteria("raw"), *_criteria("unit")),
    factor="form of pixels",
    notes=_notes,
    evidence=_evidence,
)


FORMS = {"raw": CYCLE[3], "unit": CYCLE[2]}
PANELS = {"test_accuracy": "test accuracy, %", "dead": "share of outputs dead at the end"}


def cells(tables: Mapping[str, pd.DataFrame]) -> Figure | None:
    """Draw every start of every cell: its test accuracy, and the share of its outputs that are dead."""
    evened = matching(tables["collapse controls"], factors=EVENED)
    rows = pd.concat([tables["collapse"], evened]) if len(evened) else tables["collapse"]
    if rows.empty:
        return None
    drawing, axes = figure(9.2, 7.2, 1, len(PANELS))
    own = rows[rows["network"] == "relu2"].groupby(["pixels", "factors"], sort=False)
    for ax, (column, text) in zip(axes[0], PANELS.items(), strict=True):
        groups = {f"{factors} · {pixels}": part[column].to_numpy() for (pixels, factors), part in own}
        strip(ax, groups, {label: FORMS[label.rpartition(" ")[2]] for label in groups})
        ax.set(xlabel=text)
    for pixels, part in rows[rows["network"] == "relu"].groupby("pixels", sort=False):
        axes[0, 0].axvline(part["test_accuracy"].mean(), color=FORMS[str(pixels)], linewidth=1, dashes=(4, 3), zorder=0)
    axes[0, 1].set_yticklabels([])
    caption = (
        "ReLU2: each small dot is a start, the large dot the mean with its 95 % interval; rows name the factors that "
        "are on, and the form of pixels. Dashed: mean test accuracy of ReLU on the same pixels."
    )
    return Figure("collapse-cells", "What saves ReLU2", to_svg(drawing, "collapse-cells"), caption)


def deaths(tables: Mapping[str, pd.DataFrame]) -> Figure | None:
    """Draw the number of dead outputs over epochs, for no factor and for each alone, on each form of pixels."""
    table = tables["collapse deaths"]
    if table.empty:
        return None
    alone = {"none": INK, FACTORS["warm"]: COLORS["relu"], FACTORS["balanced"]: CYCLE[3], FACTORS["lifted"]: CYCLE[2]}
    drawing, axes = figure(9.2, 2.9, 1, len(FORMS))
    for ax, pixels in zip(axes[0], FORMS, strict=True):
        for factors, shade in alone.items():
            epochs, values = by_seed(matching(table, pixels=pixels, factors=factors), "epoch", "dead")
            band(ax, epochs + 1, values, factors, shade, log="x")
        ax.set(title=PIXELS[pixels], xlabel="epoch + 1", ylabel="dead outputs of ten", ylim=(-0.4, 10.4))
    legend(axes[0, -1], "upper left")
    caption = (
        "Outputs that no training image makes active (|activation| > 10⁻⁶). Median over starts, the band of the middle "
        "80 %, extremes as thin lines. A network that diverged has no active output."
    )
    return Figure("collapse-deaths", "When the outputs of ReLU2 die", to_svg(drawing, "collapse-deaths"), caption)


Tables = Mapping[str, pd.DataFrame]
HEADING = "Why ReLU2 collapses"


def section(tables: Tables) -> Section:
    """Return the section."""
    cell = CollapseCell("relu2", "raw", RATES["raw"])
    text = (
        "Oursland (2025, §6.2) explains the collapse by imbalance: nine of ten images push an output down, so outputs "
        f"die. A factorial experiment ({cell.setting}, {len(cell.starts)} starts) asks which of four factors saves "
        f"ReLU2: a learning rate that rises linearly over the first 1/{WARM} of training; pixels from 0 to 1; the "
        f"gradient of each target times {BALANCE:g}; a bias in the second layer that starts at one standard deviation "
        f"of the output pre-activations. Learning rates: {RATES['raw']:g} on raw pixels as in the paper, and "
        f"{RATES['unit']:g} on unit pixels, after which the training loss of ReLU is nearest to that on raw pixels."
    )
    drawn = (cells(tables), _cells(tables), _effects(tables), _pushes(tables), deaths(tables))
    more = (*drawn, _controls(tables))
    return section_of(HEADING, text, "No record of this experiment is available.", *more)


def _rows(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    rows = []
    for key, part in table.groupby(keys, sort=False):
        line = dict(zip(keys, key, strict=True)) | {"starts": len(part)}
        line |= {"accuracy": mean_text(part["test_accuracy"]), "dead": mean_text(10 * part["dead"])}
        early = part["early"].dropna()
        line |= {
            "early": f"{early.median():.1%}" if len(early) else "none die",
            "diverged": int(part["diverged"].sum()),
        }
        rows.append(line | {"loss": float(part["train_loss"].median())})
    frame = pd.DataFrame(rows)
    return frame.assign(network=frame["network"].map(title), pixels=frame["pixels"].map(PIXELS))


LABELS = {
    "accuracy": "test accuracy, %", "dead": "dead outputs of ten", "early": "half dead after",
    "loss": "training loss, median",
}  # fmt: skip
NOTE = (
    "Mean [95 % t interval] over starts. “Half dead after”: the share of training after which half of the outputs that "
    "are dead at the end are dead, in the median start. Diverged: starts whose loss is no longer finite at the end; "
    "they give no predictions, and their outputs are counted while the loss was finite."
)


def _cells(tables: Tables) -> Table | None:
    table = tables["collapse"]
    if table.empty:
        return None
    frame = _rows(table, ["network", "pixels", "factors"])
    return Table("collapse-cells-table", "Every cell of the experiment", frame, NOTE, {"loss": ".3g"}, labels=LABELS)


def _effects(tables: Tables) -> Table | None:
    table = tables["collapse effects"]
    if table.empty:
        return None
    wide = []
    for (cells, factor, other), part in table.groupby(["cells", "factor", "with"], sort=False):
        line = {"cells": cells, "effect of": factor, "larger with": other or "–"}
        for _, row in part.iterrows():
            scale = 10 if row["outcome"] == "dead" else 1
            ends = interval(scale * row["low"], scale * row["high"])
            line[row["outcome"]] = f"{scale * row['mean']:+.2f} {ends}".replace("-", "−")
            line[f"{row['outcome']} p"] = row["holm"]
        wide.append(line)
    labels = {"test_accuracy": "points of accuracy", "dead": "dead outputs of ten"}
    labels |= {"test_accuracy p": "p (Holm)", "dead p": "p (Holm)"}
    note = (
        "Mean of the cells with the factor on, minus that with it off, within each start; “larger with”: how much "
        "larger that difference is where the other factor is on too. [95 % t interval] over starts; Holm's correction "
        "over the effects on one outcome. Gradients with targets times nine can diverge, so the effects of the other "
        "three factors are shown without those cells as well."
    )
    return Table("collapse-effects", "Effects of the factors", pd.DataFrame(wide), note, labels=labels)


def _pushes(tables: Tables) -> Prose | None:
    """Say how unequal the pushes are before the first step."""
    table = tables["collapse pushes"]
    first = table[(table["epoch"] == 0) & (table["factors"] == "none")]
    if first.empty:
        return None
    ratios = first.assign(ratio=first["down"] / first["up"]).groupby("pixels", sort=False)["ratio"]
    parts = [f"{mean_text(part)} times the pushes up on {PIXELS[str(pixels)]}" for pixels, part in ratios]
    balanced = tables["collapse"][tables["collapse"]["balanced"].astype(bool)]
    ends = f" ({int(balanced['diverged'].sum())} of {len(balanced)} trainings diverged)" if len(balanced) else ""
    return Prose(
        "Cross-entropy has no imbalance of its own: for every image, the target's output is pushed up by 1 − p and the "
        "nine others are together pushed down by 1 − p. Only a ReLU on the outputs makes pushes unequal, because it "
        "blocks those of inactive outputs, and on an image's own output that is the push up. At the start the pushes "
        f"down are {' and '.join(parts)} (mean [95 % t interval] over starts). Nine times the target's gradient pushes "
        f"the outputs of every image up nine times as much as down, so that they can grow without bound{ends}. The "
        "claim is therefore judged by cells with evened pushes: at every step and for every output, the factor on its "
        "targets that makes both pushes equal."
    )


def _controls(tables: Tables) -> Details | None:
    table = tables["collapse controls"]
    if table.empty:
        return None
    frame = _rows(table, ["network", "pixels", "factors", "rate"])
    note = f"{NOTE} ReLU from a start that no cell uses: the rates that were tried for unit pixels."
    shown = Table("collapse-controls", "Evened pushes, smaller rates", frame, note, {"loss": ".3g"}, labels=LABELS)
    return Details(
        "Controls: evened pushes, smaller learning rates, and how the rate on unit pixels was chosen", (shown,)
    )
