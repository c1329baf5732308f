"""Short questions to a server, past every proxy that the environment names."""

from __future__ import annotations

import http.client
import json
import socket
from typing import Any, NamedTuple

from patchline.gates.stack.ports import HOST

_PATIENCE = 2.0
"""Seconds for one answer."""


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    body: bytes


def get(port: int, path: str, host: str = HOST) -> Answer | None:
    """The answer to GET `path`, or None where nobody answers yet."""
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return Answer(reply.status, reply.read())
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def healthy(port: int, path: str = "/health", host: str = HOST) -> str:
    """What is missing until GET `path` answers 200; empty when it does."""
    answer = get(port, path, host)
    if answer is None:
        return f"{host}:{port} does not answer"
    return "" if answer.status == 200 else f"{path} answers {answer.status}"


def decoded(answer: Answer | None) -> Any:
    """The JSON of an answer; None where there is none."""
    try:
        return json.loads(answer.body) if answer and answer.status == 200 else None
    except ValueError:
        return None


def greets(port: int, word: bytes, host: str = HOST) -> str:
    """What is missing until a server greets with `word`."""
    try:
        with socket.create_connection((host, port), _PATIENCE) as connection:
            said = connection.recv(len(word))
    except OSError:
        return f"{host}:{port} does not answer"
    return "" if said == word else f"{host}:{port} greets with {said!r}"
