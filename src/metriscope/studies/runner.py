"""Run studies into a folder: check everything that was asked first, then compute, judge, and write one page."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Unfinished, reason
from metriscope.common.files import temporary
from metriscope.studies import STUDIES
from metriscope.studies.contract import Study, study

if TYPE_CHECKING:
    from metriscope.common.progress import Overall
    from metriscope.report import Claim, FrontStudy, Section, ShownProblem
    from metriscope.runs import Driver, Executor
    from metriscope.runs.cluster import ClusterSettings
    from metriscope.studies.contract import Announce, StudyPlan

__all__ = ["Reproduced", "duration", "printed", "reproduce", "run_study"]

DATA = "METRISCOPE_DATA"


@dataclass(frozen=True)
class Reproduced:
    """What a call of :func:`reproduce` made: its page, every claim of the ledger, and why studies are unfinished.

    ``stopped`` says that the user stopped it before its end.
    """

    page: Path
    claims: tuple[Claim, ...]
    unfinished: Mapping[str, str]
    stopped: bool


def duration(text: str) -> float:
    """Return a span such as "2h", "30m" or "90s" in seconds.

    >>> duration("1.5h")
    5400.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text.strip())
    if match is None or not float(match[1]):
        raise ValueError(f"--budget must be a time such as 2h, 30m or 90s, not {text!r}")
    return float(match[1]) * {"h": 3600, "m": 60, "s": 1}[match[2]]


def reproduce(
    asked: Mapping[str, Any],
    out: Path,
    announce: Announce,
    *,
    budget: str | None = None,
    data_dir: Path | None = None,
    cluster: ClusterSettings | None = None,
    mirror: str | None = None,
) -> Reproduced:
    """Run or resume studies, each with its options, here or on a cluster, and write the report.

    ``mirror`` is the address of a second place for the runs, as fsspec names it.

    When the user stops it, or the budget ends, the report shows what is there.
    """
    from metriscope.common.progress import compilation, overall
    from metriscope.runs.cluster import opened

    with _data_from(data_dir), opened(cluster) as executor, overall() as bar, compilation(announce, bar.note):
        return _reproduce(asked, (out, mirror), announce, budget, executor, bar)


def _reproduce(
    asked: Mapping[str, Any],
    places: tuple[Path, str | None],
    announce: Announce,
    budget: str | None,
    executor: Executor,
    bar: Overall,
) -> Reproduced:
    out, mirror = places
    studies = {name: study(name) for name in asked}
    # Plans may look for data, so that missing data is reported before anything is computed.
    plans = {name: studies[name].plan.plan(options) for name, options in asked.items()}
    seconds = None if budget is None else duration(budget)
    _check_writable(out)

    from metriscope.runs import Deadline, Driver, Mirror, Store

    store = Store(out / "runs", Mirror(mirror) if mirror else None)
    store.sweep()
    series = _Series(asked, plans, Driver(store, announce, Deadline(seconds), executor), announce)
    for at, (name, own) in enumerate(studies.items(), 1):
        bar.stage(f"study {at} of {len(studies)}" if len(studies) > 1 else "")
        series.add(own, plans[name])
    return series.written(out)


