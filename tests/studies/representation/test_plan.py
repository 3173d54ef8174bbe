import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.nn import ARCHITECTURES
from metriscope.runs.address import address
from metriscope.studies.representation import OPTIONS, plan
from metriscope.studies.representation.spec import MODELS, PLAIN, Part, Training, seconds


def test_the_paper_profile_is_the_papers_protocol():
    paper = plan("paper")
    assert (paper.data, paper.train_size, paper.epochs, paper.seeds) == ("mnist", 60_000, 5_000, 20)
    assert paper.parts == (Part(MODELS, "raw"),)
    assert len(paper.trainings(paper.parts[0])) == 320
    assert paper.trainings(paper.parts[0])[0].lr == 1e-3
    assert paper.deviations() == ()


def test_the_study_has_every_network_there_is():
    assert set(MODELS) == set(ARCHITECTURES)
    assert len(MODELS) == 16


def test_quick_says_what_it_shortens():
    quick = plan("quick")
    text = " ".join(quick.deviations())
    assert "4,000 training images of `mnist-5k` in place of MNIST's 60,000." in text
    assert f"{quick.epochs:,} epochs in place of 5,000" in text
    assert "3 seeds in place of 20." in text
    assert "Normalized pixels for abs, relu, abs2, relu2, abs2-neg, relu2-neg." in text


def test_what_is_left_out_is_said():
    text = plan("paper", models=("abs",), train_size=1_000).deviations()
    assert text[0] == "1,000 of MNIST's 60,000 training images."
    assert text[1].startswith("On raw pixels, not run: relu, abs2,")
    assert plan("paper", pixels="unit").deviations()[0] == "Unit pixels for all sixteen networks."


def test_options_scale_every_part():
    asked = plan("quick", models=("relu-l2", "abs"), seeds=2, epochs=7, train_size=50, seed=3)
    assert asked.parts == (Part(("abs", "relu-l2"), "raw"), Part(("abs",), "normalized"))
    first = asked.trainings(asked.parts[0])
    assert [(t.model, t.number) for t in first] == [("abs", 0), ("relu-l2", 0), ("abs", 1), ("relu-l2", 1)]
    assert {(t.epochs, t.train_size, t.seed) for t in first} == {(7, 50, 3)}
    assert plan("quick", pixels="normalized", models=("relu-l2",)).parts == (Part(("relu-l2",), "normalized"),)


@given(st.integers(1, 30), st.integers(1, 30), st.sets(st.sampled_from(MODELS), min_size=1))
def test_a_trainings_address_does_not_depend_on_what_else_is_asked(few, many, models):
    alone, company = plan("paper", seeds=few, models=tuple(models)), plan("paper", seeds=many)
    here, there = ({address(t) for t in p.trainings(p.parts[0])} for p in (alone, company))
    assert len(here & there) == min(few, many) * len(models)


def test_what_ends_otherwise_has_another_address():
    base = ("abs", 0, "mnist", 60_000, "raw", 5_000)
    others = [("relu", *base[1:]), ("abs", 1, *base[2:]), (*base[:4], "unit", 5_000), (*base[:5], 50_000), (*base, 1)]
    assert len({address(Training(*fields)) for fields in (base, *others)}) == len(others) + 1


@pytest.mark.parametrize(("text", "span"), [("2h", 7200), ("30m", 1800), ("90s", 90), ("0.5m", 30), (" 1h ", 3600)])
def test_a_budget_is_a_span_of_time(text, span):
    assert seconds(text) == span
    assert plan("quick", budget=text).budget == span


def test_profile_and_forms_leave_shared_trainings_alike():
    quick = plan("quick")
    assert quick.trainings(Part(PLAIN))[0] == plan("quick", pixels="raw", models=PLAIN).trainings(Part(PLAIN))[0]
    assert sorted(OPTIONS) == ["budget", "epochs", "models", "pixels", "seed", "seeds", "train_size"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"profile": "slow"}, "unknown profile 'slow': there are paper, quick"),
        ({"models": ("tanh",)}, "unknown model 'tanh': there are abs, relu"),
        ({"models": ()}, "--models needs at least one name"),
        ({"pixels": "grey"}, "unknown form of pixels 'grey': there are raw, normalized, unit"),
        ({"seeds": 0}, "--seeds must be at least 1, not 0"),
        ({"epochs": -1}, "--epochs must be at least 1, not -1"),
        ({"train_size": 1}, "--train-size must be at least 2, not 1"),
        ({"train_size": 4_001}, "--train-size must be at most the 4,000 images of mnist-5k, not 4,001"),
        ({"budget": "soon"}, "--budget must be a time such as 2h, 30m or 90s, not 'soon'"),
        ({"budget": "0s"}, "--budget must be a time"),
        ({"trials": 3}, "has no option 'trials': it takes budget, epochs"),
    ],
)
def test_a_bad_request_is_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)
