"""Names of images, read strictly."""

from __future__ import annotations

import pytest

from patchline.errors import UsageError
from patchline.image.reference import Reference, is_here, is_tag, parse

DIGEST = "sha256:" + "0" * 64
GOOD = {
    "registry.example/name": Reference("registry.example", "name"),
    "registry.example:5000/team/name:v1": Reference("registry.example:5000", "team/name", "v1"),
    f"127.0.0.1:5000/a/b@{DIGEST}": Reference("127.0.0.1:5000", "a/b", "", DIGEST),
    f"localhost/a_b/c__d/e-f.g:1.2@{DIGEST}": Reference("localhost", "a_b/c__d/e-f.g", "1.2", DIGEST),
    "[::1]:5000/a": Reference("[::1]:5000", "a"),
}
BAD = {
    "name": "no registry's host",
    "team/name": "'team' is no registry's host",
    "registry.example": "no registry's host",
    "registry.example/": "no name of a repository",
    "registry.example/Name": "no name of a repository",
    "registry.example/a//b": "no name of a repository",
    "registry.example/a/../b": "no name of a repository",
    "registry.example/a:": "'' is no tag",
    "registry.example/a:b:c": "'b:c' is no tag",
    "registry.example/a:-x": "is no tag",
    "registry.example/a@": "'' is no sha256 digest",
    "registry.example/a@sha256:00": "is no sha256 digest",
    f"registry.example/a@{DIGEST.upper()}": "is no sha256 digest",
    f"registry.example/a@{DIGEST}@{DIGEST}": "is no sha256 digest",
    "https://registry.example/a": "no registry's host",
    "user@registry.example/a": "is no sha256 digest",
    "registry.example:0/a": "no registry's host",
    "registry.example:99999/a": "no registry's host",
    "registry.example:٣/a": "no registry's host",
    "registry .example/a": "no registry's host",
    "-x.example/a": "no registry's host",
    f"registry.example/{'a' * 300}": "no name of a repository",
    "registry.example/a\n": "no name of a repository",
}


@pytest.mark.parametrize("text", GOOD)
def test_read_and_written(text: str) -> None:
    assert parse(text) == GOOD[text]
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", BAD)
def test_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert BAD[text] in str(caught.value)


def test_loopback() -> None:
    assert all(map(is_here, ["127.0.0.1", "127.200.1.1:5", "localhost:80", "LOCALHOST", "[::1]", "[::1]:443"]))
    others = ["10.0.0.1", "localhost.example", "127.0.0.1.example:5", "[::2]", "", "127.0.0.1/x", "0.0.0.0"]
    assert not any(map(is_here, others))


def test_tags() -> None:
    assert is_tag("v1.6.0-nightly-20261016-gemma4-hetero-tp.1")
    assert not any(map(is_tag, ["", "-a", ".a", "a b", "a" * 129, "a\n", "ä"]))