@dataclass
class _Series:
    """Studies that are run one after the other, and their results so far."""

    asked: Mapping[str, Any]
    plans: Mapping[str, StudyPlan]
    driver: Driver
    announce: Announce
    began: float = field(default_factory=time.monotonic)
    sections: list[Section] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    fronts: list[FrontStudy] = field(default_factory=list)
    unfinished: dict[str, str] = field(default_factory=dict)
    stopped: bool = False

    def add(self, own: Study, plan: StudyPlan) -> None:
        """Run a study, and keep its sections, claims and part of the first page."""
        from metriscope.report import Prose, Section

        before = len(self.driver.shown)
        try:
            shown, judged = self._run(own, plan)
        except Unfinished as cut:
            ended = "not finished" if self.stopped else "the budget is used up"
            self.announce(f"{own.name}: {ended}; run the same command to continue")
            why = "It was stopped" if self.stopped else "The budget ended"
            self.unfinished[own.name] = f"{why} before this study was done: {cut}."
            text = f"{self.unfinished[own.name]} Run the same command to continue."
            shown, judged = (Section(own.plan.TITLE, (Prose(text),)),), ()
        if records := len(self.driver.shown) - before:
            self.announce(f"{own.name}: recorded runs of longer experiments that are shown, not computed: {records}")
        for text in printed(shown):
            self.announce(text)
        self.sections += shown
        self.claims += judged
        self.fronts.append(_front_study(own, shown, self.asked[own.name].profile))

    def _run(self, own: Study, plan: StudyPlan) -> tuple[tuple[Section, ...], tuple[Claim, ...]]:
        try:
            return run_study(own, plan, self.driver)
        except KeyboardInterrupt:
            from metriscope.runs import Deadline

            self.announce("stopping: writing the report of the finished runs (a second Ctrl-C exits immediately)")
            # From here on nothing is computed, and what is stored is shown.
            self.stopped, self.driver = True, replace(self.driver, deadline=Deadline(0.0))
            return run_study(own, plan, self.driver)

    def written(self, out: Path) -> Reproduced:
        """Write both pages."""
        from metriscope.report import Front, Page, Section, theory, write_report
        from metriscope.studies.ledger import verdict_table, whole

        ledger, where, profile = whole(self.claims, self.unfinished), self._where(), _profiles(self.asked)
        sections = (*self.sections, Section("Every verdict", (verdict_table(ledger),)))
        # The interactive figures are in the appendix too, beside the numbers they are made of.
        tried = {"script": theory.script(), "style": theory.style()} if any(one.panels for one in self.fronts) else {}
        heading = f"{', '.join(self.asked)} · {profile} profile"
        page = Page("Metriscope: every number", heading, sections, where, ledger, **tried)
        judged_by = {name: tuple(claim for claim in ledger if claim.study == name) for name in self.asked}
        repeats = [count for plan in self.plans.values() for count in getattr(plan, "repeats", ())]
        front = Front(
            f"Do neural networks learn distances? {len(ledger)} published claims, re-tested.",
            _trust(profile, time.monotonic() - self.began, self.driver, repeats),
            tuple(replace(part, claims=judged_by[part.name]) for part in self.fronts),
            _problems() if set(self.asked) == set(STUDIES) else (),
            where,
            ledger,
        )
        return Reproduced(write_report(page, out, front=front), ledger, self.unfinished, self.stopped)

    def _where(self) -> dict[str, Any]:
        """Return where the numbers come from: the call, and the machines and versions of runs, page and records."""
        from metriscope.report import seconds as span
        from metriscope.runs.provenance import provenance, together

        seeds = dict.fromkeys(str(getattr(options, "seed", 0)) for options in self.asked.values())
        names = "" if set(self.asked) == set(STUDIES) else " " + " ".join(self.asked)
        call = {
            "command": f"metriscope reproduce{names} --profile {_profiles(self.asked)}",
            "seed": ", ".join(seeds),
            "duration": span(time.monotonic() - self.began),
        }
        runs = together(run.provenance for run in self.driver.used.values())
        where: dict[str, Any] = {"call": call, "runs": runs, "this page": provenance()}
        if self.driver.shown:
            where["records"] = together(record.provenance for record in self.driver.shown.values())
        return where


def _profiles(asked: Mapping[str, Any]) -> str:
    return ", ".join(dict.fromkeys(options.profile for options in asked.values()))


