"""Run studies into a folder: check everything that was asked first, then compute, then write one page."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metriscope.runs.disk import temporary, write
from metriscope.runs.errors import reason
from metriscope.studies import STUDIES, study

if TYPE_CHECKING:
    from metriscope.studies.contract import Announce

__all__ = ["reproduce"]


def reproduce(names: tuple[str, ...], profile: str, out: Path, options: Mapping[str, Any], announce: Announce) -> Path:
    """Run or resume the named studies (all, if none is named) and return the path of the report."""
    chosen = {name: study(name) for name in dict.fromkeys(names or tuple(STUDIES))}
    given = {name: value for name, value in options.items() if value is not None}
    _check_options(chosen, given)
    plans = {
        name: module.plan(profile, **{k: v for k, v in given.items() if k in module.OPTIONS})
        for name, module in chosen.items()
    }
    _check_writable(out)

    from metriscope.report import Page, write_report
    from metriscope.runs import Store
    from metriscope.runs.provenance import provenance

    store = Store(out / "runs")
    store.sweep()
    sections = [s for name, module in chosen.items() for s in module.reproduce(plans[name], store, announce)]
    title = f"{', '.join(chosen)} · {profile} profile"
    return write_report(Page("Metriscope", title, tuple(sections), provenance()), out)


def _check_options(chosen: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for option in given:
        if not any(option in module.OPTIONS for module in chosen.values()):
            flag = "--" + option.replace("_", "-")
            raise ValueError(f"{flag} is not an option of {', '.join(chosen)}")


def _check_writable(out: Path) -> None:
    # Found out now, not after an hour of training.
    try:
        out.mkdir(parents=True, exist_ok=True)
        # A name of its own: two processes that share the folder must not remove each other's probe.
        with temporary(out) as probe:
            write(probe, b"")
    except OSError as error:
        raise ValueError(f"cannot write to --out {out}: {reason(error)}") from None
