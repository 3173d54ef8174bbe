"""What ./run and ./test do first: which build of PyTorch they ask for, and what they say of its size."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX shell")


def setting_up(folder, system="Linux x86_64", gpu=False, reached=True, works=True):
    """Return what is said, and what pip is asked for, where all that the script looks at is as given."""
    (folder / ".venv" / "bin").mkdir(parents=True)
    stub = folder / ".venv" / "bin" / "python"
    stub.write_text(f'#!/bin/sh\necho "$@" >> asked\nexit {int(not works)}\n')
    stub.chmod(0o755)
    (folder / "constraints.txt").write_text((ROOT / "constraints.txt").read_text())
    name, machine = system.split()
    script = f"""set -eu
. {ROOT}/.setup.sh
uname() {{ if [ "$1" = -s ]; then echo {name}; else echo {machine}; fi; }}
has_nvidia() {{ return {int(not gpu)}; }}
cpu_index_answers() {{ return {int(not reached)}; }}
setup_torch"""
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    asked = folder / "asked"
    return done.stderr, asked.read_text() if asked.exists() else ""


def test_without_an_nvidia_gpu_the_cpu_build_is_installed_in_the_pinned_version(tmp_path):
    said, asked = setting_up(tmp_path)
    pinned = next(line for line in (ROOT / "constraints.txt").read_text().splitlines() if line.startswith("torch=="))
    assert f"--index-url https://download.pytorch.org/whl/cpu {pinned}\n" in asked
    assert "190 MB" in said


@pytest.mark.parametrize(
    ("place", "size"),
    [
        ({"gpu": True}, "with CUDA, as there is an NVIDIA GPU: a download of several gigabytes"),
        ({"reached": False}, "or of gigabytes if"),
        ({"system": "Darwin arm64"}, "a few hundred megabytes"),
        ({"system": "Linux aarch64"}, "a few hundred megabytes"),
    ],
    ids=["a GPU", "no way to the index", "macOS", "ARM"],
)
def test_elsewhere_the_choice_is_left_to_pip_and_the_size_is_told(tmp_path, place, size):
    said, asked = setting_up(tmp_path, **place)
    assert asked == ""
    assert size in said


def test_a_download_that_fails_is_quietly_left_to_pips_own_index(tmp_path):
    said, asked = setting_up(tmp_path, works=False)
    assert asked
    assert len(said.splitlines()) == 1


class Silent(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *words):
        pass


def answers(folder, index):
    (folder / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
    (folder / ".venv" / "bin" / "python").unlink(missing_ok=True)
    (folder / ".venv" / "bin" / "python").symlink_to(sys.executable)
    script = f". {ROOT}/.setup.sh\ncpu_index={index}\ncpu_index_answers"
    plain = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(["sh", "-c", script], cwd=folder, capture_output=True, text=True, env=plain)
    assert done.stderr == ""
    return done.returncode == 0


def test_the_index_is_tried_and_silence_is_no_error(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Silent) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        index = f"http://127.0.0.1:{server.server_port}"
        assert answers(tmp_path, index)
        server.shutdown()
    assert not answers(tmp_path, index)
