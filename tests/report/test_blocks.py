import pandas as pd
import pytest

from metriscope.report.document import (
    VERDICTS,
    Claim,
    Details,
    Figure,
    Ledger,
    Page,
    Prose,
    Section,
    Table,
    walk,
)

FRAME = pd.DataFrame({"a": [1], "b": [2], "c": [3]})


def claim(**changes):
    return Claim(**{"id": "C01", "text": "t", "source": "s", "verdict": "supported", "reason": "r", **changes})


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_four_verdicts_are_accepted(verdict):
    assert claim(verdict=verdict).verdict == verdict


@pytest.mark.parametrize("verdict", ["Supported", "maybe", "", "not-run"])
def test_any_other_verdict_is_refused(verdict):
    with pytest.raises(ValueError, match="supported, contradicted, depends, undecided, got"):
        claim(verdict=verdict)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "a b", "-a", 'a"b'])
def test_a_name_that_is_no_file_name_is_refused(name):
    with pytest.raises(ValueError, match="table name has letters"):
        Table(name, "t", FRAME)
    with pytest.raises(ValueError, match="figure name has letters"):
        Figure(name, "t", "<svg/>")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"formats": {"z": ".2f"}}, "no column 'z'"),
        ({"labels": {"z": "Z"}}, "no column 'z'"),
        ({"groups": {"Ours": ("a", "z")}}, "no column 'z'"),
        ({"groups": {"Ours": ("a", "c")}}, "must span adjacent columns in order"),
        ({"groups": {"Ours": ("b", "a")}}, "must span adjacent columns in order"),
        ({"groups": {"Ours": ()}}, "must span adjacent columns in order"),
        ({"frame": pd.DataFrame({1: [1]})}, "distinct string names"),
        ({"frame": FRAME.set_index("a")}, "named index, which is not shown"),
    ],
)
def test_a_table_that_would_lose_something_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Table(**{"name": "t", "title": "t", "frame": FRAME, **changes})


def test_a_figure_needs_svg_with_ids_of_its_own():
    assert Figure("loss", "t", '<svg><g id="loss-1"/></svg>').caption == ""
    with pytest.raises(ValueError, match="begins with '<svg'"):
        Figure("loss", "t", "<p>")
    with pytest.raises(ValueError, match="begin with 'loss-', got 'axes_1'"):
        Figure("loss", "t", '<svg><g id="axes_1"/></svg>')


def test_an_anchor_is_made_from_the_title_unless_given():
    assert Section("Distance, or intensity?", ()).anchor == "distance-or-intensity"
    assert Section("Distance", (), "d").anchor == "d"
    with pytest.raises(ValueError, match="section name has letters"):
        Section("…", ())


@pytest.mark.parametrize(
    ("blocks", "kind"),
    [
        ((Table("t", "1", FRAME), Details("more", (Table("t", "2", FRAME),))), "table"),
        ((Figure("f", "1", "<svg/>"), Figure("f", "2", "<svg/>")), "figure"),
        ((Ledger((claim(), claim())),), "claim"),
    ],
)
def test_two_things_of_one_name_are_refused(blocks, kind):
    with pytest.raises(ValueError, match=f"every {kind} on a page needs its own name"):
        Page("p", "", (Section("s", blocks),))


def test_two_sections_of_one_anchor_are_refused():
    with pytest.raises(ValueError, match="every section on a page needs its own name, got 'same'"):
        Page("p", "", (Section("Same", ()), Section("same!", ())))


def test_walking_reaches_what_is_folded_away_in_reading_order():
    inner, last = Prose("inner"), Prose("last")
    outer = Details("outer", (Details("deep", (inner,)),))
    assert list(walk((outer, last))) == [outer, outer.blocks[0], inner, last]
