"""The study of reading: planted units are read rightly, and the verdict can go either way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from metriscope.runs import Driver, Store
from metriscope.studies.reading.judge import STATEMENTS
from metriscope.studies.reading.measure import measure
from metriscope.studies.reading.page import sections
from metriscope.studies.reading.plan import READINGS, ReadingOptions, ReadingPlan, ReadNetworks, plan
from metriscope.studies.reading.train import WORK, HeldOut, ablation_effects, read_layer_units, read_networks
from studies.synthetic import check_statement

TINY = ReadNetworks("wine", "abs", 2, starts=2, steps=40, hidden=8)


def clusters(seed):
    y = torch.arange(300) % 3
    centers = torch.tensor([[-4.0, 0.0], [0.0, 4.0], [4.0, 0.0]])
    return centers[y] + 0.3 * torch.randn(300, 2, generator=torch.Generator().manual_seed(seed)), y


def planted(activation, head):
    model = nn.Sequential(nn.Linear(2, 1), activation, nn.Linear(1, 3)).requires_grad_(False)
    model[0].weight[:] = torch.tensor([[1.0, 0.0]])
    model[0].bias.zero_()
    model[2].weight[:] = torch.tensor(head)[:, None]
    model[2].bias.zero_()
    return model


@pytest.mark.parametrize(
    ("activation", "head", "right"), [("abs", [0.0, -2.0, 0.0], "near"), ("relu", [0.0, 0.0, 2.0], "top")]
)
def test_a_distance_is_read_by_its_nearest_points_and_an_intensity_by_its_strongest(activation, head, right):
    from metriscope.nn.activations import activation_row

    points = HeldOut(*clusters(0), *clusters(1), 3)
    table = read_layer_units(TINY, points, planted(activation_row(activation).module(), head), 0, 0).set_index(
        "reading"
    )
    assert list(table.index) == list(READINGS)
    assert table.loc[right, ["class_precision", "ablation_hit"]].tolist() == [100, 100]
    assert table.loc[right, "ablation_profile"] > 0.9
    other = {"near": "top", "top": "near"}[right]
    assert table.loc[other, "ablation_hit"] == 0


def test_the_effect_of_an_ablation_is_the_mean_loss_of_log_odds_of_each_class():
    a, y = torch.tensor([[0.0], [4.0]]), torch.tensor([0, 1])
    # The score of class 1 is the activation, that of class 0 is 1: both points end with the mean activation 2.
    found = ablation_effects(lambda h: torch.cat([torch.ones_like(h), h], 1), a, torch.tensor([2.0]), y)
    np.testing.assert_allclose(found, [[2.0, 2.0]])


def test_a_job_is_repeatable_and_its_starts_differ():
    first, second = (read_networks(TINY).tables["readings"] for _ in range(2))
    pd.testing.assert_frame_equal(first, second)
    assert len(first) == 2 * 2 * 3
    assert first["units"].between(1, 8).all()
    assert first.groupby("start")["ablation_profile"].mean().nunique() == 2


def test_a_small_plan_runs_and_is_shown(tmp_path):
    asked = ReadingPlan("paper", (TINY, replace(TINY, activation="relu"), replace(TINY, activation="gelu")))
    driver = Driver(Store(tmp_path))
    results = measure(asked, driver.perform(asked.jobs(), WORK, "networks"), driver)
    assert set(results.tables["readings"]["activation"]) == {"abs", "relu", "gelu"}
    names = [getattr(block, "name", "") for section in sections(asked, results, ()) for block in section.blocks]
    assert [name for name in names if name] == ["reading-gaps", "reading-by-activation", "reading-by-data"]


def test_nothing_is_computed_in_the_quick_profile_and_bad_options_are_refused():
    assert plan(ReadingOptions()).jobs() == ()
    with pytest.raises(ValueError, match="--seeds must be at least 1, not 0"):
        plan(ReadingOptions(seeds=0))


def test_the_claim_can_go_either_way():
    check_statement(STATEMENTS[0])
