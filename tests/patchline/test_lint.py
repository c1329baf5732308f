"""Lint collects everything, counts, and fails on nothing to check."""

from __future__ import annotations

from pathlib import Path

import pytest
from carrying import core, project
from verbs import patchline

ONE = ("[Demo] Three heads", core(l3="three"))
PATCH = "patches/demo/1.0/0001-three-heads.patch"


def test_a_clean_series_is_counted(tmp_path: Path) -> None:
    made = project(tmp_path / "p", ONE)
    ended = patchline("lint", cwd=made.root)
    assert (ended.exit, ended.out) == (0, "checked 1 series, 1 patches, 1 hunks: 0 findings\n"), ended.err


def test_nothing_to_check_is_an_error(tmp_path: Path) -> None:
    made = project(tmp_path / "p")
    ended = patchline("lint", cwd=made.root)
    assert ended.exit == 2
    assert "there is no series to check" in ended.err


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("Origin: authored\n", "", "no trailer Origin:"),
        ("Forwarded: no\n", "Forwarded: maybe\n", "Forwarded: 'maybe' is none of a link, no and not-needed"),
        ("Drop-When: tests-pass-on-stock\n", "Drop-When: upstream-version > 2\n", "write it as: upstream-version >= X"),
        ("Drop-When: tests-pass-on-stock\n", "Drop-When: upstream-version >= two\n", "two is not a version"),
        (
            "Tests: tests/patches/demo/test_three.py",
            "Tests: tests/patches/demo/gone.py",
            "Tests: there is no tests/patches/demo/gone.py",
        ),
        ("Tests: tests/patches/demo/test_three.py", "Tests: ../x.py", "does not lie in tests/patches/"),
        ("Subject: ", "Subject: [PATCH] ", "its header is not in the one form"),
        ("From: Ann Author <ann@example.org>\n", "", "no author or no date"),
        ("\n+three\n", "\n+three\n+four\n", "a hunk is longer|the hunk's lines do not add up|cut short|no hunk counts"),
        ("b/demo/core.py\n@@", "b/../core.py\n@@", "'..'|name other files"),
    ],
)
def test_findings(tmp_path: Path, old: str, new: str, what: str) -> None:
    import re

    made = project(tmp_path / "p", ONE)
    path = made.root / PATCH
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    ended = patchline("lint", "--json", cwd=made.root)
    assert ended.exit == 8, ended.out
    found = [finding["what"] for finding in ended.data["findings"] if finding["where"] == PATCH]
    assert any(re.search(what, text) for text in map(str, found)) or any(what in text for text in found), found


def test_tests_that_no_patch_names(tmp_path: Path) -> None:
    made = project(tmp_path / "p", ONE)
    (made.root / "tests" / "patches" / "demo" / "test_orphan.py").write_text("")
    ended = patchline("lint", cwd=made.root)
    assert ended.exit == 8
    assert "tests/patches/demo/test_orphan.py: no patch names these tests" in ended.out
