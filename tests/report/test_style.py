from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest

from metriscope.report import style

# Full loss of one kind of cone, on linear RGB (Machado, Oliveira and Fernandes 2009).
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(color):
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    scaled = XYZ @ np.clip(rgb, 0, 1) / XYZ.sum(axis=1)
    f = np.where(scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def least_difference(colors, sight):
    seen = [lab(np.array(SIGHT[sight]) @ linear(color)) for color in colors]
    return min(np.linalg.norm(a - b) for a, b in combinations(seen, 2))


@pytest.mark.parametrize("sight", SIGHT)
def test_named_colors_stay_apart_for_every_kind_of_sight(sight):
    # A difference of 2.3 is just noticeable; ten times that is told apart in thin lines.
    assert least_difference(style.COLORS.values(), sight) > 23
    assert least_difference(style.CYCLE, sight) > 15


@pytest.mark.parametrize("name", style.COLORS)
def test_named_colors_stand_out_on_white(name):
    luminance = XYZ[1] @ linear(style.COLORS[name])
    assert 1.05 / (luminance + 0.05) >= 3  # WCAG 2.2, 1.4.11: graphical objects


def test_the_axes_come_as_rows_by_columns():
    drawing, axes = style.figure(6, 4, 2, 3)
    assert axes.shape == (2, 3)
    assert tuple(drawing.get_size_inches()) == (6, 4)


def test_a_figure_leaves_no_setting_behind():
    # Asking for the backend would choose one, so it alone is not asked.
    names = [name for name in mpl.rcParams if name != "backend"]
    before = [mpl.rcParams[name] for name in names]
    style.figure()
    assert [mpl.rcParams[name] for name in names] == before


def test_titles_settle_to_the_left_in_bold():
    drawing, axes = style.figure()
    axes[0, 0].set_title("Loss")
    style.settle(drawing)
    style.settle(drawing)
    assert (axes[0, 0].get_title(), axes[0, 0].get_title(loc="left")) == ("", "Loss")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.01, "0.01"),
        (1.0, "1"),
        (1000.0, "1,000"),
        (1e-6, "10⁻⁶"),
        (2e-6, "2 × 10⁻⁶"),
        (-0.5, "−0.5"),
        (0.001, "0.001"),
        (1e5, "100,000"),
        (1e6, "10⁶"),
    ],
)
def test_tick_labels_are_short_and_plain(value, expected):
    assert style.tick(value) == expected


@pytest.mark.parametrize(("top", "expected"), [(5.5, ["1", "2", "5"]), (2e4, ["1", "10", "100", "1,000", "10,000"])])
def test_a_log_axis_is_labeled_between_powers_only_when_short(top, expected):
    drawing, axes = style.figure(9, 3)
    ax = axes[0, 0]
    ax.plot([0.9, top], [1, 2])
    style.log_axes(ax, "x")
    ax.set_xlim(0.9, top)
    drawing.draw_without_rendering()
    labels = [(label.get_position()[0], label.get_text()) for label in ax.get_xticklabels(which="both")]
    assert [text for place, text in sorted(labels) if text and 0.9 <= place <= top] == expected


def test_an_unknown_axis_is_refused():
    _, axes = style.figure()
    with pytest.raises(ValueError, match="'x', 'y' or 'xy', got 'z'"):
        style.log_axes(axes[0, 0], "z")


def test_a_legend_shows_every_name_also_those_that_begin_with_an_underscore():
    drawing, axes = style.figure()
    ax = axes[0, 0]
    ax.plot([0, 1], label="_act")
    ax.plot([0, 1])
    ax.hist([1, 2], label="__bars")
    ax.plot([0, 1], label=" spaced")
    ax.fill_between([0, 1], [1, 2], label="net._act")
    for _ in range(2):
        style.legend(ax)
        drawing.draw_without_rendering()
        shown = [text.get_text() for text in ax.get_legend().get_texts()]
        assert sorted(shown) == [" spaced", "__bars", "_act", "net._act"]
    assert ax.lines[0].get_label() == "_act"
