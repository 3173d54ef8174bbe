"""Folders with one subfolder of images per class are read like any other data set."""

import numpy as np
import pytest

from metriscope import data

Image = pytest.importorskip("PIL.Image")


def fill(folder, levels, count):
    for name, level in levels.items():
        (folder / name).mkdir(parents=True)
        for number in range(count):
            Image.new("L", (number + 2, 5), level).save(folder / name / f"{number}.png")


def test_classes_are_sorted_by_name_and_every_fifth_image_is_for_testing(tmp_path):
    fill(tmp_path, {"white": 255, "black": 0}, 5)
    found = data.load(str(tmp_path))
    assert found.train.x.shape == (8, 3, 32, 32)
    assert found.train.x.dtype == np.uint8
    assert found.test.y.tolist() == [0, 1]
    assert found.test.x[0].max() == 0
    assert found.test.x[1].min() == 255
    assert data.available(str(tmp_path))


def test_published_parts_are_kept_and_the_digest_follows_the_content(tmp_path):
    fill(tmp_path / "train", {"a": 1, "b": 2}, 3)
    fill(tmp_path / "val", {"b": 9}, 2)
    found = data.load(str(tmp_path))
    assert found.train.y.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.test.y.tolist() == [1, 1]
    before = data.digest(str(tmp_path))
    assert before == data.digest(str(tmp_path))
    Image.new("L", (4, 4), 77).save(tmp_path / "val" / "b" / "more.png")
    assert data.digest(str(tmp_path)) != before


def test_what_is_wrong_with_a_folder_is_said_in_one_sentence(tmp_path):
    with pytest.raises(data.DataError, match="one subfolder of images for each of two or more classes"):
        data.load(str(tmp_path))
    fill(tmp_path / "train", {"a": 1, "b": 2}, 1)
    fill(tmp_path / "val", {"a": 1, "c": 2}, 1)
    with pytest.raises(data.DataError, match="holds the class c, which"):
        data.load(str(tmp_path))
    (tmp_path / "val" / "c").rename(tmp_path / "val" / "b")
    (tmp_path / "val" / "b" / "0.png").write_bytes(b"not an image")
    with pytest.raises(data.DataError, match="is not a picture that can be read"):
        data.load(str(tmp_path))
    (tmp_path / "other" / "x").mkdir(parents=True)
    (tmp_path / "other" / "y").mkdir()
    with pytest.raises(data.DataError, match="holds no image"):
        data.load(str(tmp_path / "other"))
