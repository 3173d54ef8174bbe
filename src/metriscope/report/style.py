"""One palette and one axes style for every plot, safe for color-blind readers.

Drawing never goes through pyplot: figures are plain objects, and nothing global is left behind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from metriscope.report.numbers import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["COLORS", "CYCLE", "figure", "legend", "log_axes", "settle", "tick"]

INK = "#20242a"
MUTED = "#59616b"
FAINT = "#c9cdd2"
GRID = "#e5e8eb"


class _Colors(Mapping[str, str]):
    """Colors by name: of every activation, of true values, and of published numbers."""

    own = MappingProxyType({"truth": INK, "published": "#8a2c6a"})

    def __getitem__(self, name: str) -> str:
        if name in self.own:
            return self.own[name]
        from metriscope.nn import ACTIVATIONS

        # Activations without their own color get one of the cycle, in the order of the table.
        return self._activations().get(name) or CYCLE[list(ACTIVATIONS).index(name) % len(CYCLE)]

    def __iter__(self) -> Iterator[str]:
        return iter((*self.own, *self._activations()))

    def __len__(self) -> int:
        return len(self.own) + len(self._activations())

    def _activations(self) -> dict[str, str]:
        # Loaded when a color is asked for: the table brings PyTorch along.
        from metriscope.nn import ACTIVATIONS

        return {name: row.color for name, row in ACTIVATIONS.items() if row.color}


COLORS: Mapping[str, str] = _Colors()
CYCLE = ("#0a5fae", "#d55e00", "#009e73", "#e69f00", "#56b4e9", INK)

# What a label that begins with an underscore is hidden behind, and the labels that matplotlib gives by itself.
_SHIELD = "\N{ZERO WIDTH SPACE}"
_OWN_LABEL = re.compile(r"_(child\d+|container\d+|nolegend_)")

RC: Mapping[str, Any] = MappingProxyType(
    {
        "axes.axisbelow": True,
        "axes.edgecolor": FAINT,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.labelcolor": MUTED,
        "axes.labelsize": 9.5,
        "axes.linewidth": 0.8,
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlesize": 10,
        "figure.facecolor": "none",
        "figure.labelsize": 9.5,
        "figure.titlesize": 10.5,
        "font.size": 9.5,
        "grid.color": GRID,
        "grid.linewidth": 0.7,
        "text.color": INK,
        "xtick.color": FAINT,
        "xtick.labelcolor": MUTED,
        "xtick.labelsize": 9,
        "ytick.color": FAINT,
        "ytick.labelcolor": MUTED,
        "ytick.labelsize": 9,
    }
)


def figure(
    width: float = 9.2, height: float = 3.6, rows: int = 1, columns: int = 1
) -> tuple[Figure, npt.NDArray[np.object_]]:
    """Return a figure of ``width`` x ``height`` inches and its rows x columns array of styled axes."""
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.rcsetup import cycler

    settings: Any = {**RC, "axes.prop_cycle": cycler(color=CYCLE)}
    with mpl.rc_context(settings):
        drawing = Figure(figsize=(width, height), layout="constrained")
        axes = drawing.subplots(rows, columns, squeeze=False)
    return drawing, np.asarray(axes, dtype=np.object_)


def legend(ax: Axes, place: str = "best", columns: int = 1) -> None:
    """Add a legend without a frame at ``place``, a name such as "upper right"."""
    looks: dict[str, Any] = {"frameon": False, "fontsize": 9, "labelcolor": INK, "handlelength": 1.6}
    with _underscores_shown(ax):
        made = ax.legend(**{"loc": place, "ncols": columns, **looks})
    for text in made.get_texts():
        text.set_text(text.get_text().removeprefix(_SHIELD))


@contextmanager
def _underscores_shown(ax: Axes) -> Iterator[None]:
    """Escape labels such as ``_act``: matplotlib omits labels that start with an underscore from legends."""
    artists: list[Any] = [*ax.get_children(), *ax.containers]
    labels = [(artist, artist.get_label()) for artist in artists]
    # The label of an axis is a text object; those that matplotlib gives itself stay out of the legend.
    named = [(a, s) for a, s in labels if isinstance(s, str) and s.startswith("_") and not _OWN_LABEL.fullmatch(s)]
    for artist, label in named:
        artist.set_label(_SHIELD + label)
    try:
        yield
    finally:
        for artist, label in named:
            artist.set_label(label)


def settle(drawing: Figure) -> None:
    """Move every title to the left, in bold.

    matplotlib reads the style of a title when the title is set, which is after ``figure`` has returned.
    """
    for ax in drawing.axes:
        text = ax.get_title(loc="left") or ax.get_title()
        ax.set_title("", loc="center")
        ax.set_title(text, loc="left", color=INK, fontsize=RC["axes.titlesize"], fontweight="bold", pad=8)


def log_axes(ax: Axes, which: str) -> None:
    """Make the axes named in ``which`` ("x", "y" or "xy") logarithmic, with tick labels in plain text."""
    for name in which:
        if name not in "xy":
            raise ValueError(f"logarithmic axes are 'x', 'y' or 'xy', got {which!r}")
        axis = ax.xaxis if name == "x" else ax.yaxis
        (ax.set_xscale if name == "x" else ax.set_yscale)("log")
        # TeX-like labels are placed glyph by glyph for one font; plain text stays right in any font.
        axis.set_major_formatter(lambda value, _: tick(value))
        axis.set_minor_formatter(partial(_minor_tick, axis))


def tick(value: float) -> str:
    """Return a tick label: plain where it is short, otherwise as a power of ten.

    >>> tick(0.01), tick(1.0), tick(1e-6), tick(2e-6)
    ('0.01', '1', '10⁻⁶', '2 × 10⁻⁶')
    """
    if not 1e-3 < abs(value) < 1e4:
        mantissa, _, exponent = number(value, 1).partition(" × ")
        return f"{mantissa} × {exponent}".removeprefix("1 × ") if exponent else mantissa
    return f"{value:,.10g}".replace("-", "−")


def _minor_tick(axis: Axis, value: float, _: object) -> str:
    """Return labels between powers of ten only where the axis spans too few of them to be read."""
    low, high = sorted(axis.get_view_interval())
    if low <= 0 or math.log10(high / low) > 1.5:
        return ""
    leading = round(value / 10 ** math.floor(math.log10(value) + 1e-9))
    return tick(value) if leading in (2, 5) else ""
