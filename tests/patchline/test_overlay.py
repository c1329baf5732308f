"""The overlay: the installed files that a series changes, with one digest; none for compiled code."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from carrying import SOURCE, core, project
from verbs import patchline


def test_files_digest_and_what_is_left_outside(tmp_path: Path) -> None:
    files = core(l3="three") | {"docs/index.md": "# new\n", "demo/sub/new.py": "x = 1\n"}
    made = project(tmp_path / "p", ("[Demo] Three heads", files))
    out = tmp_path / "out"
    ended = patchline("overlay", "demo", "--json", "--out", out, cwd=made.root)
    assert ended.exit == 0, ended.err
    rows = [(file["path"], file["what"]) for file in ended.data["files"]]
    assert rows == [("demo/core.py", "changed"), ("demo/sub/new.py", "added")]
    assert ended.data["outside"] == ["docs/index.md"]
    parts = [(path, (out / path).read_bytes()) for path, _ in rows]
    total = hashlib.sha256(
        b"".join(f"100644 {hashlib.sha256(data).hexdigest()} {path}\0".encode() for path, data in parts)
    )
    assert ended.data["digest"] == f"sha256:{total.hexdigest()}"
    assert parts[0][1].decode() == core(l3="three")["demo/core.py"]


def test_the_digest_is_the_same_elsewhere_and_follows_every_byte(tmp_path: Path) -> None:
    digests = []
    for name, text in (("a", "three"), ("b", "three"), ("c", "three ")):
        made = project(tmp_path / name, ("[Demo] Three heads", core(l3=text)))
        digests.append(patchline("overlay", "demo", "--json", cwd=made.root).data["digest"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize(
    "path",
    ["csrc/fast.cu", "setup.py", "CMakeLists.txt", "rust/src/lib.rs", "demo/kernel.cu", "requirements/common.txt"],
)
def test_compiled_code_has_no_overlay(tmp_path: Path, path: str) -> None:
    made = project(tmp_path / "p", ("[Demo] Three heads", core(l3="three") | {path: "int y;\n"}))
    ended = patchline("overlay", "demo", cwd=made.root)
    assert ended.exit == 5
    assert "has no overlay: its series changes what is compiled" in ended.err
    assert f"  {path}" in ended.err


def test_nothing_installed_is_an_error(tmp_path: Path) -> None:
    made = project(tmp_path / "p", ("[Demo] Three heads", {"docs/index.md": "# new\n"}))
    ended = patchline("overlay", "demo", cwd=made.root)
    assert ended.exit == 5
    assert "changes no file of an installed package" in ended.err
    assert SOURCE["docs/index.md"] == b"# demo\n"
