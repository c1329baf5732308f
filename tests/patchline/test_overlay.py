"""The overlay: the installed files that a series changes, with one digest; none for compiled code."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from carrying import SOURCE, commit, core, project
from repos import patch_of
from verbs import patchline

from patchline.overlay import Change, Overlay, between, overlay
from patchline.series.carried import carried
from patchline.series.trees import Entry


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_files_digest_and_what_is_left_outside(tmp_path: Path) -> None:
    files = core(l3="three") | {"docs/index.md": "# new\n", "demo/sub/new.py": "x = 1\n"}
    made = project(tmp_path / "p", ("[Demo] Three heads", files))
    out = tmp_path / "out"
    ended = patchline("overlay", "demo", "--json", "--out", out, cwd=made.root)
    assert ended.exit == 0, ended.err
    rows = [(file["path"], file["what"]) for file in ended.data["files"]]
    assert rows == [("demo/core.py", "changed"), ("demo/sub/new.py", "added")]
    assert ended.data["outside"] == ["docs/index.md"]
    parts = [(out / "files" / path).read_bytes() for path, _ in rows]
    old = sha256(SOURCE["demo/core.py"])
    records = [
        "of demo==1.0",
        f"{old} 100644 {sha256(parts[0])} demo/core.py",
        f"absent 100644 {sha256(parts[1])} demo/sub/new.py",
    ]
    assert ended.data["digest"] == "sha256:" + sha256("".join(f"{record}\0" for record in records).encode())
    assert parts[0].decode() == core(l3="three")["demo/core.py"]
    assert sorted(path.name for path in out.iterdir()) == ["files", "overlay.json"]
    manifest = json.loads((out / "overlay.json").read_bytes())
    assert manifest == {key: value for key, value in ended.data.items() if key not in ("ok", "exit")}


def test_what_is_removed_is_in_the_manifest_and_in_the_digest(tmp_path: Path) -> None:
    made = project(tmp_path / "p", ("[Demo] Drop it", {}))
    (tmp_path / "p-scratch" / "demo" / "data.txt").unlink()
    commit(tmp_path / "p-scratch", "[Demo] Drop it\n\nWhy.\n\nOrigin: authored")
    file = made.series_dir("demo", "1.0") / "0001-drop-it.patch"
    file.write_text(patch_of(tmp_path / "p-scratch", "--zero-commit", "--no-signature", "--full-index"))
    out = tmp_path / "out"
    ended = patchline("overlay", "demo", "--json", "--out", out, cwd=made.root)
    assert ended.exit == 0, ended.err
    assert list((out / "files").iterdir()) == []
    manifest = json.loads((out / "overlay.json").read_bytes())
    assert manifest["files"] == [{"path": "demo/data.txt", "what": "removed"}]
    records = f"of demo==1.0\0{sha256(SOURCE['demo/data.txt'])} removed demo/data.txt\0"
    assert manifest["digest"] == f"sha256:{sha256(records.encode())}"


def test_equal_files_on_another_pin_have_another_digest() -> None:
    def digest(name: str, old: bytes | None) -> str:
        before = None if old is None else Entry(0o100644, old)
        change = Change("demo/core.py", before, Entry(0o100644, b"new\n"))
        return Overlay(name, "", "", (change,), ()).digest

    same = digest("demo==1.0", b"old\n")
    assert same == digest("demo==1.0", b"old\n")
    assert len({same, digest("demo==1.1", b"old\n"), digest("demo==1.0", b"other\n"), digest("demo==1.0", None)}) == 4


def test_the_overlay_of_the_first_patches(tmp_path: Path) -> None:
    made = carried(
        "demo",
        project(
            tmp_path / "p",
            ("[Demo] Three heads", core(l3="three")),
            ("[Demo] Four heads", core(l3="three", l4="four") | {"demo/new.py": "x\n"}),
        ),
    )
    whole = overlay(made)
    first = between(made, whole.base, f"{whole.head}~1")
    assert [change.path for change in first.changes] == ["demo/core.py"]
    assert [change.path for change in whole.changes] == ["demo/core.py", "demo/new.py"]
    assert between(made, whole.base, whole.head) == whole
    assert first.digest != whole.digest


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
