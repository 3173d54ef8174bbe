"""Executors: in this process, and through the messages that a cluster would carry."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, make_dataclass

import pytest

from metriscope.runs import Deadline, Driver, InProcess, Result, Shard, Store, StoreError, Work, once
from metriscope.runs.cluster import ClusterSettings, Remote, opened
from metriscope.runs.messages import answer, job_from_text, job_to_text, work_name
from metriscope.studies.mahalanobis.plan import MahalanobisOptions, plan
from metriscope.studies.mahalanobis.train import WORK

JOBS = plan(MahalanobisOptions(dims=(3,), trials=8, epochs=6, samples=50, activations=("abs", "relu"))).jobs()
MAY_DIFFER = {"provenance.json", "manifest.json"}


@dataclass
class Echo:
    """A pool that answers in this process, through the same messages, when it is asked whether anything is ready."""

    bound: int = 3
    sent: list[str] = field(default_factory=list)
    most: int = 0
    cancelled: list[int] = field(default_factory=list)
    waiting: dict = field(default_factory=dict)

    def room(self):
        return self.bound

    def submit(self, request, checkpoints):
        self.sent.append(request)
        self.waiting[len(self.sent)] = (request, checkpoints)
        self.most = max(self.most, len(self.waiting))
        return len(self.sent)

    def ready(self, handles, seconds):
        return handles[-1:]

    def fetch(self, handle):
        return answer(*self.waiting.pop(handle))

    def cancel(self, handle):
        self.cancelled.append(handle)


def files(store: Store) -> dict[str, bytes]:
    paths = [path for path in sorted(store.root.glob("??/*/*")) if path.name not in MAY_DIFFER]
    return {str(path.relative_to(store.root)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("local"))
    Driver(store).perform(JOBS, WORK, "training")
    return files(store)


def test_in_process_computes_a_shard_only_when_its_runs_are_asked_for(tmp_path):
    seen = []
    job = make_dataclass("Number", [("number", int), ("study", str, "demo")], frozen=True)
    work = once(lambda job: seen.append(job.number) or Result())
    shards = [Shard([job(number)], work, Store(tmp_path)) for number in (1, 2, 3)]
    results = InProcess().compute(shards)
    assert (list(next(results)), seen) == ([job(1)], [1])


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_runs_that_crossed_as_messages_are_byte_identical_whole_or_in_slices(tmp_path, expected, seconds):
    pool = Echo()
    executor = Remote(pool, ClusterSettings(slice_seconds=seconds))
    store = Store(tmp_path)
    Driver(store, executor=executor).perform(JOBS, WORK, "training")
    assert files(store) == expected
    assert (len(pool.sent) > len(JOBS)) == (seconds == 0.0)
    assert list((store.root / "leases").iterdir()) == []
    assert store.verify() == []


def test_no_more_than_the_bound_are_under_way(tmp_path):
    pool = Echo(bound=2)
    Driver(Store(tmp_path), executor=Remote(pool)).perform(JOBS, WORK, "training")
    assert (pool.most, len(pool.sent)) == (2, len(JOBS))


def test_workers_that_share_the_store_write_the_same_bytes(tmp_path, expected):
    store = Store(tmp_path)
    Driver(store, executor=Remote(Echo(), ClusterSettings(shared=True))).perform(JOBS, WORK, "training")
    assert files(store) == expected


def test_a_budget_that_ends_leaves_checkpoints_and_the_next_call_goes_on(tmp_path, expected):
    store = Store(tmp_path)
    sliced = ClusterSettings(slice_seconds=0.0)

    class Impatient(Echo):
        def fetch(self, handle):
            if len(self.sent) >= 2:
                raise KeyboardInterrupt
            return super().fetch(handle)

    pool = Impatient(bound=1)
    with pytest.raises(KeyboardInterrupt):
        Driver(store, executor=Remote(pool, sliced)).perform(JOBS, WORK, "training")
    assert pool.cancelled == [2]
    assert len(list((store.root / "checkpoints").iterdir())) == 1
    assert list((store.root / "leases").iterdir()) == []
    over = Driver(store, deadline=Deadline(0.0), executor=Remote(Echo()))
    assert over.perform(JOBS, WORK, "training") == {}
    Driver(store, executor=Remote(Echo())).perform(JOBS, WORK, "training")
    assert files(store) == expected


def test_work_without_a_name_is_computed_here(tmp_path):
    job = make_dataclass("Number", [("number", int), ("study", str, "demo")], frozen=True)
    pool = Echo()
    work = once(lambda job: Result(record={"square": job.number**2}))
    runs = Driver(Store(tmp_path), executor=Remote(pool)).perform([job(3)], work, "squares")
    assert (runs[job(3)].record["square"], pool.sent) == (9, [])
    assert work_name(work) is work_name(Work(lambda jobs: None)) is job_to_text(job(3)) is None


def test_jobs_cross_as_text_and_come_back_equal():
    assert [job_from_text(job_to_text(job)) for job in JOBS] == list(JOBS)


def test_a_worker_with_other_versions_is_refused(tmp_path, monkeypatch):
    from metriscope.runs import messages

    pool = Echo()
    shard = Shard(list(JOBS[:1]), WORK, Store(tmp_path))
    computing = Remote(pool).compute([shard])
    next(computing)
    monkeypatch.setattr(messages, "_packages", lambda: {"torch": "0.1"})
    with pytest.raises(ValueError, match=r"a worker has metriscope None, the driver has .*: install the same versions"):
        list(computing)


def test_files_of_another_run_are_not_adopted(tmp_path):
    one, other = Store(tmp_path / "one"), Store(tmp_path / "other")
    run = one.put({"seed": 7}, {}, {}, {})
    sent = {path.name: path.read_bytes() for path in run.path.iterdir() if path.name != "manifest.json"}
    with pytest.raises(StoreError, match="those of another specification"):
        other.adopt({"seed": 8}, sent)
    with pytest.raises(StoreError, match=r"its files are .*\.\./x"):
        other.adopt({"seed": 7}, sent | {"../x": b""})
    assert other.adopt({"seed": 7}, sent).spec == {"seed": 7}


@pytest.mark.parametrize("word", ["nowhere", "ray://host:1", "host:port", ":1"])
def test_an_address_is_a_host_and_a_port(word):
    with pytest.raises(ValueError, match="--address must be local, auto or host:port"):
        ClusterSettings(address=word)


@pytest.mark.parametrize(("setting", "said"), [({"cpus": 0}, "more than 0 CPUs"), ({"in_flight": 0}, "in flight 1")])
def test_settings_out_of_range_are_refused(setting, said):
    with pytest.raises(ValueError, match=said):
        ClusterSettings(**setting)


def test_a_cluster_that_does_not_answer_is_one_sentence(caplog):
    said, nowhere = r"^no cluster answers at 127\.0\.0\.1:1: ", ClusterSettings(address="127.0.0.1:1")
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError, match=said), opened(nowhere):
        pass


def test_without_ray_the_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'metriscope\[cluster\]'"), opened(ClusterSettings()):
        pass
