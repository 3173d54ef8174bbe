"""The Mahalanobis study's part of the report: what was run, what was measured, lost directions, and the verdicts."""

from __future__ import annotations

import numpy as np
import pandas as pd

from metriscope.probes import lost_directions
from metriscope.report import Block, Claim, Details, Ledger, Prose, Section, Table, interval, number, theory
from metriscope.report.numbers import MISSING, plural
from metriscope.studies.mahalanobis import figures, replay, second_layer
from metriscope.studies.mahalanobis import landscape_page as landscape
from metriscope.studies.mahalanobis.experiments import OUTCOMES
from metriscope.studies.mahalanobis.measure import MahalanobisResults
from metriscope.studies.mahalanobis.plan import EXACT, METRICS, NAME, PAPER, TITLE, MahalanobisPlan, Measurement
from metriscope.studies.mahalanobis.trials import RANKED, TITLES, best_trials, one_lost
from metriscope.studies.tidy_tables import matching, published, source_of

__all__ = ["HIGHLIGHTS", "QUESTION", "sections"]

QUESTION = (
    "A linear layer with absolute values can compute the Mahalanobis distance exactly. Does training find it? Small "
    "networks learn the distance to a Gaussian in 2, 10 and 100 dimensions, from the author's own random numbers "
    "and on hundreds of other Gaussians. Trials that fail do so in one way: they lose directions."
)
HIGHLIGHTS = ("hyperplanes-2d", "landscape-losses", "metric-spectra")

# Statistics of a metric over trials: ours, and those that the source prints, with their headings.
OURS = {"mean": "mean", "sd": "sd", "variance": "variance", "minimum": "min", "maximum": "max"}
OURS |= {"low": "95 % low", "high": "95 % high", "best": "best run"}
PRINTED = {f"published {name}": title for name, title in OURS.items() if name not in ("low", "high")}


