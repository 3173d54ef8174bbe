"""Figures to try in a browser: a control changes the numbers, and what they show is what Python computes."""

import numpy as np
import pytest
import torch

from browser.test_axe import opened  # noqa: F401
from metriscope.nn import Mahalanobis
from metriscope.report import Claim, Front, FrontStudy
from metriscope.report.front import render_front
from metriscope.report.theory import (
    Cloud,
    CountedPair,
    PerturbedNetwork,
    StartInPlane,
    kernel_scale,
    lost_direction,
    perturbation,
)
from metriscope.vq.measures.heat import cosine_from_counts

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

RECIPE = {"epochs": 500, "lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-8}
MEAN, COV = np.array([1.0, -2.0]), np.array([[1.0, 0.4], [0.4, 0.5]])
POINTS = MEAN + np.random.default_rng(0).normal(size=(200, 2)) @ np.linalg.cholesky(COV).T
WEIGHT, BIAS = np.array([[1.0, 0.2], [-0.3, 0.9]]), np.array([2.5, 5.0])
ALIKE = StartInPlane("both alike", np.ones((2, 2)), np.array([1.0, 1.2]))
COUNTS = np.random.default_rng(1).integers(1, 99, (2, 9, 13))
LEVELS = {"scale": [0.1, 1.0, 10.0], "clip": [0.1, 1.0], "offset": [-1.0, 0.0, 0.5, 1.0]}
RIGHT = {"scale": [40, 90, 70], "clip": [50, 90], "offset": [10, 90, 60, 20]}


def panels():
    cloud = Cloud.of(MEAN, COV, POINTS)
    bounds = {"theory": 0.2, "exact": 0.02, "lost": 0.1}
    pairs = [CountedPair(f"{name} pair", name, counts, 0.5) for name, counts in zip("ab", COUNTS, strict=True)]
    forms = {"distance": ("exp(−d / σ²)", 0.1, 100.0), "squared": ("exp(−d² / σ²)", 0.1, 1_000.0)}
    one = {kind: np.array([right, [90] * len(right)]) for kind, right in RIGHT.items()}
    every = {kind: np.array(right) - 5 for kind, right in RIGHT.items()}
    network = PerturbedNetwork("relu", "ReLU", "relu", 90, one, every, {"offset": [(0.5, 61.0)]})
    return (
        lost_direction(cloud, [StartInPlane("apart", WEIGHT, BIAS), ALIKE], RECIPE, bounds, "Words <&>."),
        kernel_scale(pairs, ("one", "two"), forms, "Words."),
        perturbation([network], LEVELS, 100, "Words."),
    )


def first_page():
    claim = Claim("C01", "A claim.", "Oursland 2025", "undecided", "Because.", study="one")
    study = FrontStudy("one", "First", "Is it so?", (), (claim,), "metriscope reproduce one", panels=panels())
    return render_front(Front("Title", "Trust.", (study,), ledger=(claim,)))


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    file = tmp_path_factory.mktemp("theory") / "report.html"
    file.write_text(first_page(), encoding="utf-8")
    return {"report": file.as_uri()}


@pytest.fixture
def visit(opened):  # noqa: F811
    heard = []

    def unfolded(**settings):
        page = opened("report", **settings)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        assert page.locator(".theory svg").count() == 0, "nothing is built before it is opened"
        page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        page.wait_for_function("() => Object.keys(metriscopeTheory).length === 3")
        return page

    yield unfolded
    assert heard == []


def ask(page, name, *given):
    panel, method = name.split(".")
    return page.evaluate(f"given => metriscopeTheory['{panel}'].{method}(...given)", list(given))


def trained(weight, bias, steps):
    """Return the loss of the same network, trained by PyTorch in the same precision."""
    model = Mahalanobis(2, 2, "abs").double()
    model.load_state_dict({"linear.weight": torch.tensor(weight), "linear.bias": torch.tensor(bias)})
    cloud = Cloud.of(MEAN, COV, POINTS)
    # The page holds whitened points in single precision.
    z = torch.from_numpy(cloud.whitened.astype(np.float32).astype(np.float64))
    turn = torch.tensor([[np.cos(cloud.angle), -np.sin(cloud.angle)], [np.sin(cloud.angle), np.cos(cloud.angle)]])
    x = torch.from_numpy(MEAN) + (z * torch.from_numpy(cloud.deviations.copy())) @ turn.T
    y, optimizer = z.norm(dim=1), torch.optim.Adam(model.parameters(), lr=RECIPE["lr"], betas=RECIPE["betas"])
    for _ in range(steps):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return float((model(x) - y).square().mean().detach())


def test_the_network_in_the_page_learns_as_it_does_in_pytorch(visit):
    page = visit()
    found = ask(page, "lost-direction.train", 300)
    assert found["loss"] == pytest.approx(trained(WEIGHT, BIAS, 300), rel=1e-6)
    assert ask(page, "lost-direction.state")["step"] == 300
    assert min(found["measured"]) > 0.5


def test_units_that_begin_alike_lose_a_direction(visit):
    page = visit()
    page.get_by_role("radio", name="both alike").check()
    found = ask(page, "lost-direction.train", 500)
    assert found["loss"] == pytest.approx(trained(ALIKE.weight, ALIKE.bias, 500), rel=1e-6)
    assert found["measured"][1] < 0.1
    assert "does not measure one direction" in page.locator("#figure-lost-direction .told").inner_text()


def test_dragging_a_dot_moves_the_gaussian_and_keys_move_a_unit(visit):
    page = visit()
    before = ask(page, "lost-direction.state")
    dot = page.get_by_role("slider", name="mean of the Gaussian")
    dot.scroll_into_view_if_needed()
    box = dot.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 40, y)
    page.mouse.up()
    after = ask(page, "lost-direction.state")
    assert after["mean"][0] > before["mean"][0]
    assert after["start"] == before["start"]
    page.get_by_role("slider", name="line of unit 1").focus()
    page.keyboard.press("ArrowUp")
    moved = ask(page, "lost-direction.state")["start"]
    assert moved[2] != before["start"][2]
    assert [moved[:2], moved[3:]] == [before["start"][:2], before["start"][3:]]


