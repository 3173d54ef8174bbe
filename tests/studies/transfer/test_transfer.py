"""The study of transfer: deeper networks, matched learning rates, folders of images, and open verdicts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from metriscope import data
from metriscope.runs import Driver, Store
from metriscope.studies.transfer import measure, page, train
from metriscope.studies.transfer.judge import STATEMENTS
from metriscope.studies.transfer.plan import BODIES, REFERENCE, SHALLOW, TransferOptions, TransferTraining, plan
from metriscope.studies.verdicts import judge
from studies.synthetic import check_statement

TINY = TransferTraining("relu2-neg", REFERENCE, 60, 3, 2, sample=40, steps=3)


@pytest.fixture
def few_images(monkeypatch):
    monkeypatch.setattr(train, "IMAGES", {REFERENCE: 60})


@pytest.mark.parametrize(
    ("body", "linear", "convolutions"), [(SHALLOW, 2, 0), ("3-layers", 3, 0), ("5-layers", 5, 0), ("cnn", 2, 2)]
)
def test_a_body_has_the_layers_that_its_name_says_and_ends_in_the_constraint(body, linear, convolutions):
    images = data.Labeled(np.ones((4, 784), np.float32), np.arange(4))
    model, head = train.start(replace(TINY, body=body), images, "abs2-neg", 0)
    kinds = [type(module) for module in model]
    assert (kinds.count(nn.Linear), kinds.count(nn.Conv2d)) == (linear, convolutions)
    assert model(torch.ones(3, 784)).shape == (3, 4)
    assert (model(torch.randn(9, 784)) <= 0).all()
    assert isinstance(model[head], nn.Linear)
    again, _ = train.start(replace(TINY, body=body), images, "relu", 0)
    firsts = [next(m for m in one if isinstance(m, nn.Linear | nn.Conv2d)).weight for one in (model, again)]
    assert firsts[0].equal(firsts[1])


def test_color_images_are_told_from_gray_ones_by_their_number_of_pixels():
    images = data.Labeled(np.ones((2, 3 * 32 * 32), np.float32), np.arange(2))
    model, _ = train.start(replace(TINY, body="cnn"), images, "relu", 0)
    assert model[1].in_channels == 3


@pytest.mark.usefixtures("few_images")
def test_on_the_reference_two_layers_learn_at_the_rate_of_the_paper_and_others_at_a_matched_one():
    first = train.trained(TINY).tables["ends"]
    assert first["lr"].eq(TINY.lr).all()
    assert len(first) == TINY.starts
    deep = train.trained(replace(TINY, body="3-layers")).tables["ends"]
    assert deep["lr"].iloc[0] * deep["sharpness"].iloc[0] == pytest.approx(
        first["lr"].iloc[0] * first["sharpness"].iloc[0]
    )


@pytest.mark.usefixtures("few_images")
def test_a_small_plan_runs_to_a_page_with_verdicts(tmp_path):
    whole = plan(TransferOptions("paper", seeds=2, epochs=2))
    kept = [j for j in whole.trainings if j.data == REFERENCE and j.model.startswith(("relu", "gelu"))]
    small = replace(whole, trainings=tuple(replace(j, train_size=60, sample=40, steps=2) for j in kept))
    driver = Driver(Store(tmp_path))
    runs = driver.perform(small.jobs(), train.WORK, "training")
    results = measure.measure(replace(small, contests=replace(small.contests, names=())), runs, driver)
    claims = judge(STATEMENTS, results.tables)
    texts = [section.title for section in page.sections(small, results, claims)]
    assert texts[-1] == "Verdicts C18 to C20"
    assert set(results.tables["constrained"]["body"]) == set(BODIES)


def test_the_quick_profile_computes_nothing_and_bad_numbers_are_refused():
    assert plan(TransferOptions("quick")).jobs() == ()
    with pytest.raises(ValueError, match="--seeds must be at least 1, not 0"):
        plan(TransferOptions("paper", seeds=0))


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda one: one.id)
def test_the_claims_can_go_either_way(statement):
    check_statement(statement)


def test_a_folder_of_images_is_one_more_data_set(tmp_path, few_images):
    from PIL import Image

    for name, level in (("cats", 40), ("dogs", 200)):
        (tmp_path / name).mkdir()
        for number in range(10):
            Image.new("RGB", (9, 7), (level, number, 0)).save(tmp_path / name / f"{number}.png")
    asked = plan(TransferOptions("paper", seeds=1, epochs=2, images=(str(tmp_path),)))
    own = [job for job in asked.trainings if job.data == str(tmp_path)]
    assert len(own) == 6
    ends = train.trained(replace(own[0], sample=16, steps=2)).tables["ends"]
    assert 0 <= ends["test_accuracy"].iloc[0] <= 100


def test_records_are_found_without_the_images_that_they_were_made_with(tmp_path, monkeypatch):
    monkeypatch.setenv("METRISCOPE_DATA", str(tmp_path))
    quick = plan(TransferOptions("quick"))
    driver = Driver(Store(tmp_path))
    results = measure.measure(
        replace(quick, contests=replace(quick.contests, names=())), driver.perform((), train.WORK, ""), driver
    )
    assert "cifar-10" in set(results.tables["constrained"]["data"])
