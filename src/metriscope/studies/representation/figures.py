"""What the figures of all experiments share: a color per network, and the family that it belongs to."""

from __future__ import annotations

from metriscope.report.style import COLORS, CYCLE, INK

__all__ = ["FAMILIES", "color", "family"]

VIOLET = "#7a5195"
STEMS = {
    "relu": COLORS["relu"], "abs": COLORS["abs"], "relu2": CYCLE[3], "abs2": CYCLE[4],
    "relu2-neg": CYCLE[2], "abs2-neg": VIOLET, "relu-l2": COLORS["relu"], "abs-l2": COLORS["abs"],
    "relu-l2-neg": CYCLE[2], "abs-l2-neg": VIOLET,
}  # fmt: skip
FAMILIES = {"no bias": "Linear head, no bias", "bias": "Linear head with bias", "l2": "OffsetL2 head"}


def family(network: str) -> str:
    """Return which of the paper's three families a network belongs to.

    >>> family("abs2-neg"), family("relu-bias"), family("abs-l2")
    ('no bias', 'bias', 'l2')
    """
    return "l2" if "-l2" in network else "bias" if "-bias" in network else "no bias"


def color(network: str) -> str:
    """Return a network's color: the same with and without bias."""
    return STEMS.get(network.removesuffix("-bias"), INK)