@pytest.mark.parametrize("form", ["distance", "squared"])
def test_the_cosine_at_any_scale_is_that_of_python(visit, form):
    page = visit()
    for scale in (0.3, 7.0, 500.0):
        expected = [cosine_from_counts(counts, scale, form)[0] for counts in COUNTS]
        np.testing.assert_allclose(ask(page, "kernel-scale.cosines", form, scale), expected, rtol=1e-12)


def test_the_slider_moves_the_scale_and_the_words_follow(visit):
    page = visit()
    slider = page.get_by_role("slider", name="σ²")
    seen = []
    for key in ("Home", "End"):
        slider.press(key)
        told = ask(page, "kernel-scale.state")
        seen.append(told["scale"])
        expected = [f"{cosine_from_counts(counts, told['scale'])[0]:.3f}" for counts in COUNTS]
        assert page.locator("#figure-kernel-scale tbody td:nth-child(2)").all_inner_texts() == expected
    assert seen == pytest.approx([0.1, 100.0])


def test_accuracy_is_as_measured_and_straight_between_levels(visit):
    page = visit()
    cases = [
        ({"kind": "offset", "many": "all", "level": 0.5}, 55),
        ({"kind": "offset", "many": "all", "level": 0.25}, 70),
        ({"kind": "offset", "many": "one", "unit": 0, "level": -0.5}, 50),
        ({"kind": "offset", "many": "one", "unit": 1, "level": -0.5}, 90),
    ]
    for change, expected in cases:
        assert ask(page, "perturbation.set", change) == pytest.approx(expected)
        assert page.locator("#figure-perturbation .answer b").inner_text() == f"{expected:.1f} %"
    page.get_by_role("radio", name="scale").check()
    page.get_by_role("slider", name="level").press("Home")
    assert page.locator("#figure-perturbation .answer b").inner_text() == "90.0 %"


def test_a_phone_shows_all_of_it_and_words_stand_beside_each(visit):
    page = visit(viewport={"width": 360, "height": 800}, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(".in-words").count() == 3
    assert "Words <&>." in page.locator(".in-words").first.inner_text()
