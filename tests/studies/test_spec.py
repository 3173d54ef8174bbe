import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.runs.address import address
from metriscope.studies.mahalanobis.spec import GROUP, PAPER, PROFILES, plan


def test_the_paper_profile_is_the_papers_protocol():
    sizes = plan("paper").sizes
    assert {d: (s.samples, s.epochs, s.trials) for d, s in sizes.items()} == {
        2: (1_000, 10_000, 20),
        10: (1_000, 50_000, 20),
        100: (10_000, 250_000, 20),
    }
    group = plan("paper").groups(2, "random")[0]
    assert (group.lr, group.betas) == (1e-3, (0.9, 0.99))
    assert plan("paper").deviations() == ()


def test_quick_runs_2_d_at_full_protocol_and_says_what_it_shortens():
    quick = plan("quick")
    assert quick.sizes[2] == PAPER[2]
    text = " ".join(quick.deviations())
    assert "10-D" in text
    assert "100-D" in text
    assert "2-D:" not in text.replace("10-D:", "").replace("100-D:", "")


@given(st.integers(1, 50))
def test_groups_hold_every_trial_once_in_order(trials):
    groups = plan("quick", dims=(2,), trials=trials).groups(2, "random")
    assert [t for g in groups for t in g.trials] == list(range(trials))
    assert all(len(g.trials) <= GROUP for g in groups)


def test_more_trials_leave_the_addresses_of_full_groups_as_they_are():
    few, many = (plan("quick", dims=(2,), trials=n).groups(2, "random") for n in (8, 20))
    assert [address(g) for g in few] == [address(g) for g in many[:2]]


def test_profiles_share_a_group_when_they_ask_for_the_same():
    assert plan("quick").groups(2, "random") == plan("paper").groups(2, "random")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": -1}, "--trials must be at least 1, not -1"),
        ({"trials": 0}, "--trials must be at least 1, not 0"),
        ({"epochs": 0}, "--epochs must be at least 1, not 0"),
        ({"samples": 1}, "--samples must be at least 2, not 1"),
        ({"dims": (0,)}, "--dims must be 1 or more, not 0"),
        ({"dims": (2, -3)}, "--dims must be 1 or more, not -3"),
        ({"activations": ("tanh",)}, "unknown activation 'tanh': there are abs, relu, sigmoid"),
        ({"profile": "slow"}, "unknown profile 'slow': there are paper, quick"),
        ({"batches": 3}, "no option 'batches'"),
    ],
)
def test_a_bad_request_is_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        plan(**options)


def test_a_dimension_that_is_not_in_the_paper_runs_as_the_next_larger_one():
    assert plan("paper", dims=(3, 500)).sizes == {3: PAPER[10], 500: PAPER[100]}
    assert set(PROFILES["quick"]) == set(PAPER)
