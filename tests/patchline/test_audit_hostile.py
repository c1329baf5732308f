"""Layers that somebody made to do harm, or that were cut short: each is refused or found, in bounded memory."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import image_bases as bases
import pytest
from auditing import parts
from image_bases import SITE, Packed, hard, member, sha, symbolic

from patchline.audit import layers
from patchline.audit.view import View, patterns, real
from patchline.errors import PatchlineError, SourceMismatch
from patchline.image import base
from patchline.image.layout import Layout

PLAIN = [bases.root(), bases.package(bases.FILES)]


def view(at: Path, *more: list[bytes] | Packed) -> View:
    packed = [bases.pack(one) for one in PLAIN] + [one if isinstance(one, Packed) else bases.pack(one) for one in more]
    found = base.find(Layout(bases.layout(bases.image(packed), at)))
    return layers.view(found, patterns(["vllm"]))


@pytest.mark.parametrize("kind", ["tar", "gzip", "zstd"])
def test_a_layer_of_other_bytes_than_the_configuration_says(tmp_path: Path, kind: str) -> None:
    """A runtime refuses it, or runs what this audit did not see."""
    packed = bases.pack([member("opt/x", b"x" * 5000)], kind)
    assert view(tmp_path / "right", packed)
    with pytest.raises(SourceMismatch, match=f"unpacks to {packed.diff_id}, and the configuration says sha256:0000"):
        view(tmp_path / "wrong", packed._replace(diff_id=f"sha256:{'0' * 64}"))


def test_a_plain_view(tmp_path: Path) -> None:
    found = view(tmp_path / "x")
    assert found.files[f"{SITE}/vllm/core.py"].digest == sha(bases.CORE)
    assert found.files[f"{SITE}/vllm/core.py"].mtime == 1_700_000_000
    assert b"vllm/core.py,sha256=" in found.read(f"{SITE}/vllm-0.31.0.dist-info/RECORD")
    assert found.odd == {}


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([member("../etc/passwd", b"x")], "leaves the image"),
        ([member("a/../../etc/passwd", b"x")], "leaves the image"),
        ([member(f"{SITE}/vllm/../../x.py", b"x")], "leaves the image"),
        ([hard(f"{SITE}/vllm/x.py", "../../etc/shadow")], "leaves the image"),
        ([hard(f"{SITE}/vllm/x.py", "nothing")], "hard links lead to nothing: nothing"),
        ([symbolic("a", "b"), symbolic("b", "a"), member("a/x", b"x")], "symbolic links without an end"),
        (
            [symbolic(f"l{n}", f"l{(n + 1) % 100}") for n in range(100)] + [member("l0/x", b"x")],
            "symbolic links without an end",
        ),
        (
            [symbolic(f"l{n}", f"l{n + 1}") for n in range(100)] + [member("l0/x", b"x")],
            "symbolic links without an end",
        ),
    ],
)
def test_paths_that_lead_out_or_nowhere_are_refused(tmp_path: Path, members: list[bytes], said: str) -> None:
    with pytest.raises(SourceMismatch, match=said):
        view(tmp_path / "x", members)


def test_a_loop_that_is_a_file_of_the_package(tmp_path: Path) -> None:
    at = f"{SITE}/vllm/core.py"
    found = view(tmp_path / "x", [symbolic(at, "core.py")])
    assert found.at(at) == found.files[at]
    assert found.files[at].kind == "symlink"
    assert found.real(at) is None


def test_links_are_followed_below_the_root_only() -> None:
    links = {"a": "/b", "b/c": "../../../d", "e": "."}
    assert real("a/c/x", links) == "d/x"
    assert real("e/e/e/x", links) == "x"
    assert real("../../a", links) == "b"
    assert real("x/a", {"x/a": "/b"}) == "b"
    assert real("x/a", {"x/a": "b"}) == "x/b"
    assert real("x", {"x": "x"}) is None
    assert real("l0", {f"l{n}": f"l{n + 1}" for n in range(40)}) == "l40"
    assert real("l0", {f"l{n}": f"l{n + 1}" for n in range(41)}) is None


def test_a_later_layer_that_puts_a_folder_in_the_place_of_a_link(tmp_path: Path) -> None:
    stray = "opt/venv/lib64/python3.12/site-packages/vllm/stray.py"
    linked, folder = [symbolic("opt/venv/lib64", "lib")], [bases.folder("opt/venv/lib64"), member(stray, b"x")]
    assert f"{SITE}/vllm/stray.py" not in view(tmp_path / "x", linked, folder).files
    assert f"{SITE}/vllm/stray.py" not in view(tmp_path / "y", linked, [member("opt/venv/.wh.lib64")], folder[1:]).files
    assert f"{SITE}/vllm/stray.py" in view(tmp_path / "z", linked, folder[1:]).files


def test_a_device_that_a_later_layer_removes(tmp_path: Path) -> None:
    device = [member("dev/null", kind=tarfile.CHRTYPE), member("dev/disk", kind=tarfile.BLKTYPE)]
    assert view(tmp_path / "x", device).odd == {"dev/null": "a device, 0:0", "dev/disk": "a device, 0:0"}
    assert view(tmp_path / "y", device, [member(".wh.dev")]).odd == {}
    assert view(tmp_path / "z", device, [member("dev/null", b""), member("dev/.wh.disk")]).odd == {}


@pytest.mark.parametrize("how", ["", "gzip", "zstd"])
def test_a_layer_that_ends_in_the_middle(tmp_path: Path, how: str) -> None:
    """Its digest is right: whoever packed it lost the rest."""
    packed = bases.pack([member(f"{SITE}/vllm/more.py", os.urandom(9000))], how)
    with pytest.raises(SourceMismatch):
        view(tmp_path / "x", Packed(packed.kind, packed.data[: len(packed.data) // 2], packed.diff_id))


def test_a_layer_that_is_cut_short_in_storage(tmp_path: Path) -> None:
    at = bases.layout(bases.image([bases.pack(one, "gzip") for one in PLAIN]), tmp_path / "x")
    manifest, _ = parts(at)
    blob = at / "blobs" / "sha256" / manifest["layers"][1]["digest"].removeprefix("sha256:")
    blob.write_bytes(blob.read_bytes()[:-7])
    with pytest.raises(SourceMismatch, match=r"cannot be unpacked|wrong size"):
        layers.view(base.find(Layout(at)), patterns(["vllm"]))
    blob.write_bytes(gzip.compress(b"".join(PLAIN[1])))
    with pytest.raises(SourceMismatch, match="wrong"):
        layers.view(base.find(Layout(at)), patterns(["vllm"]))


def test_a_sparse_file_of_the_package_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo(f"{SITE}/vllm/holes.py")
    info.size = 512
    info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.map": "0,512", "GNU.sparse.size": str(2**50)}
    sparse = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + bytes(512)
    with pytest.raises(SourceMismatch, match="sparse file"):
        view(tmp_path / "x", [sparse])


def head(records: dict[str, str], kind: bytes = tarfile.XHDTYPE) -> bytes:
    """The extended head of the next member, by hand: tarfile writes none of the kind that is wanted here."""
    rows = b""
    for name, value in records.items():
        own = f" {name}={value}\n".encode("utf-8", "surrogateescape")
        size = next(one for one in range(len(own), 999) if len(str(one)) + len(own) == one)
        rows += str(size).encode() + own
    info = tarfile.TarInfo("head")
    info.type, info.size = kind, len(rows)
    return info.tobuf(tarfile.USTAR_FORMAT) + rows + bytes(-len(rows) % 512)


@pytest.mark.parametrize(
    ("records", "said"),
    [
        ({"path": ""}, "unpackers do not agree on: path"),
        ({"linkpath": ""}, "unpackers do not agree on: linkpath"),
        ({"GNU.sparse.name": "opt/other"}, "unpackers do not agree on: GNU.sparse.name"),
        ({"GNU.sparse.size": "abc"}, "makes no sense"),
        ({"hdrcharset": "\udcff"}, "makes no sense"),
        ({"mtime": "nan"}, "the time nan"),
        ({"mtime": "inf"}, "the time inf"),
    ],
)
def test_heads_that_unpackers_read_differently(tmp_path: Path, records: dict[str, str], said: str) -> None:
    """A container gets the file under its plain name, and an audit would have seen another one, or none."""
    with pytest.raises(SourceMismatch, match=said):
        view(tmp_path / "x", [head(records), member(f"{SITE}/vllm/core.py", b"evil")])


def ustar(name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> bytes:
    """A member by hand, without an extended head."""
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    return info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)


def v7(raw: bytes, prefix: bytes) -> bytes:
    """The same member in a head of before POSIX, with bytes where POSIX has the name's prefix."""
    own = bytearray(raw)
    own[257:265], own[345 : 345 + len(prefix)] = bytes(8), prefix
    own[148:156] = b" " * 8
    own[148:156] = b"%06o\0 " % sum(own[:512])
    return bytes(own)


