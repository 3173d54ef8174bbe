"""What a study is: a package with the same six modules, each with one job.

- ``plan``: options and jobs, as frozen dataclasses; imports nothing slow, so that invalid options are rejected
  immediately.
- ``train``: what a job computes.
- ``measure``: turns stored runs into tidy tables and arrays.
- ``judge``: the claims, as criteria on those tables.
- ``figures``: draws the tables.
- ``page``: arranges tables, figures and verdicts in sections of the report.

Each further experiment of a study has a module of its own, in this order: what it computes, what it measures, its
criteria, its figures, its part of the page. If that is more than 400 lines, criteria, figures and page are in a second
module, ``<experiment>_page``. Specifications that would make ``plan`` too long are in ``experiments`` (and
``networks``), which import nothing slow either. Data flows one way, from ``plan`` to ``page``: nothing trains in
``measure``, and nothing measures in ``figures`` or ``page``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from metriscope.studies import STUDIES

if TYPE_CHECKING:
    import pandas as pd

    from metriscope.report import Claim, Section
    from metriscope.runs import Driver, Finished, Work
    from metriscope.studies.verdicts import Statement

__all__ = ["Announce", "Study", "StudyPlan", "StudyResults", "given_numbers", "study"]

Announce = Callable[[str], None]


class StudyPlan(Protocol):
    """Everything one call of a study will compute."""

    def jobs(self) -> Sequence[Any]:
        """Return the trainings as frozen dataclasses, in the order in which they should be done."""


class StudyResults(Protocol):
    """What was measured: tables for the judge, and all other plain data that figures and pages show."""

    @property
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """Tidy tables by name. A column ``protocol`` says whether a row is from the source's own protocol."""


class PlanModule(Protocol):
    """The module ``plan``: ``TIMES`` says how long each profile takes, ``OPTIONS`` is the class of its options."""

    TITLE: str
    TIMES: Mapping[str, str]
    OPTIONS: type[Any]

    def plan(self, options: Any) -> StudyPlan:
        """Return what would be run, or raise ValueError with one clear sentence."""


class TrainModule(Protocol):
    """The module ``train``."""

    WORK: Work


class MeasureModule(Protocol):
    """The module ``measure``."""

    def measure(self, plan: Any, runs: Finished, driver: Driver) -> StudyResults:
        """Return what the finished runs show; expensive measurements are jobs of the driver too, and are stored."""


class JudgeModule(Protocol):
    """The module ``judge``."""

    STATEMENTS: tuple[Statement, ...]


class PageModule(Protocol):
    """The module ``page``: ``QUESTION`` opens the study on the first page, ``HIGHLIGHTS`` names its figures there."""

    QUESTION: str
    HIGHLIGHTS: tuple[str, ...]

    def sections(self, plan: Any, results: Any, claims: tuple[Claim, ...]) -> tuple[Section, ...]:
        """Return the study's part of the report."""


@dataclass(frozen=True)
class Study:
    """A study by name; each of its modules is imported when it is first used."""

    name: str
    package: str

    @property
    def plan(self) -> PlanModule:
        """Options and jobs."""
        return self._module("plan")

    @property
    def train(self) -> TrainModule:
        """What a job computes."""
        return self._module("train")

    @property
    def measure(self) -> MeasureModule:
        """Stored runs to tidy tables."""
        return self._module("measure")

    @property
    def judge(self) -> JudgeModule:
        """The claims as criteria."""
        return self._module("judge")

    @property
    def page(self) -> PageModule:
        """The study's part of the report."""
        return self._module("page")

    def _module(self, name: str) -> Any:
        return import_module(f"{self.package}.{name}")


def study(name: str) -> Study:
    """Return the study of that name, or raise a ValueError that lists the names."""
    if name not in STUDIES:
        raise ValueError(f"unknown study {name!r}: there are {', '.join(STUDIES)}")
    return Study(name, STUDIES[name])


def given_numbers(options: Any, profiles: Collection[str], least: Mapping[str, int]) -> dict[str, Any]:
    """Return the numbers that options give, or raise a ValueError where one is too small or the profile unknown.

    ``least`` is the smallest valid number of each option, by its name.
    """
    if options.profile not in profiles:
        raise ValueError(f"unknown profile {options.profile!r}: there are {', '.join(profiles)}")
    given = {name: value for name in least if (value := getattr(options, name)) is not None}
    for name, value in given.items():
        if value < least[name]:
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least[name]}, not {value}")
    return given
