"""Registries on a bad day (a FAKE one): nothing is half pushed, and the same command completes it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import image_bases as bases
import pytest
from fake_registry import Fake, Fault, Handler, answers, done_but_silent, fake_registry, half, resets, sha
from image_bases import OVERLAY

from patchline.errors import PatchlineError, Refused, SourceMismatch, Unreachable
from patchline.image import append, base, locking
from patchline.image.append import Image
from patchline.image.layout import Layout
from patchline.image.model import Descriptor
from patchline.image.reference import parse
from patchline.image.registry import download
from patchline.image.registry import upload as uploads
from patchline.image.registry.client import Client
from patchline.image.registry.listing import tags
from patchline.image.registry.patience import Patience
from patchline.image.registry.push import Pushed, push
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository

QUICK = Patience(tries=4, first=0.01, longest=0.02)
DATA = os.urandom(300_000)
BLOB = Descriptor(bases.LAYER, sha(DATA), len(DATA))


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_registry() as running:
        yield running


@pytest.fixture
def image(tmp_path: Path) -> Image:
    made = bases.image([bases.pack(one, "gzip") for one in bases.plain()])
    found = base.find(Layout(bases.layout(made, tmp_path / "base")))
    return append.cut(found, locking.make(found, [OVERLAY]), [OVERLAY], bases.who())


def pushed(image: Image, fake: Fake, patience: Patience = QUICK) -> Pushed:
    with Client(fake.host, patience) as client:
        return push(image, Repository(client, "x", push=True))


def sent(fake: Fake, monkeypatch: pytest.MonkeyPatch, piece: int = 100_000) -> int:
    """Uploads DATA in pieces and returns how many bytes of bodies went out."""
    monkeypatch.setattr(uploads, "PIECE", piece)
    with Client(fake.host, QUICK) as client:
        cut = (DATA[at : at + 7000] for at in range(0, len(DATA), 7000))
        pieces = list(cut)
        uploads.upload(Repository(client, "x", push=True), BLOB, lambda: iter(pieces))
    assert fake.blobs == {BLOB.digest: DATA}
    return client.transport.sent


PASSING: dict[str, tuple[str, list[Fault]]] = {
    "503 twice": ("PUT manifest", [answers(503), answers(503)]),
    "429 with seconds": ("PUT manifest", [answers(429, Retry_After="0")]),
    "429 with a date": ("PUT manifest", [answers(429, Retry_After=formatdate(usegmt=True))]),
    "a reset": ("PUT manifest", [resets()]),
    "a reset at the first question": ("GET manifest", [resets(), resets()]),
    "500 for HEAD": ("HEAD blob", [answers(500), answers(502)]),
    "a blob's answer is lost": ("PUT upload", [done_but_silent]),
    "a reset in the middle of a blob": ("PUT upload", [resets(50)]),
    "an upload is forgotten": ("PUT upload", [resets(50, lose=True), answers(404)]),
    "the start is refused for a moment": ("POST start", [answers(503), resets()]),
    "the manifest's answer is lost": ("PUT manifest", [done_but_silent]),
}


@pytest.mark.parametrize("name", PASSING)
def test_what_passes_is_waited_for(name: str, fake: Fake, image: Image) -> None:
    what, faults = PASSING[name]
    fake.fail(what, *faults)
    assert pushed(image, fake).digest == image.digest
    assert fake.manifests[image.digest] == image.manifest.data
    assert fake.faults[what] == []
    assert set(fake.blobs) == {
        one["digest"] for one in (*image.manifest.fields["layers"], image.manifest.fields["config"])
    }


FULL = json.dumps({"errors": [{"code": "UNKNOWN", "message": "no space left on device"}]}).encode()

STAYING: dict[str, tuple[str, Fault, type[PatchlineError], str]] = {
    "full storage, said so": ("PUT upload", answers(507, FULL), Unreachable, "the registry has no space left: 507"),
    "full storage, as a 500": ("PUT upload", answers(500, FULL), Unreachable, "no space left on device"),
    "503": ("PUT manifest", answers(503), Unreachable, "it answered 503 Service Unavailable (tried 4 times)"),
    "resets": ("POST start", resets(), Unreachable, "(tried 4 times)"),
    "wants to be left alone for an hour": (
        "PUT manifest",
        answers(429, Retry_After="3600"),
        Unreachable,
        "not tried again; it asks to be left alone for 3600 s",
    ),
    "another digest for a blob": (
        "PUT upload",
        answers(201, Docker_Content_Digest=sha(b"x")),
        SourceMismatch,
        f"stated: {sha(b'x')}",
    ),
    "another digest for the manifest": (
        "PUT manifest",
        answers(201, Docker_Content_Digest=sha(b"x")),
        SourceMismatch,
        "the registry holds something else",
    ),
    "forbidden": (
        "POST start",
        answers(403, b'{"errors":[{"code":"DENIED","message":"no"}]}'),
        Refused,
        "the registry refuses: 403 Forbidden: DENIED no",
    ),
    "wants something odd": (
        "HEAD blob",
        answers(401, WWW_Authenticate="Negotiate"),
        Refused,
        "it wants something else than a password or a token: negotiate",
    ),
    "a circle": ("GET manifest", answers(307, Location="/v2/x/manifests/a"), Refused, "redirects in circles"),
    "a redirected push": (
        "PUT manifest",
        answers(302, Location="/elsewhere"),
        Refused,
        "the registry redirects a PUT with 302",
    ),
    "plain HTTP elsewhere": (
        "GET manifest",
        answers(307, Location="http://registry.example/x"),
        Refused,
        "plain HTTP is for this machine only",
    ),
    "an upload that goes elsewhere in plain": (
        "POST start",
        answers(202, Location="http://registry.example/x"),
        Refused,
        "plain HTTP is for this machine only",
    ),
    "no place to send to": ("POST start", answers(202), SourceMismatch, "does not say where to send a blob"),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_stays_is_said_and_nothing_is_half_pushed(name: str, fake: Fake, image: Image) -> None:
    what, fault, error, message = STAYING[name]
    fake.fail(what, *[fault] * 50)
    with pytest.raises(error) as caught:
        pushed(image, fake)
    assert message in str(caught.value)
    assert fake.manifests == {}
    fake.faults.clear()
    assert pushed(image, fake).digest == image.digest  # the same command completes it


def test_what_was_sent_is_not_sent_again(fake: Fake, image: Image) -> None:
    fake.fail("PUT manifest", *[answers(503)] * 4)
    with pytest.raises(Unreachable):
        pushed(image, fake)
    again = pushed(image, fake)
    assert (again.there, again.copied, again.sent) == (5, 0, len(image.manifest.data))


def test_retry_after_is_waited_for(fake: Fake, image: Image) -> None:
    fake.fail("PUT manifest", answers(429, Retry_After="1"))
    began = time.monotonic()
    pushed(image, fake)
    assert time.monotonic() - began >= 1


def test_an_upload_goes_on_where_it_broke(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.fail("PATCH upload", answers(503), resets(60_000))
    assert (
        sent(fake, monkeypatch) <= len(DATA) + 100_000
    )  # the piece of the 503; of a broken request nothing is counted
    assert fake.spans == ["60000-99999", "100000-199999", "200000-299999"]


RESUMED = {
    "broken before anything": [resets(0)],
    "broken after all of a piece": [resets(100_000)],
    "several times in one piece": [resets(10_000), resets(10_000), resets(10_000)],
    "out of step": [answers(416)],
    "forgotten": [resets(50_000, lose=True)],
    "forgotten at the second piece": [answers(202, Range="0-99999"), resets(5, lose=True)],
}


@pytest.mark.parametrize("name", RESUMED)
def test_uploads_resume(name: str, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.fail("PATCH upload", *RESUMED[name])
    sent(fake, monkeypatch)


def test_the_registry_may_ask_for_long_pieces(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(handler: Handler) -> bool:
        fake.uploads["0"] = b""
        return handler.say(202, Location="/v2/x/blobs/uploads/0", OCI_Chunk_Min_Length="200000")

    fake.fail("POST start", start)
    sent(fake, monkeypatch)
    assert fake.spans == ["0-199999", "200000-299999"]


def test_an_upload_that_is_lost_again_and_again_ends(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.fail("PATCH upload", *[resets(5, lose=True)] * 50)
    with pytest.raises(Unreachable, match="does not know this upload any more"):
        sent(fake, monkeypatch)


def test_a_blob_is_read_on_where_it_broke(fake: Fake) -> None:
    fake.blobs[BLOB.digest] = DATA
    fake.fail("GET blob", half)
    with Client(fake.host, QUICK) as client:
        assert b"".join(download.blob(Repository(client, "x"), BLOB)) == DATA
    assert fake.spans == [f"bytes={len(DATA) // 2}-"]


def test_a_blob_from_a_registry_without_ranges(fake: Fake) -> None:
    fake.blobs[BLOB.digest] = DATA
    fake.fail("GET blob", half, answers(200, DATA))
    with Client(fake.host, QUICK) as client:
        assert b"".join(download.blob(Repository(client, "x"), BLOB)) == DATA


@pytest.mark.parametrize("data", [DATA[:-1], DATA[:-1] + bytes([DATA[-1] ^ 1]), DATA + b"x"])
def test_wrong_blobs_are_refused(fake: Fake, data: bytes) -> None:
    fake.blobs[BLOB.digest] = data
    with Client(fake.host, QUICK) as client, pytest.raises(SourceMismatch, match=r"wrong (bytes|size)"):
        b"".join(download.blob(Repository(client, "x"), BLOB))


def test_another_size_of_a_blob_is_refused(fake: Fake, image: Image) -> None:
    fake.blobs[image.base.layers[0].digest] = b"short"
    with pytest.raises(SourceMismatch, match="the registry has another blob"):
        pushed(image, fake)


def test_a_wrong_manifest_is_refused(fake: Fake, image: Image) -> None:
    fake.manifests[image.digest] = image.base.manifest.data
    with pytest.raises(SourceMismatch, match="the registry sent wrong bytes") as caught:
        pushed(image, fake)
    assert image.digest in str(caught.value)
    assert image.base.digest in str(caught.value)


def test_a_digest_that_is_only_stated_is_refused(fake: Fake, image: Image) -> None:
    kind = image.base.manifest.fields["mediaType"]
    fake.fail(
        "GET manifest", answers(200, image.base.manifest.data, Content_Type=kind, Docker_Content_Digest=image.digest)
    )
    with Client(fake.host, QUICK) as client, pytest.raises(SourceMismatch, match="wrong bytes"):
        Remote(Repository(client, "x"), parse(f"{fake.host}/x:1")).root()


def test_a_redirect_to_another_host_gets_no_credential(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(
        json.dumps({"auths": {fake.host: {"username": "me", "password": "hunter2"}}})
    )
    with fake_registry("127.0.0.2") as other:
        other.blobs[BLOB.digest] = DATA
        place = f"http://{other.host}/v2/x/blobs/{BLOB.digest}"
        fake.fail("GET blob", answers(401, WWW_Authenticate='Basic realm="x"'), answers(307, Location=place))
        with Client(fake.host, QUICK) as client:
            assert b"".join(download.blob(Repository(client, "x"), BLOB)) == DATA
        assert other.authorizations == [None]
    assert fake.authorizations[0] is None
    assert str(fake.authorizations[1]).startswith("Basic ")


def test_a_redirect_within_the_registry_keeps_it(fake: Fake, tmp_path: Path) -> None:
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "config.json").write_text(
        json.dumps({"auths": {fake.host: {"username": "me", "password": "hunter2"}}})
    )
    fake.blobs[BLOB.digest] = DATA
    place = f"/v2/y/blobs/{BLOB.digest}"
    fake.fail("GET blob", answers(401, WWW_Authenticate='Basic realm="x"'), answers(307, Location=place))
    with Client(fake.host, QUICK) as client:
        assert b"".join(download.blob(Repository(client, "x"), BLOB)) == DATA
    assert fake.authorizations[-1] == fake.authorizations[1] is not None


def test_a_token_server_elsewhere_in_plain_is_refused(fake: Fake) -> None:
    fake.fail("HEAD blob", answers(401, WWW_Authenticate='Bearer realm="http://tokens.example/t",service="s"'))
    with Client(fake.host, QUICK) as client, pytest.raises(Refused, match="plain HTTP is for this machine only"):
        Repository(client, "x").has(BLOB)


def test_nobody_is_there() -> None:
    with Client("127.0.0.1:1", QUICK) as client, pytest.raises(Unreachable, match=r"no answer: .*\(tried 4 times\)"):
        Repository(client, "x").has(BLOB)


def test_tls_everywhere_else() -> None:
    assert Client("registry.example").url == "https://registry.example"
    assert Client("10.0.0.1:5000").url == "https://10.0.0.1:5000"
    for host in ("localhost:5000", "127.8.9.1:1", "[::1]:5000", "127.0.0.1"):
        assert Client(host).url == f"http://{host}"


def test_tags_come_page_by_page(fake: Fake, image: Image) -> None:
    names = [f"v1.6.0-tiny.{number}" for number in range(1, 6)]
    fake.manifests |= dict.fromkeys(names, image.manifest.data)
    with Client(fake.host, QUICK) as client:
        assert tags(Repository(client, "x")) == names
    assert fake.asked == ["GET tags"] * 3


def test_a_list_of_tags_without_an_end(fake: Fake) -> None:
    fake.fail("GET tags", *[answers(200, b'{"tags":["a"]}', Link='</v2/x/tags/list?n=1>; rel="next"')] * 50)
    with Client(fake.host, QUICK) as client, pytest.raises(SourceMismatch, match="has no end"):
        tags(Repository(client, "x"))


def test_a_tag_that_another_one_took_meanwhile(fake: Fake, image: Image) -> None:
    """Both found it free; the other one was the last to set it."""
    pushed(image, fake)

    def late(handler: Handler) -> bool:
        fake.manifests["t"] = image.base.manifest.data
        return answers(201)(handler)

    fake.fail("PUT manifest", late)
    with Client(fake.host, QUICK) as client, pytest.raises(Refused, match="tags are never moved"):
        Repository(client, "x", push=True).tag(image.manifest, "t")
