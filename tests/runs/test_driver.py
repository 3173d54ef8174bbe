"""The driver: what is looked up, computed, resumed, shared between processes, and left for later."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass, replace

import pandas as pd
import pytest
import torch
from torch import Tensor

from metriscope.runs import Deadline, Driver, Result, Store, Unfinished, Work, once, records
from metriscope.runs.address import address


@dataclass(frozen=True)
class Walk:
    """A walk of so many random steps."""

    number: int
    steps: int = 6
    study: str = "walks"


@dataclass
class Walking:
    """Walks side by side; each step is drawn from the walk's own stream."""

    jobs: Sequence[Walk]
    after: Callable[[int], None] = lambda step: None
    place: dict[Walk, Tensor] = field(init=False)
    step: dict[Walk, int] = field(init=False)

    def __post_init__(self) -> None:
        self.place = {job: torch.zeros(2) for job in self.jobs}
        self.step = dict.fromkeys(self.jobs, 0)

    def span(self, job: Walk) -> tuple[int, int]:
        return self.step[job], job.steps

    def state(self, job: Walk) -> dict[str, Tensor]:
        return {"place": self.place[job]}

    def restore(self, job: Walk, tensors: Mapping[str, Tensor], step: int) -> None:
        self.place[job].copy_(tensors["place"])
        self.step[job] = step

    def run(self, tick: Callable[[], None]) -> None:
        while left := [job for job in self.jobs if self.step[job] < job.steps]:
            for job in left:
                generator = torch.Generator().manual_seed(1_000 * job.number + self.step[job])
                self.place[job] += torch.randn(2, generator=generator)
                self.step[job] += 1
            self.after(min(self.step.values()))
            tick()

    def result(self, job: Walk) -> Result:
        return Result({"end": pd.DataFrame({"x": self.place[job].numpy()})}, self.state(job), {"number": job.number})


def work(after: Callable[[int], None] = lambda step: None, width: int = 3) -> Work:
    return Work(lambda jobs: Walking(jobs, after), share=lambda job: job.steps, width=width)


JOBS = [Walk(number) for number in range(5)]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


@pytest.fixture(autouse=True)
def every_tick_is_saved(monkeypatch):
    monkeypatch.setenv("METRISCOPE_CHECKPOINT_SECONDS", "0")


def ends(runs) -> dict[Walk, list[float]]:
    return {job: run.tensors()["place"].tolist() for job, run in runs.items()}


def alone(job: Walk) -> list[float]:
    walking = Walking([job])
    walking.run(lambda: None)
    return walking.place[job].tolist()


def test_what_is_missing_is_computed_and_what_is_there_is_not(store):
    said: list[str] = []
    driver = Driver(store, said.append)
    first = driver.perform(JOBS[:3], work(), "walks")
    again = driver.perform(JOBS, work(), "walks")
    assert said == ["walks (runs: 3 computed, 0 from the store)", "walks (runs: 2 computed, 3 from the store)"]
    assert list(again) == JOBS
    assert ends(again) == {job: alone(job) for job in JOBS}
    assert {job: run.provenance for job, run in first.items()} == {job: again[job].provenance for job in first}
    assert again[JOBS[0]].record == {"study": "walks", "steps": 6, "number": 0}
    assert driver.used.keys() == {run.address for run in again.values()}


@pytest.mark.parametrize("width", [1, 2, 5])
def test_company_changes_no_bit(store, width):
    assert ends(Driver(store).perform(JOBS, work(width=width), "walks")) == {job: alone(job) for job in JOBS}


def test_only_jobs_that_can_share_a_pass_do():
    long = [replace(job, steps=9) for job in JOBS[:2]]
    assert work().shards([*JOBS, *long]) == [JOBS[:3], JOBS[3:], long]


@dataclass(frozen=True)
class Nameless:
    number: int = 0


