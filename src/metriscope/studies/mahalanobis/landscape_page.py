"""The section on many Gaussians: how much depends on the Gaussian, which axes are lost, and what predicts it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from metriscope.probes import lost_directions
from metriscope.report import Block, Details, Figure, Prose, Section, Table, interval, number, to_svg
from metriscope.report.style import COLORS, CYCLE, MUTED, figure, legend
from metriscope.studies.mahalanobis.experiments import OUTCOMES, POPULATIONS, UNITS, LandscapeRule
from metriscope.studies.mahalanobis.figures import beside_published
from metriscope.studies.mahalanobis.plan import METRICS
from metriscope.studies.mahalanobis.trials import TITLES
from metriscope.studies.tidy_tables import matching

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["section"]

Tables = Mapping[str, pd.DataFrame]
WIDTH, HEIGHT = 9.2, 2.6


def losses(tables: Tables) -> Figure:
    """Draw the mean loss on each Gaussian beside the published mean."""
    random = matching(tables["population"], start="random")
    means = random[random["gaussian"] > 0].groupby(["dim", "activation", "gaussian"])["train_mse"].mean().reset_index()
    dims = list(dict.fromkeys(tables["landscape-effects"]["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        groups = {a: matching(means, dim=dim, activation=a)["train_mse"].to_numpy() for a in UNITS}
        beside_published(ax, {a: values for a, values in groups.items() if len(values)}, dim, "train_mse")
        ax.axvline(lost_directions(dim, 1).loss, color=COLORS["truth"], linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="mean training MSE over the trials of one Gaussian")
    caption = (
        "Each dot is a Gaussian; the large dot is the mean over Gaussians with its 95 % interval. Hollow diamonds: the "
        "published mean on one Gaussian, with the published extremes over trials. Dashed: the loss that theory gives "
        "for one lost direction."
    )
    own = matching(means, dim=dims[0], activation="abs")["train_mse"]
    ends = f"{number(own.min(), 2)} to {number(own.max(), 2)}"
    heading = f"The loss of Abs depends on the Gaussian: {ends} on {len(own)} of them in {dims[0]}-D"
    return Figure("landscape-losses", heading, to_svg(drawing, "landscape-losses"), caption)


def lost_axes(tables: Tables) -> Figure:
    """Draw how often each principal axis is the one that is lost."""
    table = tables["landscape-lost"]
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        _shares(ax, matching(table, dim=dim), "axis", "Abs", COLORS["abs"])
        ax.set_xticks(range(1, dim + 1))
        ax.axhline(1 / dim, color=MUTED, linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="principal axis, largest variance first", ylabel="share of failed trials")
    caption = (
        "Share of the failed trials of Abs whose last direction lies nearest to each principal axis, with 95 % "
        "bootstrap intervals over Gaussians. Dashed: all axes alike."
    )
    return Figure("landscape-lost-axes", "Which axis is lost", to_svg(drawing, "landscape-lost-axes"), caption)


def exact_shares(tables: Tables) -> Figure:
    """Draw the share of exact trials over the number of units."""
    table = tables["landscape-widths"]
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, len(dims))
    for ax, dim in zip(axes[0], dims, strict=True):
        for name in dict.fromkeys(table["activation"]):
            part = matching(table, dim=dim, activation=name)
            if len(part):
                _shares(ax, part, "units", TITLES[name], COLORS[name])
        ax.set_xticks(sorted(set(matching(table, dim=dim)["units"])))
        ax.set(title=f"{dim}-D", xlabel="units", ylabel="share of exact trials")
    legend(axes[0, 0], "upper left")
    caption = (
        "Share of trials from random starts that end exact, with 95 % bootstrap intervals over Gaussians. ReLU needs "
        "two units per direction for the exact distance, Abs one."
    )
    return Figure("landscape-units", "More units than directions", to_svg(drawing, "landscape-units"), caption)


def predictions(tables: Tables, rule: LandscapeRule) -> Figure:
    """Draw how often trials on unseen Gaussians end exact, in groups of like predictions."""
    table = matching(tables["landscape-predictions"], target="exact")
    dims = list(dict.fromkeys(table["dim"]))
    drawing, axes = figure(WIDTH, HEIGHT, 1, max(len(dims), 2))
    for ax, dim in zip(axes[0], dims, strict=False):
        part = matching(table, dim=dim).sort_values("predicted", kind="stable")
        for group in np.array_split(np.arange(len(part)), rule.bins):
            some = part.iloc[group]
            ax.plot(some["predicted"].mean(), some["happened"].mean(), "o", color=CYCLE[0], markersize=7)
        ax.axline((0, 0), (1, 1), color=MUTED, linewidth=0.9, dashes=(4, 3))
        ax.set(title=f"{dim}-D", xlabel="predicted probability", ylabel="share that ended exact")
        ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    for ax in axes[0, len(dims) :]:
        ax.set_axis_off()
    caption = (
        f"Trials of Abs on Gaussians that the rule was not fitted on, in {rule.bins} groups of equal size by predicted "
        "probability. Dashed: a calibrated rule."
    )
    title = "Predicted before training, and what happened"
    return Figure("landscape-calibration", title, to_svg(drawing, "landscape-calibration"), caption)


def _shares(ax: Axes, rows: pd.DataFrame, x: str, label: str, color: str) -> None:
    """Draw shares with their intervals over a column."""
    ax.vlines(rows[x], rows["low"], rows["high"], color=color, linewidth=1.4)
    ax.plot(rows[x], rows["share"], "o-", color=color, markersize=5, linewidth=1.0, label=label)
    ax.set_ylim(-0.03, 1.03)


METRIC_TITLES = {metric.name: metric.title for metric in METRICS}
FEATURES = {
    "variance": "its variance",
    "mean": "distance of the mean from the origin along it",
    "start_length": "squared length that the start gives it",
}
RULES = {"exact": "the trial ends exact", "within reach": "a failed trial reaches the distance with a second optimizer"}


def section(tables: Tables) -> tuple[Section, ...]:
    """Return the section; nothing where the population was neither run nor recorded."""
    if "landscape-effects" not in tables:
        return ()
    blocks: list[Block] = [Prose(_introduction(tables)), losses(tables), _effects(tables)]
    blocks += [Prose(_axes_text(tables))]
    if len(tables["landscape-lost"]):
        blocks += [lost_axes(tables)]
    if len(tables["landscape-choices"]):
        blocks += [_choices(tables)]
    blocks += [Prose(_ends_text(tables)), _ends(tables)]
    blocks += [Prose(_widths_text(tables)), exact_shares(tables), _widths(tables)]
    blocks += [Prose(_rule_text(tables))]
    if len(tables["landscape-predictions"]):
        blocks += [predictions(tables, LandscapeRule())]
    blocks += [_rule(tables), Details("The population in numbers", _tidy(tables))]
    return (Section("One Gaussian is not evidence", tuple(blocks)),)


def _origin(tables: Tables) -> str:
    recorded = (tables["landscape-effects"]["origin"] == "record").any()
    return (
        " These are records of runs in the paper profile; the quick profile does not repeat them." if recorded else ""
    )


def _introduction(tables: Tables) -> str:
    effects = matching(tables["landscape-effects"], metric="train_mse")
    parts = []
    for row in effects.to_dict("records"):
        name, many = f"{row['dim']}-D {TITLES[row['activation']]}", row["gaussians"]
        parts.append(
            f"{name}: mean {number(row['mean'])} {interval(row['low'], row['high'])} over {many} Gaussians, 95 % of "
            f"them from {number(row['q_low'])} to {number(row['q_high'])}, published {number(row['published'])}; "
            f"{row['icc']:.0%} of the variance of a trial is between Gaussians"
        )
    return (
        "The published numbers are those of one Gaussian per dimension. Here the same networks are trained for the "
        "paper's number of epochs on many Gaussians, drawn as the source draws its one, with four random starts on "
        "each. The Gaussian is the unit of replication: means are over Gaussians, and a random-effects model splits "
        f"the variance of a trial into a part between Gaussians and a part between starts. {'. '.join(parts)}."
        f"{_missing(tables)}{_origin(tables)}"
    )


def _missing(tables: Tables) -> str:
    """Say on how many Gaussians, and for how many widths, there are no runs yet."""
    effects, widths, parts = matching(tables["landscape-effects"], metric="train_mse"), tables["landscape-widths"], []
    for dim, asked in POPULATIONS.items():
        for name in UNITS:
            many = int(matching(effects, dim=dim, activation=name)["gaussians"].sum())
            parts += (
                [f"{dim}-D {TITLES[name]} on {many} of {asked.gaussians} Gaussians"] if many < asked.gaussians else []
            )
        units, every = len(matching(widths, dim=dim)), 2 * len(asked.widths)
        parts += [f"{dim}-D with {units} of {every} numbers of units of Abs and ReLU"] if units < every else []
    return f" Not all is done: {'; '.join(parts)}." if parts else ""


def _effects(tables: Tables) -> Table:
    frame = tables["landscape-effects"].drop(columns="origin")
    frame = frame.assign(activation=frame["activation"].map(TITLES), metric=frame["metric"].map(METRIC_TITLES))
    labels = {
        "dim": "dimension", "activation": "network", "low": "95 % low", "high": "95 % high",
        "between_sd": "sd between Gaussians", "within_sd": "sd between starts", "icc": "share between Gaussians",
        "icc_low": "share, low", "icc_high": "share, high", "q_low": "2.5 % of Gaussians",
        "q_high": "97.5 % of Gaussians", "below": "Gaussians below the published mean",
    }  # fmt: skip
    note = (
        "One-way random effects. The interval of the mean is a t interval over Gaussians; that of the share of "
        "variance between Gaussians (the intraclass correlation) is a bootstrap over Gaussians."
    )
    formats = dict.fromkeys(("icc", "icc_low", "icc_high", "below"), ".0%")
    return Table("landscape-effects", "Variation between and within Gaussians", frame, note, formats, labels=labels)


def _axes_text(tables: Tables) -> str:
    parts = []
    for dim, rows in tables["landscape-lost"].groupby("dim", sort=False):
        last, first = rows.iloc[-1], rows.iloc[0]
        parts.append(
            f"In {dim}-D, {last['trials']:.0f} trials of Abs from random starts lost a direction; it was nearest to "
            f"the axis of least variance in {last['share']:.0%} {_percents(last)} and to that of largest variance in "
            f"{first['share']:.0%} {_percents(first)}, where chance is {last['chance']:.0%}."
        )
    for dim, rows in tables["landscape-choices"].groupby("dim", sort=False):
        odds = [
            f"ten times {FEATURES[row['feature']]} multiplies the odds by {number(row['odds'])} "
            f"{interval(row['low'], row['high'])}"
            for row in rows.to_dict("records")
        ]
        parts.append(
            f"A choice model of which axis is lost in {dim}-D: {'; '.join(odds)}. The axis with the highest "
            f"probability is the lost one in {rows['right'].iloc[0]:.0%} of the trials."
        )
    return " ".join(parts) or "No trial of Abs lost a direction."


def _percents(row: pd.Series) -> str:
    return f"[{row['low']:.0%}, {row['high']:.0%}]"


def _choices(tables: Tables) -> Table:
    frame = tables["landscape-choices"].drop(columns="origin")
    frame = frame.assign(feature=frame["feature"].map(FEATURES))
    labels = {
        "dim": "dimension", "feature": "of an axis, ten times", "odds": "multiplies its odds by", "low": "95 % low",
        "high": "95 % high", "explained": "share of the log-likelihood explained", "right": "likeliest axis is right",
    }  # fmt: skip
    note = (
        "Conditional logit over the axes of each failed trial, with a ridge penalty; standard errors are clustered by "
        "Gaussian. It describes the trials that it is fitted on."
    )
    formats = dict.fromkeys(("explained", "right", "chance"), ".0%")
    return Table("landscape-choices", "What makes an axis the lost one", frame, note, formats, labels=labels)


def _ends_text(tables: Tables) -> str:
    parts = []
    for dim, rows in tables["landscape-ends"].groupby("dim", sort=False):
        by = rows.set_index("outcome")
        failed = int(by["trials"].sum() - by.loc["exact", "trials"])
        said = [
            f"{name} {int(by.loc[name, 'trials'])} (alone on {int(by.loc[name, 'alone'])} Gaussians)"
            for name in OUTCOMES
            if name != "exact" and by.loc[name, "trials"]
        ]
        parts.append(f"{dim}-D: {failed} of {int(by['of'].iloc[0])} trials of Abs are not exact: {', '.join(said)}.")
    return (
        "Is a lost direction a true minimum, or only out of the optimizer's reach? The second optimizer continues from "
        f"every trial that is not exact. {' '.join(parts)} “Alone”: all failed trials on that Gaussian end so."
    )


def _ends(tables: Tables) -> Table:
    frame = tables["landscape-ends"].drop(columns="origin")
    labels = {
        "dim": "dimension", "of": "of trials", "gaussians": "Gaussians with such a trial",
        "alone": "Gaussians on which all failed trials end so", "low": "95 % low", "high": "95 % high",
    }  # fmt: skip
    note = "; ".join(f"**{name}**: {text}" for name, text in OUTCOMES.items()) + ". Intervals are over Gaussians."
    formats = dict.fromkeys(("share", "low", "high"), ".0%")
    title = "How trials of Abs end on many Gaussians"
    return Table("landscape-ends", title, frame, note, formats, labels=labels)


def _widths_text(tables: Tables) -> str:
    parts = []
    for (dim, activation), rows in tables["landscape-widths"].groupby(["dim", "activation"], sort=False):
        said = [f"{row['share']:.0%} {_percents(row)} with {row['units']}" for _, row in rows.iterrows()]
        parts.append(f"{dim}-D {TITLES[str(activation)]}: {', '.join(said)} units")
    return f"More units than directions: the share of trials that end exact. {'; '.join(parts)}."


def _widths(tables: Tables) -> Table:
    frame = tables["landscape-widths"].drop(columns="origin")
    frame = frame.assign(activation=frame["activation"].map(TITLES))
    labels = {
        "dim": "dimension", "activation": "network", "share": "share exact", "low": "95 % low", "high": "95 % high",
        "lost": "directions lost, mean", "median_mse": "median training MSE",
    }  # fmt: skip
    formats = dict.fromkeys(("share", "low", "high"), ".0%")
    note = "Random starts on the Gaussians on which all widths were trained. Intervals are over Gaussians."
    return Table("landscape-widths", "Exact trials by number of units", frame, note, formats, labels=labels)


def _rule_text(tables: Tables) -> str:
    parts = []
    for row in tables["landscape-rule"].to_dict("records"):
        where = f"{row['dim']}-D, whether {RULES[row['target']]}"
        if pd.isna(row["auc"]):
            parts.append(f"{where}: too few trials of either kind to fit and test a rule")
            continue
        useful = "predicts" if row["skill_low"] > 0 else "does not predict better than the base rate"
        both = [f"{number(row[k])} {interval(row[f'{k}_low'], row[f'{k}_high'])}" for k in ("auc", "skill")]
        parts.append(f"{where}: AUC {both[0]}, Brier skill {both[1]} on {row['tested']} trials: the rule {useful}")
    return (
        "Can the end be predicted before training? A logistic regression on five features (norm of the whitened mean, "
        "norm of the mean, least variance, the share of the whitened mean on that axis, and the least squared length "
        "that the start gives an axis) is fitted on every second Gaussian and tested on the others. A Brier skill of 0 "
        f"is that of always predicting the share of the fitted half. {'. '.join(parts)}."
    )


def _rule(tables: Tables) -> Table:
    frame = tables["landscape-rule"].drop(columns="origin")
    frame = frame.assign(target=frame["target"].map(RULES))
    labels = {
        "dim": "dimension", "target": "what is predicted", "fitted": "trials fitted on", "tested": "trials tested on",
        "rate": "share of it among those", "auc": "AUC", "auc_low": "AUC, 95 % low", "auc_high": "AUC, 95 % high",
        "skill": "Brier skill", "skill_low": "skill, 95 % low", "skill_high": "skill, 95 % high",
    }  # fmt: skip
    note = "Bootstrap intervals over the Gaussians that the rule is tested on."
    return Table("landscape-rule", "The rule on unseen Gaussians", frame, note, {"rate": ".0%"}, labels=labels)


def _tidy(tables: Tables) -> tuple[Table, ...]:
    keys, numbers = ["dim", "start", "activation", "gaussian"], ["train_mse", "test_mse", "exact", "lost"]
    whole = tables["population"]
    means = whole[whole["gaussian"] > 0].groupby(keys, sort=False)[numbers].mean().reset_index()
    titles = {"landscape-lost": "Lost axes", "landscape-weights": "Weights of the rule, per standard deviation"}
    shown = [
        Table(name, title, tables[name].drop(columns="origin")) for name, title in titles.items() if len(tables[name])
    ]
    return (*shown, Table("landscape-gaussians", "Means over the trials of each Gaussian", means))
