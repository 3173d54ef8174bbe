"""Try all faults on small plans of all studies and print what came of it: ``./test --faults``.

``--page`` writes the table into the page on reliability too. Moments and places are random, from a seed that is printed
first: ``--seed`` repeats them as far as the speed of the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from random import Random

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])

from faults.faults import FAULTS, MOUNTED, WRITER, killed_writer
from faults.lives import Tally, World
from faults.plans import PLANS

__all__ = ["COLUMNS", "namespace", "outcome", "table"]

COLUMNS = ("tried", *Tally.COUNTS)
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
BEGIN, END = "<!-- written by ./test --faults --page -->\n", "<!-- end -->\n"
PROBE = 'mount -t tmpfs -o size=1m tmpfs "$1"'


def namespace(folder: Path) -> tuple[str, ...] | None:
    """Return the command that gives a process mounts of its own, if this machine lets it have them."""
    for command in (("unshare", "-m"), ("unshare", "-r", "-m")):
        try:
            probe = subprocess.run([*command, "sh", "-c", PROBE, "sh", str(folder)], capture_output=True, timeout=20)
        except (OSError, subprocess.SubprocessError):
            continue
        if probe.returncode == 0:
            return command
    return None


def outcome(name: str, seed: int, times: int, mounts: bool) -> dict[str, Tally]:
    """Try every fault on one study, or on what is written besides runs."""
    random = Random(f"{seed} {name}")
    with tempfile.TemporaryDirectory() as folder:
        if name == WRITER:
            return {WRITER: killed_writer(Path(folder), random, times)}
        world = World.of(name, Path(folder), random)
        faults = FAULTS | (MOUNTED if mounts else {})
        return {fault: act(world, max(1, round(share * times))) for fault, (act, share) in faults.items()}


def separately(name: str, seed: int, times: int) -> dict[str, Tally]:
    """Try every fault on one study in a process of its own, with mounts of its own if this machine allows it."""
    with tempfile.TemporaryDirectory() as folder:
        own = namespace(Path(folder))
    words = [*(own or ()), sys.executable, __file__, "--only", name, "--seed", str(seed), "--times", str(times)]
    done = subprocess.run(
        [*words, *(["--mounts"] if own else [])],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} ended with status {done.returncode}")
    found = {fault: Tally(**counts) for fault, counts in json.loads(done.stdout.splitlines()[-1]).items()}
    sys.stderr.write(f"{name}: {sum(tally.tried for tally in found.values())} tried\n")
    return found


def total(found: Sequence[Mapping[str, Tally]]) -> dict[str, Tally]:
    """Return the outcomes of all studies together."""
    sums: dict[str, Tally] = {}
    for one in found:
        for fault, tally in one.items():
            sums[fault] = sums.get(fault, Tally()) + tally
    return sums | {"all": sum(sums.values(), Tally())}


def table(sums: Mapping[str, Tally]) -> Iterator[str]:
    """Yield the lines of the table, as Markdown that a terminal shows well too."""
    width = max(map(len, sums))
    yield f"| {'fault':{width}} | tried | lost | doubled | wrong | left |"
    yield f"|{'-' * (width + 2)}|------:|-----:|--------:|------:|-----:|"
    for fault, tally in sums.items():
        counts = (f"{getattr(tally, name):{len(name)}}" for name in COLUMNS)
        yield f"| {fault:{width}} | {' | '.join(counts)} |"


def write_page(lines: Sequence[str]) -> None:
    """Replace the generated part of the page."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n\n" + END + after, encoding="utf-8")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> int:
    """Print the table; return 1 if anything was lost, doubled, wrong or left over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", action="store_true", help="as ./test is called")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--times", type=int, default=25, help="kills per study; other faults in proportion")
    parser.add_argument("--studies", nargs="+", choices=PLANS, default=list(PLANS), help="all, if none are named")
    parser.add_argument("--page", action="store_true", help="write the table into docs/reliability.md too")
    parser.add_argument("--only", help="one study, in this process, printed as JSON")
    parser.add_argument("--mounts", action="store_true", help="this process may mount disks")
    asked = parser.parse_args(words)
    if asked.only:
        found = outcome(asked.only, asked.seed, asked.times, asked.mounts)
        say(json.dumps({fault: asdict(tally) for fault, tally in found.items()}))
        return 0
    say(f"seed {asked.seed}")
    began = time.monotonic()
    # The longest first, one process per core.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = [*asked.studies, WRITER]
        sums = total(list(pool.map(lambda name: separately(name, asked.seed, asked.times), names)))
    lines = list(table(sums))
    say("\n".join([*lines, *sums["all"].notes]))
    missing = ", ".join(fault for fault in (*FAULTS, *MOUNTED, WRITER) if fault not in sums)
    day = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    said = f"{len(asked.studies)} of {len(PLANS)} studies ({', '.join(asked.studies)}), seed {asked.seed}, "
    said += f"{(time.monotonic() - began) / 60:.0f} minutes, {day}."
    said += f" Not tried, because this machine lets no test mount a disk: {missing}." if missing else ""
    say(said)
    if asked.page:
        write_page([said, "", *lines])
    return 0 if sums["all"].clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