CORE = f"{SITE}/vllm/core.py"
LONG = ustar("././@LongLink", CORE.encode() + b"\0", tarfile.GNUTYPE_LONGNAME)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([head({"path": "opt/other"}, tarfile.XGLTYPE), ustar(CORE, b"evil")], "a global head"),
        ([head({"path": "opt/other"}), LONG, ustar("x", b"evil")], "read in two ways"),
        ([v7(ustar(CORE, b"evil"), b"opt/other")], "read in two ways"),
    ],
)
def test_names_that_container_runtimes_read_otherwise(tmp_path: Path, parts: list[bytes], said: str) -> None:
    """They write the package's file; tarfile alone would have seen another one."""
    with pytest.raises(SourceMismatch, match=said):
        view(tmp_path / "x", parts)


def test_heads_of_common_tools_are_taken(tmp_path: Path) -> None:
    """A comment for all, as `git archive` writes one; a long name as GNU writes it; an extended head as Go does."""
    found = view(
        tmp_path / "x",
        [
            head({"comment": "x"}, tarfile.XGLTYPE),
            LONG,
            ustar("x", b"1"),
            head({"mtime": "1.5"}),
            ustar(f"{CORE}c", b"2"),
        ],
    )
    assert CORE in found.files


def test_a_chain_of_heads_without_end(tmp_path: Path) -> None:
    with pytest.raises(SourceMismatch, match="makes no sense"):
        view(tmp_path / "x", [*[head({"comment": "x"})] * 3000, member("x")])


