from __future__ import annotations

import io
import re
import socket
import tarfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from data.mirrors import isolate, left, mirror, paths, put, register, sha, tiny_mnist
from metriscope.data import DataError, available, fetch, load, names, registry
from metriscope.data.download import File, cache_folder

CONTENTS = tiny_mnist()
IMAGES = "train-images-idx3-ubyte.gz"


@pytest.fixture
def cache(monkeypatch, tmp_path):
    return isolate(monkeypatch, tmp_path / "cache")


def check_loaded(found):
    assert found.name == "mnist"
    assert found.train.y.tolist() == found.test.y.tolist() == [0, 1, 9]
    np.testing.assert_array_equal(found.train.x.ravel(), np.arange(12))


def closed_port():
    """Return an address at which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def test_the_users_cache_is_named_after_the_package():
    assert "metriscope" in str(cache_folder())


@pytest.mark.parametrize("place", ["data_dir", "environment", "cache"])
def test_a_set_is_found_in_each_place(place, cache, tmp_path, monkeypatch):
    register(monkeypatch, CONTENTS)
    folder = cache if place == "cache" else tmp_path / "mine"
    put(folder, CONTENTS)
    if place == "environment":
        monkeypatch.setenv("METRISCOPE_DATA", str(folder))
    asked = folder if place == "data_dir" else None
    assert available("mnist", asked)
    check_loaded(load("mnist", asked))
    assert list(fetch("mnist", asked).values()) == [folder / "mnist" / name for name in CONTENTS]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_argument_is_looked_at_first_then_the_environment_then_the_cache(first, cache, tmp_path, monkeypatch):
    register(monkeypatch, CONTENTS)
    folders = [tmp_path / "argument", tmp_path / "environment", cache]
    for number, folder in enumerate(folders):
        folder.mkdir()
        if number >= first:
            put(folder, {name: f"damaged {number}".encode() for name in CONTENTS})
    monkeypatch.setenv("METRISCOPE_DATA", str(folders[1]))
    with pytest.raises(DataError, match=f"{re.escape(str(folders[first]))}.*{sha(f'damaged {first}'.encode())}"):
        load("mnist", folders[0])


def test_files_of_one_set_may_lie_in_different_places(cache, tmp_path, monkeypatch):
    register(monkeypatch, CONTENTS)
    items = list(CONTENTS.items())
    put(tmp_path / "mine", dict(items[:2]))
    assert not available("mnist", tmp_path / "mine")
    put(cache, dict(items[2:]))
    check_loaded(load("mnist", tmp_path / "mine"))


def test_what_is_nowhere_is_downloaded_once(cache, monkeypatch):
    with mirror(paths(CONTENTS)) as served:
        register(monkeypatch, CONTENTS, served.url)
        assert not available("mnist")
        assert served.asked == []
        check_loaded(load("mnist"))
        assert left(cache) == sorted(CONTENTS)
        assert available("mnist")
        check_loaded(load("mnist"))
        fetch("mnist")
        assert served.asked == [f"/{name}" for name in CONTENTS]
    check_loaded(load("mnist"))


@pytest.mark.parametrize("fault", ["absent", "truncated", "wrong", "packed again", "closed", "silent"])
def test_the_next_mirror_is_asked_where_one_fails(fault, cache, monkeypatch):
    answers = {
        "absent": {},
        "truncated": paths(CONTENTS),
        "wrong": {path: b"<html>not here</html>" for path in paths(CONTENTS)},
        "packed again": {path: content + b"\0" for path, content in paths(CONTENTS).items()},
        "silent": dict.fromkeys(paths(CONTENTS), b""),
    }
    with mirror(answers.get(fault, {}), short=fault == "truncated") as bad, mirror(paths(CONTENTS)) as good:
        register(monkeypatch, CONTENTS, closed_port() if fault == "closed" else bad.url, good.url)
        check_loaded(load("mnist"))
        assert len(good.asked) == 4
        assert len(bad.asked) == (0 if fault == "closed" else 4)
    assert left(cache) == sorted(CONTENTS)


def test_a_download_that_fails_everywhere_names_the_file_the_places_and_each_mirror(cache, tmp_path, monkeypatch):
    monkeypatch.setenv("METRISCOPE_DATA", str(tmp_path / "environment"))
    (tmp_path / "argument").mkdir()
    wrong = {path: b"something else" for path in paths(CONTENTS)}
    with mirror() as absent, mirror(wrong) as other, mirror(paths(CONTENTS), short=True) as short:
        nobody = closed_port()
        register(monkeypatch, CONTENTS, absent.url, other.url, short.url, nobody)
        with pytest.raises(DataError) as caught:
            load("mnist", tmp_path / "argument")
    sentence = str(caught.value)
    assert sentence == (
        f"cannot find mnist/{IMAGES}: there is no intact copy in {tmp_path / 'argument'} (data-dir), "
        f"{tmp_path / 'environment'} (METRISCOPE_DATA), {cache} (cache), and no mirror gave it: "
        f"{absent.url}{IMAGES} answered 404, "
        f"{other.url}{IMAGES} gave a {IMAGES} whose SHA-256 should be {sha(CONTENTS[IMAGES])} "
        f"and is {sha(b'something else')}, "
        f"{short.url}{IMAGES} could not be read (ChunkedEncodingError), "
        f"{nobody}{IMAGES} could not be read (ConnectionError); mnist-5k needs no download"
    )
    assert left(cache) == []


def test_a_damaged_file_of_the_users_is_named_and_neither_used_nor_touched(cache, tmp_path, monkeypatch):
    put(tmp_path, CONTENTS | {IMAGES: b"damaged"})
    with mirror(paths(CONTENTS)) as served:
        register(monkeypatch, CONTENTS, served.url)
        for call in (load, fetch):
            with pytest.raises(DataError) as caught:
                call("mnist", tmp_path)
            assert str(caught.value) == (
                f"{tmp_path / 'mnist' / IMAGES} is damaged and not used: its SHA-256 should be "
                f"{sha(CONTENTS[IMAGES])} and is {sha(b'damaged')}"
            )
        assert served.asked == []
    assert (tmp_path / "mnist" / IMAGES).read_bytes() == b"damaged"


def test_a_damaged_file_of_the_cache_is_refused_until_it_is_fetched_anew(cache, monkeypatch):
    put(cache, CONTENTS | {IMAGES: CONTENTS[IMAGES][:-1]})
    with mirror() as served:
        register(monkeypatch, CONTENTS, served.url)
        with pytest.raises(DataError, match=r"is damaged and not used.*; metriscope data fetch mnist replaces it"):
            load("mnist")
        assert served.asked == []
        with pytest.raises(DataError, match="no mirror gave it"):
            fetch("mnist")
        assert (cache / "mnist" / IMAGES).read_bytes() == CONTENTS[IMAGES][:-1]
        served.answers = paths(CONTENTS)
        fetch("mnist")
        assert served.asked == [f"/{IMAGES}"] * 2
    check_loaded(load("mnist"))
    assert left(cache) == sorted(CONTENTS)


@pytest.mark.parametrize("flip", range(0, len(CONTENTS[IMAGES]), 5))
def test_any_flipped_byte_is_found(flip, cache, monkeypatch):
    register(monkeypatch, CONTENTS)
    content = bytearray(CONTENTS[IMAGES])
    content[flip] ^= 0xFF
    put(cache, CONTENTS | {IMAGES: bytes(content)})
    with pytest.raises(DataError, match="is damaged and not used"):
        load("mnist")


def test_a_set_without_a_mirror_says_where_to_place_it(cache, monkeypatch):
    with pytest.raises(DataError) as caught:
        load("fsdd")
    assert str(caught.value) == (
        f"cannot find sequence/fsdd.npz: there is no intact copy in {cache} (cache), "
        "and it has no public mirror, so place it in one of them"
    )


def test_a_damaged_file_that_no_mirror_has_is_not_fetched(cache):
    (cache / "sequence").mkdir(parents=True)
    (cache / "sequence" / "fsdd.npz").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"fsdd.npz is damaged and not used: .* and is [0-9a-f]{64}$"):
        load("fsdd")
    with pytest.raises(DataError, match=r"no intact copy in .*, and it has no public mirror"):
        fetch("fsdd")


def test_an_unknown_name_lists_all_names():
    for call in (load, available, fetch):
        with pytest.raises(DataError, match="unknown data set 'emnist': there are mnist, fashion-mnist, cifar-10, "):
            call("emnist")


def test_a_data_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=f"there is no data folder {tmp_path / 'typo'}"):
        load("mnist", tmp_path / "typo")


def test_a_label_out_of_range_is_named(cache, monkeypatch):
    contents = tiny_mnist(labels=(3, 11))
    register(monkeypatch, contents)
    put(cache, contents)
    with pytest.raises(DataError, match="the training part of mnist holds the label 11, expected 0 to 9"):
        load("mnist")


def test_a_cache_that_cannot_be_written_is_named(cache, monkeypatch):
    cache.write_text("a file")
    with mirror(paths(CONTENTS)) as served:
        register(monkeypatch, CONTENTS, served.url, served.url)
        with pytest.raises(DataError, match=f"cannot write {cache / 'mnist' / IMAGES}: "):
            load("mnist")


def test_a_download_that_is_stopped_leaves_nothing(cache, monkeypatch):
    class Stop:
        total = 0

        def update(self, count, /):
            raise KeyboardInterrupt

        reset = close = None

    @contextmanager
    def bars(label):
        yield Stop()

    with mirror(paths(CONTENTS)) as served:
        register(monkeypatch, CONTENTS, served.url)
        with pytest.raises(KeyboardInterrupt):
            fetch("mnist", bars=bars)
    assert left(cache) == []


def test_many_may_fetch_the_same_set_at_once(cache, monkeypatch):
    with mirror(paths(CONTENTS)) as served, ThreadPoolExecutor(8) as pool:
        register(monkeypatch, CONTENTS, served.url)
        for found in pool.map(lambda _: load("mnist"), range(16)):
            check_loaded(found)
    assert left(cache) == sorted(CONTENTS)


BATCHES = {
    f"{name}.bin": bytes([number]) + bytes([10 * number]) * 3072
    for number, name in enumerate([*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"])
}


def archive(contents):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def register_cifar(monkeypatch, content, url):
    row = registry.ROWS["cifar-10"]
    expected = tuple(replace(file, sha256=sha(BATCHES[file.name])) for file in row.files)
    packed = File("cifar-10/cifar-10-binary.tar.gz", sha(content), len(content), (f"{url}cifar.tar.gz",))
    monkeypatch.setitem(registry.ROWS, "cifar-10", replace(row, files=expected, archive=packed))


def put_batches(folder, *chosen):
    inner = folder / "cifar-10" / "cifar-10-batches-bin"
    inner.mkdir(parents=True)
    for name in chosen:
        (inner / name).write_bytes(BATCHES[name])


def test_a_set_in_batches_is_used_with_those_that_are_there(cache, monkeypatch):
    register_cifar(monkeypatch, b"", closed_port())
    put_batches(cache, "data_batch_4.bin", "data_batch_2.bin", "test_batch.bin")
    assert available("cifar-10")
    found = load("cifar-10")
    assert found.train.y.tolist() == [1, 3]
    assert found.test.y.tolist() == [5]
    assert found.note == "3 of 6 files: data_batch_2.bin, data_batch_4.bin, test_batch.bin"


@pytest.mark.parametrize("there", [(), ("test_batch.bin",), ("data_batch_1.bin", "data_batch_2.bin")])
def test_batches_come_from_an_archive_that_is_not_kept(there, cache, monkeypatch):
    content = archive(BATCHES | {"../../escaped": b"never looked at"})
    with mirror({"/cifar.tar.gz": content}) as served:
        register_cifar(monkeypatch, content, served.url)
        put_batches(cache, *there)
        assert not available("cifar-10")
        found = load("cifar-10")
        assert served.asked == ["/cifar.tar.gz"]
    assert found.train.y.tolist() == [0, 1, 2, 3, 4]
    assert found.train.x[3].max() == 30
    assert found.note == ""
    assert left(cache) == sorted(BATCHES)


def test_fetch_completes_a_set_that_is_partly_there(cache, tmp_path, monkeypatch):
    content = archive(BATCHES)
    with mirror({"/cifar.tar.gz": content}) as served:
        register_cifar(monkeypatch, content, served.url)
        put_batches(tmp_path / "mine", "data_batch_1.bin", "test_batch.bin")
        found = fetch("cifar-10", tmp_path / "mine")
    assert left(cache) == [f"data_batch_{number}.bin" for number in range(2, 6)]
    assert [str(path).startswith(str(cache)) for path in found.values()] == [False, *[True] * 4, False]
    assert len(load("cifar-10", tmp_path / "mine").train) == 5


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            archive({"data_batch_1.bin": BATCHES["data_batch_1.bin"]}),
            "is damaged or incomplete: .*data_batch_2.bin",
        ),
        (archive(BATCHES | {"data_batch_3.bin": b"other"}), "data_batch_3.bin.*SHA-256 should be"),
        (archive(BATCHES)[:100], "cifar-10-binary.tar.gz"),
        (b"no archive", "cifar-10-binary.tar.gz"),
    ],
)
def test_an_archive_of_something_else_is_refused_and_not_kept(content, sentence, cache, monkeypatch):
    with mirror({"/cifar.tar.gz": content}) as served:
        register_cifar(monkeypatch, content, served.url)
        with pytest.raises(DataError, match=sentence):
            load("cifar-10")
    assert "cifar-10-binary.tar.gz" not in left(cache)
    assert all(name in BATCHES for name in left(cache))


def test_every_row_is_whole():
    for name in names():
        row = registry.row(name)
        assert row.kind in ("images", "table", "sequences")
        assert not row.instead or not registry.row(row.instead).files
        for file in row.files if row.archive is None else (*row.files, row.archive):
            assert re.fullmatch(r"[0-9a-f]{64}", file.sha256)
            assert all(url.startswith("http") and url.endswith(file.name) for url in file.urls)
