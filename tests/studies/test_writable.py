"""Asking whether a folder can be written to leaves alone what another process has there."""

import pytest

from metriscope.studies.runner import _check_writable


def test_the_probe_of_another_process_is_neither_overwritten_nor_removed(tmp_path):
    theirs = tmp_path / ".writable"
    theirs.write_bytes(b"theirs")
    _check_writable(tmp_path)
    assert theirs.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [theirs]


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ValueError, match=r"^cannot write to --out .*: there is a file where a folder should be$"):
        _check_writable(tmp_path / "file" / "out")
