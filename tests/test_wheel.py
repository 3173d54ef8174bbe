"""The wheel and the source archive can be installed in an empty environment and used there, offline if possible."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_wheel_and_source_archive_can_be_installed_and_used():
    env = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([ROOT / ".ci" / "wheel"], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "both can be installed and used" in done.stdout
