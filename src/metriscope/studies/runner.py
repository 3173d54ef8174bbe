"""Run studies into a folder: check everything that was asked first, then compute, judge, and write one page."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.common.errors import Unfinished, reason
from metriscope.common.files import temporary
from metriscope.studies import STUDIES
from metriscope.studies.contract import Study, study

if TYPE_CHECKING:
    from metriscope.report import Claim, FrontStudy, Section, ShownProblem
    from metriscope.runs import Driver, Executor
    from metriscope.runs.cluster import ClusterSettings
    from metriscope.studies.contract import Announce, StudyPlan

__all__ = ["duration", "printed", "reproduce", "run_study"]

DATA = "METRISCOPE_DATA"


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
) -> Path:
    """Run or resume studies, each with its options, here or on a cluster, and return the path of the report."""
    from metriscope.runs.cluster import opened

    with _data_from(data_dir), opened(cluster) as executor:
        return _reproduce(asked, out, announce, budget, executor)


def _reproduce(asked: Mapping[str, Any], out: Path, announce: Announce, budget: str | None, executor: Executor) -> Path:
    studies = {name: study(name) for name in asked}
    # Plans may look for data, so that missing data is reported before anything is computed.
    plans = {name: studies[name].plan.plan(options) for name, options in asked.items()}
    seconds = None if budget is None else duration(budget)
    _check_writable(out)

    from metriscope.report import Front, Page, Prose, Section, write_report
    from metriscope.runs import Deadline, Driver, Store
    from metriscope.runs.provenance import provenance, together
    from metriscope.studies.ledger import verdict_table, whole

    store = Store(out / "runs")
    store.sweep()
    driver = Driver(store, announce, Deadline(seconds), executor)
    began = time.monotonic()
    sections: list[Section] = []
    claims: list[Claim] = []
    fronts: list[FrontStudy] = []
    unfinished: dict[str, str] = {}
    for name, own in studies.items():
        try:
            shown, judged = run_study(own, plans[name], driver)
        except Unfinished as cut:
            announce(f"{name}: the budget is used up; run the same command to continue")
            unfinished[name] = f"The budget ended before this study was done: {cut}."
            text = f"{unfinished[name]} Run the same command to continue."
            shown, judged = (Section(own.plan.TITLE, (Prose(text),)),), ()
        for text in printed(shown):
            announce(text)
        sections += shown
        claims += judged
        fronts.append(_front_study(own, shown, asked[name].profile))
    ledger = whole(claims, unfinished)
    sections.append(Section("Every verdict", (verdict_table(ledger),)))
    where = {"runs": together(run.provenance for run in driver.used.values()), "this page": provenance()}
    if driver.shown:
        where["records"] = together(record.provenance for record in driver.shown.values())
    profile = ", ".join(dict.fromkeys(options.profile for options in asked.values()))
    page = Page("Metriscope: every number", f"{', '.join(studies)} · {profile} profile", tuple(sections), where, ledger)
    judged_by = {name: tuple(claim for claim in ledger if claim.study == name) for name in studies}
    front = Front(
        f"Do neural networks learn distances? {len(ledger)} published claims, re-tested",
        _trust(profile, time.monotonic() - began, driver),
        tuple(replace(part, claims=judged_by[part.name]) for part in fronts),
        _problems() if set(studies) == set(STUDIES) else (),
        where,
        ledger,
    )
    return write_report(page, out, front=front)


def _trust(profile: str, seconds: float, driver: Driver) -> str:
    """Return one line on what the page rests on."""
    from metriscope.report.numbers import seconds as span

    parts = [f"{len(driver.used):,} runs"] if driver.used else []
    parts += [f"{len(driver.shown):,} recorded runs of longer experiments"] if driver.shown else []
    more = "" if profile == "paper" else " Full protocol: `metriscope reproduce --profile paper`."
    return f"{profile.capitalize()} profile: {' and '.join(parts) or 'no runs'}; this page took {span(seconds)}.{more}"


def _front_study(own: Study, sections: Sequence[Section], profile: str) -> FrontStudy:
    """Return a study's part of the first page; its claims are added when all are judged."""
    from metriscope.report import Companion, Figure, FrontStudy
    from metriscope.report.document import walk

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
    )


def _problems() -> tuple[ShownProblem, ...]:
    """Return the problems found in the papers, with links reduced to their words."""
    from metriscope.report import ShownProblem
    from metriscope.studies.problems import PROBLEMS

    def words(text: str) -> str:
        return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)

    return tuple(ShownProblem(p.title, words(p.source), p.says, words(p.found())) for p in PROBLEMS)


def run_study(own: Study, plan: StudyPlan, driver: Driver) -> tuple[tuple[Section, ...], tuple[Claim, ...]]:
    """Return a study's sections and verdicts; raise :class:`Unfinished` if the budget ends first."""
    from metriscope.studies.judging import judge

    runs = driver.perform(plan.jobs(), own.train.WORK, f"{own.name}: training")
    results = own.measure.measure(plan, runs, driver)
    claims = judge(own.judge.STATEMENTS, results.tables)
    # Studies that share an experiment have sections of one title.
    sections = own.page.sections(plan, results, claims)
    return tuple(replace(section, anchor=f"{own.name}-{section.anchor}") for section in sections), claims


def printed(sections: Sequence[Section]) -> Iterator[str]:
    """Yield the tables that are meant for the terminal too, as text: six digits, one line per row."""
    from metriscope.report import Table

    for section in sections:
        for block in section.blocks:
            if isinstance(block, Table) and block.terminal:
                text = block.frame.to_string(index=False, float_format=lambda value: f"{value:.6g}")
                yield f"{block.title}\n{text}"


@contextmanager
def _data_from(folder: Path | None) -> Iterator[None]:
    """Look for data in this folder first, also in processes started from here."""
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
    # Checked before training, not after an hour of it, with a file name that no other process uses.
    try:
        out.mkdir(parents=True, exist_ok=True)
        with temporary(out) as probe:
            probe.write_bytes(b"")
    except OSError as error:
        raise ValueError(f"cannot write to --out {out}: {reason(error)}") from None
