"""The door of a plain pair: each request goes to prefill, and then, with the way to its KV, to decode."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from patchline.gates.stack.ports import HOST, Address

ASKED = {"do_remote_decode": True, "do_remote_prefill": False}
"""What prefill is asked for: to keep the KV and say where it is."""
_SPOKEN = ("/v1/completions", "/v1/chat/completions")
_MOST = 2**26
"""Bytes of a request."""
_PIECE = 2**16


class Failed(Exception):
    """The pair has no answer; `status` and `message` are for who asked."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def for_prefill(body: dict[str, Any]) -> dict[str, Any]:
    """The request that has prefill process the prompt of `body`, and produce the one token that it must."""
    dropped = ("stream", "stream_options", "max_completion_tokens", "min_tokens", "response_format", "n", "best_of")
    asked = {name: value for name, value in body.items() if name not in dropped}
    if asked.get("tool_choice", "auto") != "auto":
        asked["tool_choice"] = "none"  # the prompt is the same, and one token is no call
    return asked | {"max_tokens": 1, "kv_transfer_params": ASKED}


def for_decode(body: dict[str, Any], prefilled: bytes) -> dict[str, Any]:
    """The request that has decode read the KV and answer `body`.

    Raises:
        Failed: prefill did not say where the KV is.
    """
    try:
        params = json.loads(prefilled)["kv_transfer_params"]
    except (ValueError, KeyError, TypeError):
        params = None
    if not params:
        raise Failed(502, "prefill answered without kv_transfer_params: it kept no KV for decode")
    return body | {"kv_transfer_params": params}


class Pair:
    """Both engines, and the requests that are under way."""

    def __init__(self, prefill: Address, decode: Address, limit: float, fault: Callable[[], str]) -> None:
        self.prefill, self.decode, self.limit, self.fault = prefill, decode, limit, fault
        self._calls: set[Call] = set()

    def cut(self) -> None:
        """Ends every request under way: an engine is gone, and the other might wait for it."""
        for call in list(self._calls):
            call.cut()

    @contextmanager
    def call(self, name: str, method: str, path: str, body: bytes | None) -> Iterator[http.client.HTTPResponse]:
        """One engine's answer.

        Raises:
            Failed: the engine is gone, or takes longer than `limit`.
        """
        call = Call(self.prefill if name == "prefill" else self.decode, self.limit)
        self._calls.add(call)
        try:
            with call.timer():
                yield call.ask(method, path, body)
        except (OSError, http.client.HTTPException) as failed:
            if call.late or isinstance(failed, TimeoutError):
                raise Failed(504, f"{name} gave no whole answer within {self.limit:.0f} s") from failed
            raise Failed(502, self.fault() or f"{name} broke off: {failed!r}") from failed
        finally:
            self._calls.discard(call)
            call.connection.close()


class Call:
    """One request to an engine, which can be ended from another thread."""

    def __init__(self, engine: Address, limit: float) -> None:
        self.connection = http.client.HTTPConnection(*engine, timeout=limit)
        self.limit, self.late = limit, False
        self._wire: socket.socket | None = None

    def ask(self, method: str, path: str, body: bytes | None) -> http.client.HTTPResponse:
        """Sends it, and reads the answer's head."""
        self.connection.connect()
        self._wire = self.connection.sock
        self.connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
        return self.connection.getresponse()

    @contextmanager
    def timer(self) -> Iterator[None]:
        """Ends the request when its time is over, however often a byte comes."""
        clock = threading.Timer(self.limit, self.cut, [True])
        clock.daemon = True
        clock.start()
        try:
            yield
        finally:
            clock.cancel()

    def cut(self, late: bool = False) -> None:
        """Ends it: whoever waits for its answer is told so."""
        self.late = late
        if self._wire:
            with suppress(OSError):  # it has just ended by itself
                self._wire.shutdown(socket.SHUT_RDWR)


class _Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, pair: Pair, *arguments: Any) -> None:
        self.pair, self.begun = pair, False
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """What is no completion is decode's to answer."""
        self._answer(lambda: self._relay("GET", None))

    def do_POST(self) -> None:
        self._answer(self._completion)

    def _answer(self, work: Callable[[], None]) -> None:
        self.begun = False
        try:
            self._work(work)
        except OSError:  # who asked is gone
            self.close_connection = True

    def _work(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Failed as failed:
            self.close_connection = True
            if not self.begun:  # else the answer breaks off, which its reader sees
                self._send(failed.status, json.dumps(_error(failed)).encode())

    def _completion(self) -> None:
        if self.path not in _SPOKEN:
            raise Failed(404, f"{self.path} is not spoken here: {' and '.join(_SPOKEN)} are")
        body = self._body()
        with self.pair.call("prefill", "POST", self.path, json.dumps(for_prefill(body)).encode()) as reply:
            data = reply.read()
        if reply.status != 200:
            self._send(reply.status, data)
            return
        self._relay("POST", json.dumps(for_decode(body, data)).encode())

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _MOST:
            raise Failed(413 if length.isdecimal() else 411, f"a request needs a length of at most {_MOST} bytes")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except ValueError as bad:
            raise Failed(400, f"the request is no JSON: {bad}") from bad
        if not isinstance(body, dict):
            raise Failed(400, "the request is no JSON object")
        return body

    def _relay(self, method: str, body: bytes | None) -> None:
        """Gives decode's answer on, piece by piece as it comes."""
        with self.pair.call("decode", method, self.path, body) as reply:
            length = reply.getheader("Content-Length")
            if length:
                self._send(reply.status, reply.read(), reply.getheader("Content-Type", "application/json"))
                return
            self._head(reply.status, reply.getheader("Content-Type", "application/json"))
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while piece := reply.read1(_PIECE):
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self._write(b"0\r\n\r\n")

    def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
        self._head(status, kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self._write(data)

    def _head(self, status: int, kind: str) -> None:
        self.begun = True
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if self.close_connection:
            self.send_header("Connection", "close")

    def _write(self, data: bytes) -> None:
        """Writes to who asked; raises ConnectionError where that one is gone."""
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *values: Any) -> None:
        """The engines log each request."""


def _error(failed: Failed) -> dict[str, Any]:
    return {"error": {"message": failed.message, "type": "pair_failed", "code": failed.status}}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False


@contextmanager
def door(pair: Pair) -> Iterator[str]:
    """Serves the pair on a port of loopback; gives its URL."""
    with _Server((HOST, 0), partial(_Door, pair)) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.1], daemon=True)
        thread.start()
        try:
            yield f"http://{HOST}:{server.server_address[1]}"
        finally:
            server.shutdown()
            pair.cut()
            thread.join()
