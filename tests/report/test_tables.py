import numpy as np
import pandas as pd
import pytest

from metriscope.report.document import Table
from metriscope.report.tables import cell, grid


@pytest.mark.parametrize(
    ("value", "spec", "expected"),
    [
        (0.12345, None, "0.123"),
        (0.12345, 5, "0.12345"),
        (-0.12345, ".2f", "−0.12"),
        (0.5, ".1%", "50.0%"),
        (2e-6, ".1e", "2.0 × 10⁻⁶"),
        (185.0, "seconds", "3 min 05 s"),
        (0.2675, "as printed", "0.2675"),
        (True, None, "yes"),
        (False, ".2f", "no"),
        ("abs2-neg", ".2f", "abs2-neg"),
        (None, ".2f", "–"),
        (np.nan, ".2f", "–"),
        (pd.NA, None, "–"),
        (np.float32(0.5), 2, "0.50"),
    ],
)
def test_a_cell_is_written_by_its_kind_and_format(value, spec, expected):
    assert cell(value, spec) == expected


def test_headings_span_their_columns_and_say_whose_numbers_they_are():
    frame = pd.DataFrame({"net": ["a"], "x": [1.0], "y": [2.0], "z": [0.25]})
    table = Table("t", "t", frame, groups={"Ours": ("x", "y"), "Published": ("z",)}, labels={"x": "2-D"})
    layout = grid(table)
    assert [(heading.label, heading.span) for heading in layout.headings] == [
        ("", 1),
        ("Ours", 2),
        ("Published", 1),
    ]
    assert [column.origin for column in layout.columns] == ["", "ours", "ours", "published"]
    assert layout.columns[1].label == "2-D"
    assert layout.rows == [("a", "1.00", "2.00", "0.25")]


@pytest.mark.parametrize(
    ("name", "origin"),
    [("ours", "ours"), ("MSE (published)", "published"), ("hours", ""), ("courses", ""), ("unpublished", "")],
)
def test_only_whole_words_mark_a_column(name, origin):
    assert grid(Table("t", "t", pd.DataFrame({name: [1.0]}))).columns[0].origin == origin


@pytest.mark.parametrize(
    ("values", "numeric"),
    [
        ([1.0, np.nan], True),
        ([1, 2], True),
        (["96.62 ± 0.17", None], True),
        (["[0.1, 0.2]", "[−1, 3]"], True),
        (["(2.00 ± 0.30) × 10⁻⁶"], True),
        (["3 min 05 s", "12.3 ms"], True),
        (["2-D", "10-D"], False),
        (["relu"], False),
        ([True, False], False),
        ([None, None], False),
        ([], False),
    ],
)
def test_a_column_lines_up_as_numbers_when_all_its_cells_are(values, numeric):
    assert grid(Table("t", "t", pd.DataFrame({"v": values}))).columns[0].numeric is numeric
