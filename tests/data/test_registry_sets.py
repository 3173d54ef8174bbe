"""What the sets of the registry hold, and the rule by which sets without a published split are split."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import datasets

from metriscope.data import DataError, Labeled, available, load, registry
from metriscope.data.dataset import check_labels, every_fifth, split
from metriscope.data.tabular import adult_parts, ecg5000_parts, fsdd_parts, letter_parts, spambase_parts

FOLDER = os.environ.get("METRISCOPE_DATA", "")
real = pytest.mark.skipif(not FOLDER, reason="METRISCOPE_DATA names no folder of real data")


@given(labels=st.lists(st.integers(0, 3), max_size=60))
def test_every_fifth_example_of_each_class_is_test(labels):
    seen, expected = Counter(), []
    for label in labels:
        seen[label] += 1
        expected.append(seen[label] % 5 == 0)
    y = np.array(labels, dtype=np.int64)
    assert every_fifth(y).tolist() == expected
    train, test = split(np.arange(len(y)), y, every_fifth(y))
    assert sorted([*train.x, *test.x]) == list(range(len(y)))
    assert y[test.x].tolist() == test.y.tolist()


def test_examples_need_as_many_labels():
    with pytest.raises(DataError, match=r"3 examples need one label each, got an array of shape \(2,\)"):
        Labeled(np.zeros((3, 2)), np.zeros(2, dtype=np.int64))


@pytest.mark.parametrize(("labels", "wrong"), [([0, 3], 3), ([-1, 0], -1)])
def test_labels_out_of_range_are_named_with_their_part(labels, wrong):
    good = Labeled(np.zeros(2), np.array([0, 2]))
    with pytest.raises(DataError, match=f"the test part of wine holds the label {wrong}, expected 0 to 2"):
        check_labels("wine", (good, Labeled(np.zeros(2), np.array(labels))), 3)


@pytest.mark.parametrize("name", [name for name, row in registry.ROWS.items() if not row.files])
def test_an_embedded_set_has_what_its_row_says(name):
    row, found = registry.row(name), load(name)
    assert available(name)
    assert (len(found.train), len(found.test)) == (row.train, row.test)
    assert set(found.train.y) == set(found.test.y) == set(range(row.classes))
    assert found.train.y.dtype == np.int64
    assert found.train.x.dtype == (np.uint8 if row.kind == "images" else np.float64)


@pytest.mark.parametrize("name", ["wine", "breast_cancer"])
def test_an_embedded_table_is_scikit_learns(name):
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    found = load(name)
    marked = every_fifth(y)
    np.testing.assert_array_equal(found.train.x, x[~marked])
    np.testing.assert_array_equal(found.test.x, x[marked])
    assert len(found.test) == sum(count // 5 for count in np.bincount(y))


ADULT = [
    "39, State-gov, 77516, Bachelors, 13, Widowed, Adm-clerical, Unmarried, White, Male, 2174, 0, 40, Peru, <=50K",
    "50, ?, 83311, HS-grad, 9, Divorced, ?, Husband, Black, Female, 0, 5, 13, ?, >50K",
    "38, Private, 215646, HS-grad, 9, Divorced, Sales, Husband, White, Male, 0, 0, 40, Cuba, <=50K",
]


def write_adult(folder, train, test):
    (folder / "adult.data").write_text("\n".join(train) + "\n\n")
    (folder / "adult.test").write_text("\n".join(["|1x3 Cross validator", *test]) + "\n\n")
    return {name: folder / name for name in ("adult.data", "adult.test")}


def test_adults_categories_are_one_hot_and_a_missing_one_is_its_own(tmp_path):
    unknown = ADULT[0].replace("Peru", "Mars") + "."
    train, test = adult_parts(write_adult(tmp_path, ADULT, [unknown, ADULT[1] + "."]))
    table = pd.read_csv(tmp_path / "adult.data", header=None, skipinitialspace=True)
    plain, words = [0, 2, 4, 10, 11, 12], [1, 3, 5, 6, 7, 8, 9, 13]
    expected = np.hstack([table[plain].to_numpy(float), pd.get_dummies(table[words]).to_numpy(float)])
    np.testing.assert_array_equal(train.x, expected)
    assert train.x.dtype == np.float64
    assert train.y.tolist() == [0, 1, 0]
    assert test.y.tolist() == [0, 1]
    np.testing.assert_array_equal(test.x[1], train.x[1])
    # Mars is no country of the training part: its three columns, the last, are zeros.
    np.testing.assert_array_equal(test.x[0], [*train.x[0][:-3], 0, 0, 0])


def test_adults_damage_is_one_sentence(tmp_path):
    with pytest.raises(DataError, match=r"adult.data has 14 columns, expected 15"):
        adult_parts(write_adult(tmp_path, [line.partition(", ")[2] for line in ADULT], ADULT))
    with pytest.raises(DataError, match=r"adult.data is not a table: "):
        adult_parts(write_adult(tmp_path, [*ADULT, ADULT[0] + ", more"], ADULT))
    parts = adult_parts(write_adult(tmp_path, [*ADULT, ADULT[0].replace("<=50K", "rich")], ADULT))
    with pytest.raises(DataError, match="the training part of adult holds the label -1"):
        check_labels("adult", parts, 2)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("1,2,3\n", "spambase.data has 3 columns, expected 58"),
        (",".join(["1"] * 57 + ["spam"]) + "\n", "spambase.data is not a table of numbers: "),
        (",".join(["1"] * 57 + [""]) + "\n", "spambase.data is not a table of numbers: "),
        (",".join(["1"] * 57 + ["nan"]) + "\n", "spambase.data holds numbers that are not finite"),
        ("1,2\n1,2,3\n", "spambase.data is not a table of numbers: "),
        ("", "spambase.data is not a table of numbers: "),
    ],
)
def test_a_table_that_is_none_is_one_sentence(content, sentence, tmp_path):
    path = tmp_path / "spambase.data"
    path.write_text(content)
    with pytest.raises(DataError, match=sentence) as caught:
        spambase_parts({path.name: path})
    assert "\n" not in str(caught.value)


def test_letters_are_numbered_from_a(tmp_path):
    path = tmp_path / "letter-recognition.data"
    path.write_text("".join(f"{letter},{','.join('7' * 16)}\n" for letter in "ZAB?"))
    assert letter_parts({path.name: path})[0].y.tolist() == [25, 0, 1, -1]


def write_fsdd(path, **changes):
    arrays = {"samples": np.array([-32768, 16384, 1, 2, 3], np.int16), "length": np.array([2, 3], np.int32)}
    arrays |= {"digit": np.array([4, 9], np.uint8), "index": np.array([4, 5], np.int16)}
    np.savez(path, **{name: array for name, array in (arrays | changes).items() if array is not None})
    return {path.name: path}


def test_recordings_are_scaled_padded_and_split_by_their_number(tmp_path):
    train, test = fsdd_parts(write_fsdd(tmp_path / "fsdd.npz"))
    assert test.x.dtype == np.float32
    assert test.x.tolist() == [[-1.0, 0.5, 0.0]]
    np.testing.assert_array_equal(train.x * 32768, [[1, 2, 3]])
    assert (train.y.tolist(), test.y.tolist()) == ([9], [4])


def test_recordings_that_do_not_add_up_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"fsdd.npz holds 5 samples, but its recordings have 6 in total"):
        fsdd_parts(write_fsdd(tmp_path / "fsdd.npz", length=np.array([3, 3])))
    with pytest.raises(DataError, match=r"fsdd.npz is not a complete archive of spoken digits"):
        fsdd_parts(write_fsdd(tmp_path / "fsdd.npz", digit=None))
    with pytest.raises(DataError, match=r"fsdd.npz is not a complete archive of spoken digits"):
        fsdd_parts(write_fsdd(tmp_path / "fsdd.npz", digit=np.array([{}, {}], dtype=object)))
    (tmp_path / "fsdd.npz").write_bytes(b"PK\x03\x04 cut")
    with pytest.raises(DataError, match=r"fsdd.npz is not a complete archive of spoken digits"):
        fsdd_parts({"fsdd.npz": tmp_path / "fsdd.npz"})


def test_heartbeats_are_a_label_from_one_then_their_steps(tmp_path):
    paths = {f"ECG5000_{part}.tsv": tmp_path / f"ECG5000_{part}.tsv" for part in ("TRAIN", "TEST")}
    for number, path in enumerate(paths.values(), start=1):
        path.write_text("\t".join([str(number), *(str(step / 8) for step in range(140))]) + "\n")
    train, test = ecg5000_parts(paths)
    assert (train.y.tolist(), test.y.tolist()) == ([0], [1])
    np.testing.assert_array_equal(train.x, np.arange(140, dtype=np.float32)[None] / 8)


@real
def test_rows_say_the_sums_and_sizes_of_the_files_in_the_folder():
    lines = (Path(FOLDER) / "SHA256SUMS").read_text(encoding="utf-8").split()
    sums = {path.removeprefix("./"): sha for sha, path in zip(lines[::2], lines[1::2], strict=True)}
    for row in registry.ROWS.values():
        for file in row.files:
            if (Path(FOLDER) / file.path).exists():
                assert (file.path, file.sha256) == (file.path, sums[file.path])
                assert file.size == (Path(FOLDER) / file.path).stat().st_size


@real
@pytest.mark.parametrize(
    ("name", "features", "train", "test"),
    [
        ("adult", (108,), [24_720, 7_841], [12_435, 3_846]),
        ("covertype", (54,), [2_160] * 7, [209_680, 281_141, 33_594, 587, 7_333, 15_207, 18_350]),
        ("spambase", (57,), [2_231, 1_451], [557, 362]),
        ("ecg5000", (140,), [292, 177, 10, 19, 2], [2_627, 1_590, 86, 175, 22]),
        ("fsdd", (18_262,), [270] * 10, [30] * 10),
    ],
)
def test_a_real_set_has_the_published_counts(name, features, train, test):
    found, row = load(name), registry.row(name)
    assert found.train.x.shape == (row.train, *features)
    assert found.test.x.shape == (row.test, *features)
    assert np.bincount(found.train.y).tolist() == train
    assert np.bincount(found.test.y).tolist() == test
    assert found.train.x.dtype == (np.float32 if row.kind == "sequences" else np.float64)


@real
def test_letter_has_sixteen_thousand_to_train_and_four_thousand_to_test():
    found = load("letter")
    assert (found.train.x.shape, found.test.x.shape) == ((16_000, 16), (4_000, 16))
    assert found.train.x.min() == 0
    assert found.train.x.max() == 15
    # Its description counts 789 A and 734 Z.
    assert np.bincount(np.concatenate([found.train.y, found.test.y]))[[0, 25]].tolist() == [789, 734]


@real
def test_spambase_is_what_numpy_reads():
    table = np.loadtxt(Path(FOLDER) / "tabular" / "spambase.data", delimiter=",")
    np.testing.assert_array_equal(load("spambase").test.x, table[every_fifth(table[:, -1]), :-1])
