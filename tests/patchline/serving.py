"""A real package index on 127.0.0.1 that can be told to misbehave."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import pytest

from patchline import index

Answer: TypeAlias = Callable[[BaseHTTPRequestHandler, bytes], None]


@dataclass
class Index:
    """`files` are offered with `hashes` (theirs by default) and sent by `answer`."""

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    hashes: dict[str, str] = field(default_factory=dict)
    answer: dict[str, Answer] = field(default_factory=dict)
    page: Answer | None = None
    asked: list[str] = field(default_factory=list)

    def offer(self, name: str, data: bytes) -> None:
        self.files[name] = data
        self.hashes[name] = hashlib.sha256(data).hexdigest()

    def html(self) -> bytes:
        fragments = ((name, self.hashes.get(name)) for name in self.files)
        links = (f'<a href="/files/{n}{f"#sha256={h}" if h else ""}">{n}</a>' for n, h in fragments)
        return f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()


def whole(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, data, len(data))


def send(handler: BaseHTTPRequestHandler, data: bytes, stated: int, kind: str = "application/x-tar") -> None:
    handler.send_response(200)
    handler.send_header("Content-Type", kind)
    handler.send_header("Content-Length", str(stated))
    handler.end_headers()
    handler.wfile.write(data)


def truncated(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, data[: len(data) // 2], len(data))
    handler.close_connection = True


def shorter(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    whole(handler, data[:-1])


def longer(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    whole(handler, data + b"x" * 4096)


def flipped(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    whole(handler, bytes([data[0] ^ 1]) + data[1:])


def reset(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    send(handler, data[: len(data) // 2], len(data))
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def status(code: int) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        handler.send_error(code)

    return answer


def redirected(place: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler, data: bytes) -> None:
        handler.send_response(302)
        handler.send_header("Location", place)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


@contextmanager
def serving() -> Iterator[Index]:
    """An index that answers until the block ends."""
    shop = Index("")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shop.asked.append(self.path)
            name = self.path.rpartition("/")[2]
            if self.path.startswith("/simple/"):
                if shop.page:
                    shop.page(self, b"")
                else:
                    page = shop.html()
                    send(self, page, len(page), "text/html")
            elif name in shop.files:
                shop.answer.get(name, whole)(self, shop.files[name])
            else:
                self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shop.url = f"http://127.0.0.1:{server.server_port}/simple/"
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield shop
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def only_index(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Index]:
    """An index that is the only place where pip looks, and an empty cache of ours."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_CERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PATCHLINE_CACHE", str(cache))
    with serving() as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.url)
        index.forget()
        yield running
    index.forget()