def _trust(profile: str, seconds: float, driver: Driver, repeats: Sequence[int]) -> str:
    """Return one line that says what the page is based on."""
    from metriscope.report.numbers import seconds as span

    ends = sorted({min(repeats), max(repeats)}) if repeats else []
    starts = f", {' to '.join(map(str, ends))} starts per network" if ends else ""
    parts = [f"{len(driver.used):,} runs{starts}"] if driver.used else []
    parts += [f"{len(driver.shown):,} recorded runs of longer experiments"] if driver.shown else []
    here, long = (
        {name for found in some.values() for name in _data_names(found.spec)} for some in (driver.used, driver.shown)
    )
    further = f", and {len(long - here)} more in the records" if long - here else ""
    data = f" Data: {', '.join(['generated points', *sorted(here)])}{further}." if here or long else ""
    more = "" if profile == "paper" else " Full protocol: `metriscope reproduce --profile paper`."
    text = f"{profile.capitalize()} profile, {span(seconds)} for this page: {' and '.join(parts) or 'no runs'}."
    return f"{text}{data}{more}"


def _data_names(spec: Any) -> Iterator[str]:
    """Yield the names of the data sets that a specification names, anywhere in it."""
    if isinstance(spec, Mapping):
        name = spec.get("data") or (spec.get("name") if {"train", "test"} <= set(spec) else None)
        # A user's folder is shown by the last part of its path.
        if isinstance(name, str):
            yield Path(name).name
        for value in spec.values():
            yield from _data_names(value)
    elif isinstance(spec, list | tuple):
        for value in spec:
            yield from _data_names(value)


def _front_study(own: Study, sections: Sequence[Section], profile: str) -> FrontStudy:
    """Return a study's part of the first page; its claims are added once all studies are judged."""
    from metriscope.report import Companion, Figure, FrontStudy
    from metriscope.report.document import Panel, walk

    blocks = [block for section in sections for block in walk(section.blocks)]
    drawn = {block.name: block for block in blocks if isinstance(block, Figure)}
    return FrontStudy(
        own.name,
        own.plan.TITLE,
        own.page.QUESTION,
        tuple(drawn[name] for name in own.page.HIGHLIGHTS if name in drawn),
        (),
        f"metriscope reproduce {own.name}" + ("" if profile == "quick" else f" --profile {profile}"),
        tuple(sections),
        tuple(block for block in blocks if isinstance(block, Companion)),
        tuple(block for block in blocks if isinstance(block, Panel)),
    )


def _problems() -> tuple[ShownProblem, ...]:
    """Return the problems found in the papers, with links replaced by their text."""
    from metriscope.report import ShownProblem
    from metriscope.studies.problems import PROBLEMS

    def words(text: str) -> str:
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)

    return tuple(ShownProblem(p.title, words(p.source), p.says, words(p.found())) for p in PROBLEMS)


def run_study(own: Study, plan: StudyPlan, driver: Driver) -> tuple[tuple[Section, ...], tuple[Claim, ...]]:
    """Return a study's sections and verdicts; raise :class:`Unfinished` if the budget ends first."""
    from metriscope.studies.verdicts import judge

    runs = driver.perform(plan.jobs(), own.train.WORK, f"{own.name}: training")
    results = own.measure.measure(plan, runs, driver)
    claims = judge(own.judge.STATEMENTS, results.tables)
    # Studies that share an experiment have sections of one title.
    sections = own.page.sections(plan, results, claims)
    return tuple(replace(section, anchor=f"{own.name}-{section.anchor}") for section in sections), claims


def printed(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the tables that are also shown in the terminal, as text: six digits, one line per row."""
    from metriscope.report import Table

    for section in sections:
        for block in section.blocks:
            if isinstance(block, Table) and block.terminal:
                text = block.frame.to_string(index=False, float_format=lambda value: f"{value:.6g}")
                yield f"{block.title}\n{text}"


@contextmanager
def _data_from(folder: Path | None) -> Iterator[None]:
    """Look for data in this folder first, inside the block and in processes that it starts."""
    before = os.environ.get(DATA)
    if folder is not None:
        os.environ[DATA] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(DATA, None)
        if before is not None:
            os.environ[DATA] = before


def _check_writable(out: Path) -> None:
    # Checked before training starts, with a file name that no other process uses.
    try:
        out.mkdir(parents=True, exist_ok=True)
        with temporary(out) as probe:
            probe.write_bytes(b"")
    except OSError as error:
        raise ValueError(f"cannot write to --out {out}: {reason(error)}") from None
