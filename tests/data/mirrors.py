"""Mirrors on this machine, and small data sets to put on them."""

from __future__ import annotations

import gzip
import hashlib
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from metriscope.data import download, registry
from metriscope.data.download import File

FOLDER = "mnist/"


@dataclass
class Mirror:
    """A web server's answers by path: bytes, or the number of an error; ``short`` cuts what it sends in half."""

    url: str = ""
    answers: dict[str, bytes | int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    short: bool = False


@contextmanager
def mirror(answers=None, short=False):
    """Serve answers on a free port of 127.0.0.1 while the block runs."""
    state = Mirror(answers=answers or {}, short=short)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state.asked.append(self.path)
            answer = state.answers.get(self.path, 404)
            if isinstance(answer, int):
                self.send_error(answer)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer[: len(answer) // 2] if state.short else answer)

        def log_message(self, *words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}/"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()


def idx_file(array):
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return gzip.compress(head + array.tobytes(), mtime=0)


def tiny_mnist(labels=(0, 1, 9)):
    """Return the contents, by name, of four files like those of MNIST."""
    images = np.arange(len(labels) * 4, dtype=np.uint8).reshape(-1, 2, 2)
    contents = {}
    for start in ("train", "t10k"):
        contents[f"{start}-images-idx3-ubyte.gz"] = idx_file(images)
        contents[f"{start}-labels-idx1-ubyte.gz"] = idx_file(np.array(labels, dtype=np.uint8))
    return contents


def sha(content):
    return hashlib.sha256(content).hexdigest()


def register(monkeypatch, contents, *mirrors):
    """Let the row of MNIST expect these contents from these mirrors."""
    expected = tuple(
        File(FOLDER + name, sha(content), len(content), tuple(url + name for url in mirrors))
        for name, content in contents.items()
    )
    monkeypatch.setitem(registry.ROWS, "mnist", replace(registry.ROWS["mnist"], files=expected))


def put(folder, contents):
    """Write contents where a data folder has those of MNIST."""
    for name, content in contents.items():
        path = folder / FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def paths(contents):
    """Return contents by the path under which a mirror serves them."""
    return {f"/{name}": content for name, content in contents.items()}


def left(folder):
    """Return the name of every file below a folder."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def isolate(monkeypatch, folder):
    """Let the cache be a folder of the test's own, and no other place be looked at."""
    monkeypatch.delenv(download.ENVIRONMENT, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(download, "cache_folder", lambda: folder)
    return folder
