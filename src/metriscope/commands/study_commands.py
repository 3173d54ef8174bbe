"""The command ``reproduce``: one study with its own options, or all studies, and a summary of their verdicts."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

from metriscope.commands.output import announce, deliver, show
from metriscope.commands.parsing import parsed
from metriscope.common.errors import unknown
from metriscope.studies import STUDIES

if TYPE_CHECKING:
    from metriscope.report import Claim
    from metriscope.studies.runner import Reproduced

__all__ = ["reproduce", "reproduce_with", "summary"]


@dataclass(frozen=True)
class Everything:
    """Run all studies, or continue where an earlier call stopped, and write one self-contained report."""

    profile: Literal["quick", "paper"] = "quick"
    """How much to run: a few minutes on embedded data, or the papers' own protocols (days; see each study's help)."""
    seed: int = 0
    """Root of all random streams."""


@dataclass(frozen=True)
class Common:
    """Where a report goes, how long it may take, and where data is looked for."""

    out: Path = Path("out")
    """Folder for report.html, tables/ and the store of runs."""
    budget: Annotated[str | None, arg(metavar="TIME", help_behavior_hint="(default: until done)")] = None
    """Stop cleanly after a time such as 2h, 30m or 90s; the same command continues later."""
    data_dir: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="(default: none)")] = None
    """Folder to search for data, before METRISCOPE_DATA and the cache."""
    mirror: Annotated[str | None, arg(metavar="URL", help_behavior_hint="(default: none)")] = None
    """Second place to copy runs to and read finished runs from: s3://bucket/folder or another address of fsspec."""


@dataclass(frozen=True)
class Where:
    """Where jobs are computed."""

    executor: Literal["local", "ray"] = "local"
    """In this process, or as tasks of a Ray cluster (extra: cluster)."""
    address: Annotated[str | None, arg(metavar="auto|HOST:PORT", help_behavior_hint="(default: start one here)")] = None
    """The cluster: the one that runs on this machine, or that of a head node."""
    job_cpus: float = 1
    """CPUs, and so threads, of each job on a cluster."""
    job_gpus: float = 0
    """GPUs of each job on a cluster."""
    retries: int = 3
    """How many times a job is restarted after its node is lost."""
    in_flight: Annotated[int | None, arg(metavar="JOBS", help_behavior_hint="(default: twice as many as can run)")] = (
        None
    )
    """Largest number of jobs that are sent to a cluster and not finished."""
    shared_out: bool = False
    """Let the nodes write runs to --out themselves; the folder must have the same path on all of them."""

    def cluster(self) -> Any:
        """Return the settings of the cluster, or None for this process."""
        from metriscope.runs.cluster import ClusterSettings

        if self.executor == "local":
            if self.address is not None:
                raise ValueError("--address names a cluster, so it needs --executor ray")
            return None
        address = self.address or "local"
        return ClusterSettings(address, self.job_cpus, self.job_gpus, self.retries, self.in_flight, self.shared_out)


def reproduce_with(arguments: list[str]) -> int:
    """Run one study, or all, or continue where an earlier call stopped, and write one self-contained report."""
    from metriscope.studies.contract import study

    named = arguments[:1] if arguments and not arguments[0].startswith("-") else []
    rest = arguments[len(named) :]
    if named:
        if named[0] not in STUDIES:
            raise ValueError(unknown("study", named[0], list(STUDIES)))
        module = study(named[0]).plan
        times = "; ".join(f"{profile}: {time}" for profile, time in module.TIMES.items())
        options, common, where = _options(
            module.OPTIONS, f"reproduce {named[0]}", rest, f"{module.TITLE}. About: {times}."
        )
        asked = {named[0]: options}
    else:
        about = f"{Everything.__doc__} One study, with its own options: {', '.join(STUDIES)}."
        options, common, where = _options(Everything, "reproduce", rest, about)
        asked = {name: study(name).plan.OPTIONS(profile=options.profile, seed=options.seed) for name in STUDIES}
    return _run(asked, common, where, f"metriscope {shlex.join(['reproduce', *arguments])}")


def _run(asked: dict[str, Any], common: Common, where: Where, command: str) -> int:
    from metriscope.studies.runner import reproduce as run

    done = run(
        asked,
        common.out,
        announce,
        budget=common.budget,
        data_dir=common.data_dir,
        cluster=where.cluster(),
        mirror=common.mirror,
    )
    judged = [claim for claim in done.claims if claim.strength != "not run"]
    found = {
        "report": done.page,
        "verdicts": [
            {name: getattr(claim, name) for name in ("id", "study", "text", "verdict", "strength", "origin", "reason")}
            for claim in judged
        ],
        "unfinished": done.unfinished,
        "continue": command if done.unfinished else None,
    }
    deliver(f"{summary(judged)}{_unfinished(done, command)}report: {done.page}", found)
    show(done.page)
    return 130 if done.stopped else 0


def summary(claims: Sequence[Claim]) -> str:
    """Return the number of claims with each verdict and strength, and the sentences of contradicted claims."""
    from metriscope.report.document import STRENGTHS, VERDICTS

    if not claims:
        return "no claim was judged\n"
    lines = [f"{len(claims)} claim{'s' if len(claims) > 1 else ''} judged"]
    for verdict in VERDICTS:
        counts = Counter(claim.strength for claim in claims if claim.verdict == verdict)
        if counts:
            strengths = ", ".join(f"{counts[strength]} {strength}" for strength in STRENGTHS if counts[strength])
            lines.append(f"  {verdict:<12} {sum(counts.values()):>3}  ({strengths})")
    against = [claim for claim in claims if claim.verdict == "contradicted"]
    lines += ["contradicted:"] if against else []
    lines += [f"  {claim.id} ({claim.strength}): {claim.text}" for claim in against]
    return "".join(f"{line}\n" for line in lines)


def _unfinished(done: Reproduced, command: str) -> str:
    if not done.unfinished:
        return ""
    return f"unfinished: {', '.join(done.unfinished)}\nto continue: {command}\n"


def reproduce(
    study: Annotated[Positional[str], arg(metavar="[STUDY]")] = "",
    /,
    *,
    everything: Annotated[Everything, OmitArgPrefixes] = Everything(),  # noqa: B008  frozen
    common: Annotated[Common, OmitArgPrefixes] = Common(),  # noqa: B008  frozen
    where: Annotated[Where, OmitArgPrefixes] = Where(),  # noqa: B008  frozen
) -> int:
    """Run one study, or all, and write one self-contained report: see reproduce --help."""
    # Only the list of commands and shell completion use this signature, because each study has its own parser.
    raise AssertionError("reproduce is called with its words, not parsed by this signature")


def _options(options: type[Any], name: str, arguments: list[str], about: str) -> tuple[Any, Common, Where]:
    """Parse a study's own options and the common ones side by side."""

    def both(options: Any, common: Common, where: Where) -> tuple[Any, Common, Where]:
        return options, common, where

    both.__annotations__ = {"options": options, "common": Common, "where": Where}
    settings = (tyro.conf.OmitArgPrefixes,)

    def parse(words: list[str]) -> tuple[Any, Common, Where]:
        return tyro.cli(both, prog=f"metriscope {name}", description=about, args=words, config=settings)

    return parsed(parse, arguments, name)
