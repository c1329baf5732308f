"""Stands between a client and a real registry: counts requests, spoils some, kills the client, answers the referrers API.

The API is a FAKE, since Debian's registry has none; everything else is the real registry's answer.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from image_bases import sha

Spoil = Callable[["Handler"], bool]
"""Before a request goes on: true where it was answered already, and the registry never sees it."""
After = Callable[["Handler"], bool]
"""After the registry did it: true where its answer is withheld."""


@dataclass
class Proxy:
    """What was asked, as `PUT /v2/…`, and what is done about it."""

    host: str
    behind: str
    asked: list[str] = field(default_factory=list)
    before: Spoil = lambda _: False
    after: After = lambda _: False
    api: bool = False
    listed: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    data: bytes

    def _handle(self) -> None:
        self.data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.proxy.lock:
            self.proxy.asked.append(f"{self.command} {self.path}")
        if self.proxy.before(self):
            return
        digest = urlsplit(self.path).path.rpartition("/referrers/")[2]
        if self.proxy.api and "/referrers/" in self.path:
            index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json"}
            self.say(200, json.dumps({**index, "manifests": self.proxy.listed.get(digest, [])}).encode())
            return
        status, headers, data = self.forward()
        if self.proxy.api and self.command == "PUT" and "/manifests/" in self.path and status == 201:
            headers |= self._note()
        if not self.proxy.after(self):
            self.say(status, data, headers)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def forward(self) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.proxy.behind, timeout=30)
        connection.request(self.command, self.path, self.data, dict(self.headers.items()))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), data

    def _note(self) -> dict[str, str]:
        """What a registry with the API does with a manifest that has a subject."""
        fields = json.loads(self.data)
        subject = fields.get("subject", {}).get("digest")
        if not subject:
            return {}
        one = {"mediaType": fields["mediaType"], "digest": sha(self.data), "size": len(self.data)}
        more = {"artifactType": fields["artifactType"], "annotations": fields.get("annotations", {})}
        with self.proxy.lock:
            there = self.proxy.listed.setdefault(subject, [])
            if all(other["digest"] != one["digest"] for other in there):
                there.append(one | more)
        return {"OCI-Subject": subject}

    def say(self, status: int, data: bytes = b"", headers: dict[str, str] | None = None) -> bool:
        length = (headers or {}).get("Content-Length", str(len(data))) if self.command == "HEAD" else str(len(data))
        self.send_response(status)
        for name, value in (headers or {}).items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return True

    def hang_up(self) -> bool:
        self.close_connection = True
        self.connection.close()
        return True

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def proxy(behind: str, *, api: bool = False) -> Iterator[Proxy]:
    """A proxy before the registry at `behind`."""
    handler = type("OneHandler", (Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    made = Proxy(f"127.0.0.1:{server.server_address[1]}", behind, api=api)
    handler.proxy = made  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
