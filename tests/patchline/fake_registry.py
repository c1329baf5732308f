"""A FAKE registry: as much of the distribution specification as a push needs, and faults on demand.

The real one is in `registries`; this one is for what a real one does only on a bad day.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

Fault: TypeAlias = Callable[["Handler"], bool]
"""Answers instead of the registry, or returns false: then the registry does."""


@dataclass
class Fake:
    """Its content, its faults, and what it was asked. `faults` are by method and kind: `PUT manifest`, `PATCH upload`."""

    host: str
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, list[Fault]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    spans: list[str] = field(default_factory=list)
    names: Iterator[int] = field(default_factory=itertools.count)
    lock: Lock = field(default_factory=Lock)

    def fail(self, what: str, *faults: Fault) -> None:
        """The next requests of that kind meet these, one each."""
        self.faults.setdefault(what, []).extend(faults)


def sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: Fake

    def _handle(self) -> None:
        found = re.fullmatch(
            r"/v2/(?P<name>.+?)/(?P<kind>manifests|blobs/uploads|blobs|tags)/?(?P<rest>[^/]*)", urlsplit(self.path).path
        )
        kind = {"manifests": "manifest", "blobs": "blob", "tags": "tags"}.get(found["kind"] if found else "", "upload")
        if found and kind == "upload" and not found["rest"]:
            kind = "start"
        self.rest = found["rest"] if found else ""
        self.query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        what = f"{self.command} {kind}"
        with self.fake.lock:
            self.fake.asked.append(what)
            self.fake.authorizations.append(self.headers.get("Authorization"))
            fault = self.fake.faults[what].pop(0) if self.fake.faults.get(what) else None
        if not (fault and fault(self)):
            getattr(self, f"_{self.command.lower()}_{kind}")()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = _handle

    def body(self, most: int | None = None) -> bytes:
        size = int(self.headers.get("Content-Length", 0))
        return self.rfile.read(size if most is None else min(size, most))

    def say(self, status: int, data: bytes = b"", **headers: str) -> bool:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return True

    def _get_manifest(self) -> None:
        data = self.fake.manifests.get(self.rest)
        if data is None:
            self.say(404)
            return
        self.say(200, data, Content_Type=json.loads(data)["mediaType"], Docker_Content_Digest=sha(data))

    _head_manifest = _get_manifest

    def _put_manifest(self) -> None:
        data = self.body()
        missing = [one["digest"] for one in json.loads(data)["layers"] if one["digest"] not in self.fake.blobs]
        if missing:
            self.say(400, json.dumps({"errors": [{"code": "MANIFEST_BLOB_UNKNOWN", "message": missing[0]}]}).encode())
            return
        self.fake.manifests |= {sha(data): data, self.rest: data}
        self.say(201, Docker_Content_Digest=sha(data))

    def _get_blob(self) -> None:
        data = self.fake.blobs.get(self.rest)
        start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if data is None:
            self.say(404)
        elif start:
            self.fake.spans.append(start[0])
            self.say(206, data[int(start[1]) :])
        else:
            self.say(200, data)

    _head_blob = _get_blob

    def _post_start(self) -> None:
        self.body()
        if self.query.get("mount") in self.fake.blobs:
            self.say(201)
            return
        name = str(next(self.fake.names))
        self.fake.uploads[name] = b""
        self.say(202, Location=f"/v2/x/blobs/uploads/{name}?state=1", Range="0-0")

    def _patch_upload(self) -> None:
        data, had = self.body(), self.fake.uploads.get(self.rest)
        start = int(self.headers["Content-Range"].split("-")[0])
        self.fake.spans.append(self.headers["Content-Range"])
        if had is None:
            self.say(404)
        elif start != len(had):
            self.say(416, Location=self.path, Range=f"0-{max(len(had) - 1, 0)}")
        else:
            self.fake.uploads[self.rest] = had + data
            self.say(202, Location=self.path, Range=f"0-{len(had + data) - 1}")

    def _get_upload(self) -> None:
        had = self.fake.uploads.get(self.rest)
        if had is None:
            self.say(404)
        else:
            self.say(204, Location=self.path, Range=f"0-{max(len(had) - 1, 0)}")

    def _put_upload(self) -> None:
        data, rest = self.fake.uploads.pop(self.rest, None), self.body()
        whole = None if data is None else data + rest
        if whole is None:
            self.say(404)
        elif sha(whole) != self.query["digest"]:
            self.say(400, b'{"errors":[{"code":"DIGEST_INVALID","message":"other bytes"}]}')
        else:
            self.fake.blobs[sha(whole)] = whole
            self.say(201, Docker_Content_Digest=sha(whole))

    def _get_tags(self) -> None:
        names = sorted(name for name in self.fake.manifests if not name.startswith("sha256:"))
        last = self.query.get("last", "")
        page = [name for name in names if name > last][:2]
        more = {"Link": f'</v2/x/tags/list?n=2&last={page[-1]}>; rel="next"'} if page and page[-1] != names[-1] else {}
        self.say(200, json.dumps({"tags": page}).encode(), **more)

    def log_message(self, *_: object) -> None:
        pass


def answers(status: int, data: bytes = b"", **headers: str) -> Fault:
    """A plain answer; the request's body is read, so that the connection stays whole."""

    def fault(handler: Handler) -> bool:
        handler.body()
        return handler.say(status, data, **headers)

    return fault


def resets(keep: int = 0, *, lose: bool = False) -> Fault:
    """Takes `keep` bytes of the body, and the connection is gone; with `lose` the upload is forgotten."""

    def fault(handler: Handler) -> bool:
        data = handler.body(keep)
        if handler.rest in handler.fake.uploads:
            handler.fake.uploads[handler.rest] += data
            if lose:
                del handler.fake.uploads[handler.rest]
        hang_up(handler)
        return True

    return fault


def hang_up(handler: Handler) -> None:
    handler.close_connection = True
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()


def half(handler: Handler) -> bool:
    """The first half of a blob, then a reset."""
    data = handler.fake.blobs[handler.rest]
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data[: len(data) // 2])
    handler.wfile.flush()
    handler.close_connection = True
    return True


def done_but_silent(handler: Handler) -> bool:
    """The registry does it, and the answer is lost."""
    handler.say = lambda *_, **__: True  # type: ignore[method-assign]
    getattr(handler, f"_{handler.command.lower()}_{'upload' if 'uploads' in handler.path else 'manifest'}")()
    hang_up(handler)
    return True


@contextmanager
def fake_registry(address: str = "127.0.0.1") -> Iterator[Fake]:
    handler = type("OneHandler", (Handler,), {})
    server = ThreadingHTTPServer((address, 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    handler.fake = fake = Fake(f"{address}:{server.server_address[1]}")  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
