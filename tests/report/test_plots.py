import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metriscope.report import plots, style, to_svg
from metriscope.report.numbers import mean_interval

BOX = (-1.0, 2.0, -3.0, 1.0)
finite = st.floats(-10, 10)


@pytest.fixture
def ax():
    return style.figure(4, 3)[1][0, 0]


def lines(ax, marker):
    return [line for line in ax.lines if line.get_marker() == marker]


def test_a_band_shows_the_median_and_the_extremes(ax):
    samples = np.arange(11.0)[:, None] * np.array([1.0, 2.0])
    plots.band(ax, [0, 1], samples, "runs", "#000000")
    low, high, middle = (line.get_ydata() for line in ax.lines)
    np.testing.assert_allclose([low, middle, high], [[0, 0], [5, 10], [10, 20]])
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == (1.0, 18.0)


def test_a_band_needs_one_position_a_column(ax):
    with pytest.raises(ValueError, match="x has 3 positions, the samples have 2 columns"):
        plots.band(ax, [0, 1, 2], np.zeros((4, 2)), "runs", "#000000")


def test_a_band_takes_log_axes(ax):
    plots.band(ax, [1, 10], np.ones((2, 2)), "runs", "#000000", log="xy")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


def test_quantiles_leave_out_seeds_without_a_value():
    samples = np.array([[1.0, np.nan, np.nan], [3.0, 7.0, np.nan]])
    np.testing.assert_array_equal(plots.quantiles(samples, (0.5,)), [[2.0, 7.0, np.nan]])


def test_a_strip_shows_every_run_its_mean_and_the_published_value(ax):
    groups = {"abs": [1.0, 1.0, 2.0, 3.0, 3.0], "relu": [4.0, np.nan, 6.0], "none": []}
    plots.strip(ax, groups, {"abs": style.COLORS["abs"]}, {"abs": (2.5, 2.0, 3.0), "relu": None})
    dots = lines(ax, "o")
    np.testing.assert_array_equal(dots[0].get_xdata(), groups["abs"])
    assert dots[1].get_xdata()[0] == 2.0
    (diamond,) = lines(ax, "D")
    assert diamond.get_xdata()[0] == 2.5
    assert diamond.get_markerfacecolor() == "white"
    assert [label.get_text() for label in ax.get_yticklabels()] == list(groups)
    assert any(
        np.allclose(line.get_xdata(), mean_interval(groups["abs"])[1:])
        for line in ax.lines
        if len(line.get_xdata()) == 2
    )


def test_fewer_than_five_runs_have_their_range_in_place_of_an_interval(ax):
    plots.strip(ax, {"few": [1.0, 2.0, 6.0, 3.0]})
    assert [list(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) == 2] == [[1.0, 6.0]]


def test_equal_runs_are_spread_apart_and_always_alike(ax):
    plots.strip(ax, {"abs": np.ones(20)})
    heights = lines(ax, "o")[0].get_ydata()
    assert len(np.unique(heights)) == 20
    assert np.abs(heights).max() < 0.3
    np.testing.assert_array_equal(heights, plots._spread(20))


@given(hnp.arrays(float, 2, elements=finite), finite)
def test_a_clipped_line_lies_on_the_hyperplane_and_in_the_box(weight, bias):
    if np.linalg.norm(weight) < 1e-3:
        return
    ends = plots.clip_line(weight, bias, BOX)
    corners = np.array([[x, y] for x in BOX[:2] for y in BOX[2:]]) @ weight + bias
    if ends is None:
        # No crossing means that all four corners are on one side.
        assert corners.max() <= 1e-9 or corners.min() >= -1e-9
        return
    np.testing.assert_allclose(ends @ weight + bias, 0, atol=1e-6)
    assert (ends >= np.array([-1, -3]) - 1e-6).all()
    assert (ends <= np.array([2, 1]) + 1e-6).all()
    assert corners.max() >= -1e-9 >= corners.min() - 2e-9


@pytest.mark.parametrize(("weight", "bias"), [([0.0, 0.0], 1.0), ([1.0, 0.0], -5.0), ([1.0, 1.0], -9.0)])
def test_a_line_outside_the_box_is_not_drawn(weight, bias):
    assert plots.clip_line(weight, bias, BOX) is None


def test_hyperplanes_and_distances_are_drawn_over_the_points(ax):
    points = np.random.default_rng(0).normal([3.0, -2.0], size=(200, 2))
    weight, bias = np.eye(2), np.array([-3.0, 2.0])
    plots.scatter_with_hyperplanes(
        ax, points, weight, bias, lambda p: np.linalg.norm(p @ weight.T + bias, axis=1), "Abs"
    )
    vertical, horizontal = (line for line in ax.lines if len(line.get_xdata()) == 2)
    np.testing.assert_allclose(vertical.get_xdata(), 3.0)
    np.testing.assert_allclose(horizontal.get_ydata(), -2.0)
    (mean,) = lines(ax, "X")
    np.testing.assert_allclose(mean.get_xydata()[0], points.mean(axis=0))
    circle = next(path for c in ax.collections for path in c.get_paths() if len(path.vertices))
    np.testing.assert_allclose(np.linalg.norm(circle.vertices - [3, -2], axis=1), 1.0, atol=0.01)


def test_a_distance_that_never_reaches_one_is_drawn_without_contours(ax):
    plots.scatter_with_hyperplanes(ax, [[0, 0], [1, 1]], [[0, 0]], [0], lambda p: np.full(len(p), 7.0), "flat")
    assert len(ax.collections) == 0


def test_points_must_lie_on_a_plane(ax):
    with pytest.raises(ValueError, match=r"shape \(N, 2\), got \(4, 3\)"):
        plots.scatter_with_hyperplanes(ax, np.zeros((4, 3)), [[0, 0]], [0], lambda p: p[:, 0], "")


def test_lost_values_sit_on_the_floor_of_the_identity_plot(ax):
    plots.identity_scatter(ax, [0.01, 0.1, 1.0], [[0.0, 0.1, 1.0], [0.01, 0.2, 1.0]], "abs")
    (shown,), (lost,) = lines(ax, "o"), lines(ax, "v")
    assert len(shown.get_xdata()) == 5
    np.testing.assert_array_equal(lost.get_xdata(), [0.01])
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")


@pytest.mark.parametrize("estimate", [[0.0, 0.0], [2.0, 2.0], [np.nan, 1.0]])
def test_an_identity_plot_of_little_is_still_drawn(ax, estimate):
    plots.identity_scatter(ax, [2.0, 2.0], estimate)
    assert to_svg(ax.figure, "little").startswith("<svg")


def test_a_spectrum_falls_whatever_the_order_given(ax):
    plots.spectrum(ax, [[1.0, 3.0, 2.0], [2.0, 1.0, 3.0]], "abs", "#000000", reference=[1.0, 2.0, 1.5])
    reference, median = (line.get_ydata() for line in ax.lines)
    np.testing.assert_array_equal(median, [3, 2, 1])
    np.testing.assert_array_equal(reference, [2, 1.5, 1])


def test_a_reference_may_be_one_number(ax):
    plots.spectrum(ax, np.ones((3, 4)), "abs", "#000000", reference=1.0)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.ones(4))