def test_a_job_that_does_not_name_its_study_is_refused(store):
    with pytest.raises(ValueError, match="names its study in the field 'study', which Nameless does not"):
        Driver(store).perform([Nameless()], work(), "walks")


def test_the_study_is_part_of_the_address():
    assert address(Walk(0)) != address(Walk(0, study="other"))


class Stop(Exception):
    pass


def stopping(at: int) -> Callable[[int], None]:
    def after(step: int) -> None:
        if step == at:
            raise Stop

    return after


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint_and_ends_bit_identical(store):
    with pytest.raises(Stop):
        Driver(store).perform(JOBS[:2], work(stopping(4)), "walks")
    assert len(list((store.root / "checkpoints").iterdir())) == 2
    seen: list[int] = []
    runs = Driver(store).perform(JOBS[:2], work(seen.append), "walks")
    assert seen == [4, 5, 6]
    assert ends(runs) == {job: alone(job) for job in JOBS[:2]}
    assert list((store.root / "checkpoints").iterdir()) == []


def test_members_that_stand_at_different_steps_end_as_if_alone(store):
    with pytest.raises(Stop):
        Driver(store).perform(JOBS[:1], work(stopping(4)), "walks")
    runs = Driver(store).perform(JOBS[:3], work(), "walks")
    assert ends(runs) == {job: alone(job) for job in JOBS[:3]}


