"""The geometry of networks on a plane, live: one HTML page that paints distances from wherever the pointer is."""

from __future__ import annotations

from metriscope.report.explorer.scene import Scene
from metriscope.report.explorer.web_page import explorer_page

__all__ = ["Scene", "explorer_page"]
