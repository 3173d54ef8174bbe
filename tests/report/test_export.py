import csv
import errno
import hashlib
import os
import re
import stat

import numpy as np
import pandas as pd
import pytest

from metriscope.report import Companion, Page, ReportError, Section, Table, render, write_report
from metriscope.report.tables import cell


def names(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def one_table(frame):
    return Page("p", "", (Section("s", (Table("t", "t", frame),)),))


def test_a_report_is_a_page_and_two_files_a_table(page, tmp_path):
    path = write_report(page, tmp_path / "new" / "out")
    assert path == tmp_path / "new" / "out" / "report.html"
    assert path.read_text("utf-8") == render(page)
    tables = ["errors.csv", "errors.parquet", "index.json", "units.csv", "units.parquet"]
    assert names(path.parent / "tables") == tables
    assert names(path.parent) == sorted([*tables, "report.html"])


def test_page_csv_and_parquet_tell_the_same_values(tmp_path):
    values = [0.1 + 0.2, 1e-17, -123456.789, np.nan, 1.0]
    frame = pd.DataFrame({"net": list("abcde"), "value": values, "runs": range(5), "exact": [True, False] * 2 + [True]})
    path = write_report(one_table(frame), tmp_path)
    with (tmp_path / "tables" / "t.csv").open(newline="", encoding="utf-8") as file:
        stored = list(csv.DictReader(file))
    np.testing.assert_array_equal([float(row["value"] or "nan") for row in stored], values)
    assert [row["exact"] for row in stored] == [str(value) for value in frame["exact"]]
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "tables" / "t.parquet"), frame, check_exact=True)
    shown = re.findall(r'<td class=" number">([^<]*)</td>', path.read_text("utf-8"))
    assert shown[::2] == [cell(value) for value in values]
    assert shown[1::2] == ["0", "1", "2", "3", "4"]


def test_writing_again_replaces_and_leaves_nothing_else(page, tmp_path):
    first = write_report(page, tmp_path).read_bytes()
    assert write_report(page, tmp_path).read_bytes() == first
    assert len(names(tmp_path)) == 6


def test_files_have_the_rights_of_any_new_file(page, tmp_path):
    (tmp_path / "plain").write_text("x")
    path = write_report(page, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_file_in_the_way_is_explained_in_a_sentence(page, tmp_path):
    target = tmp_path / "file"
    target.write_text("x")
    with pytest.raises(ReportError, match=r"^cannot write .*index\.json: there is a file where a folder should be$"):
        write_report(page, target)


def test_a_full_disk_leaves_the_old_page_whole_and_no_draft(page, tmp_path, monkeypatch):
    old = write_report(one_table(pd.DataFrame({"a": [1]})), tmp_path).read_bytes()
    before = names(tmp_path)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match=r"the disk is full$"):
        write_report(page, tmp_path)
    assert (tmp_path / "report.html").read_bytes() == old
    assert names(tmp_path) == before


def test_a_column_that_parquet_cannot_hold_is_named_before_anything_is_written(tmp_path):
    with pytest.raises(ReportError, match="table 't' has a column that Parquet cannot hold"):
        write_report(one_table(pd.DataFrame({"mixed": [1, "two"]})), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_companion_is_written_beside_the_page_and_linked_from_it(tmp_path):
    companion = Companion("other.html", "Another <page>", "With **numbers**.", "<!DOCTYPE html><p>é</p>")
    path = write_report(Page("p", "", (Section("s", (companion,)),)), tmp_path)
    assert (tmp_path / "other.html").read_text("utf-8") == companion.html
    assert '<a href="other.html">Another &lt;page&gt;</a>' in path.read_text("utf-8")


@pytest.mark.parametrize("name", ["report.html", "page", "../up.html", ""])
def test_a_companion_needs_a_name_of_its_own(name):
    with pytest.raises(ValueError, match="companion"):
        Companion(name, "t", "t", "")


def tables_page(*tables, companions=()):
    frame = pd.DataFrame({"a": [1, 2]})
    blocks = [Table(name, name, frame) for name in tables] + [Companion(name, name, "t", name) for name in companions]
    return Page("p", "", (Section("s", tuple(blocks)),))


def test_a_page_of_another_name_leaves_the_report_and_its_tables_alone(page, tmp_path):
    write_report(page, tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    other = write_report(tables_page("errors"), tmp_path, "inspect.html")
    assert other == tmp_path / "inspect.html"
    assert {path: path.read_bytes() for path in before} == before
    assert names(tmp_path / "tables" / "inspect") == ["errors.csv", "errors.parquet", "index.json"]
    links = re.findall(r'<a href="(tables/[^"]*)">', other.read_text("utf-8"))
    assert links == ["tables/inspect/errors.csv", "tables/inspect/errors.parquet"]
    write_report(tables_page("units"), tmp_path)
    assert names(tmp_path / "tables" / "inspect") == ["errors.csv", "errors.parquet", "index.json"]


def test_what_a_page_no_longer_has_is_removed_and_nothing_else(tmp_path):
    tables = tmp_path / "tables"
    write_report(tables_page("kept", "gone", "edited", companions=["old.html"]), tmp_path)
    (tables / "edited.csv").write_text("mine now")
    (tables / "foreign.csv").write_text("never written by a page")
    write_report(tables_page("kept", "new"), tmp_path)
    assert names(tables) == [
        *("edited.csv", "foreign.csv", "index.json"),
        *("kept.csv", "kept.parquet", "new.csv", "new.parquet"),
    ]
    assert names(tmp_path) == sorted([*names(tables), "report.html"])
    write_report(tables_page(), tmp_path)
    assert names(tables) == ["edited.csv", "foreign.csv", "index.json"]


def test_what_was_written_before_a_failure_is_still_removed_later(tmp_path, monkeypatch):
    def fail(page, tables):
        raise KeyboardInterrupt

    write_report(tables_page("one"), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("metriscope.report.export.render", fail)
        with pytest.raises(KeyboardInterrupt):
            write_report(tables_page("two"), tmp_path)
    write_report(tables_page("three"), tmp_path)
    assert names(tmp_path / "tables") == ["index.json", "three.csv", "three.parquet"]


@pytest.mark.parametrize(
    "index", ["nonsense", "[]", '{"format": "metriscope report 1", "files": {"../x.csv": "FOREIGN"}}']
)
def test_a_damaged_or_edited_index_removes_nothing(index, tmp_path):
    (tmp_path / "x.csv").write_text("mine")
    (tmp_path / "out" / "tables").mkdir(parents=True)
    digest = hashlib.sha256(b"mine").hexdigest()
    (tmp_path / "out" / "tables" / "index.json").write_text(index.replace("FOREIGN", digest))
    (tmp_path / "out" / "tables" / "old.csv").write_text("old")
    write_report(tables_page("t"), tmp_path / "out")
    assert names(tmp_path) == ["index.json", "old.csv", "report.html", "t.csv", "t.parquet", "x.csv"]


@pytest.mark.parametrize("name", ["report", "../up.html", "a/b.html", "", ".html"])
def test_a_page_is_named_like_a_page(name, tmp_path):
    with pytest.raises(ValueError, match=r"a page needs a file name such as report\.html, got"):
        write_report(tables_page(), tmp_path, name)


def test_a_companion_cannot_replace_its_page(tmp_path):
    with pytest.raises(ValueError, match=r"a companion of inspect\.html must not have the file name"):
        write_report(tables_page(companions=["inspect.html"]), tmp_path, "inspect.html")
