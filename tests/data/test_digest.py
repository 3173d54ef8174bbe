"""Every data set has a SHA-256: embedded ones are checked against it, and a specification can carry it."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import replace

import numpy as np
import pytest

from data.mirrors import isolate, put, register, sha, tiny_mnist
from metriscope.data import DataError, Labeled, digest, images, load, mnist_5k, names, registry
from metriscope.data.dataset import content_digest
from metriscope.data.download import File

EMBEDDED = [name for name, row in registry.ROWS.items() if not row.files]


def by_hand(found):
    """Return the digest of a set from the bytes of its arrays, spelled out."""
    text = b""
    for part in (found.train, found.test):
        for array in (part.x, part.y):
            kind = {"uint8": "|u1", "int64": "<i8", "float64": "<f8"}[array.dtype.name]
            text += f"{kind} {array.shape}\n".encode() + array.astype(kind).tobytes()
    return hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("name", EMBEDDED)
def test_the_digest_of_an_embedded_set_is_that_of_its_content(name):
    assert digest(name) == by_hand(load(name))


@pytest.mark.parametrize("name", EMBEDDED)
def test_an_embedded_set_with_other_content_is_refused(name, monkeypatch):
    row = registry.ROWS[name]

    def altered(paths):
        train, test = row.read(paths)
        x = train.x.copy()
        x.flat[0] += 1
        return Labeled(x, train.y), test

    monkeypatch.setitem(registry.ROWS, name, replace(row, read=altered))
    with pytest.raises(DataError) as caught:
        load(name)
    assert str(caught.value).startswith(
        f"the installed {name} is not the one expected: its SHA-256 should be {row.sha256} and is "
    )


def test_a_pixel_that_changed_in_the_embedded_file_is_noticed_by_every_way_to_read_it(monkeypatch, tmp_path):
    with gzip.open(images._MNIST_5K) as file:
        altered = np.load(file, allow_pickle=False)
    altered[4_321, 14, 14] ^= 1
    with gzip.open(tmp_path / "altered.npy.gz", "wb") as file:
        np.save(file, altered, allow_pickle=False)
    monkeypatch.setattr(images, "_MNIST_5K", tmp_path / "altered.npy.gz")
    for read in (mnist_5k, lambda: load("mnist-5k")):
        with pytest.raises(DataError, match="the installed mnist-5k is not the one expected"):
            read()


def test_type_shape_part_and_every_value_decide_a_digest():
    y = np.array([0, 1])
    forms = [np.zeros((2, 4), np.uint8), np.zeros((2, 2, 2), np.uint8), np.zeros((2, 4), np.int8), np.eye(2, 4)]
    parts = [Labeled(x, y) for x in forms] + [Labeled(forms[0], y[::-1].copy())]
    digests = [content_digest((one, two)) for one in parts for two in parts]
    assert len(set(digests)) == len(digests)


def test_neither_the_order_in_memory_nor_that_of_bytes_decides_a_digest():
    x, y = np.arange(6.0).reshape(2, 3), np.array([0, 1])
    same = [x, np.asfortranarray(x), x.astype(">f8"), np.repeat(x, 2, axis=0)[::2]]
    assert len({content_digest((Labeled(form, y), Labeled(form, y))) for form in same}) == 1


def test_the_digest_of_files_is_that_of_their_registered_hashes_and_needs_none_of_them(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "cache")
    contents = tiny_mnist()
    register(monkeypatch, contents)
    expected = hashlib.sha256("".join(f"{sha(each)}\n" for each in contents.values()).encode()).hexdigest()
    assert digest("mnist") == expected
    put(tmp_path / "mine", contents)
    assert digest("mnist", data_dir=tmp_path / "mine") == expected


def test_every_set_has_a_digest_of_its_own(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "cache")
    digests = [digest(name) for name in names()]
    assert len(set(digests)) == len(names())
    assert all(len(each) == 64 and int(each, 16) for each in digests)


def test_a_set_with_some_of_its_batches_has_another_digest(monkeypatch, tmp_path):
    isolate(monkeypatch, tmp_path / "cache")
    files = registry.ROWS["cifar-10"].files

    def place(folder, chosen):
        for file in chosen:
            (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / file.path).write_bytes(b"")
        return folder

    def expected(chosen: list[File]):
        return hashlib.sha256("".join(f"{file.sha256}\n" for file in chosen).encode()).hexdigest()

    some = [files[0], files[-1]]
    assert digest("cifar-10") == expected(files)
    assert digest("cifar-10", place(tmp_path / "some", some)) == expected(some)
    assert digest("cifar-10", place(tmp_path / "few", files[:1])) == expected(files)
    monkeypatch.setenv("METRISCOPE_DATA", str(tmp_path / "some"))
    assert digest("cifar-10") == expected(some)


def test_a_set_or_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="unknown data set 'nonsense'"):
        digest("nonsense")
    with pytest.raises(DataError, match="there is no data folder"):
        digest("mnist", tmp_path / "nowhere")
