"""Alignments and heat-kernel cosines of networks on digits, and curves over scales beside printed numbers.

Axes: S seeds, T scales sigma2, P pairs of networks, N test images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from jaxtyping import Float, Int64
from scipy import stats

from metriscope.report import Figure, Prose, Section, Table, mean_text, number, theory, to_svg
from metriscope.report.document import Panel
from metriscope.report.plots import strip
from metriscope.report.style import CYCLE, INK, figure, legend, log_axes
from metriscope.rng import derive
from metriscope.runs import Driver, Finished, Record, Result, Run, once
from metriscope.studies.tidy_tables import published
from metriscope.studies.vq.experiments import (
    FORMS,
    INITIAL,
    PAIRS,
    TRAINED,
    TWINS,
    Band,
    CountedPairs,
    Digits,
    Pair,
    Scales,
    SeedPairs,
    Starts,
    name_of,
)
from metriscope.studies.vq.networks import STUDY
from metriscope.studies.vq.train import Networks, aligned, ends_of, sample, stored, trained
from metriscope.vq import Patterns, alignment, capture, heat_cosine
from metriscope.vq.measures.heat import pair_counts

__all__ = [
    "DigitsResults", "StartsResults", "crossings", "measure_digits", "measure_starts", "nearest", "printed",
    "section", "simultaneous", "tried",
]  # fmt: skip


def crossings(scales: Float[np.ndarray, " t"], curve: Float[np.ndarray, " t"], value: float) -> Float[np.ndarray, " k"]:
    """Return every scale at which a curve takes a value, interpolated along the logarithm of the scale.

    >>> crossings(np.array([1.0, 100.0]), np.array([0.0, 1.0]), 0.5).round(6).tolist()
    [10.0]
    """
    over = curve - value
    at = np.flatnonzero((over[:-1] <= 0) != (over[1:] <= 0))
    share = over[at] / (over[at] - over[at + 1])
    logs = np.log(scales)
    return np.exp(logs[at] + share * (logs[at + 1] - logs[at]))


@dataclass(frozen=True)
class Nearest:
    """The form and scale at which curves are nearest to printed numbers, and their difference there."""

    form: str
    index: int
    scale: float
    error: float


def nearest(
    curves: Mapping[str, Float[np.ndarray, "p t"]],
    scales: Mapping[str, Float[np.ndarray, " t"]],
    printed: Float[np.ndarray, " p"],
) -> Nearest:
    """Return where the root mean square difference to the printed numbers is smallest, over forms and scales.

    >>> curves, scales = {"distance": np.array([[0.2, 0.6]])}, {"distance": np.array([1.0, 2.0])}
    >>> nearest(curves, scales, np.array([0.5])).scale
    2.0
    """
    found = []
    for form, values in curves.items():
        errors = np.sqrt(np.square(values - printed[:, None]).mean(0))
        best = int(errors.argmin())
        found.append(Nearest(form, best, float(scales[form][best]), float(errors[best])))
    return min(found, key=lambda each: each.error)


@dataclass(frozen=True)
class Simultaneous:
    """A mean curve with a simultaneous confidence band, which contains the true curve at all scales at once.

    ``wider`` is the band's critical value divided by that of one t-interval of the same level.
    """

    mean: Float[np.ndarray, " t"]
    error: Float[np.ndarray, " t"]
    critical: float
    wider: float

    @property
    def low(self) -> Float[np.ndarray, " t"]:
        """The band's lower edge."""
        return self.mean - self.critical * self.error

    @property
    def high(self) -> Float[np.ndarray, " t"]:
        """The band's upper edge."""
        return self.mean + self.critical * self.error


def simultaneous(curves: Float[np.ndarray, "s t"], band: Band, seed: int) -> Simultaneous:
    """Return the max-t band of the mean of curves, each edge at ``band.level``, from simulated samples of seeds.

    Each simulated sample consists of S normal curves with the covariance of ours; its largest t-statistic over scales
    is kept. At a scale where all curves are equal, the band has no width.
    """
    count = len(curves)
    mean, error = curves.mean(0), curves.std(0, ddof=1) / np.sqrt(count)
    moving = (curves - mean)[:, error > 0]
    generator = np.random.default_rng(derive(seed, STUDY, "band"))
    largest = np.empty(band.draws)
    for draw in range(band.draws):
        some = generator.standard_normal((count, count)) @ moving
        largest[draw] = (some.mean(0) / some.std(0, ddof=1)).max(initial=0) * np.sqrt(count)
    single = float(stats.t.ppf(band.level, count - 1))
    critical = max(single, float(np.quantile(largest, band.level)))
    return Simultaneous(mean, error, critical, critical / single)


