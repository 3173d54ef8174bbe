from __future__ import annotations

import pytest

from data.mirrors import isolate, left, mirror, paths, put, register, tiny_mnist
from metriscope.cli import main
from metriscope.common import progress
from metriscope.data import names

CONTENTS = tiny_mnist()


@pytest.fixture
def cache(monkeypatch, tmp_path):
    return isolate(monkeypatch, tmp_path / "cache")


def row_of(name, text):
    return next(line for line in text.splitlines() if line.startswith(f"{name} "))


def test_the_list_has_a_line_a_set_and_says_where_each_is(cache, tmp_path, monkeypatch, capsys):
    register(monkeypatch, CONTENTS)
    assert main(["data", "list"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[0] for line in text.splitlines()] == ["name", *names()]
    assert "not here" in row_of("mnist", text)
    assert row_of("mnist-5k", text).split() == ["mnist-5k", "images", "4,000", "+", "1,000", "embedded", "-"]
    put(cache, CONTENTS)
    assert main(["data", "list"]) == 0
    assert " cache " in row_of("mnist", capsys.readouterr().out)
    put(tmp_path / "mine", dict(list(CONTENTS.items())[:1]))
    assert main(["data", "list", "--data-dir", str(tmp_path / "mine")]) == 0
    assert f"found in {tmp_path / 'mine'} and cache " in row_of("mnist", capsys.readouterr().out)
    (cache / "mnist" / list(CONTENTS)[-1]).unlink()
    monkeypatch.setenv("METRISCOPE_DATA", str(tmp_path / "mine"))
    assert main(["data", "list"]) == 0
    assert f"found in {tmp_path / 'mine'} and cache (3 of 4 files)" in row_of("mnist", capsys.readouterr().out)


def test_fetch_fills_the_cache_and_prints_where(cache, monkeypatch, capsys):
    with mirror(paths(CONTENTS)) as served:
        register(monkeypatch, CONTENTS, served.url)
        assert main(["data", "fetch", "mnist"]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [str(cache / "mnist" / name) for name in CONTENTS]
    assert printed.err == ""
    assert left(cache) == sorted(CONTENTS)


def test_fetch_draws_a_bar_on_a_terminal(cache, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with mirror(paths(CONTENTS)) as served:
        register(monkeypatch, CONTENTS, served.url)
        assert main(["data", "fetch", "mnist"]) == 0
    assert "train-images" in capsys.readouterr().err


def test_a_bar_counts_what_it_is_told():
    with progress.rich_bar("some file") as bar:
        bar.total = 0
        assert bar.total == 0
        bar.total = 100
        bar.update(64)
        assert bar.total == 100
        bar.reset()
        bar.update(100)
        bar.close()


def test_an_embedded_set_needs_no_fetching(cache, capsys):
    assert main(["data", "fetch", "wine"]) == 0
    assert capsys.readouterr().out == "wine is embedded: there is nothing to fetch\n"
    assert not cache.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["fetch"], "data fetch needs the name of a data set: data list prints them"),
        (["fetch", "nonsense"], "unknown data set 'nonsense': there are mnist, fashion-mnist, cifar-10, mnist-5k"),
        (["fetch", "ecg5000"], "cannot find sequence/ECG5000_TRAIN.tsv: there is no intact copy in "),
        (["list", "--data-dir", "nowhere"], "there is no data folder nowhere"),
    ],
)
def test_bad_input_gives_one_clear_sentence_and_a_status(arguments, sentence, cache, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["data", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"metriscope: {sentence}")
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []
