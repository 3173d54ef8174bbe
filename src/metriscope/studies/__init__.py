"""Studies: what to run, what the paper printed, how the verdict is reached."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from metriscope.studies.contract import Study

__all__ = ["STUDIES", "study"]

# Name -> the module that fulfils `contract.Study`; loaded when it is asked for.
STUDIES = {
    "mahalanobis": "metriscope.studies.mahalanobis",
    "representation": "metriscope.studies.representation",
    "vq": "metriscope.studies.vq",
}


def study(name: str) -> Study:
    """Return the study of that name, or say which there are."""
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}: there is {', '.join(STUDIES)}")
    return cast("Study", import_module(STUDIES[name]))