def printed(pair: Pair) -> float:
    """Return the number that figure 3 prints for a pair."""
    return float(published(STUDY).set_index("pair")["value"]["-".join(pair)])


def _values(scales: Scales) -> Float[np.ndarray, " t"]:
    return np.geomspace(scales.least, scales.largest, scales.count)


def _patterns(networks: Mapping[int, Networks], number: int, label: str) -> Patterns:
    some = networks[int(label[1])]
    role = "second" if label.endswith("′") else "first"
    epoch = 0 if label[0] == "I" else None
    return capture(some.network(number, role, epoch), sample(some.group, number, role).test_x)


def _rows(networks: Mapping[int, Networks], spec: SeedPairs) -> Iterator[dict[str, object]]:
    """Yield the alignment, its null and every cosine of each pair of one seed, on the test images."""
    labels = dict.fromkeys(label for pair in spec.pairs for label in pair)
    found = {label: _patterns(networks, spec.number, label) for label in labels}
    for pair in spec.pairs:
        p, q = (found[label] for label in pair)
        permutations = spec.permutations if pair in spec.judged else spec.further
        whole = alignment(p, q, spec.estimator, permutations, seed=spec.number)
        here = {"seed": spec.number, "pair": name_of(pair)}
        null = {
            "null": float(whole.null.mean()) if permutations else np.nan,
            "p_value": float(np.asarray(whole.p_value)),
            "chance": float(np.quantile(whole.null, spec.quantile)) if permutations else np.nan,
            "biased": aligned(p, q, "biased"),
        }
        yield {**here, "form": "alignment", "sigma2": np.nan, "value": float(np.asarray(whole.value)), **null}
        for some in spec.scales:
            cosines = heat_cosine(p, q, _values(some), form=some.form)
            for scale, cosine in zip(_values(some), cosines, strict=True):
                yield {**here, "form": some.form, "sigma2": scale, "value": cosine, **dict.fromkeys(null, np.nan)}


def _counted(networks: Mapping[int, Networks], spec: CountedPairs) -> Iterator[dict[str, object]]:
    """Yield how many pairs of test images are ``first`` apart in one network and ``second`` in the other."""
    for pair in spec.pairs:
        counts = pair_counts(*(_patterns(networks, spec.number, label) for label in pair))
        for first, second in zip(*np.nonzero(counts), strict=True):
            yield {"pair": name_of(pair), "first": first, "second": second, "count": counts[first, second]}


