"""Hostile and plain archives: refused before anything is given, or read byte for byte."""

from __future__ import annotations

import gzip
import io
import tarfile
import warnings
import zipfile

import pytest
from making import PLAIN, TOP, entry, sdist, tar, wheel

from patchline.errors import SourceMismatch
from patchline.sources.archive import EXECUTABLE, FILE, LINK, members

GOOD = entry(f"{TOP}/a.py", b"a\n")


def refused(name: str, data: bytes) -> str:
    with pytest.raises(SourceMismatch) as caught:
        members(name, data)
    assert int(caught.value.exit) == 4
    text = str(caught.value)
    assert text.startswith(f"{name} is not a source that can be unpacked: ")
    assert "where: nothing was written" in text
    assert "next:" in text
    return text


def test_sdist_loses_its_top_folder_and_nothing_else() -> None:
    found = {member.path: member for member in members("demo-1.0.tar.gz", sdist())}
    assert {path: member.read() for path, member in found.items()} == PLAIN
    assert found["demo/run.sh"].mode == EXECUTABLE
    assert found["demo/core.py"].mode == FILE
    assert found["demo/core.py"].mtime == 1_700_000_000


def test_wheel_keeps_its_paths() -> None:
    data = wheel({"demo/x.py": b"x\n", "demo-1.0.dist-info/RECORD": b""})
    found = {member.path: (member.mode, member.mtime, member.read()) for member in members("d.whl", data)}
    assert found["demo/x.py"] == (FILE, 1_706_933_106, b"x\n")
    assert len(found) == 2


NAMES = {
    "demo-1.0/../x": "component '..'",
    "demo-1.0/a/../../x": "component '..'",
    "/etc/passwd": "absolute",
    "../x": "component '..'",
    "demo-1.0/./x": "component '.'",
    "demo-1.0//x": "component ''",
    "demo-1.0/a\\b": "backslash",
    "C:/x": "absolute",
    "demo-1.0/a\nb": "control character",
    "demo-1.0/.git/hooks/x": "is a spelling of .git",
    "demo-1.0/.GIT/config": "is a spelling of .git",
    "demo-1.0/a/.git./config": "is a spelling of .git",
    "demo-1.0/.git . /config": "is a spelling of .git",
    "demo-1.0/git~1/config": "is a spelling of .git",
    "demo-1.0/.git::$INDEX_ALLOCATION/config": "is a spelling of .git",
    "demo-1.0/.g\u200cit/config": "is a spelling of .git",
    "demo-1.0/\ufeff.Git": "is a spelling of .git",
    "demo-1.0/" + "n" * 256: "longer than 255 bytes",
    "demo-1.0/" + "\u00e4" * 128: "longer than 255 bytes",
}


@pytest.mark.parametrize("name", NAMES)
def test_paths_that_lead_out_of_the_tree_or_into_git(name: str) -> None:
    assert NAMES[name] in refused("demo-1.0.tar.gz", tar(GOOD, entry(name, b"x")))
    if not name.startswith("/") and "//" not in name:
        inside = name.removeprefix("demo-1.0/")
        assert NAMES[name] in refused("demo.whl", wheel({"good": b"", inside: b"x"}))


@pytest.mark.parametrize(
    "name",
    ["demo-1.0/.github/x", "demo-1.0/.gitignore", "demo-1.0/x.git", "demo-1.0/a..b", 'demo-1.0/"q" \u00e4'],
)
def test_paths_that_only_look_odd(name: str) -> None:
    assert [member.path for member in members("demo-1.0.tar.gz", tar(entry(name)))] == [name.removeprefix("demo-1.0/")]


def test_nul_in_names() -> None:
    pax = tarfile.TarInfo(f"{TOP}/a")
    pax.pax_headers = {"path": f"{TOP}/a\0b"}
    assert "control character" in refused("d.tar.gz", tar(pax.tobuf(tarfile.PAX_FORMAT), GOOD))
    assert "control character" in refused("d.whl", wheel({"good": b"", "a_b": b""}).replace(b"a_b", b"a\0b"))


