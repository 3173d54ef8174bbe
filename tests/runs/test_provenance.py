import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch

from metriscope.runs import provenance as module
from metriscope.runs.provenance import provenance

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


def test_provenance_gives_the_versions_that_are_loaded():
    found = provenance()
    assert found["python"] == sys.version.split()[0]
    assert found["packages"]["numpy"] == np.__version__
    assert found["packages"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    several = {"metriscope", "torch", "numpy", "scipy", "numba", "scikit-learn", "numkong", "pyarrow", "pandas"}
    assert set(found["packages"]) == several


def test_provenance_gives_the_date_in_utc():
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", provenance()["date"])


def test_provenance_gives_the_threads_of_torch():
    assert provenance()["threads"]["torch"] == torch.get_num_threads()


def test_provenance_names_no_host_no_user_and_no_path(monkeypatch):
    for name in ("USER", "LOGNAME", "USERNAME", "HOSTNAME"):
        monkeypatch.setenv(name, "somebody")
    monkeypatch.setattr("platform.node", lambda: "somewhere")
    text = json.dumps(provenance())
    assert "some" not in text
    assert os.sep not in text


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout in which the module believes to lie, as ``package/runs/provenance.py``."""
    file = tmp_path / "package" / "runs" / "provenance.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    (tmp_path / "notes.txt").write_text("")
    monkeypatch.setattr(module, "__file__", str(file))
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "notes.txt")
    git(tmp_path, "commit", "--quiet", "-m", "Add notes")
    return tmp_path


def git(folder, *arguments):
    identity = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false")
    command = ("git", "-C", str(folder), *identity, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@needs_git
def test_code_that_merely_lies_inside_the_checkout_of_another_project_has_no_commit(checkout):
    assert module._code.__wrapped__() == {"commit": None, "dirty": None}


@needs_git
def test_code_has_the_commit_of_its_checkout_and_is_dirty_once_a_file_of_the_package_differs(checkout):
    git(checkout, "add", "package")
    git(checkout, "commit", "--quiet", "-m", "Add the package")
    (checkout / "notes.txt").write_text("changed, but no code")
    commit = git(checkout, "rev-parse", "HEAD")
    assert module._code.__wrapped__() == {"commit": commit, "dirty": False}
    (checkout / "package" / "new.py").write_text("")
    assert module._code.__wrapped__() == {"commit": commit, "dirty": True}


def test_a_machine_without_git_is_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert module._git("status") is None