def sections(plan: MahalanobisPlan, results: MahalanobisResults, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
    """Return the study's sections in reading order."""
    return (
        Section(TITLE, (Prose(_introduction(plan)), *_results(plan, results))),
        *replay.section(*(results.tables[name] for name in ("replay", "replayed trials", "early ranks"))),
        Section("What the means hide: lost directions", _lost(plan, results)),
        *landscape.section(results.tables),
        Section("Starting from clusters", _starts(results)),
        second_layer.section(results.tables["second layer"]),
        Section("Verdicts C01 to C07, C29", (Ledger(claims),)),
        Section("Every number", _numbers(plan, results)),
    )


def _introduction(plan: MahalanobisPlan) -> str:
    deviations = " ".join(plan.deviations())
    shortened = f"\n\n**Shorter than the paper's protocol.** {deviations}" if deviations else ""
    parts = [
        f"{more.count} in {dim}-D ({more.size.trials} trials of {more.size.epochs:,} epochs each)"
        for dim, more in plan.others.items()
    ]
    further = f" Verdicts also count further Gaussians: {', '.join(parts)}." if parts else ""
    return (
        "Networks of one linear layer, an activation and the Euclidean norm are trained to give the Mahalanobis "
        "distance of points from a Gaussian. If a hyperplane with an absolute value is a distance along one axis, Abs "
        "should find hyperplanes through the mean that whiten the data, ReLU should do so with mirrored pairs, and "
        f"Sigmoid should fail. Published numbers: {source_of(NAME)}.{further}{shortened}"
    )


def _results(plan: MahalanobisPlan, results: MahalanobisResults) -> tuple[Block, ...]:
    blocks: list[Block] = [_protocol(plan), _placement(plan, results)]
    if plan.others and len(results.tables["gaussians"]):
        blocks.append(figures.gaussians(plan, results))
    if results.panels:
        blocks.append(figures.hyperplanes(results))
    blocks += [_beside(plan, results, dim) for dim in plan.sizes]
    drawn = (figures.distributions, figures.curves, figures.eigenvalues)
    return (*blocks, *(draw(plan, results) for draw in drawn))


def _lost(plan: MahalanobisPlan, results: MahalanobisResults) -> tuple[Block, ...]:
    theories = [(dim, lost_directions(dim, 1)) for dim in plan.sizes if dim > 1]
    parts = [
        f"one of {dim}: constant {number(t.constant)}, loss {number(t.loss)}, sphericity {number(t.sphericity)}"
        for dim, t in theories
    ]
    text = (
        "Trials do not fail at random: they lose directions. A network that does not measure r of D directions, and is "
        "white in the others, has a sphericity norm of sqrt(r D / (D - r)). A constant, the part of W μ + b outside "
        "the range of W, replaces what the lost directions would add on average. Theory gives its best value and the "
        f"loss that remains: {'; '.join(parts) or 'nothing in one dimension'}.\n\n"
        "A second optimizer shows why a trial ends there: L-BFGS in float64, in whitened coordinates, continues from "
        "the trained weights until the gradient vanishes. If it lowers the loss, the trial had not converged: Adam "
        "moves a parameter by at most about its learning rate per step, and however the whitening is rotated, its "
        "biases must reach the norm of the whitened mean. The second optimizer may then reach the exact distance, or "
        "another point that is not exact either. If the loss stays, the curvature is computed: if no direction curves "
        "down, the trial is at a true minimum, and more epochs would not help."
    )
    if not set(RANKED) & set(plan.activations):
        return (Prose(text), Prose("No network was trained here that could lose a direction."))
    drawn = (figures.metric_spectra(plan, results), _lost_table(results), _failures(results))
    return (Prose(text), *_tried(results), *drawn)


def _tried(results: MahalanobisResults) -> tuple[Block, ...]:
    """Return the panel in which two Abs units learn from the starts of two trials, or from any others."""
    tried = results.tried
    if tried is None:
        return ()
    rows = results.select(dim=2, start="random", activation="abs").set_index("trial")
    parts, starts = [], []
    for trial, start in tried.starts.items():
        row, predicted = rows.loc[trial], one_lost(2).loss
        ends = (
            "loses a direction"
            if row["lost"]
            else "keeps both directions"
            if row["train_mse"] < EXACT * predicted
            else "is not exact"
        )
        starts.append(theory.StartInPlane(f"trial {trial}: {ends}", *start))
        parts.append(f"Trial {trial} {ends}: its loss ends at {number(row['train_mse'])}.")
    recipe, bounds = tried.job.recipe, {"theory": one_lost(2).loss, "exact": EXACT, "lost": Measurement.lost}
    words = (
        f"{plural(len(rows), 'trial')} of two Abs units in the plane, of which {int((rows['lost'] > 0).sum())} lost a "
        f"direction. {' '.join(parts)} Theory gives {number(one_lost(2).loss)} for one lost direction: both units turn "
        "to the same direction, and what the other would add on average becomes a constant."
    )
    asked = {name: getattr(recipe, name) for name in ("epochs", "lr", "betas", "eps")}
    cloud = theory.Cloud.of(tried.mean, tried.cov, tried.points)
    return (theory.lost_direction(cloud, starts, asked, bounds, words),)


def _starts(results: MahalanobisResults) -> tuple[Block, ...]:
    text = (
        "`init_from_clusters_` runs k-means and places hyperplanes along the principal axes of each cluster, scaled to "
        "unit variance, through the cluster's mean; units beyond the number of axes mirror the first. With one "
        "cluster that is the whitening of the sample: only the sampling error remains to be learned. With two "
        "clusters the start is wrong about the data on purpose. The study of initialization compares more starts on "
        "more data and judges the claim that such starts are better (C08)."
    )
    frame = results.tables["starts"].copy()
    frame["activation"] = frame["activation"].map(TITLES)
    frame["saved"] = frame["saved"].replace(np.inf, np.nan)
    labels = {
        "dim": "dimension", "activation": "network", "random_mse": "MSE new points, random",
        "start_mse": "MSE new points, this start", "p_value": "p (Wilcoxon, paired)",
        "random_lost": "directions lost, random", "start_lost": "directions lost, this start",
        "first_loss": "training loss at epoch 0", "never": "random trials that never reach it",
        "saved": "median epochs random takes to reach it",
    }  # fmt: skip
    note = (
        "Each trial's clusters come from its own resample of the training points. “Never” means within the epochs run; "
        "a dash under epochs: most random trials never reach the loss that this start begins with."
    )
    return (Prose(text), Table("starts", "Starting from clusters", frame, note, {"never": ".0%"}, labels=labels))


def _numbers(plan: MahalanobisPlan, results: MahalanobisResults) -> tuple[Block, ...]:
    """Return every metric, and the tidy tables behind the page."""
    titles = {
        "trials": "Every trial",
        "diagnoses": "Every diagnosis",
        "gaussians": "Every further Gaussian",
        "axes": "Recovered axes beside random rotations, every Gaussian",
        "identities": "Every identity checked",
    }
    tidy = tuple(Table(name, title, frame) for name, title in titles.items() if len(frame := results.tables[name]))
    whole = tuple(_metrics(plan, results, dim) for dim in plan.sizes)
    return (
        Details("Every metric: mean, sd, variance, extremes, 95 % interval, best run; ours and published", whole),
        Details("All trials, diagnoses and further Gaussians", tidy),
    )


def _protocol(plan: MahalanobisPlan) -> Table:
    """Return what was run beside what the paper ran."""
    names, kinds = ("samples", "epochs", "trials", "test_samples"), ("ours", "published")
    rows = []
    for dim, size in plan.sizes.items():
        sizes = zip(kinds, (size, PAPER.get(dim)), strict=True)
        rows.append({"dimension": dim, **{f"{n} ({kind})": getattr(s, n, None) for kind, s in sizes for n in names}})
    groups = {kind: tuple(f"{n} ({kind})" for n in names) for kind in kinds}
    labels = {f"{n} ({kind})": n.replace("_", " ") for n in names for kind in kinds}
    formats = dict.fromkeys(labels, ",.0f")
    return Table("protocol", "What was run", pd.DataFrame(rows), formats=formats, groups=groups, labels=labels)


def _metrics(plan: MahalanobisPlan, results: MahalanobisResults, dim: int) -> Table:
    """Return every metric of one dimension over all trials from random starts, ours and published."""
    best, printed = best_trials(results.select(dim=dim)), published(NAME)
    rows = []
    for metric in METRICS:
        for activation in (*plan.activations, "truth"):
            where = {"activation": activation, "start": "none" if activation == "truth" else "random"}
            ours = matching(results.tables["summary"], dim=dim, metric=metric.name, **where)
            if len(ours):
                theirs = matching(printed, dim=dim, activation=activation, metric=metric.name)
                row = {**ours.iloc[0], "metric": metric.title, "network": TITLES[activation]}
                row["best"] = matching(best, **where)[metric.name].iloc[0]
                rows.append(row | {name: theirs[name.split()[1]].iloc[0] for name in PRINTED if len(theirs)})
    numbers = {**OURS, **PRINTED}
    frame = pd.DataFrame(rows, columns=["metric", "network", *numbers]).astype(dict.fromkeys(numbers, float))
    note = f"{_length(plan, dim)} Interval: 95 % t interval of the mean. Best run: least training loss."
    groups = {"ours": tuple(OURS), "published": tuple(PRINTED)}
    return Table(f"metrics-{dim}d", f"{dim}-D, all metrics", frame, note, groups=groups, labels=numbers)


def _beside(plan: MahalanobisPlan, results: MahalanobisResults, dim: int) -> Table:
    """Return the metrics that the source prints, ours beside the published: means with intervals, and best runs."""
    whole = _metrics(plan, results, dim).frame
    rows = whole[whole["metric"].isin([m.title for m in METRICS if m.published])].reset_index(drop=True)
    ends = zip(rows["low"], rows["high"], strict=True)
    rows["interval"] = [MISSING if np.isnan(low) else interval(low, high) for low, high in ends]
    ours = {"mean": "ours mean", "interval": "ours 95 % interval", "best": "ours best"}
    theirs = ["published mean", "published best"]
    frame = rows[["metric", "network", *ours, *theirs]].rename(columns=ours)
    groups = {"ours": tuple(ours.values()), "published": tuple(theirs)}
    labels = {name: name.split(maxsplit=1)[1].replace("best", "best run") for name in (*ours.values(), *theirs)}
    note, title = f"{_length(plan, dim)} Best run: least training loss.", f"{dim}-D, ours beside the published"
    return Table(f"beside-{dim}d", title, frame, note, groups=groups, labels=labels)


def _length(plan: MahalanobisPlan, dim: int) -> str:
    size, paper = plan.sizes[dim], PAPER.get(dim)
    short = paper is not None and size.epochs < paper.epochs
    shortened = f" **Shortened**: the published runs have {paper.epochs:,} epochs." if short and paper else ""
    return f"{size.trials} trials from random starts, {size.epochs:,} epochs.{shortened}"


def _placement(plan: MahalanobisPlan, results: MahalanobisResults) -> Table:
    """Return where each mean loss lies in the published range and, where outside, why."""
    printed = matching(published(NAME), metric="train_mse").set_index(["dim", "activation"])
    rows = []
    for dim in plan.sizes:
        for activation in plan.activations:
            if (dim, activation) in printed.index:
                theirs = printed.loc[(dim, activation)]
                ours = results.select(dim=dim, start="random", activation=activation)["train_mse"].mean()
                low, high = theirs["minimum"], theirs["maximum"]
                inside = bool(low <= ours and (pd.isna(high) or ours <= high))
                rows.append({
                    "dimension": dim, "network": TITLES[activation], "ours mean": ours,
                    "published mean": theirs["mean"], "published min": low, "published max": high,
                    "place": "inside" if inside else _why_outside(plan, results, dim, activation, theirs["mean"]),
                })  # fmt: skip
    own = [f"{dim}-D" for dim in plan.sizes if not plan.replayed(dim)]
    other = f"; in {', '.join(own)}, ours is another one" if own else ", which is replayed here"
    note = f"The published extremes are those over 20 trials on one Gaussian{other}."
    return Table("placement", "Mean training loss in the published range", pd.DataFrame(rows), note)


def _why_outside(plan: MahalanobisPlan, results: MahalanobisResults, dim: int, activation: str, theirs: float) -> str:
    if not plan.protocol(dim):
        return "outside: shortened, fewer epochs than the protocol"
    if plan.replayed(dim):
        return "outside: see the replay of the published runs"
    part = matching(results.tables["gaussians"], dim=dim, activation=activation)["mse"]
    if part.empty:
        return "outside: another Gaussian (no further ones were run)"
    means = [*part, results.select(dim=dim, start="random", activation=activation)["train_mse"].mean()]
    span = f"{number(float(min(means)))} to {number(float(max(means)))}"
    covered = "includes" if min(means) <= theirs <= max(means) else "does not include"
    return f"outside: the Gaussian decides; the range over {len(means)} of them, {span}, {covered} the published mean"


def _lost_table(results: MahalanobisResults) -> Table:
    """Return the directions lost, which they were, and what theory predicts for the trials that lost some."""
    rows = []
    for key, part in results.select().groupby(["dim", "start", "activation"], sort=False):
        dim, start, activation = int(part["dim"].iloc[0]), *key[1:]
        trials = part[part["lost"] > 0]
        if activation in ("abs", "relu") and dim > 1:
            typical = int(trials["lost"].median()) if len(trials) else 0
            theory = lost_directions(dim, min(typical, dim - 1))
            rows.append({
                "dimension": dim, "start": start, "network": TITLES[activation], "trials": len(part),
                "trials that lost": len(trials), "directions lost": trials["lost"].mean(),
                "smallest variance": (trials["lost_axis"] == dim - 1).mean() if len(trials) else np.nan,
                "constant": trials["constant"].mean(), "constant, theory": theory.constant if typical else np.nan,
                "MSE new points": trials["test_mse"].mean(), "MSE, theory": theory.loss if typical else np.nan,
                "sphericity": trials["sphericity"].mean(),
                "sphericity, theory": theory.sphericity if typical and activation == "abs" else np.nan,
            })  # fmt: skip
    note = (
        "Means over the trials that lost a direction: the learned metric, in which each unit counts by how often it is "
        "active, gives that direction less than a tenth of its squared length. “Smallest variance”: the share of these "
        "trials whose last direction lies mostly on the principal axis of least variance. Theory: white in the other "
        "directions, and the best constant in place of as many directions as the median trial lost."
    )
    formats = {"smallest variance": ".0%"} if rows else {}
    return Table("lost-directions", "Lost directions and what replaces them", pd.DataFrame(rows), note, formats)


def _failures(results: MahalanobisResults) -> Table:
    """Return how many trials ended in each outcome."""
    counts = results.tables["diagnoses"].groupby(["dim", "start", "activation", "outcome"]).size().unstack(fill_value=0)
    frame = counts.reindex(columns=list(OUTCOMES), fill_value=0).reset_index()
    frame["activation"] = frame["activation"].map(TITLES)
    frame.columns.name = None
    note = "; ".join(f"**{name}**: {text}" for name, text in OUTCOMES.items()) + "."
    labels = {"dim": "dimension", "activation": "network"}
    return Table("failures", "How trials end, and why", frame, note, labels=labels)
