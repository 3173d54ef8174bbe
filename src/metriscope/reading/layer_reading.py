"""Read any layer of any network as distances: where each unit's zero set lies, and what the network uses it for.

Axes: N points, K units, C classes, D inputs of a unit. The rows of a convolution are its positions, those of a layer
inside a transformer its tokens. The data is read twice, batch by batch; memory holds one batch, a sample of rows, and
products of units and of inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from metriscope.common.validation import integer
from metriscope.probes.linear import MetricRank, sphericity
from metriscope.reading.layer_inputs import LayerSource, Site, label_codes, locate, taken
from metriscope.reading.layer_sums import LayerSums, gathered
from metriscope.reading.unit_kinds import UnitEffects, unit_effects
from metriscope.reading.unit_statistics import gaussian_count, input_metric, near_share, nearest_axes, partners
from metriscope.vq.units.utilization import partner_column

__all__ = ["LayerReading", "effects_on", "read_layer", "reading_of"]

# Activations whose output changes on both sides of zero: a unit that never crosses zero still carries information.
_TWO_SIDED = frozenset(
    {"", "abs", "tanh", "softsign", "tanhshrink", "hardtanh", "sigmoid", "hardsigmoid", "logsigmoid"}
)
_RARE = 0.01


@dataclass(frozen=True)
class LayerReading:
    """One layer of a network, read as distances.

    Parameters
    ----------
    layer : str
        The name of the layer.
    activation : str
        The function applied to its pre-activations; empty if none was seen.
    points, rows : int
        How many points were read, and how many rows: positions or tokens of all points.
    units : DataFrame
        One row per unit; see :func:`read_layer` for the columns.
    classes : DataFrame
        One row per unit and class: mean, deviation, skewness, share of rows at or above zero, distance of the class's
        mean from the zero set in the class's own deviations, and the principal axis of the class nearest to the unit.
        Without labels, it has no rows.
    metric : MetricRank or None
        Which of the directions in which the inputs vary the layer measures, as in ``probes.metric_rank``; eigenvalues
        are relative to the largest.
    sphericity : float
        ``probes.sphericity`` of the layer on its inputs.
    information : float
        Mean information of a unit on the class, in nats.
    near_information : float
        The share of this information in the half of the rows that is nearer to the zero set; about 0.5 where the
        distance from the zero set does not matter.
    reasons : mapping of str to str
        Why columns or numbers are missing.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> _ = nn.init.eye_(model[0].weight)
    >>> read_layer(model, "0", np.random.default_rng(0).normal(size=(50, 2))).rank
    2
    """

    layer: str
    activation: str
    points: int
    rows: int
    units: pd.DataFrame = field(repr=False)
    classes: pd.DataFrame = field(repr=False)
    metric: MetricRank | None = field(repr=False)
    sphericity: float
    information: float
    near_information: float
    reasons: Mapping[str, str] = field(repr=False)

    @property
    def rank(self) -> float:
        """Return how many directions of its inputs the layer measures; NaN if its weights are not known."""
        return np.nan if self.metric is None else self.metric.rank

    @property
    def lost(self) -> float:
        """Return the number of directions in which the inputs vary and which the layer does not measure."""
        return np.nan if self.metric is None else len(self.metric.lost)

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per unit."""
        return self.units.copy()

    def by_class(self) -> pd.DataFrame:
        """Return one row per unit and class."""
        return self.classes.copy()