@dataclass(frozen=True)
class DigitsResults:
    """Figures 3 and 4: cosines by scale, alignments, and final losses and accuracies."""

    part: Digits
    heat: pd.DataFrame
    aligned: pd.DataFrame
    ends: pd.DataFrame
    counted: pd.DataFrame

    def counts(self, pair: Pair) -> Int64[np.ndarray, "h1 h2"]:
        """Return how many pairs of test images have each pair of distances, for the first seed."""
        rows = self.counted[self.counted["pair"] == name_of(pair)]
        found = np.zeros((rows["first"].max() + 1, rows["second"].max() + 1), np.int64)
        found[rows["first"], rows["second"]] = rows["count"]
        return found

    def curve(self, pair: Pair, form: str) -> Float[np.ndarray, "s t"]:
        """Return cosines as seeds by scales."""
        part = self.heat[(self.heat["pair"] == name_of(pair)) & (self.heat["form"] == form)]
        return part.pivot(index="seed", columns="sigma2", values="cosine").to_numpy()

    def alignments(self, pair: Pair, measure: str = "alignment") -> Float[np.ndarray, " s"]:
        """Return one alignment per seed, in the order of seeds."""
        part = self.aligned[self.aligned["pair"] == name_of(pair)].sort_values("seed")
        return part[measure].to_numpy(dtype=float)

    @cached_property
    def scales(self) -> dict[str, Float[np.ndarray, " t"]]:
        """The scales of each form."""
        return {some.form: _values(some) for some in self.part.scales}

    @cached_property
    def nearest(self) -> Nearest:
        """Where our mean curves are nearest to the six printed numbers."""
        curves = {form: np.array([self.curve(pair, form).mean(0) for pair in PAIRS]) for form in self.scales}
        return nearest(curves, self.scales, np.array([printed(pair) for pair in PAIRS]))

    @cached_property
    def changes(self) -> dict[str, Float[np.ndarray, "s t"]]:
        """The cosine of both architectures, trained minus initial, by form."""
        return {form: self.curve(TRAINED, form) - self.curve(INITIAL, form) for form in self.scales}

    @cached_property
    def bands(self) -> dict[str, Simultaneous]:
        """The simultaneous band of the mean change, by form."""
        return {form: simultaneous(change, self.part.band, self.part.seed) for form, change in self.changes.items()}

    def places(self, pair: Pair, form: str) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, " m"]]:
        """Return the scales at which the mean curve takes the printed value, and those at which single seeds do."""
        curves, value = self.curve(pair, form), printed(pair)
        single = [crossings(self.scales[form], curve, value) for curve in curves]
        return crossings(self.scales[form], curves.mean(0), value), np.concatenate(single)

    @cached_property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Alignments; the band over scales; each seed's difference at the scale least favorable to the claim."""
        excess = self.aligned.assign(excess=self.aligned["alignment"] - self.aligned["chance"])
        known = {"alignment": excess, "heat band": self._band(), "heat worst": self._worst()}
        reading = pd.DataFrame([{**vars(self.nearest), "seeds": self.part.seeds}])
        tables = {name: table.assign(protocol=self.part.protocol) for name, table in known.items()}
        return tables | {"heat nearest": reading, "heat cosines": self.heat}

    def _band(self) -> pd.DataFrame:
        parts = [
            pd.DataFrame({"form": f, "sigma2": self.scales[f], "change": b.mean, "low": b.low, "high": b.high})
            for f, b in self.bands.items()
        ]
        return pd.concat(parts, ignore_index=True)

    def _worst(self) -> pd.DataFrame:
        """Return each seed's difference at the scale least favorable to the claim, rescaled to the band's width.

        A t-interval of these values is the simultaneous band at that scale, and a t-test of them is a test of all.
        """
        parts, seeds = [], np.sort(self.heat["seed"].unique())
        for form, band in self.bands.items():
            against = np.full(len(band.mean), np.inf)
            moving = band.error > 0
            against[moving] = (band.mean[moving] + self.part.band.margin) / band.error[moving]
            at = int(against.argmin())
            values = band.mean[at] + band.wider * (self.changes[form][:, at] - band.mean[at])
            scale = self.scales[form][at]
            parts.append(pd.DataFrame({"seed": seeds, "form": form, "sigma2": scale, "change": values}))
        return pd.concat(parts, ignore_index=True)


def measure_digits(part: Digits, runs: Finished, driver: Driver) -> DigitsResults:
    """Compare the networks of figures 3 and 4."""
    networks = trained(part.jobs(), runs)

    def rows(spec: SeedPairs) -> Iterator[dict[str, object]]:
        return _rows({group.shape.depth: networks[group] for group in spec.groups}, spec)

    found = stored(driver, part.comparisons(), rows, f"vq: figures 3 and 4, {part.activation}")
    ends = [ends_of([networks[g] for g in part.groups(depth)]).assign(depth=depth) for depth in part.depths]
    alignments = found[found["form"] == "alignment"].rename(columns={"value": "alignment"})
    heat = found[found["form"] != "alignment"].rename(columns={"value": "cosine"})
    here = {group.shape.depth: networks[group] for group in part.together()[0]}
    counted = stored(driver, [part.counted()], lambda spec: _counted(here, spec), "vq: counts of pairs")
    return DigitsResults(part, heat, alignments, pd.concat(ends, ignore_index=True), counted)


@dataclass(frozen=True)
class StartsResults:
    """The judged tables of all starts, as they were measured or from a record; empty if there is none."""

    spec: Starts
    tables: Mapping[str, pd.DataFrame]

    @property
    def recorded(self) -> bool:
        """Whether the tables are from a record."""
        return "alignment" in self.tables and "origin" in self.tables["alignment"]


def measure_starts(spec: Starts, results: DigitsResults, driver: Driver) -> StartsResults:
    """Store the judged tables if the same digits were measured; otherwise return the record, if there is one."""
    if spec.digits == results.part:
        return StartsResults(
            spec, _copied(driver.perform([spec], once(lambda _: _judged(results)), "vq: all starts")[spec])
        )
    found = driver.recorded([spec]).values()
    return StartsResults(spec, {k: v.assign(origin="record") for run in found for k, v in _copied(run).items()})


def _copied(run: Run | Record) -> dict[str, pd.DataFrame]:
    return {name.replace("-", " "): run.table(name) for name in run.tables}


def _judged(results: DigitsResults) -> Result:
    """Return the judged tables, with cosines only at the scale nearest to the printed numbers."""
    best, heat = results.nearest, results.heat
    near = (heat["form"] == best.form) & (abs(heat["sigma2"] / best.scale - 1) < 1e-9)
    cosines = heat[near][["seed", "pair", "form", "sigma2", "cosine"]]
    tables = {**results.tables, "heat cosines": cosines.reset_index(drop=True)}
    return Result({name.replace(" ", "-"): table for name, table in tables.items()})