LINKS = {
    "symlink out": entry(f"{TOP}/l", kind=tarfile.SYMTYPE, link="../../etc/passwd"),
    "symlink to absolute": entry(f"{TOP}/l", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    "symlink to folder": entry(f"{TOP}/l", kind=tarfile.SYMTYPE, link="."),
    "symlink to nothing": entry(f"{TOP}/l", kind=tarfile.SYMTYPE, link="gone"),
    "hard link out": entry(f"{TOP}/l", kind=tarfile.LNKTYPE, link="../../etc/passwd"),
    "hard link to absolute": entry(f"{TOP}/l", kind=tarfile.LNKTYPE, link="/etc/passwd"),
    "hard link ahead": entry(f"{TOP}/l", kind=tarfile.LNKTYPE, link=f"{TOP}/later"),
    "fifo": entry(f"{TOP}/l", kind=tarfile.FIFOTYPE),
    "character device": entry(f"{TOP}/l", kind=tarfile.CHRTYPE),
    "block device": entry(f"{TOP}/l", kind=tarfile.BLKTYPE),
}


@pytest.mark.parametrize("case", LINKS)
def test_links_out_and_devices(case: str) -> None:
    text = refused("demo-1.0.tar.gz", tar(GOOD, LINKS[case], entry(f"{TOP}/later")))
    assert "is a link to" in text or "neither a file nor a link" in text


def test_links_inside_are_kept() -> None:
    soft = entry(f"{TOP}/sub/l", kind=tarfile.SYMTYPE, link="../a.py")
    hard = entry(f"{TOP}/h", kind=tarfile.LNKTYPE, link=f"{TOP}/a.py")
    found = {m.path: (m.mode, m.read()) for m in members("d.tar.gz", tar(GOOD, soft, hard))}
    assert found["sub/l"] == (LINK, b"../a.py")
    assert found["h"] == (FILE, b"a\n")


def test_writing_through_a_link() -> None:
    link = entry(f"{TOP}/l", kind=tarfile.SYMTYPE, link="a.py")
    assert "lies under it" in refused("d.tar.gz", tar(GOOD, link, entry(f"{TOP}/l/x", b"x")))


def test_wheel_links_and_devices() -> None:
    assert "which is no file in it" in refused("d.whl", wheel({"l": b"/etc/passwd"}, mode=0o120777))
    assert "neither a file nor a link" in refused("d.whl", wheel({"l": b""}, mode=0o010644))


def test_doubles_and_several_tops() -> None:
    assert "'a.py' is in it twice" in refused("d.tar.gz", tar(GOOD, GOOD))
    assert "2 top folders: demo-1.0, other" in refused("d.tar.gz", tar(GOOD, entry("other/x")))
    assert "outside the top folder" in refused("d.tar.gz", tar(GOOD, entry("PKG-INFO")))
    whole = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(whole, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("x", b"1")
        archive.writestr("x", b"2")
    assert "'x' is in it twice" in refused("d.whl", whole.getvalue())


def test_damaged_archives() -> None:
    plain = GOOD + entry(f"{TOP}/b.py", b"b\n")
    late = plain + b"j" * 512 + entry(f"{TOP}/c.py") + b"\0" * 1024
    assert "it is damaged" in refused("d.tar.gz", gzip.compress(late))
    assert "does not end" in refused("d.tar.gz", tar(GOOD)[:-6])
    assert "does not end" in refused("d.tar.gz", tar(GOOD) + b"more")
    assert "cut off" in refused("d.tar.gz", gzip.compress(entry(f"{TOP}/a", b"a" * 2000)[:1024]))
    assert "cannot be read" in refused("d.tar.gz", b"no archive")
    assert "cannot be read" in refused("d.whl", b"no archive")
    assert "holds no file" in refused("d.tar.gz", tar())
    assert "holds no file" in refused("d.tar.gz", tar(entry(TOP, kind=tarfile.DIRTYPE)))


def test_zip_that_states_a_smaller_size() -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 100_000)
    lied = whole.getvalue().replace((100_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    [member] = members("d.whl", lied)
    with pytest.raises(SourceMismatch) as caught:
        member.read()
    assert "'bomb'" in str(caught.value)


def test_zip_that_states_a_larger_size() -> None:
    lied = wheel({"x": b"x" * 1000}).replace((1000).to_bytes(4, "little") * 2, b"\xe8\x03\0\0\xe9\x03\0\0")
    [member] = members("d.whl", lied)
    with pytest.raises(SourceMismatch, match="'x' states 1001 bytes and has 1000"):
        member.read()


def test_more_bytes_than_any_source_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("patchline.sources.archive._MOST", 1000)
    assert "more than 1000 bytes" in refused("d.tar.gz", tar(entry(f"{TOP}/a", b"a" * 2000)))
    assert "more than 1000 bytes" in refused("d.whl", wheel({"a": b"a" * 2000}))
