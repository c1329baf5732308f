"""A real OpenAI-compatible server on 127.0.0.1 that reads its prompts, and can be told to misbehave."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any, TypeAlias

Behaviour: TypeAlias = "Callable[[BaseHTTPRequestHandler, Any], None]"

CHAT, COMPLETIONS, MODELS, BUILD = "/v1/chat/completions", "/v1/completions", "/v1/models", "/build"
OVERLAY = "sha256:" + "ab" * 32


@dataclass
class Served:
    """`answers` are by path; `says` is the text for a prompt; `asked` are all bodies of POSTs."""

    url: str = ""
    answers: dict[str, Behaviour] = field(default_factory=dict)
    says: Callable[[str], str] = field(default_factory=lambda: reads)
    shift: float = 0.0
    asked: list[Any] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    over: Event = field(default_factory=Event)


def reads(prompt: str) -> str:
    """The code that a prompt asks for, in either form."""
    if asked := re.search(r"What is the code of (item \d+)\?", prompt):
        found = re.search(rf"^{asked[1]}: its code is (\w+)\.$", prompt, re.MULTILINE)
        return found[1] if found else ""
    lines = prompt.splitlines()
    return dict(line.split() for line in lines[:-1])[lines[-1]]


def listed(prompt: str) -> list[str]:
    """All codes of a prompt in prose."""
    return re.findall(r"its code is (\w+)\.", prompt)


def json_of(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Behaviour:
    return raw(json.dumps(value).encode(), "application/json", status, headers)


def raw(data: bytes, kind: str, status: int = 200, headers: dict[str, str] | None = None) -> Behaviour:
    def behave(handler: BaseHTTPRequestHandler, body: Any) -> None:
        handler.send_response(status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return behave


HTML = raw(b"<!DOCTYPE html><html><body>Welcome to the balancer</body></html>", "text/html")


def message(**fields: Any) -> Behaviour:
    """A chat answer with this message."""
    return json_of({"choices": [{"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": "stop"}]})


def call(name: str, arguments: str, **fields: Any) -> Behaviour:
    """A chat answer with one tool call."""
    function = {"name": name, "arguments": arguments}
    calls = [{"id": "1", "type": "function", "function": function}]
    return message(tool_calls=calls, **{"content": None, **fields})


def reset(handler: BaseHTTPRequestHandler, body: Any) -> None:
    """Half of a body, then the connection is gone."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": ')
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def dripping(served: Served, each: bytes, pause: float, headers: bool = False) -> Behaviour:
    """A body, or headers, that come `each` after each until the client or the test is done."""

    def behave(handler: BaseHTTPRequestHandler, body: Any) -> None:
        handler.close_connection = True
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + (b"" if headers else b"\r\n"))
        try:
            while not served.over.wait(pause):
                handler.wfile.write(each)
                handler.wfile.flush()
        except OSError:  # the client has left
            return

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """One after the other; the last one for ever."""
    left = list(behaviours)

    def behave(handler: BaseHTTPRequestHandler, body: Any) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(handler, body)

    return behave


def steps(text: str, count: int, shift: float) -> list[dict[str, Any]]:
    """Tokens with log-probabilities that depend on `text` alone; `shift` is added to the second token's."""
    digest = hashlib.sha256(text.encode()).digest()
    found = []
    for at in range(count):
        base = -digest[at] / 256 + (shift if at == 1 else 0.0)
        top = [{"token": f"t{digest[at]}.{number}", "logprob": base - number, "bytes": None} for number in range(3)]
        found.append({**top[0], "top_logprobs": top})
    return found


def chat(served: Served, body: Any) -> Any:
    """The right answer of the chat API."""
    if body.get("tools"):
        arguments = '{"city": "Kuala Lumpur", "unit": "celsius"}'
        thinking = body["chat_template_kwargs"]["enable_thinking"]
        function = {"name": "get_weather", "arguments": arguments}
        fields: dict[str, Any] = {
            "content": None,
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        }
        fields |= {"reasoning_content": "The user asks for the weather, so the tool is needed."} if thinking else {}
        return {"choices": [{"index": 0, "message": fields}]}
    if body.get("response_format"):
        return {"choices": [{"index": 0, "message": {"content": '{"name": "Ada", "age": 36, "city": "London"}'}}]}
    prompt = body["messages"][0]["content"]
    choice: dict[str, Any] = {"index": 0, "message": {"role": "assistant", "content": served.says(prompt)}}
    if body.get("logprobs"):
        choice["logprobs"] = {"content": steps(prompt, 4, served.shift)}
    return {"choices": [choice], "usage": {"prompt_tokens": len(prompt.split()), "completion_tokens": 4}}


def completion(served: Served, body: Any) -> Any:
    """The right answer of the completions API."""
    prompt = body["prompt"]
    choice: dict[str, Any] = {"index": 0, "text": " " + served.says(prompt)}
    if body.get("logprobs"):
        found = steps(prompt, 4, served.shift)
        choice["logprobs"] = {
            "tokens": [step["token"] for step in found],
            "token_logprobs": [step["logprob"] for step in found],
            "top_logprobs": [{one["token"]: one["logprob"] for one in step["top_logprobs"]} for step in found],
        }
    return {"choices": [choice], "usage": {"prompt_tokens": len(prompt.split()), "completion_tokens": 4}}


@contextmanager
def endpoint(model: str = "tiny") -> Iterator[Served]:
    """A server that answers right until the block ends."""
    served = Served()
    right: dict[str, Callable[[Served, Any], Any]] = {
        CHAT: chat,
        COMPLETIONS: completion,
        MODELS: lambda served, body: {"object": "list", "data": [{"id": model, "object": "model"}]},
        BUILD: lambda served, body: {"overlay": OVERLAY, "version": "1.6.0"},
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            served.asked.append(body)
            self._answer(body)

        def _answer(self, body: Any) -> None:
            served.paths.append(self.path)
            served.keys.append(self.headers.get("Authorization"))
            if self.path in served.answers:
                served.answers[self.path](self, body)
            elif self.path in right:
                json_of(right[self.path](served, body))(self, body)
            else:
                json_of({"detail": "Not Found"}, 404)(self, body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = False  # closing waits for every answer: none outlives its test

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that has gone is no fault of the server's."""

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield served
    finally:
        served.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
