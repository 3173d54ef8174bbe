from __future__ import annotations

import threading

import pytest

from metriscope.common import progress as module
from metriscope.common.progress import late_progress, progress


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    for name in ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "JUPYTER_COLUMNS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


def count_to_three():
    with progress("counting", total=3) as show:
        for done in range(4):
            show(done)


def test_progress_is_silent_where_nobody_watches(capfd):
    count_to_three()
    assert capfd.readouterr() == ("", "")


def test_progress_is_shown_on_standard_error_where_somebody_does(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    count_to_three()
    out, error = capsys.readouterr()
    assert out == ""
    assert "counting" in error
    assert "3/3" in error


def test_progress_leaves_no_thread_behind_even_after_an_error(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    before = set(threading.enumerate())
    with pytest.raises(KeyError), progress("counting", total=3, start=1):
        raise KeyError
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
        assert not thread.is_alive()


@pytest.mark.parametrize(("patience", "total", "shown"), [(0.0, 3, True), (1e9, 3, False), (0.0, None, False)])
def test_late_progress_is_shown_only_if_work_takes_long_and_its_end_is_known(
    patience, total, shown, capsys, monkeypatch
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(module, "_PATIENCE", patience)
    with late_progress("counting", total) as show:
        show(3)
    assert ("counting" in capsys.readouterr().err) is shown
