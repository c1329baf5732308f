"""Challenges as registries write them, waits as they ask for them, and streams read ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from fake_registry import Fake, answers, fake_registry

from patchline.errors import Refused, SourceMismatch, Unreachable
from patchline.http import retry_after
from patchline.image.ahead import DEPTH, ahead
from patchline.image.digests import CHUNK
from patchline.image.registry.challenge import Challenge, parse
from patchline.image.registry.client import Client
from patchline.image.registry.patience import Broken, Patience, persist
from patchline.image.registry.repository import Repository

TOKEN = {"realm": "https://auth.example/token", "service": "registry.example", "scope": "repository:a/b:pull,push"}
HEADERS = {
    'Bearer realm="https://auth.example/token",service="registry.example",scope="repository:a/b:pull,push"': [
        Challenge("bearer", TOKEN)
    ],
    'Basic realm="a \\"b\\", Bearer realm=c"': [Challenge("basic", {"realm": 'a "b", Bearer realm=c'})],
    'BASIC realm="x", bearer realm = "y" , service=z': [
        Challenge("basic", {"realm": "x"}),
        Challenge("bearer", {"realm": "y", "service": "z"}),
    ],
    "Negotiate, Basic realm=x": [Challenge("negotiate", {}), Challenge("basic", {"realm": "x"})],
    "": [],
}


@pytest.mark.parametrize("header", HEADERS)
def test_challenges(header: str) -> None:
    assert parse(header) == HEADERS[header]


def test_retry_after() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    said = {"0": 0.0, "7": 7.0, "soon": None, "": None, "-1": None, "1e9": None, "Fri, 01 Jan 2010 00:00:00 GMT": 0.0}
    assert {text: retry_after({"Retry-After": text}) for text in said} == said
    found = retry_after({"Retry-After": soon})
    assert found is not None
    assert 25 < found <= 30


def test_waits_grow_and_end() -> None:
    patience = Patience(tries=5, first=1, longest=3)
    waits = [patience.before(number, Broken("x")) for number in range(1, 6)]
    assert waits[-1] is None
    for wait, most in zip(waits[:-1], (1, 2, 3, 3), strict=True):
        assert wait is not None
        assert most / 2 <= wait <= most
    assert patience.before(1, Broken("x", 10)) == 10
    assert patience.before(1, Broken("x", 301)) is None


def test_what_ends_well_is_given_back() -> None:
    tries = iter([Broken("one"), Broken("two"), None])

    def attempt() -> str:
        broken = next(tries)
        if broken is not None:
            raise broken
        return "done"

    assert persist(Patience(first=0), "here", attempt) == "done"
    with pytest.raises(Unreachable, match=r"one \(tried 2 times\)"):
        persist(Patience(tries=2, first=0), "here", lambda: _raise(Broken("one")))


def _raise(error: Exception) -> None:
    raise error


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with fake_registry() as running:
        yield running


@pytest.mark.parametrize("body", [b"{}", b"[]", b"x", b'{"token": ""}', b'{"token": "a\\nb"}'])
def test_a_token_server_that_gives_none(fake: Fake, body: bytes) -> None:
    realm = f'Bearer realm="http://{fake.host}/v2/t/tags/list",service="s"'
    fake.fail("GET manifest", answers(401, WWW_Authenticate=realm))
    fake.fail("GET tags", answers(200, body))
    with Client(fake.host) as client, pytest.raises(Refused, match="its token server gave no token"):
        Repository(client, "x").manifest("t")


def test_a_token_that_is_not_good_enough(fake: Fake) -> None:
    realm = f'Bearer realm="http://{fake.host}/v2/t/tags/list",service="s"'
    fake.fail("GET manifest", *[answers(401, WWW_Authenticate=realm)] * 2)
    fake.fail("GET tags", answers(200, b'{"token": "secret-token"}'))
    with Client(fake.host) as client, pytest.raises(Refused, match="does not accept who we are") as caught:
        Repository(client, "x").manifest("t")
    assert fake.authorizations == [None, None, "Bearer secret-token"]
    assert "secret-token" not in str(caught.value)


def test_a_token_that_ran_out_is_renewed(fake: Fake) -> None:
    realm = f'Bearer realm="http://{fake.host}/v2/t/tags/list",service="s"'
    refused = answers(401, WWW_Authenticate=realm)
    fake.fail("GET manifest", refused, answers(404), refused, answers(404))
    fake.fail("GET tags", answers(200, b'{"token": "one"}'), answers(200, b'{"access_token": "two"}'))
    with Client(fake.host) as client:
        for _ in range(2):
            assert Repository(client, "x").manifest("t") is None
    assert [one for one in fake.authorizations if one] == ["Bearer one", "Bearer one", "Bearer two"]


def test_pieces_come_in_order_and_errors_in_their_place() -> None:
    """A bundle is a megabyte; of one that an error cut short nothing is given."""
    big = bytes(CHUNK)

    def pieces() -> Iterator[bytes]:
        yield from (b"a", big, big, b"b")
        raise SourceMismatch("wrong")

    got: list[bytes] = []
    with pytest.raises(SourceMismatch), ahead(pieces()) as taken:
        for piece in taken:
            got.append(piece)  # noqa: PERF402  the error comes after the pieces
    assert got == [b"a", big, big]


def test_nothing_is_read_far_ahead_or_after_the_end() -> None:
    made: list[int] = []
    ended = threading.Event()

    def pieces() -> Iterator[bytes]:
        try:
            for number in range(1000):
                made.append(number)
                yield bytes(CHUNK)
        finally:
            ended.set()

    with ahead(pieces()) as taken:
        next(taken)
        time.sleep(0.3)
        assert len(made) <= DEPTH + 3
    before = len(made)
    time.sleep(0.2)
    assert len(made) == before
    assert ended.wait(5)
