"""An interactive HTML page of networks on a plane: it colors regions by distance from the one at the pointer."""

from __future__ import annotations

from metriscope.report.explorer.scene import Scene
from metriscope.report.explorer.web_page import explorer_page

__all__ = ["Scene", "explorer_page"]