SPOILED = {
    "of another run": lambda store: store.checkpoint(JOBS[1]).path.rename(store.checkpoint(JOBS[0]).path),
    "beyond the end": lambda store: store.checkpoint(JOBS[0]).save({"place": torch.ones(2)}, 7, 6),
    "of another length": lambda store: store.checkpoint(JOBS[0]).save({"place": torch.ones(2)}, 3, 5),
    "incomplete": lambda store: store.checkpoint(JOBS[0]).save({}, 3, 6),
    "of another shape": lambda store: store.checkpoint(JOBS[0]).save({"place": torch.ones(3)}, 3, 6),
    "truncated": lambda store: store.checkpoint(JOBS[0]).path.write_bytes(b"half of it"),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_checkpoint_that_does_not_fit_is_set_aside_and_the_run_starts_again(store, how, caplog):
    with pytest.raises(Stop):
        Driver(store).perform(JOBS[:2], work(stopping(4)), "walks")
    SPOILED[how](store)
    seen: list[int] = []
    with caplog.at_level(logging.WARNING, "metriscope.runs"):
        runs = Driver(store).perform(JOBS[:1], work(seen.append), "walks")
    assert seen == [1, 2, 3, 4, 5, 6]
    assert ends(runs) == {JOBS[0]: alone(JOBS[0])}
    assert "is set aside, and its run starts again" in caplog.text
    assert len(list((store.root / "damaged").iterdir())) == 1


def test_a_checkpoint_says_what_it_is_and_where_it_was_made(store):
    from metriscope.runs.checkpoint import decode

    with pytest.raises(Stop):
        Driver(store).perform(JOBS[:1], work(stopping(4)), "walks")
    _, meta = decode(store.checkpoint(JOBS[0]).path.read_bytes())
    assert (meta["address"], meta["step"], meta["last"]) == (address(JOBS[0]), 3, 6)
    assert {"numkong", "pyarrow", "pandas"} <= meta["provenance"]["packages"].keys()
    assert {"format", "code", "platform"} <= meta["provenance"].keys()


def test_a_budget_that_ends_keeps_what_was_begun_and_the_next_call_goes_on(store):
    class Over(Deadline):
        def __init__(self) -> None:
            super().__init__()
            self.__dict__["looks"] = 0

        @property
        def over(self) -> bool:
            self.__dict__["looks"] += 1
            return self.__dict__["looks"] > 5

    said: list[str] = []
    some = Driver(store, said.append, Over()).perform(JOBS, work(width=1), "walks")
    assert len(some) < len(JOBS)
    with pytest.raises(Unfinished, match=f"{len(some)} of 5 runs are finished"):
        some[JOBS[-1]]
    assert list((store.root / "checkpoints").iterdir()) != []
    whole = Driver(store).perform(JOBS, work(), "walks")
    assert ends(whole) == {job: alone(job) for job in JOBS}


def test_a_deadline_counts_down():
    assert Deadline().left == float("inf")
    assert not Deadline(1_000.0).over
    assert Deadline(0.0).over


def test_measurements_are_stored_one_by_one(store):
    computed: list[int] = []

    def measure(job: Walk) -> Result:
        computed.append(job.number)
        if job.number == 3:
            raise Stop
        return Result({"end": pd.DataFrame({"x": [float(job.number)]})})

    with pytest.raises(Stop):
        Driver(store).perform(JOBS, once(measure), "ends")
    assert computed == [0, 1, 2, 3]
    computed.clear()
    with pytest.raises(Stop):
        Driver(store).perform(JOBS, once(measure), "ends")
    assert computed == [3]


def test_a_run_that_somebody_else_computes_is_waited_for_and_not_computed_twice(store):
    computed: list[int] = []
    lock = threading.Lock()

    def measure(job: Walk) -> Result:
        with lock:
            computed.append(job.number)
        time.sleep(0.05)
        return Result({"end": pd.DataFrame({"x": [float(job.number)]})})

    found: list[object] = []
    drivers = [
        threading.Thread(target=lambda: found.append(Driver(store).perform(JOBS, once(measure), ""))) for _ in "ab"
    ]
    for driver in drivers:
        driver.start()
    for driver in drivers:
        driver.join()
    assert sorted(computed) == [0, 1, 2, 3, 4]
    assert [list(runs) for runs in found] == [JOBS, JOBS]


@pytest.mark.parametrize("given", ["abc", "-1", "nan", "inf", "1s"])
def test_a_time_between_checkpoints_that_is_none_is_refused_before_anything_is_computed(store, monkeypatch, given):
    monkeypatch.setenv("METRISCOPE_CHECKPOINT_SECONDS", given)
    sentence = f"^METRISCOPE_CHECKPOINT_SECONDS must be a number of seconds, at least 0, not '{given}'$"
    with pytest.raises(ValueError, match=sentence):
        Driver(store).perform(JOBS, work(lambda step: pytest.fail("computed")), "walks")
    assert not store.root.exists()


HOLD = """
import sys, time
from metriscope.runs import Store
with Store(sys.argv[1]).leased([sys.argv[2]]) as mine:
    print(len(mine), flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_the_lease_of_a_dead_process_is_free_again(store):
    command = [sys.executable, "-c", HOLD, str(store.root), address(JOBS[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "1"
        with store.leased([address(JOBS[0]), address(JOBS[1])]) as mine:
            assert mine == [address(JOBS[1])]
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert ends(Driver(store).perform(JOBS[:1], work(), "walks")) == {JOBS[0]: alone(JOBS[0])}
    store.sweep()
    assert list((store.root / "leases").iterdir()) == []
    assert store.verify() == []


def test_a_driver_shows_shipped_records_and_computes_nothing_for_them(tmp_path, monkeypatch):
    spec = make_dataclass("Sum", [("number", int), ("study", str, "demo")], frozen=True)
    driver = Driver(Store(tmp_path / "runs"))
    driver.perform([spec(1)], once(lambda job: Result({"sums": pd.DataFrame({"sum": [job.number]})})), "sums")
    records.add(driver.store.runs(), tmp_path / "results" / "demo", "demo")
    monkeypatch.setattr(records, "_FOLDERS", (tmp_path / "results",))
    records._names.cache_clear()
    found = driver.recorded([spec(1), spec(2)])
    assert list(found) == [spec(1)]
    assert found[spec(1)].table("sums")["sum"].tolist() == [1]
    assert len(driver.shown) == 1
    records._names.cache_clear()
