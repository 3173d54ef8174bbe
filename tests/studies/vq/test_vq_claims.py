"""Rules of judgement, each verdict from made-up numbers that call for it."""

from __future__ import annotations

import numpy as np
import pytest

from metriscope.studies.contract import claims, published
from metriscope.studies.vq.claims import JUDGES, alike_verdict, separation_verdict, turning_verdict, verdicts
from metriscope.studies.vq.digits import PAIRS

NOISE = np.array([-0.01, 0.0, 0.01, 0.005, -0.005])


@pytest.mark.parametrize(
    ("back", "still", "ceiling", "verdict"),
    [
        (0.9, 0.5, 0.91, "supported"),
        (0.9, 0.5, 0.8, "supported"),
        (0.6, 0.5, 0.9, "depends"),
        (0.5, 0.5, 0.9, "contradicted"),
        (0.4, 0.5, 0.9, "contradicted"),
    ],
)
def test_a_kernel_turns_if_turning_back_helps_as_far_as_two_starts_agree(back, still, ceiling, verdict):
    found = turning_verdict(back + NOISE, still + NOISE[::-1], ceiling + NOISE[[1, 0, 2, 4, 3]])
    assert found.verdict == verdict
    assert found.worth.mean == pytest.approx(back - still)
    assert found.short.mean == pytest.approx(ceiling - back)


def test_a_gain_that_its_interval_does_not_confirm_is_left_open():
    gain = np.array([0.5, -0.4, 0.6, -0.3, 0.2])
    assert turning_verdict(0.5 + gain, np.full(5, 0.5), np.full(5, 0.9)).verdict == "depends"


@pytest.mark.parametrize(
    ("seen", "new", "euclid", "verdict"),
    [
        (0.6, 0.5, 0.0, "supported"),
        (0.6, 0.0, 0.0, "depends"),
        (0.1, 0.0, 0.0, "contradicted"),
        (0.6, 0.5, 0.6, "contradicted"),
    ],
)
def test_separation_counts_if_new_points_show_it(seen, new, euclid, verdict):
    assert separation_verdict(seen + NOISE, new + NOISE, euclid + NOISE[::-1]) == verdict


@pytest.mark.parametrize(
    ("aligned", "signs", "verdict"),
    [
        (0.4, (1, 0), "supported"),
        (0.4, (1, -1), "depends"),
        (-0.4, (1, -1), "depends"),
        (-0.4, (0, -1), "contradicted"),
        (0.0, (0, -1), "contradicted"),
    ],
)
def test_networks_are_more_alike_if_every_measure_says_so(aligned, signs, verdict):
    orders = {"distance": np.array([0, signs[0]]), "squared": np.array([signs[1], 0])}
    assert alike_verdict(aligned + NOISE, orders) == verdict


def test_the_ledger_lists_the_five_claims_and_what_was_not_run():
    assert [entry.id for entry in claims("vq")] == ["C21", "C22", "C23", "C24", "C25"]
    assert {"C21", "C22", "C23"} <= set(JUDGES)
    assert {claim.verdict for claim in verdicts({})} == {"not run"}


def test_the_printed_numbers_are_those_of_figure_3():
    table = published("vq").set_index("pair")["value"]
    assert [table["-".join(pair)] for pair in PAIRS] == [0.55, 0.28, 0.38, 0.28, 0.40, 0.87]
