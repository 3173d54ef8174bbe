"""From how many points on new points are separated: planted curves, and a tiny sweep."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from metriscope.report import Page, render
from metriscope.runs import Driver, Store
from metriscope.studies.vq.sample_sizes import SampleSizesResults, measure_sample_sizes, needed, needed_text, section
from studies.vq.tiny import tiny

COUNTS = np.array([100.0, 1_000.0, 10_000.0])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.5, 0.6, 0.7), 100),
        ((0.0, 0.5, 0.6), np.sqrt(100 * 1_000)),
        ((0.5, 0.0, 0.5), np.sqrt(1_000 * 10_000)),
        ((0.5, 0.5, 0.2), np.inf),
    ],
)
def test_points_are_enough_from_the_last_crossing_on(values, expected):
    assert needed(COUNTS, np.array(values), 0.25) == pytest.approx(expected)


def planted(curves):
    rows = [
        {"count": count, "seed": seed, "points": points, "distance": "first", "silhouette": value, "origin": "record"}
        for seed, curve in enumerate(curves)
        for count, value in zip(COUNTS.astype(int), curve, strict=True)
        for points in ("training", "new")
    ]
    return SampleSizesResults(tiny().sample_sizes, pd.DataFrame(rows))


def test_the_sentence_states_the_geometric_mean_or_how_many_seeds_get_there():
    assert "from n = 316 training points on" in needed_text(planted([(0.0, 0.5, 0.6)] * 3).tables)
    some = planted([(0.0, 0.5, 0.6), (0.0, 0.0, 0.1)])
    assert "by n = 10,000 in 1 of 2 seeds" in needed_text(some.tables)
    assert needed_text({}) == ""


def test_a_tiny_sweep_fills_its_table_and_page(tmp_path):
    part = tiny().sample_sizes
    results = measure_sample_sizes(part, Driver(Store(tmp_path)))
    assert len(results.rows) == len(part.counts) * part.seeds * 4
    assert (results.rows["origin"] == "run").all()
    text = render(Page("Test", "tiny", (section(results),)))
    assert needed_text(results.tables) in text
