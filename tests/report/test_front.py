"""The first page: what it tells first, where it draws an interval, and that all its links lead somewhere."""

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.report import Claim, Figure, Front, FrontStudy, Page, Requirement, Section, ShownProblem, render
from metriscope.report.document import Ledger, Prose
from metriscope.report.front import APPENDIX, WIDTH, deciding, findings, render_front, strip
from report.test_page import Outline

NUMBERS = st.floats(-1e6, 1e6)
HELD = Requirement("a holds", "holds", estimate=2.0, low=1.0, high=3.0, region=(0.5, math.inf))
FAILED = Requirement("b fails", "fails", estimate=-2.0, low=-3.0, high=-1.0, region=(-0.5, 0.5))
OPEN = Requirement("c was not measured", "open")


def claim(number, verdict="supported", strength="hint", study="one", requirements=(HELD, FAILED)):
    return Claim(
        f"C{number:02}", f"Claim {number} <&>.", "Oursland 2025", verdict, "Because.", (), strength, requirements, study
    )


@given(low=NUMBERS, high=NUMBERS, edge=NUMBERS)
def test_a_strip_keeps_order_and_stays_inside(low, high, edge):
    low, high = sorted((low, high))
    drawn = strip(Requirement("", "open", estimate=(low + high) / 2, low=low, high=high, region=(edge, math.inf)))
    assert 0 <= drawn.interval[0] <= drawn.estimate <= drawn.interval[1] <= WIDTH
    assert drawn.region[1] == WIDTH
    if abs(edge - low) > 1e-3 * (high - low + abs(edge)):
        assert (drawn.region[0] <= drawn.interval[0]) == (edge <= low)


def test_what_was_not_measured_has_no_strip():
    assert strip(OPEN) is None


@pytest.mark.parametrize(("verdict", "told"), [("supported", HELD), ("contradicted", FAILED), ("depends", FAILED)])
def test_the_deciding_criterion_is_one_that_explains_the_verdict(verdict, told):
    assert deciding(claim(1, verdict, requirements=(OPEN, HELD, FAILED))) == told


def test_findings_tell_the_strongest_decided_claim_of_each_study_and_identities_last():
    claims = [
        claim(1, "supported", "exact", "theory"),
        claim(2, "undecided", "protocol", "one"),
        claim(3, "contradicted", "hint", "one"),
        claim(4, "supported", "protocol", "one"),
        claim(5, "contradicted", "hint", "two"),
    ]
    assert [found.id for found in findings(claims)] == ["C04", "C05", "C01"]
    assert len(findings(claims, most=2)) == 2


@pytest.fixture(scope="module")
def pages():
    claims = (claim(1), claim(2, "contradicted", "protocol"))
    other = replace(claim(3, "undecided", "not run", "other", ()), reason="Not run here.")
    figure = Figure("curve", "A curve", '<svg viewBox="0 0 720 200" fill="#20242a"></svg>')
    section = Section("All", (Prose("x"), figure, Ledger(claims)), anchor="one-all")
    study = FrontStudy("one", "First", "Is it so?", (figure,), claims, "metriscope reproduce one", (section,))
    problem = ShownProblem("A problem", "Oursland 2025", "says <b>", "found")
    front = Front("Title", "Trust.", (study,), (problem,), {"seed": 1}, (*claims, other))
    return render_front(front), render(Page("Appendix", "", (section,), {}, (*claims, other)))


def test_the_first_page_is_well_formed_escaped_and_the_same_each_time(pages):
    found = Outline(pages[0])
    assert found.open == []
    assert len(found.ids) == len(set(found.ids))
    assert "<&>" not in pages[0]
    assert "says <b>" not in pages[0]


def test_every_claim_is_a_cell_and_links_lead_to_cards_sections_and_sources(pages):
    front, appendix = (Outline(page) for page in pages)
    assert len(re.findall(r'class="cell ', pages[0])) == 3
    for link in front.links:
        page, _, anchor = link.partition("#")
        if page == APPENDIX:
            assert anchor in ("", *appendix.ids)
        elif not page and anchor:
            assert anchor in front.ids
        else:
            assert link == "data:," or link.startswith("https://arxiv.org/abs/")


def test_figures_follow_the_theme_and_fall_back_to_their_own_colors(pages):
    assert 'fill="var(--figure-ink, #20242a)"' in pages[0]


def test_a_claim_is_one_line_that_opens_and_a_figure_is_small_with_its_caption_kept(pages):
    folds = re.findall(r'<details class="claim-fold [a-z]+" id="claim-(C\d\d)">\n<summary>(.*)</summary>', pages[0])
    assert [name for name, _ in folds] == ["C01", "C02"]
    assert all(word in folds[1][1] for word in ("contradicted · protocol", "Claim 2"))
    assert "<details open" not in pages[0]
    assert f'class="enlarge" href="{APPENDIX}#figure-curve"' in pages[0]
