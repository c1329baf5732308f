"""Headers of patches: mails in every coding, DEP-3, and what is refused."""

from __future__ import annotations

import base64
import quopri
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from repos import git

from patchline.series.mail import Header, written
from patchline.series.patch import parsed
from patchline.series.refusals import BadPatch

DIFF = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-grüße\n+gruß = 'x' # ====================================================================== a long line\n"


def header(text: str | bytes) -> Header:
    return parsed(text.encode() if isinstance(text, str) else text, Path("0001-name.patch"), "0001-name.patch").header


def by(
    subject: str = "x",
    sender: str = "Ann <ann@example.org>",
    date: str = "Wed, 4 Mar 2026 05:06:07 +0200",
    more: str = "",
    body: str = "",
) -> str:
    return f"From: {sender}\nDate: {date}\nSubject: {subject}\n{more}\n{body}---\n\n{DIFF}"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("plain", "plain"),
        ("folded over\n two lines", "folded over two lines"),
        ("folded with a\n\ttab", "folded with a tab"),
        ("=?UTF-8?q?gr=C3=BC=C3=9Fe?=", "grüße"),
        ("=?UTF-8?B?Z3LDvMOfZQ==?= and more", "grüße and more"),
        ("=?UTF-8?q?gr=C3=BC?=\n =?UTF-8?q?=C3=9Fe?=", "grüße"),
        ("=?iso-8859-1?q?gr=FC=DFe?=", "grüße"),
        ("[PATCH] x", "x"),
        ("[PATCH v2 3/12] [Bugfix][NIXL] x", "[Bugfix][NIXL] x"),
        ("[Bugfix][NIXL] x", "[Bugfix][NIXL] x"),
        ("x: a [PATCH] in it", "x: a [PATCH] in it"),
    ],
)
def test_subjects_as_git_reads_them(tmp_path: Path, said: str, meant: str) -> None:
    assert header(by(said)).subject == meant
    if "iso-8859" in said:
        return  # git needs the machine's own converter for it
    git(tmp_path, "init", "-q")
    info = subprocess.run(
        ["git", "mailinfo", "-b", "--encoding=UTF-8", "m", "p"],
        cwd=tmp_path,
        input=by(said).encode(),
        capture_output=True,
        check=True,
    )
    subject = next(line for line in info.stdout.decode().splitlines() if line.startswith("Subject: "))
    assert (
        subject.removeprefix("Subject: ")
        .replace("[PATCH] ", "", said.startswith("[PATCH"))
        .removeprefix("[PATCH v2 3/12] ")
        == meant
    )


@pytest.mark.parametrize(
    ("said", "name", "email"),
    [
        ("Ann Author <ann@example.org>", "Ann Author", "ann@example.org"),
        ('"Author, Ann" <ann@example.org>', "Author, Ann", "ann@example.org"),
        (r'"Ann \"A\" B" <a@b>', 'Ann "A" B', "a@b"),
        ('Ann "A" B <a@b>', 'Ann "A" B', "a@b"),
        ("=?UTF-8?q?J=C3=BCrgen?= <j@b>", "Jürgen", "j@b"),
        ("<a@b>", "", "a@b"),
        ("Ann", "Ann", ""),
    ],
)
def test_people(said: str, name: str, email: str) -> None:
    found = header(by(sender=said))
    assert (found.name, found.email) == (name, email)


@pytest.mark.parametrize(
    ("said", "seconds", "zone"),
    [
        ("Wed, 4 Mar 2026 05:06:07 +0200", 1772593567, "+0200"),
        ("4 Mar 2026 05:06:07 -0330", 1772613367, "-0330"),
        ("Wed, 4 Mar 2026 05:06:07 GMT", 1772600767, "+0000"),
        ("Wed, 4 Mar 2026", 1772582400, "+0000"),
        ("Thu, 1 Jan 1970 00:00:00 +0100", -3600, "+0100"),
    ],
)
def test_dates(said: str, seconds: int, zone: str) -> None:
    found = header(by(date=said))
    assert (found.seconds, found.zone) == (seconds, zone)


