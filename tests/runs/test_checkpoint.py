import logging
import math
import os

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metriscope.common.errors import Damage
from metriscope.rng import stream
from metriscope.runs.checkpoint import Checkpoint, decode, encode
from metriscope.runs.store import Store, StoreError

ADDRESS = "ab" * 20
META = {"epoch": 3, "loss": math.inf, 'quote"metriscope":"': "0" * 80}


def state(epoch=3):
    generator = stream(7, "state", epoch)
    return {
        "model.weight": torch.randn(3, 2, generator=generator),
        "adam.step": torch.tensor(float(epoch)),
        "adam.square": torch.rand(3, 2, generator=generator, dtype=torch.float64),
        "random": generator.get_state(),
    }


def assert_same(one, two):
    assert one.keys() == two.keys()
    assert all(one[name].equal(two[name]) and one[name].dtype == two[name].dtype for name in one)


@pytest.fixture
def checkpoint(tmp_path):
    return Checkpoint(tmp_path, ADDRESS)


def test_weights_optimizer_state_and_step_come_back_as_they_were(checkpoint):
    checkpoint.save(state(), 3, 9)
    tensors, step = checkpoint.load(9, state())
    assert_same(tensors, state())
    assert step == 3


def test_only_the_newest_checkpoint_is_kept(checkpoint):
    for epoch in (1, 2):
        checkpoint.save(state(epoch), epoch, 9)
    tensors, step = checkpoint.load(9, state())
    assert_same(tensors, state(2))
    assert step == 2
    assert [path.name for path in checkpoint.path.parent.iterdir()] == [f"{ADDRESS}.safetensors"]


def test_a_checkpoint_lies_under_checkpoints_at_its_address(checkpoint, tmp_path):
    checkpoint.save(state(), 3, 9)
    assert checkpoint.path == tmp_path / "checkpoints" / f"{ADDRESS}.safetensors"
    assert checkpoint.path.is_file()


def test_there_is_nothing_to_load_before_the_first_save_and_after_clearing(checkpoint):
    assert checkpoint.load(9, state()) is None
    checkpoint.clear()
    checkpoint.save(state(), 3, 9)
    checkpoint.clear()
    assert checkpoint.load(9, state()) is None


def test_the_same_state_gives_the_same_bytes():
    one, two = (b"".join(encode(state(), META)) for _ in range(2))
    assert one == two


def test_any_safetensors_reader_can_open_a_checkpoint(checkpoint):
    from safetensors.torch import load_file

    checkpoint.save(state(), 3, 9)
    assert_same(load_file(checkpoint.path), state())


@given(place=st.integers(min_value=0), change=st.integers(1, 255))
def test_a_change_of_any_byte_is_noticed(place, change):
    data = bytearray(b"".join(encode(state(), META)))
    data[place % len(data)] ^= change
    with pytest.raises(Damage):
        decode(bytes(data))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keep=st.floats(0, 1, exclude_max=True))
def test_a_truncated_checkpoint_is_set_aside_and_counts_as_none(checkpoint, keep):
    checkpoint.save(state(), 3, 9)
    os.truncate(checkpoint.path, int(keep * checkpoint.path.stat().st_size))
    assert checkpoint.load(9, state()) is None
    assert not checkpoint.path.exists()


@given(st.binary(max_size=200))
def test_garbage_is_damage(data):
    with pytest.raises(Damage):
        decode(data)


def test_a_folder_in_place_of_the_checkpoint_is_set_aside_and_counts_as_none(checkpoint):
    checkpoint.path.mkdir(parents=True)
    assert checkpoint.load(9, state()) is None
    assert not checkpoint.path.exists()


def test_damage_is_logged_in_one_line_that_names_the_file(checkpoint, caplog):
    checkpoint.save(state(), 3, 9)
    os.truncate(checkpoint.path, 0)
    with caplog.at_level(logging.WARNING, logger="metriscope.runs"):
        assert checkpoint.load(9, state()) is None
    assert caplog.messages == [
        f"{checkpoint.path} is set aside, and its run starts again: truncated or edited: "
        "its content does not match its SHA-256"
    ]


def test_a_damaged_or_stray_checkpoint_is_a_problem_of_the_store_and_a_whole_one_is_not(tmp_path):
    Checkpoint(tmp_path, ADDRESS).save(state(), 3, 9)
    assert Store(tmp_path).verify() == []
    os.truncate(tmp_path / "checkpoints" / f"{ADDRESS}.safetensors", 100)
    (tmp_path / "checkpoints" / "notes.txt").write_text("")
    damaged, stray = Store(tmp_path).verify()
    assert (damaged.path, damaged.address) == (f"checkpoints/{ADDRESS}.safetensors", ADDRESS)
    assert damaged.reason.startswith("truncated or edited")
    assert (stray.path, stray.reason) == ("checkpoints/notes.txt", "extra file")


@pytest.mark.parametrize("step", [1, 2])
def test_a_full_disk_leaves_the_previous_checkpoint(checkpoint, monkeypatch, step):
    checkpoint.save(state(1), 1, 9)
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fails_at(step))
        with pytest.raises(StoreError, match=r"cannot save checkpoint abababababab in .*: the disk is full$"):
            checkpoint.save(state(2), 2, 9)
    assert [path.name for path in checkpoint.path.parent.iterdir()] == [f"{ADDRESS}.safetensors"]
    tensors, reached = checkpoint.load(9, state())
    # The second sync is that of the folder, after the new file has taken the place of the old.
    assert reached == step
    assert_same(tensors, state(step))


def fails_at(step):
    calls = iter(range(1, 100))

    def fsync(_):
        if next(calls) == step:
            raise OSError(28, "No space left on device")

    return fsync