@pytest.mark.parametrize("name", [".wh.", ".wh..", ".wh..."])
def test_a_whiteout_of_no_name(tmp_path: Path, name: str) -> None:
    """Some runtimes remove the folder itself, or the one above."""
    with pytest.raises(SourceMismatch, match="a whiteout of no name"):
        view(tmp_path / "x", [member(f"{SITE}/vllm/{name}")])


def test_a_root_that_hides_all_below_it(tmp_path: Path) -> None:
    lower = [symbolic("opt/venv/lib64", "lib"), member("dev/null", kind=tarfile.CHRTYPE)]
    stray = "opt/venv/lib64/python3.12/site-packages/vllm/stray.py"
    found = view(tmp_path / "x", lower, [member(".wh..wh..opq"), member(stray, b"x")])
    assert list(found.files) == [stray]
    assert (found.odd, found.links) == ({}, {})


def test_a_file_that_says_it_is_huge(tmp_path: Path) -> None:
    info = tarfile.TarInfo(f"{SITE}/vllm/huge.so")
    info.size = 2**40
    with pytest.raises(SourceMismatch, match=r"ends early|cannot be unpacked"):
        view(tmp_path / "x", [info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")])


BOMB = """
import sys
from pathlib import Path
from patchline.audit import layers
from patchline.audit.view import patterns
from patchline.image import base
from patchline.image.layout import Layout

found = layers.view(base.find(Layout(Path(sys.argv[1]))), patterns(["vllm"]))
print(found.files[sys.argv[2]].digest)
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
"""


def test_memory_is_flat_whatever_a_layer_holds(tmp_path: Path) -> None:
    """Half a gigabyte of zeros, packed in half a megabyte, as a file of the package; in a process of its own."""
    size, at = 512 * 2**20, f"{SITE}/vllm/_C.abi3.so"
    info = tarfile.TarInfo(at)
    info.size = size
    packer, whole, content = zlib.compressobj(1, wbits=31), hashlib.sha256(), hashlib.sha256()
    packed = []
    zeros = bytes(2**20)
    head = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    for piece in (head, *([zeros] * (size // len(zeros))), bytes(1024)):
        whole.update(piece)
        packed.append(packer.compress(piece))
    for _ in range(size // len(zeros)):
        content.update(zeros)
    layer = Packed(f"{bases.LAYER}+gzip", b"".join(packed) + packer.flush(), f"sha256:{whole.hexdigest()}")
    image = bases.layout(bases.image([bases.pack(PLAIN[0]), bases.pack(PLAIN[1]), layer]), tmp_path / "x")
    done = subprocess.run([sys.executable, "-c", BOMB, str(image), at], capture_output=True, text=True, check=True)
    digest, kib = done.stdout.split()
    assert digest == f"sha256:{content.hexdigest()}"
    assert int(kib) < 150 * 1024


def test_a_head_without_end_is_not_read(tmp_path: Path) -> None:
    """tarfile would take it whole into memory: gigabytes that are packed in a few kilobytes."""
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.XHDTYPE, 2**30
    head = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    with pytest.raises(PatchlineError, match="head of 1073741824 bytes"):
        view(tmp_path / "x", bases.pack([head, member("x")]))


def test_a_layer_of_an_unknown_kind(tmp_path: Path) -> None:
    odd = bases.pack([member("x")])._replace(kind="application/vnd.oci.image.layer.v1.tar+brotli")
    with pytest.raises(PatchlineError, match="not known here"):
        view(tmp_path / "x", odd)


def test_no_record_is_an_error(tmp_path: Path) -> None:
    from patchline.audit.wanted import installed

    bare = bases.layout(bases.image([bases.pack(bases.root())]), tmp_path / "x")
    found = layers.view(base.find(Layout(bare)), patterns(["vllm"]))
    with pytest.raises(SourceMismatch, match="no file could be compared"):
        installed(found, ["vllm"])
