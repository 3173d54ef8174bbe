"""Data sets of Hugging Face and Ray: the signs are those of the same points in a tensor, whole or in shards."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import metriscope as ms
from metriscope.vq import capture_shards
from vq.capture.networks import points

X = points(23, 4)


class ByName(nn.Module):
    """A network whose inputs have names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.act = nn.Linear(4, 6), nn.ReLU()

    def forward(self, x, scale=None):
        z = self.first(x)
        return self.act(z if scale is None else z * scale[:, None])


class HuggingFaceLike:
    """What a data set of the package datasets does, as far as it is used here."""

    def __init__(self, columns, form=None):
        self.columns, self.form = columns, form

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def with_format(self, form):
        return HuggingFaceLike(self.columns, form)

    def select(self, rows):
        return HuggingFaceLike({name: [column[i] for i in rows] for name, column in self.columns.items()})

    def iter(self, size):
        assert self.form == "torch"
        for start in range(0, len(self), size):
            yield {name: torch.tensor(column[start : start + size]) for name, column in self.columns.items()}


class RayLike:
    """What a data set of Ray does, as far as it is used here."""

    def __init__(self, columns):
        self.columns = columns

    def __len__(self):
        raise AttributeError("use count()")

    def map_batches(self, function):
        raise NotImplementedError

    def iter_batches(self, batch_size, batch_format):
        assert batch_format == "numpy"
        for start in range(0, len(X), batch_size):
            yield {name: np.asarray(column)[start : start + batch_size] for name, column in self.columns.items()}


def huggingface(**columns):
    return pytest.importorskip("datasets").Dataset.from_dict(columns)


@pytest.fixture(scope="module")
def ray():
    data = pytest.importorskip("ray.data")
    import ray as cluster

    cluster.init(
        num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="error", configure_logging=False
    )
    data.DataContext.get_current().enable_progress_bars = False
    yield lambda column: data.from_items([{"x": row} for row in column])
    cluster.shutdown()


KINDS = {"Hugging Face, in short": lambda **c: HuggingFaceLike(c), "Ray, in short": lambda **c: RayLike(c)}
KINDS["Hugging Face"] = huggingface


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_has_the_signs_of_its_points(kind, tmp_path):
    model = ByName()
    expected = ms.capture(model, X, batch_size=5)
    table = KINDS[kind](x=X.tolist(), label=[0] * len(X))
    assert ms.capture(model, table, batch_size=5).equals(expected)
    shards = capture_shards(model, table, tmp_path / "shards", shard_size=10, batch_size=5)
    np.testing.assert_array_equal(shards.signs(), expected.signs())
    parts = [len(ms.Patterns.load(part)) for part in sorted((tmp_path / "shards").glob("part-*"))]
    assert parts == [10, 10, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_one_column_is_the_only_input_whatever_its_name(kind):
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
    expected = ms.capture(model, X)
    assert ms.capture(model, KINDS[kind](pixels=X.tolist(), label=[0] * len(X))).equals(expected)


def test_a_column_that_no_input_has_is_refused_if_there_are_others():
    table = HuggingFaceLike({"x": X.tolist(), "weight": [1.0] * len(X)})
    with pytest.raises(ValueError, match="a batch has the key 'weight', but the model takes"):
        ms.capture(ByName(), table)


def test_another_size_of_shards_needs_another_folder(tmp_path):
    model, table = ByName(), HuggingFaceLike({"x": X.tolist()})
    capture_shards(model, table, tmp_path / "shards", shard_size=10)
    with pytest.raises(ValueError, match="other options"):
        capture_shards(model, table, tmp_path / "shards", shard_size=11)


def test_a_layer_is_read_from_a_table():
    model = ByName()
    expected = ms.read_layer(model, "first", X).to_pandas()
    found = ms.read_layer(model, "first", HuggingFaceLike({"x": X.tolist()})).to_pandas()
    assert found["offset"].tolist() == pytest.approx(expected["offset"].tolist())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_table_of_ray_itself_has_the_signs_of_its_points(ray, tmp_path):
    model = ByName()
    table = ray([row.numpy() for row in X])
    assert ms.capture(model, table, batch_size=5).equals(ms.capture(model, X, batch_size=5))
    shards = capture_shards(model, table, tmp_path / "shards", shard_size=10)
    np.testing.assert_array_equal(shards.signs(), ms.capture(model, X).signs())
