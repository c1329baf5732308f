"""An OpenAI-compatible endpoint: where it is, which model it serves, and what it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import httpx2
import msgspec

from patchline.errors import ProofFailed, Unreachable, UsageError
from patchline.gates.checks.exchange import MOST, Reply, Request, exchange
from patchline.gates.checks.result import cut
from patchline.urls import shown

LIMIT = 120.0
"""Seconds for one request, from connecting to the last byte."""

KEY = "PATCHLINE_API_KEY"
"""The environment variable that holds the API key, where one is needed."""

T = TypeVar("T")


class WrongAnswer(ProofFailed):
    """An endpoint answered, with something that is no answer to what was asked."""


class Endpoint(NamedTuple):
    """One endpoint, and how it is asked."""

    root: str
    """Without `/v1` and without a slash at its end."""
    model: str
    key: str | None = None
    limit: float = LIMIT
    """Seconds for each request."""

    @property
    def shown(self) -> str:
        """Its URL as messages and records may show it."""
        return shown(self.root)


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def connect(url: str, *, model: str | None = None, key: str | None = None, limit: float = LIMIT) -> Endpoint:
    """The endpoint at `url`, with `/v1` at its end or without; asks it for its model where none is given.

    Raises:
        UsageError: the URL is none of an HTTP server, or there are several models.
        Unreachable: it did not answer, or with 429 or a status of the 500s.
        WrongAnswer: it answered something else than a list of models.
    """
    endpoint = Endpoint(root_of(url), model or "", key, limit)
    return endpoint if model else endpoint._replace(model=_only_model(endpoint))


def root_of(url: str) -> str:
    """`url` without `/v1` and without slashes at its end.

    Raises:
        UsageError: it is none of an HTTP server.
    """
    try:
        parsed = httpx2.URL(url)
    except (httpx2.InvalidURL, UnicodeError) as bad:
        raise UsageError(f"{cut(shown(url))} is no URL: {bad}", next="give one like http://127.0.0.1:8000") from bad
    extra = parsed.query or parsed.fragment or not 0 < (parsed.port or 1) < 65536
    if parsed.scheme not in ("http", "https") or not parsed.host or extra:
        raise UsageError(
            f"{cut(shown(url))} is not the URL of an HTTP server", next="give one like http://127.0.0.1:8000"
        )
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def key_of(name: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The API key in the environment variable `name`; without a name in `PATCHLINE_API_KEY`, if that is set.

    Raises:
        UsageError: the variable that was named is not set, or it holds what no header can.
    """
    key = environment.get(name or KEY, "")
    if name and not key:
        raise UsageError(f"the environment variable {name} is not set", next=f"put the API key into {name}")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(f"what {name or KEY} holds is no API key: it has blanks or control characters")
    return key or None


def _only_model(endpoint: Endpoint) -> str:
    listed = read(endpoint, "/v1/models", _Models)
    names = list(dict.fromkeys(model.id for model in listed.data))
    if not names:
        raise WrongAnswer(
            "the endpoint serves no model", where=place(endpoint, "/v1/models"), next="wait until its engines are ready"
        )
    if len(names) > 1:
        raise UsageError(
            f"the endpoint serves {len(names)} models: {cut(', '.join(names), 400)}",
            where=place(endpoint, "/v1/models"),
            next="say which with --model NAME",
        )
    return names[0]


def read(endpoint: Endpoint, path: str, shape: type[T], body: Mapping[str, Any] | None = None) -> T:
    """What the endpoint answers to a GET of `path`, or to a POST of `body` there, as `shape`.

    Raises:
        Unreachable: it did not answer, or with 429 or a status of the 500s.
        UsageError: it wants another API key.
        WrongAnswer: it answered with another status than 200, or with no JSON of this shape.
    """
    data = None if body is None else msgspec.json.encode(body)
    request = Request("GET" if body is None else "POST", endpoint.root + path, data, endpoint.key)
    reply = exchange(request, endpoint.limit)
    where = place(endpoint, path)
    _refuse_status(reply, where)
    if not reply.whole:
        raise _wrong(f"the answer is longer than {MOST} bytes", where)
    try:
        return msgspec.json.decode(reply.data, type=shape)
    except msgspec.ValidationError as other:
        raise _wrong(f"the answer has another shape: {cut(str(other), 200)}", where) from other
    except (ValueError, RecursionError) as bad:
        raise _wrong(f"the answer is no JSON ({cut(reply.kind, 60)}): {_start(reply)}", where) from bad


def place(endpoint: Endpoint, path: str) -> str:
    """Where something was asked, as messages show it."""
    return endpoint.shown + path


def _refuse_status(reply: Reply, where: str) -> None:
    if reply.status == 200:
        return
    said = f"the endpoint answered {reply.status} {cut(reply.reason, 40)}".rstrip() + f": {_message(reply)}"
    if reply.status in (401, 403):
        raise UsageError(said, where=where, next=f"put the API key into {KEY}, or name its variable with --api-key-env")
    if reply.status == 429:
        raise Unreachable(said, where=where, next="run again when it has less to do")
    if reply.status >= 500:
        raise Unreachable(said, where=where, next="read the logs of the frontend and of both engines")
    raise _wrong(said, where)


def _wrong(what: str, where: str) -> WrongAnswer:
    return WrongAnswer(what, where=where, next="see that an OpenAI-compatible server answers at this URL")


def _message(reply: Reply) -> str:
    """What an error's body says: OpenAI's `error.message`, a plain `message`, or its beginning."""
    try:
        body = msgspec.json.decode(reply.data)
    except (ValueError, RecursionError):
        return _start(reply)
    if isinstance(body, dict):
        inner = body.get("error")
        for one in (inner, body):
            if isinstance(one, dict) and isinstance(one.get("message"), str):
                return cut(one["message"], 400)
    return _start(reply)


def _start(reply: Reply) -> str:
    return repr(cut(reply.data[:2000].decode(errors="replace"))) if reply.data else "an empty body"
