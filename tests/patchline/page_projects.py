"""A project whose patches try to break a page, made with real git; what audits and verdicts say of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import NamedTuple

from making import pin_of
from repos import commit, git, patch_of, repository, write

from patchline.changelog import news
from patchline.page.given import Audit, Finding, Verdict
from patchline.pins import Upstream
from patchline.pins import write as write_pins
from patchline.project import Project

BODY = "".join(f"def f{n}(a, b=None):\n    # note {n}\n    return a + {n} if b else 'x'\n\n\n" for n in range(40))
THREE = BODY.replace("note 3\n", "three\n    # heads\n").replace("a + 20", "a - 20")
ODD = 'pkg/"odd" <b>name</b> & é.py'
SOURCE: dict[str, bytes | str] = {
    "pkg/core.py": BODY,
    "pkg/gone.py": "x = 1\n",
    "pkg/crlf.txt": "one\r\ntwo\r\nthree\r\n",
    "pkg/run.sh": "#!/bin/sh\n",
    ODD: "name = '<i>'\n",
}
TRAILERS = "Origin: authored\nForwarded: no\nDrop-When: tests-pass-on-stock\nTests: tests/patches/demo/test_it.py"
HOSTILE = """\
</article></main><script>alert("message")</script>

{{ 7 * 7 }} {% raw %} <img src=x onerror=alert(2)> \u202etxet\u202c end \x1b[31m

    indented <b>code</b> that
    stays as it is

- one thing <!--
- another thing -->

"""
HOSTILE_TRAILERS = """\
Origin: javascript:alert(3)
Forwarded: https://example.org/?a="><script>alert(4)</script>&b=1
Forwarded: https://example.org/pull/1
Drop-When: when <upstream> & we agree
Tests: tests/patches/demo/test_it.py
X-Odd: 'quoted' <i>"""
HOSTILE_FILES: dict[str, bytes | str | None] = {
    ODD: "name = '</code></div><script>alert(5)</script>'\n",
    "pkg/long.py": f"x = '{'a' * 9000}'\ny = '{'<' * 600}'\n",
    "pkg/min.js": f"var a={'(function(){return 1})(),' * 2000}0;\n",
    "pkg/bin.dat": bytes(range(256)) * 4,
    "pkg/odd.py": b"a = '\xff\xfe'\rb = 1\n\tc = '\xe2\x80\xae evil \xe2\x80\xac'\nd = '\x07'\nlast = 1",
    "pkg/crlf.txt": "one\r\n2\r\nthree\r\n",
    "pkg/gone.py": None,
    "pkg/run.sh": "#!/bin/sh\nexit\n",
}


class Change(NamedTuple):
    """One patch: None removes a file."""

    name: str
    message: str
    files: dict[str, bytes | str | None]


CHANGES = (
    Change(
        "0001-three-heads.patch",
        f"[Demo] Three heads\n\nWhy it is so,\nin two lines.\n\n{TRAILERS}",
        {"pkg/core.py": THREE, "pkg/new.py": "n = 1\n"},
    ),
    Change(
        "0002-<hostile>&'quote\".patch",
        f'</title><script>alert("subject")</script> \'q\' & "d"\n\n{HOSTILE}{HOSTILE_TRAILERS}',
        HOSTILE_FILES,
    ),
    Change("0003-terse.patch", f"Say nothing\n\n{TRAILERS}", {"pkg/core.py": THREE.replace("note 39", "the end")}),
)

AUDIT = Audit(
    "demo==1.0",
    1234,
    (
        Finding(
            "unexplained", "pkg/core.py", "No patch makes these lines.", 7, 9, "0001-three-heads.patch", ("-a", "+<b>")
        ),
        Finding("extra", "pkg/<u>hotfix</u>.py", "Nothing accounts for this file."),
    ),
    (
        Finding(
            "changed", "pkg/_version.py", "Its bytes are others.", reason="It is written when the package is built."
        ),
    ),
)
VERDICTS = (
    Verdict("demo", "2.0", "0001-three-heads.patch", "conflicts", "hunk 2 of pkg/core.py"),
    Verdict("demo", "2.0", "0003-terse.patch", "upstream"),
)


def project(root: Path, changes: tuple[Change, ...] = CHANGES) -> Project:
    """Pinned at 1.0 between two other versions, with one news fragment of each kind that names a patch."""
    made = Project(root)
    pins = tuple(pin_of(b"x", version=version) for version in ("0.9", "1.0", "2.0"))
    write_pins(made.upstreams, {"demo": Upstream(name="demo", carried="1.0", pins=pins)})
    repo = repository(root.parent / f"{root.name}-upstream", SOURCE)
    folder = made.series_dir("demo", "1.0")
    for change in changes:
        write(folder, {change.name: patch(repo, change)})
    write(folder, {"series": "".join(f"{change.name}\n" for change in changes)})
    write(root, {"tests/patches/demo/test_it.py": ""})
    fields = {"Patch": "demo/1.0/0001-three-heads.patch"}
    text = "The demo has `three <heads>` now.\n\nThat is <b>new</b>."
    news.write(made, "carried", "three", text, fields=fields, day=date(2026, 3, 4))
    fields = {"Patch": "demo/0.9/0001-two.patch", "Upstream": "demo==1.0"}
    news.write(made, "dropped", "two", "Upstream has two heads.", fields=fields, day=date(2026, 3, 1))
    return made


def patch(repo: Path, change: Change) -> bytes:
    """The change as a patch file, and as a commit on top of the others."""
    for name, data in change.files.items():
        if data is None:
            git(repo, "rm", "-q", name)
        else:
            write(repo, {name: data})
    if "pkg/run.sh" in change.files:
        (repo / "pkg" / "run.sh").chmod(0o755)
    commit(repo, change.message)
    text = patch_of(repo, "--zero-commit", "--no-signature", "--full-index", "--no-stat", "-k")
    front, _, diff = text.partition("\ndiff --git ")
    return f"{front}---\n\ndiff --git {diff}".encode("utf-8", "surrogateescape")