def read_layer(
    model: nn.Module, layer: str | nn.Module, data: Any, labels: Any = None, batch_size: int = 1024, probed: int = 1000
) -> LayerReading:
    """Return where the zero set of each unit of a layer lies, and whether the network uses it as a distance.

    The columns of ``to_pandas()``, one row per unit (feature, channel):

    - ``unit``, ``active`` (share of rows at or above zero) and ``status``: ``"dead"``, ``"rare"``, ``"always on"`` or
      ``"active"``. A unit is dead if it is constant, or never at or above zero before a one-sided activation.
    - ``kind``: ``"distance"``, ``"intensity"`` or ``"neither"``; ``serves``, ``ablation_effect``, ``offset_effect`` and
      ``scale_effect`` explain it. Only this unit is perturbed. It serves the class that loses most log-odds when its
      activation is replaced by the mean. It is a distance if, for that class, an offset as large as its typical (root
      mean square) activation costs clearly more than scaling it by 0 or 2, and an intensity if it costs clearly less.
      Without labels, the network's own answers are the classes; if its outputs are not class scores, classes are scored
      by the nearness of outputs to the mean outputs of each class.
    - ``duplicate_of`` and ``mirrored_with``: a unit with the same zero set, on the same or on opposite sides.
    - ``offset``: distance of the zero set from the data's mean, in standard deviations along the unit.
    - ``through``, ``nearest_class``, ``farthest_class``: classes whose mean lies within one of their own deviations of
      the zero set; the classes with the smallest and the largest mean distance from it.
    - ``prototype``, ``above``, ``below``, ``strongest``: indices of the five points nearest to the zero set, nearest on
      either side, and with the largest activation.
    - ``gaussians``: 1 or 2, whichever mixture has the smaller BIC (0 if constant).
    - ``axis`` and ``axis_cosine``: the principal axis of the inputs, from 0, most parallel to the unit's weights.
    - ``information`` and ``near_information``: information about the class in nats, and the share of it near zero.

    Parameters
    ----------
    model : torch.nn.Module
        Any network. It runs in eval mode without gradients and is not changed.
    layer : str or torch.nn.Module
        A linear or convolutional layer, or the activation after it, by name or as an object. Batch normalization in
        between is folded in.
    data : tensor, array, mapping, data set or loader
        The points, as for :func:`metriscope.capture`; they are read twice.
    labels : array of int or str, optional
        One label per point. Without labels, columns about classes are missing, with a reason.
    batch_size : int
        How many points to run at once, unless the data comes in batches.
    probed : int
        The number of points, evenly chosen, on which units are perturbed; with 0 every kind is ``"neither"``.

    Returns
    -------
    LayerReading
        The units, the classes, and the layer as a whole.

    Raises
    ------
    ValueError
        If there is no such layer, it is not linear, convolutional or an activation, the model cannot run on the data,
        or the labels do not fit.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    >>> _ = model.load_state_dict({"0.weight": torch.tensor([[1.0], [-1.0]]), "0.bias": torch.tensor([-1.0, 1.0])})
    >>> read_layer(model, "0", np.array([[0.0], [4.0]])).to_pandas()[["unit", "status", "mirrored_with", "offset"]]
       unit  status  mirrored_with  offset
    0     0  active              1     0.5
    1     1  active              0     0.5
    """
    integer(probed, "probed", 0)
    source = LayerSource(model, data, integer(batch_size, "batch_size"))
    names, codes = (None, None) if labels is None else label_codes(labels, _label_count(labels, source))
    site = locate(source, layer)
    with source.opened():
        found = gathered(source, site, 1 if names is None else len(names), codes)
        effects = effects_on(source, site, found.points, (names, codes), probed)
    return reading_of(found, names, *effects)


def _label_count(labels: Any, source: LayerSource) -> int:
    return len(labels) if source.expected is None else source.expected


def effects_on(
    source: LayerSource, site: Site, points: int, classes: tuple[np.ndarray | None, np.ndarray | None], probed: int
) -> tuple[UnitEffects | None, str]:
    """Perturb each unit on evenly chosen points, given the names of classes and the points' codes, if there are any."""
    if probed == 0:
        return None, "no points were perturbed"
    names, known = classes
    chosen = np.unique(np.linspace(0, points - 1, min(probed, points)).round().astype(int))
    batches, first = [], 0
    for batch in source.batches():
        rows = chosen[(chosen >= first) & (chosen < first + batch.points)] - first
        if len(rows):
            codes = np.zeros(len(rows), int) if known is None else known[first + rows]
            batches.append((taken(batch, torch.as_tensor(rows)), torch.as_tensor(codes)))
        first += batch.points
    try:
        return unit_effects(source, site, batches, names)
    except ValueError as error:
        return None, str(error)


def reading_of(found: LayerSums, names: np.ndarray | None, effects: UnitEffects | None, why: str) -> LayerReading:
    """Return the tables of a layer from what was gathered, the names of classes, and effects or why there are none."""
    site = found.site
    reasons = {"kind": why} if why else {}
    mean, sd, _ = found.moments.moments(pooled=True)
    units = _unit_table(site, found, mean, sd)
    units = units.assign(**_kind_columns(effects, names, len(units)), **_class_columns(found, names))
    if names is None:
        said = "labels were not given"
        reasons |= dict.fromkeys(
            ("through", "nearest_class", "farthest_class", "information", "near_information"), said
        )
        reasons["classes"] = said
        if not why:
            reasons["serves"] = "labels were not given: the network's own answers are the classes"
    axes, classes, metric, white, missing = _geometry(site, found, names)
    reasons |= dict.fromkeys(("axis", "axis_cosine", "metric", "sphericity"), missing) if missing else {}
    if units["offset"].isna().any():
        reasons["offset"] = "a unit that is constant on the data has no deviation to measure its offset in"
    info = units["information"].mean()
    near = (
        (units["information"] * units["near_information"].fillna(0)).sum() / units["information"].sum()
        if info > 0
        else np.nan
    )
    ends = (white, float(info), float(near), reasons)
    return LayerReading(
        site.name, site.activation, found.points, found.rows, units.assign(**axes), classes, metric, *ends
    )


