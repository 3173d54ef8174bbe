import csv
import errno
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
    assert names(path.parent) == ["errors.csv", "errors.parquet", "report.html", "units.csv", "units.parquet"]


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
    assert len(names(tmp_path)) == 5


def test_files_have_the_rights_of_any_new_file(page, tmp_path):
    (tmp_path / "plain").write_text("x")
    path = write_report(page, tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_file_in_the_way_is_explained_in_a_sentence(page, tmp_path):
    target = tmp_path / "file"
    target.write_text("x")
    with pytest.raises(ReportError, match=r"^cannot write .*errors\.csv: a file stands where a folder should be$"):
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
