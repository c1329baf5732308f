"""The series file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repos import series

from patchline.errors import PatchlineError, UsageError
from patchline.series.quilt import files, items, patches
from patchline.series.refusals import BadPatch

ONE = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@\n a\n+b\n c\n"


def test_comments_options_and_odd_names(tmp_path: Path) -> None:
    text = "# all\n\n  a.patch\t-p0 # why\nb#1.patch\nsub/c.patch -p2\n#d.patch\n \t\n\x0be.patch\n"
    file = series(tmp_path, {}, text)
    assert [(item.name, item.strip, item.line) for item in items(file)] == [
        ("a.patch", 0, 3),
        ("b#1.patch", 1, 4),
        ("sub/c.patch", 2, 5),
        ("e.patch", 1, 8),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "x.patch -R",
        "x.patch --fuzz=3",
        "x.patch -p",
        "x.patch -px",
        "x.patch -p-1",
        "../x.patch",
        "/x.patch",
        "x.patch y.patch",
        ".git/x",
    ],
)
def test_lines_that_are_not_understood(tmp_path: Path, line: str) -> None:
    with pytest.raises(UsageError, match="line 2"):
        items(series(tmp_path, {}, f"ok.patch\n{line}\n"))


def test_every_bad_patch_is_named(tmp_path: Path) -> None:
    file = series(tmp_path, {"a.patch": "prose\n", "b.patch": ONE, "c.patch": ONE.replace("1,3", "1,4")})
    with pytest.raises(BadPatch, match=r"(?s)a\.patch: it holds no change.*c\.patch: line 3: the hunk"):
        patches(files(file))


def test_the_digest_knows_order_names_levels_and_bytes(tmp_path: Path) -> None:
    made = {"a.patch": ONE, "b.patch": ONE}
    texts = ["a.patch\nb.patch\n", "b.patch\na.patch\n", "a.patch\nb.patch -p2\n", "a.patch\n"]
    digests = {files(series(tmp_path / str(at), made, text)).digest for at, text in enumerate(texts)}
    digests |= {files(series(tmp_path / "x", {**made, "b.patch": ONE + "\n"})).digest}
    assert len(digests) == 5
    assert files(series(tmp_path / "y", made, "# comment\n" + texts[0])).digest in digests


@settings(
    deadline=None, derandomize=True, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.binary(max_size=60) | st.text(alphabet="ab#-pR0 \t\n\r./\\\x00\x0b\x85", max_size=40).map(str.encode))
def test_any_bytes_are_read_or_refused_in_words(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "series").write_bytes(raw)
    with suppress(PatchlineError):
        patches(files(tmp_path / "series"))
