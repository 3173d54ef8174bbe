"""A second place for runs: what is in either place is in both, damage is not believed, and errors are sentences."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pandas as pd
import pytest
import torch

from metriscope.runs import Driver, Mirror, Result, Store, StoreError, once

CURVES = pd.DataFrame({"epoch": [0, 1], "loss": [1.0, 0.5]})


@dataclass(frozen=True)
class Square:
    number: int
    study: str = "demo"


WORK = once(lambda job: Result({"curves": CURVES}, {"w": torch.full((2,), job.number)}, {"square": job.number**2}))


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    if request.param == "file":
        yield f"file://{tmp_path}/mirror"
    else:
        yield f"memory://{tmp_path.name}"


def performed(folder, url, numbers=(2, 3)):
    said: list[str] = []
    store = Store(folder, Mirror(url))
    found = Driver(store, said.append).perform([Square(number) for number in numbers], WORK, "squares")
    return {job.number: run for job, run in found.items()}, said[-1]


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.name != "manifest.json"}


def archives(url):
    files, root = fsspec.url_to_fs(url)
    return {path: files.cat_file(path) for path in files.find(root)}


def test_a_run_of_one_machine_is_not_computed_again_on_another(tmp_path, url):
    first, said = performed(tmp_path / "one", url)
    assert "2 computed" in said
    second, said = performed(tmp_path / "two", url, (2, 3, 4))
    assert "1 computed, 2 from the store" in said
    for number, run in first.items():
        assert contents(run.path) == contents(second[number].path)
        assert Store(tmp_path / "two").verify() == []
    assert len(archives(url)) == 3


def test_runs_from_before_the_mirror_are_copied_to_it(tmp_path, url):
    Driver(Store(tmp_path / "one")).perform([Square(2)], WORK, "squares")
    performed(tmp_path / "one", url, (2,))
    assert len(archives(url)) == 1


def test_the_same_run_is_the_same_bytes_in_every_mirror(tmp_path, url):
    run = performed(tmp_path / "one", url, (5,))[0][5]
    (data,) = archives(url).values()
    other = Mirror(f"memory://other-{tmp_path.name}")
    other.push(run.address, contents(run.path))
    assert list(archives(other.url).values()) == [data]


def rewritten(data, change):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, content in change(members).items():
            archive.writestr(name, content)
    return held.getvalue()


def squeezed(data):
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("record.json", b" " * 10_000_000)
    return held.getvalue()


DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a bit flipped": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "record changed": lambda data: rewritten(data, lambda files: {**files, "record.json": b'{"square": 5}'}),
    "file missing": lambda data: rewritten(data, lambda files: {k: v for k, v in files.items() if "curves" not in k}),
    "manifest missing": lambda data: rewritten(data, lambda files: {k: v for k, v in files.items() if "mani" not in k}),
    "file outside": lambda data: rewritten(data, lambda files: {**files, "../outside": b"x"}),
    "parent folder": lambda data: rewritten(data, lambda files: {**files, "..": b"x"}),
    "a bomb": squeezed,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_computed_again_and_replaced(tmp_path, url, damage):
    whole = performed(tmp_path / "one", url, (2,))[0][2]
    (path,), (data,) = archives(url).keys(), archives(url).values()
    fsspec.url_to_fs(url)[0].pipe_file(path, DAMAGES[damage](data))
    again, said = performed(tmp_path / "two", url, (2,))
    assert "1 computed" in said
    assert again[2].record == whole.record
    assert performed(tmp_path / "three", url, (2,))[1].endswith("0 computed, 1 from the store)")
    assert not list(tmp_path.rglob("outside"))


def test_a_copy_of_another_run_is_refused(tmp_path, url):
    performed(tmp_path / "one", url, (2, 3))
    files, _ = fsspec.url_to_fs(url)
    (_, data), (other, _) = archives(url).items()
    files.pipe_file(other, data)
    assert "1 computed, 1 from the store" in performed(tmp_path / "two", url, (2, 3))[1]


def test_a_place_that_cannot_be_used_is_told_in_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="cannot use the mirror nonsense://here: Protocol not known: nonsense"):
        Mirror("nonsense://here")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot use the mirror"):
        Mirror(f"file://{tmp_path}/file/below")


def test_a_run_whose_copy_fails_is_in_the_store(tmp_path, monkeypatch):
    mirror = Mirror(f"memory://failing-{tmp_path.name}")
    monkeypatch.setattr(mirror._files, "pipe_file", lambda *_: (_ for _ in ()).throw(OSError("connection lost")))
    store = Store(tmp_path / "store", mirror)
    with pytest.raises(StoreError, match=r"cannot copy run .* the mirror memory://failing.*: connection lost"):
        Driver(store).perform([Square(2)], WORK, "squares")
    assert Store(tmp_path / "store").get(Square(2)).record["square"] == 4