@pytest.mark.parametrize(
    "said",
    [
        "someday",
        "Wed, 31 Feb 2026 05:06:07 +0200",
        "Wed, 4 Mer 2026 05:06:07 +0200",
        "4 Mar 2026 25:06:07 +0200",
        "4 Mar 2026 05:06:07 +9900",
    ],
)
def test_dates_that_are_none(said: str) -> None:
    with pytest.raises(BadPatch, match="not a date"):
        header(by(date=said))


@pytest.mark.parametrize(("seconds", "zone"), [(0, "+9900"), (0, "+0099"), (0, "UTC"), (10**18, "+0000")])
def test_times_that_no_mail_can_say(seconds: int, zone: str) -> None:
    with pytest.raises(BadPatch, match="not a time"):
        written(Header("A", "a@b", seconds, zone, "x"))


@pytest.mark.parametrize("coding", ["8bit", "quoted-printable", "base64"])
def test_codings_of_the_body(coding: str) -> None:
    head, _, body = by(
        more=f"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: {coding}\n",
        body="Ein Gruß.\n",
    ).partition("\n\n")
    codings: dict[str, Callable[[bytes], bytes]] = {
        "8bit": bytes,
        "quoted-printable": quopri.encodestring,
        "base64": base64.encodebytes,
    }
    raw = codings[coding](body.encode())
    patch = parsed(head.encode() + b"\n\n" + raw, Path("p"), "p")
    assert patch.header.body == "Ein Gruß."
    assert patch.files == parsed(by(body="Ein Gruß.\n", more="A: b\nC: d\nE: f\n").encode(), Path("p"), "p").files


@pytest.mark.parametrize("more", ["Content-Type: multipart/mixed; boundary=x\n", "Content-Transfer-Encoding: base64\n"])
def test_mails_that_are_not_the_patch_itself(more: str) -> None:
    with pytest.raises(BadPatch):
        header(by(more=more))


def test_an_encoded_subject_that_does_not_decode() -> None:
    for said in ("=?nowhere?q?x?=", "=?utf-8?b?x?="):
        with pytest.raises(BadPatch, match="a header does not decode"):
            header(by(said))


DEP3 = f"""Description: short of it
 The long of it,
 over lines.
 .
   An example
 .
 The end.
Author: Ann Author <ann@example.org>
Origin: upstream, https://example.org/1
Bug: https://example.org/2
Bug-Debian: https://bugs.example.org/3
Bug-Debian: https://bugs.example.org/4
Forwarded: not-needed
Last-Update: 2026-03-04
Reviewed-by: Bob <bob@example.org>
---
This text is nobody's.
{DIFF}"""


def test_dep3() -> None:
    found = header(DEP3)
    assert (found.name, found.email, found.seconds) == ("Ann Author", "ann@example.org", 1772582400)
    assert found.subject == "short of it"
    assert found.body == "The long of it,\nover lines.\n\n  An example\n\nThe end."
    trailers = found.trailers
    assert trailers["author"] == ["Ann Author <ann@example.org>"]
    assert trailers["last-update"] == ["2026-03-04"]
    assert trailers["forwarded"] == ["not-needed"]
    assert trailers["origin"] == ["upstream, https://example.org/1"]
    assert trailers["bug-debian"] == ["https://bugs.example.org/3", "https://bugs.example.org/4"]
    assert trailers["description"][0].startswith("short of it\nThe long of it,")


def test_dep3_with_a_day_that_is_none() -> None:
    assert header(DEP3.replace("2026-03-04", "yesterday")).seconds is None


def test_trailers_of_the_last_paragraph_with_folded_lines() -> None:
    found = header(
        by(
            body="Why.\n\nNot: a trailer\nbut prose.\n\nOrigin: authored\nDrop-When: upstream\n has it\nTests: a\nTests: b\n"
        )
    )
    assert found.trailers == {"origin": ["authored"], "drop-when": ["upstream has it"], "tests": ["a", "b"]}


def test_the_author_where_another_sent_the_mail() -> None:
    found = header(by(sender="Sender <s@b>", body="From: =?UTF-8?q?J=C3=BCrgen?= <j@b>\n\nWhy.\n"))
    assert (found.name, found.email, found.body) == ("Jürgen", "j@b", "Why.")


def test_a_diff_without_any_header_is_named_by_its_file() -> None:
    assert header(DIFF).subject == "0001-name"
    assert header(f"# What it does\nand why\n\n{DIFF}").message == "What it does\n\nand why\n"
