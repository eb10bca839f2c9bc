"""Servers of files on this machine: S3 and the web, and connections that break and stall."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

BUCKET = "bucket"
_S3_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
_BLOCK_BYTES = 1 << 14


@contextmanager
def s3_server() -> Iterator[int]:
    """The port of an S3 server with nothing in it."""
    command = [sys.executable, "-W", "ignore", "-c", _S3_SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.stdin.close()
            server.kill()


def use_s3(port: int, patch: pytest.MonkeyPatch) -> Any:
    """The file system of all s3:// URLs from now on; it gives up soon."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    from fsspec.config import conf

    for name, value in {
        "AWS_ACCESS_KEY_ID": "key-of-nobody",
        "AWS_SECRET_ACCESS_KEY": "secret-of-nobody",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
    }.items():
        patch.setenv(name, value)
    patch.setattr(s3fs.S3FileSystem, "retries", 2)
    patch.setitem(conf, "s3", {"config_kwargs": {"retries": {"max_attempts": 1}}})
    s3fs.S3FileSystem.clear_instance_cache()
    return s3fs.S3FileSystem()


@dataclass
class Connection:
    """A way to a server on which all that comes back is counted.

    breaks: of what is asked for in the first line of a request, after how many bytes the connection
    ends; so does every one that asks for it. stalls: after how many nothing more comes.
    """

    server_port: int
    breaks: dict[bytes, int] = field(default_factory=dict)
    stalls: dict[bytes, int] = field(default_factory=dict)
    received_bytes: int = 0
    stalled: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def serve(self, listener: socket.socket) -> None:
        """Take connections until the listener is closed."""
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(("127.0.0.1", self.server_port))
                except OSError:
                    client.close()
                    continue
                most: list[int | None] = [None, None]
                for target, ends in (
                    (self._ask, (client, server, most)),
                    (self._answer, (server, client, most)),
                ):
                    threading.Thread(target=target, args=ends, daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket, most: list[int | None]) -> None:
        with contextlib.suppress(OSError):
            while block := client.recv(_BLOCK_BYTES):
                line = block.partition(b"\r\n")[0]
                for at, limits in enumerate((self.breaks, self.stalls)):
                    most[at] = next((count for word, count in limits.items() if word in line), None)
                server.sendall(block)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket, most: list[int | None]) -> None:
        answered_bytes = 0
        with contextlib.suppress(OSError), server, client:
            while block := server.recv(_BLOCK_BYTES):
                answered_bytes += len(block)
                self.received_bytes += len(block)
                if most[0] is not None and answered_bytes > most[0]:
                    break
                if most[1] is not None and answered_bytes > most[1]:
                    self.stalled.set()
                    threading.Event().wait(60)
                client.sendall(block)
            for end in (client, server):  # closing it wakes nobody who waits for it
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def connection_to(port: int) -> Iterator[Connection]:
    """A port through which another one is reached."""
    made = Connection(port)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made.port = listener.getsockname()[1]
        threading.Thread(target=made.serve, args=(listener,), daemon=True).start()
        yield made
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)


class _Pages(http.server.SimpleHTTPRequestHandler):
    """Files of a directory, for those who know the word if one is asked for."""

    word = ""

    def send_head(self) -> Any:
        asked = base64.b64encode(self.word.encode()).decode()
        if self.word and self.headers.get("Authorization") != f"Basic {asked}":
            self.send_error(401)
            return None
        return super().send_head()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@contextmanager
def web_server(directory: Path, word: str = "") -> Iterator[int]:
    """The port of a web server of a directory; word: `user:password`, without which it refuses."""
    handler = type("Pages", (_Pages,), {"word": word})
    made = functools.partial(handler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
