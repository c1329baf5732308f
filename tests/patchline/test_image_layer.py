"""The one layer: bytes that hang on nothing but what goes in."""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchline.image import layer, record
from patchline.image.layer import EPOCH, WHITEOUT, Entry

ENTRIES = {
    "b": Entry("folder", mode=0o755, uid=1000),
    "b/x.py": Entry("file", b"x = 1\n", 0o664, 1000, 7),
    "b/y.txt": Entry("file", b"text\n"),
    "b/gone.py": WHITEOUT,
    "a" * 90 + "/" + "ü" * 100: Entry("file", b""),
    "a" * 90: Entry("folder"),
}


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name: one for one in tar}


def test_the_order_of_entries_does_not_count() -> None:
    assert layer.tar(ENTRIES) == layer.tar(dict(reversed(ENTRIES.items())))


def test_what_it_holds() -> None:
    found = members(layer.tar(ENTRIES))
    assert list(found)[-3:] == ["b/.wh.gone.py", "b/x.py", "b/y.txt"]
    one = found["b/x.py"]
    assert (one.mode, one.uid, one.gid, one.uname, one.gname) == (0o664, 1000, 7, "", "")
    assert found["b/.wh.gone.py"].size == 0
    assert found["b/y.txt"].mtime == found["b"].mtime == EPOCH


def test_a_modules_time_follows_from_its_bytes() -> None:
    times = {members(layer.tar({"x.py": Entry("file", data)}))["x.py"].mtime for data in (b"a", b"b", b"a")}
    assert len(times) == 2
    assert all(EPOCH <= time < EPOCH + 2**28 for time in times)


def test_other_tools_read_it(tmp_path: Path) -> None:
    packed = layer.gzip(layer.tar(ENTRIES))
    (tmp_path / "layer.tar.gz").write_bytes(packed)
    listed = subprocess.run(["tar", "tzf", "layer.tar.gz"], cwd=tmp_path, check=True, capture_output=True).stdout
    assert listed.decode().splitlines()[-1] == "b/y.txt"
    subprocess.run(["gzip", "-t", "layer.tar.gz"], cwd=tmp_path, check=True)


@pytest.mark.parametrize("size", [0, 1, 65534, 65535, 65536, 131070, 200_000])
def test_stored_gzip_comes_back(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    packed = layer.gzip(data[:size])
    assert gzip.decompress(packed) == data[:size]
    assert packed[4:8] == bytes(4)
    assert len(packed) <= size + 18 + 5 * (size // 65535 + 1)


@given(st.binary(max_size=70_000))
def test_stored_gzip_comes_back_whatever_it_is(data: bytes) -> None:
    assert zlib.decompress(layer.gzip(data), 31) == data


ROWS = b'a/b.py,sha256=x,1\r\n"a/c,d.py",sha256=y,2\r\na/e.py,,\r\n'


def test_rows_that_are_not_concerned_keep_their_bytes() -> None:
    made = record.corrected(ROWS, {"a/b.py": b"new", "a/n.py": b""}, {"a/e.py"}, "")
    lines = made.split(b"\r\n")
    assert lines[0].startswith(b"a/b.py,sha256=")
    assert lines[0].endswith(b",3")
    assert lines[1] == b'"a/c,d.py",sha256=y,2'
    assert lines[2].startswith(b"a/n.py,sha256=47DEQpj8HBSa")
    assert lines[3:] == [b""]


def test_nothing_to_correct_is_the_same() -> None:
    assert record.corrected(ROWS, {}, (), "") == ROWS


def test_names_with_commas_and_quotes() -> None:
    name = 'a/"odd", name.py'
    made = record.corrected(b"", {name: b"x"}, (), "")
    assert list(record.rows(made, "")) == [name]
