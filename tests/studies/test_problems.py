"""The page of problems found in the papers: up to date, and its evidence can fail."""

from pathlib import Path

import pytest

from metriscope.studies import problems

PAGE = Path(__file__).parents[2] / "docs" / "problems.md"


@pytest.fixture(scope="module")
def page():
    return problems.page()


def test_the_page_is_what_the_program_writes(page):
    assert PAGE.read_text(encoding="utf-8") == page


def test_every_problem_names_its_source_and_has_evidence_with_a_number(page):
    parts = page.split("\n## ")[1:]
    assert len(parts) == len(problems.PROBLEMS) == 11
    for part in parts:
        evidence = part.split("\n\n")[2]
        assert any(character.isdigit() for character in evidence)


def test_the_norm_of_the_exact_network_respects_the_bound():
    import torch

    cov = torch.diag(torch.tensor([1.0, 0.25], dtype=torch.float64))
    inverse = torch.linalg.inv(cov)
    # Rows of the exact network, normalized, are the axes: I - diag(1, 4) has norm 3; the bound is 3 / sqrt(2).
    assert problems._norm_of(torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64)), inverse) == pytest.approx(3)
    assert 3 >= (5 - 2) / 2**0.5