def _unit_table(site: Site, found: LayerSums, mean: np.ndarray, sd: np.ndarray) -> pd.DataFrame:
    active = (found.moments.positive.sum(0) / found.moments.counts.sum()).numpy()
    low, high = found.moments.extremes.numpy()
    one_sided = site.activation not in _TWO_SIDED
    dead = (sd == 0) | (one_sided & (high < 0))
    crosses = (low < 0) & (high >= 0)
    minor = active if one_sided else np.minimum(active, 1 - active)
    status = np.select([dead, ~crosses, minor < _RARE], ["dead", "always on", "rare"], "active")
    offset = np.abs(mean) / np.where(sd > 0, sd, np.nan)
    duplicate, mirrored = partners(found.moments.correlations(), np.sign(mean) * offset, dead)
    assert found.sample.z is not None
    columns = {
        "unit": np.arange(len(mean)), "active": active, "status": status.astype(object),
        "duplicate_of": partner_column(duplicate), "mirrored_with": partner_column(mirrored), "offset": offset,
        "mean": mean, "sd": sd, "gaussians": gaussian_count(found.sample.z.numpy()),
        "prototype": found.prototype.tuples(), "above": found.above.tuples(),
        "below": found.below.tuples(), "strongest": found.strongest.tuples(),
    }  # fmt: skip
    return pd.DataFrame(columns)


def _kind_columns(effects: UnitEffects | None, names: np.ndarray | None, units: int) -> dict[str, Any]:
    if effects is None:
        nothing = np.full(units, np.nan)
        numbers = {f"{name}_effect": nothing for name in ("ablation", "offset", "scale")}
        return {"kind": np.full(units, "neither", dtype=object), "serves": nothing, **numbers}
    served = [np.nan if one < 0 else one if names is None else names[one] for one in effects.serves.tolist()]
    numbers = {f"{name}_effect": getattr(effects, name) for name in ("ablation", "offset", "scale")}
    return {"kind": effects.kind, "serves": pd.Series(served, dtype=object), **numbers}


def _class_columns(found: LayerSums, names: np.ndarray | None) -> dict[str, Any]:
    units = len(found.moments.sums[0, 0])
    if names is None:
        return dict.fromkeys(("through", "nearest_class", "farthest_class", "information", "near_information"), np.nan)
    mean, sd, _ = found.moments.moments(pooled=False)
    far = np.sqrt(mean**2 + sd**2)
    inside = np.abs(mean) <= sd
    through = [tuple(names[inside[:, unit] & (sd[:, unit] > 0)].tolist()) for unit in range(units)]
    assert found.sample.z is not None
    info, near = near_share(found.sample.z.numpy(), found.sample.codes.numpy())
    return {
        "through": pd.Series(through, dtype=object), "nearest_class": names[far.argmin(0)],
        "farthest_class": names[far.argmax(0)], "information": info, "near_information": near,
    }  # fmt: skip


def _geometry(
    site: Site, found: LayerSums, names: np.ndarray | None
) -> tuple[dict[str, np.ndarray], pd.DataFrame, MetricRank | None, float, str]:
    """Return columns of principal axes, the table of classes, metric, sphericity, and why some are missing."""
    affine, units = site.affine(), len(found.moments.sums[0, 0])
    missing = site.reason if affine is None else ""
    if affine is not None and found.inputs.shift is None:
        missing = "the inputs of a unit are grouped, or too many for their covariance"
    nothing = {"axis": np.full(units, np.nan), "axis_cosine": np.full(units, np.nan)}
    if missing or affine is None:
        return nothing, _class_table(found, names, None), None, np.nan, missing
    mean, cov = found.inputs.of(None)
    variances, vectors = torch.linalg.eigh(cov)
    active = found.moments.positive.sum(0) / found.moments.counts.sum()
    # Only rows at which a ReLU unit is active contribute to its metric.
    share = active if site.activation == "relu" else torch.ones_like(active)
    metric = input_metric(affine, mean, (variances, vectors), share)
    axes, classes = nearest_axes(affine[0], variances, vectors), _class_table(found, names, affine[0])
    return axes, classes, metric, sphericity(affine[0], cov), ""


def _class_table(found: LayerSums, names: np.ndarray | None, weight: Tensor | None) -> pd.DataFrame:
    columns = ["unit", "class", "rows", "mean", "sd", "skewness", "active", "distance", "axis", "axis_cosine"]
    if names is None:
        return pd.DataFrame(columns=columns)
    mean, sd, skewness = found.moments.moments(pooled=False)
    units, parts = mean.shape[1], []
    for code, name in enumerate(names):
        nearest = {"axis": np.nan, "axis_cosine": np.nan}
        if weight is not None and found.inputs.by_class:
            nearest = nearest_axes(weight, *torch.linalg.eigh(found.inputs.of(code)[1]))  # type: ignore[assignment]
        rows = float(found.moments.counts[code])
        distance = np.abs(mean[code]) / np.where(sd[code] > 0, sd[code], np.nan)
        active = (found.moments.positive[code] / rows).numpy()
        own = (np.arange(units), name, int(rows), mean[code], sd[code], skewness[code], active, distance)
        parts.append(pd.DataFrame(dict(zip(columns[:8], own, strict=True)) | nearest))
    return pd.concat(parts, ignore_index=True).sort_values(["unit", "class"], ignore_index=True)
