"""The guide to heads is what the program writes from records, and its answers follow from the numbers."""

from pathlib import Path

import pandas as pd
import pytest

from metriscope.studies import head_guide
from metriscope.studies.head_guide import QUESTIONS, answer, caution, page, scores
from metriscope.studies.heads.plan import CONTESTS

PAGE = Path(__file__).parents[2] / "docs" / "choosing-a-head.md"


def made_up(gains):
    """Return scores on six data sets; ``gains`` are points of accuracy above those of the linear head."""
    rows = [
        {"contest": "heads", "data": data, "per_class": 0, "counted": True, "entry": entry.name, "start": start,
         "accuracy": 80 + gains.get(entry.name, 0) + number + 0.1 * (start + number % 2)}
        for number, data in enumerate(("wine", "digits", "letter", "adult", "spambase", "ecg5000"))
        for entry in CONTESTS["heads"].entries
        for start in range(2)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def test_the_guide_is_what_the_program_writes_from_the_records():
    assert PAGE.read_text(encoding="utf-8") == page()


def test_the_best_head_is_named_with_its_distance_from_the_linear_one():
    text = answer(made_up({"cosine": 2.0}), QUESTIONS[0])
    assert "Cosine is best, 84.6 % on average over 6 data sets, against 82.6 %" in text
    assert "better on 6 of them" in text


def test_where_the_linear_head_is_best_the_answer_says_so():
    text = answer(made_up({"linear": 1.0, "rbf": 0.5}), QUESTIONS[0])
    assert "the linear head is best, 83.6 %" in text
    assert "next is RBF" in text


def test_a_head_that_takes_strangers_for_known_points_is_named():
    table = made_up({}).assign(auroc=0.7)
    assert caution(table) == ""
    table.loc[table["entry"] == "rbf", "auroc"] = 0.2
    assert "RBF (0.20)" in caution(table)


def test_without_records_there_is_no_guide():
    with pytest.raises(ValueError, match="no contest of heads is recorded"):
        scores([])


def test_the_guide_is_written_to_the_file_that_is_named(tmp_path):
    head_guide.main([str(tmp_path / "guide.md")])
    assert (tmp_path / "guide.md").read_text(encoding="utf-8").startswith("# Choosing a head")
