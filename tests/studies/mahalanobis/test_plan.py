import pytest
from hypothesis import given
from hypothesis import strategies as st

from metriscope.runs.address import address
from metriscope.studies.mahalanobis.plan import GROUP, PAPER, PROFILES, MahalanobisOptions, plan


def asked(profile="quick", **options):
    return plan(MahalanobisOptions(profile, **options))


def test_the_paper_profile_is_the_papers_protocol():
    sizes = asked("paper").sizes
    assert {d: (s.samples, s.epochs, s.trials) for d, s in sizes.items()} == {
        2: (1_000, 10_000, 20),
        10: (1_000, 50_000, 20),
        100: (10_000, 250_000, 20),
    }
    job = asked("paper").jobs()[0]
    assert (job.recipe.lr, job.recipe.betas, job.study) == (1e-3, (0.9, 0.99), "mahalanobis")
    assert asked("paper").deviations() == ()
    assert all(asked("paper").protocol(dim) and asked("paper").length(dim) == 1 for dim in (2, 10, 100))


def test_quick_runs_2_d_at_full_protocol_and_says_what_it_shortens():
    quick = asked()
    assert quick.sizes[2] == PAPER[2]
    text = " ".join(quick.deviations())
    assert "10-D: 10,000 epochs in place of 50,000, 8 trials in place of 20." in text
    assert "100-D" in text
    assert "2-D:" not in text.replace("10-D:", "").replace("100-D:", "")
    assert [quick.protocol(dim) for dim in (2, 10, 100)] == [True, False, False]
    assert [quick.length(dim) for dim in (2, 10, 100)] == [1.0, 0.2, 0.0004]


def test_quick_runs_further_gaussians_at_full_length_so_that_there_is_something_to_judge():
    quick = asked()
    assert all(quick.protocol(dim, 1) and quick.length(dim, 1) == 1 for dim in (2, 10))
    further = {(job.task.dim, job.task.gaussian) for job in quick.jobs() if job.task.gaussian}
    assert further == {(dim, number) for dim in (2, 10) for number in (1, 2, 3, 4)}


@given(st.integers(1, 50))
def test_groups_hold_every_trial_once_in_order(trials):
    groups = asked(dims=(2,), trials=trials).group(2, "random")
    assert [t for g in groups for t in g.trials] == list(range(trials))
    assert all(len(g.trials) <= GROUP for g in groups)


def test_every_job_has_an_address_of_its_own():
    jobs = asked("paper").jobs()
    assert len({address(job) for job in jobs}) == len(jobs)


def test_more_trials_leave_the_addresses_of_full_groups_as_they_are():
    few, many = (asked(dims=(2,), trials=n).group(2, "random") for n in (8, 20))
    assert [address(g) for g in few] == [address(g) for g in many[:2]]


def test_profiles_share_a_job_when_they_ask_for_the_same():
    assert asked().group(2, "random") == asked("paper", start="own").group(2, "random")
    assert asked(start="author").group(2, "random") == asked("paper").group(2, "random")


def test_the_published_gaussian_is_the_default_of_the_paper_profile_alone():
    assert asked("paper").task(2).author
    assert not asked("paper", trials=4).task(2, gaussian=1).author
    assert not asked("paper", dims=(3,)).task(3).author
    assert not asked().task(2).author


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": -1}, "--trials must be at least 1, not -1"),
        ({"trials": 0}, "--trials must be at least 1, not 0"),
        ({"start": "theirs"}, "--start must be author or own, not 'theirs'"),
        ({"epochs": 0}, "--epochs must be at least 1, not 0"),
        ({"samples": 1}, "--samples must be at least 2, not 1"),
        ({"dims": (0,)}, "--dims must be 1 or more, not 0"),
        ({"dims": (2, -3)}, "--dims must be 1 or more, not -3"),
        ({"dims": ()}, "--dims and --activations need at least one value each"),
        ({"activations": ("tanh",)}, "unknown activation 'tanh': there are abs, relu, sigmoid"),
        ({"profile": "slow"}, "unknown profile 'slow': there are paper, quick"),
    ],
)
def test_a_bad_request_is_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        asked(**options)


@pytest.mark.parametrize(("dim", "like"), [(1, 2), (3, 2), (5, 10), (11, 10), (30, 10), (33, 100), (500, 100)])
def test_a_dimension_that_is_not_in_the_paper_runs_as_the_nearest_in_log_scale(dim, like):
    assert asked("paper", dims=(dim,)).sizes == {dim: PAPER[like]}
    assert asked("paper", dims=(dim,)).deviations() == (f"{dim}-D is not in the paper; it runs as {like}-D does.",)
    assert set(PROFILES["quick"]) == set(PAPER)


def test_options_scale_further_gaussians_too():
    small = asked(dims=(10,), trials=2, epochs=30)
    assert (small.size(10, 1).trials, small.size(10, 1).epochs) == (2, 30)