def tried(results: DigitsResults) -> Panel:
    """Return the panel in which the scale of the heat kernels slides."""
    pairs = {TRAINED: ("trained pair", "trained"), INITIAL: ("untrained pair", "untrained")}
    shown = [
        theory.CountedPair(*texts, results.counts(pair), float(results.alignments(pair)[0]))
        for pair, texts in pairs.items()
    ]
    changes = {form: found[0] for form, found in results.changes.items()}
    # First the form whose cosine ranks either pair first, depending on the scale.
    order = sorted(results.part.scales, key=lambda some: -min(changes[some.form].max(), -changes[some.form].min()))
    forms = {some.form: (FORMS[some.form], some.least, some.largest) for some in order}
    first = order[0].form
    own, scales = changes[first], results.scales[first]
    least, most = int(own.argmin()), int(own.argmax())
    words = (
        f"First start, {results.part.images.test:,} test images of {results.part.images.name}. With the kernel "
        f"{FORMS[first]}, the cosine of the trained pair minus that of the untrained pair goes from "
        f"{number(own[least], 2)} at σ² = {number(scales[least], 2)} to {number(own[most], 2)} at "
        f"σ² = {number(scales[most], 2)}, and tends to 0 for large σ². The centered alignment, which has no scale, is "
        f"{number(shown[0].alignment, 2)} for the trained pair and {number(shown[1].alignment, 2)} for the untrained."
    )
    return theory.kernel_scale(shown, [f"{depth} layers" for depth in results.part.depths], forms, words)


def starts(results: StartsResults) -> Figure:
    """Draw the alignment of both architectures at every start, and what training changes at each scale."""
    drawing, ((left, right),) = figure(9.2, 3.0, 1, 2)
    rows, band = results.tables["alignment"], results.tables["heat band"]
    pairs = {name_of(TRAINED): "trained", name_of(INITIAL): "before training"}
    strip(left, {text: rows[rows["pair"] == pair]["alignment"].to_numpy() for pair, text in pairs.items()})
    left.set(xlabel="centered alignment of 4 with 6 layers")
    for (form, title), color in zip(FORMS.items(), CYCLE, strict=False):
        part = band[band["form"] == form]
        right.fill_between(part["sigma2"], part["low"], part["high"], color=color, alpha=0.2, linewidth=0)
        right.plot(part["sigma2"], part["change"], color=color, linewidth=1.8, label=title)
    right.axhline(0, color=INK, linewidth=0.9)
    log_axes(right, "x")
    right.set(xlabel="σ²", ylabel="cosine, trained − initial")
    legend(right, "lower right")
    caption = (
        "Left: each dot is a start; the large dot is the mean with its 95 % interval. Right: mean change of the cosine "
        "of heat kernels by training, with a band that holds the true curve at all scales at once."
    )
    ours = {text: rows[rows["pair"] == pair]["alignment"].mean() for pair, text in pairs.items()}
    heading = f"Kernels of 4 and 6 layers align: {', '.join(f'{number(v, 2)} {text}' for text, v in ours.items())}"
    return Figure("vq-starts", heading, to_svg(drawing, "vq-starts"), caption)


def section(results: StartsResults) -> Section:
    """Return the recorded starts with the paper's own images."""
    part = results.spec.digits
    text = (
        f"The same experiment with {part.images.train:,} and {part.images.test:,} images of full MNIST, as in the "
        f"paper, and {part.seeds} starts. These runs are recorded; the verdict on C23 is reached on them."
    )
    return Section(
        f"Networks of 4 and 6 layers on digits: {part.seeds} starts", (Prose(text), starts(results), _table(results))
    )


def _table(results: StartsResults) -> Table:
    rows, lines = results.tables["alignment"], []
    for pair in map(name_of, (*PAIRS, *TWINS)):
        own = rows[rows["pair"] == pair]
        alike = {column: mean_text(own[column], 3) for column in ("alignment", "biased", "null")}
        lines.append({"pair": pair, "starts": len(own), **alike, "p": number(own["p_value"].max(), 2)})
    note = (
        "Centered alignment on the test images, debiased and biased, mean [95 % t interval]; null: mean with the "
        "images shuffled; p: the largest permutation p-value of any start."
    )
    labels = {"biased": "alignment, biased"}
    return Table("vq-starts", "Centered alignment, all starts", pd.DataFrame(lines), note, labels=labels)
