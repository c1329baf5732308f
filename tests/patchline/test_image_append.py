"""One layer more: what is in it, what the image says, and the same digest from wherever the base comes."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import image_bases as bases
import pytest
from image_bases import OVERLAY, SITE

from patchline.errors import Refused, SourceMismatch
from patchline.image import append, base, identity, lock, locking, record
from patchline.image.append import Image
from patchline.image.archive import Archive
from patchline.image.layout import Layout
from patchline.image.lock import Lock
from patchline.image.source import Source


def cut(source: Source, known: Lock | None = None) -> Image:
    found = base.find(source)
    return append.cut(found, known or locking.make(found, [OVERLAY]), [OVERLAY], bases.who())


def members(image: Image) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(image.layer)) as tar:
        return {one.name: one for one in tar}


def content(image: Image, path: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(image.layer)) as tar:
        file = tar.extractfile(path)
        assert file is not None
        return file.read()


@pytest.fixture
def tiny(tmp_path: Path) -> Layout:
    made = bases.image([bases.pack(one, "gzip") for one in bases.plain()])
    return Layout(bases.layout(made, tmp_path / "base"))


def test_what_the_layer_holds(tiny: Layout) -> None:
    image = cut(tiny)
    names = list(members(image))
    assert names == sorted(names)
    cached = f"{SITE}/vllm/__pycache__"
    files = [name for name, one in members(image).items() if not one.isdir()]
    assert files == [
        "etc/patchline/build.json",
        f"{SITE}/vllm-0.31.0.dist-info/RECORD",
        f"{SITE}/vllm/.wh.gone.py",
        f"{cached}/.wh.core.cpython-312.opt-1.pyc",
        f"{cached}/.wh.core.cpython-312.pyc",
        f"{cached}/.wh.gone.cpython-312.pyc",
        f"{SITE}/vllm/core.py",
        f"{SITE}/vllm/deep/er/new.py",
    ]
    assert content(image, f"{SITE}/vllm/core.py") == bases.NEW_CORE


def test_files_and_folders_keep_their_owners(tiny: Layout) -> None:
    found = members(cut(tiny))
    assert [
        (found[f"{SITE}/{path}"].mode, found[f"{SITE}/{path}"].uid) for path in ("vllm/core.py", "vllm/deep/er/new.py")
    ] == [(0o664, 1000)] * 2
    assert (found["opt"].mode, found["opt"].uid) == (0o755, 0)
    assert (found[f"{SITE}/vllm"].mode, found[f"{SITE}/vllm"].uid) == (0o775, 1000)
    assert (found[f"{SITE}/vllm/deep/er"].mode, found[f"{SITE}/vllm/deep/er"].uid) == (0o775, 1000)
    assert all(one.uname == one.gname == "" for one in found.values())


def test_the_record_is_right_and_elsewhere_untouched(tiny: Layout) -> None:
    data = content(cut(tiny), f"{SITE}/vllm-0.31.0.dist-info/RECORD").decode()
    with_overlay = (
        bases.record({"vllm/core.py": bases.NEW_CORE, "vllm/deep/er/new.py": bases.ADDED}, "x").decode().splitlines()
    )
    assert with_overlay[0] in data.splitlines()
    assert data.splitlines()[-1] == with_overlay[1]
    assert "gone" not in data
    assert "core.cpython" not in data
    assert f"vllm/__pycache__/__init__.{bases.PYC}.pyc,,\n" in data
    before = next(iter(locking.make(base.find(tiny), [OVERLAY]).records.values())).decode()
    rest = [row for row in before.splitlines() if "core" not in row and "gone" not in row]
    assert [row for row in data.splitlines() if row in rest] == rest


def test_the_image_says_what_it_is(tiny: Layout) -> None:
    image = cut(tiny)
    said = image.config.fields["config"]["Labels"]
    assert said["maintainer"] == "somebody"
    assert said["patchline.overlay"] == OVERLAY.digest
    assert said["org.opencontainers.image.base.digest"] == image.base.digest
    assert json.loads(said["patchline.series"])[0]["patches"] == [{"name": "0001-it.patch", "id": "d" * 40}]
    assert {key: said[key] for key in image.manifest.fields["annotations"]} == image.manifest.fields["annotations"]
    inside = json.loads(content(image, identity.FILE))
    assert inside["overlay"] == OVERLAY.digest
    assert inside["base"] == {"name": "base.example/tiny", "digest": image.base.digest}
    assert inside["series"] == json.loads(said["patchline.series"])


def test_the_bases_revision_is_not_the_images(tmp_path: Path) -> None:
    labels = {"org.opencontainers.image.revision": "of the base", "org.opencontainers.image.vendor": "somebody"}
    made = bases.image([bases.pack(one) for one in bases.plain()], more={"config": {"Labels": labels}})
    found = base.find(Layout(bases.layout(made, tmp_path / "base")))
    known = locking.make(found, [OVERLAY])
    said = append.cut(found, known, [OVERLAY], bases.who()).config.fields["config"]["Labels"]
    assert "org.opencontainers.image.revision" not in said
    assert said["org.opencontainers.image.vendor"] == "somebody"
    said = append.cut(found, known, [OVERLAY], bases.who(revision="e" * 40)).config.fields["config"]["Labels"]
    assert said["org.opencontainers.image.revision"] == "e" * 40


def test_what_nobody_knows_is_kept(tiny: Layout) -> None:
    image = cut(tiny)
    assert image.config.fields["unknown"] == {"b": 1, "a": 2}
    assert image.config.fields["config"]["Unknown"] == [1, {"a": None}]
    assert image.config.fields["history"][-1]["created_by"] == f"patchline append {OVERLAY.digest}"
    assert image.manifest.fields["layers"][:-1] == image.base.manifest.fields["layers"]


def test_the_same_image_from_layout_archive_and_packed_layout(tmp_path: Path) -> None:
    layers = [bases.pack(one) for one in (*bases.plain(), bases.plain()[0])]
    made = bases.image(layers)
    folder = bases.layout(made, tmp_path / "base")
    sources: list[Source] = [
        Layout(folder),
        Archive(bases.saved(made, tmp_path / "saved.tar")),
        Archive(bases.packed_layout(folder, tmp_path / "packed.tar")),
    ]
    images = [cut(source) for source in sources]
    assert len({image.digest for image in images}) == 1
    assert len({image.layer for image in images}) == 1


def test_the_digest_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """Given bytes, given digest: whoever changes the form of layers or documents changes this line knowingly."""
    made = bases.image([bases.pack(one) for one in bases.plain()])
    image = cut(Layout(bases.layout(made, tmp_path / "base")))
    assert image.digest == "sha256:728501bb42a422a4e3a0a655ad34628c40ccb96db9f38c86ee6aad5f2445e9a8"


def test_another_process_time_zone_and_hash_seed(tiny: Layout, tmp_path: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from patchline.image.layout import Layout\n"
        "from test_image_append import cut; print(cut(Layout(Path(sys.argv[1]))).digest)"
    )
    words = [sys.executable, "-W", "ignore", "-c", code, str(tiny.folder), str(Path(__file__).parent)]
    found = {
        subprocess.run(
            words,
            check=True,
            capture_output=True,
            env={**os.environ, "TZ": zone, "PYTHONHASHSEED": seed, "LC_ALL": "C"},
        )
        .stdout.decode()
        .strip()
        for zone, seed in (("Asia/Kathmandu", "1"), ("UTC", "2"))
    }
    assert found == {cut(tiny).digest}


def test_dockers_manifest_becomes_an_oci_one(tmp_path: Path) -> None:
    made = bases.image([bases.pack(one, "gzip") for one in bases.plain()])
    fields = json.loads(made.manifest)
    fields["mediaType"] = "application/vnd.docker.distribution.manifest.v2+json"
    fields["config"]["mediaType"] = "application/vnd.docker.container.image.v1+json"
    for one in fields["layers"]:
        one["mediaType"] = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    docker = made._replace(manifest=json.dumps(fields).encode(), kind=fields["mediaType"])
    image = cut(Layout(bases.layout(docker, tmp_path / "docker")))
    assert [one["mediaType"] for one in image.manifest.fields["layers"]] == [f"{bases.LAYER}+gzip"] * 4
    assert image.manifest.fields["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"


def test_a_cut_reads_no_layer(tiny: Layout) -> None:
    known = locking.make(base.find(tiny), [OVERLAY])
    for layer in base.find(tiny).layers:
        (tiny.folder / "blobs" / layer.digest.replace(":", "/")).unlink()
    image = cut(tiny, known)
    assert len(image.layer) < 30_000


def test_the_lock_of_another_base_is_refused(tiny: Layout, tmp_path: Path) -> None:
    other = bases.image([bases.pack(one) for one in bases.plain()])
    known = locking.make(base.find(Layout(bases.layout(other, tmp_path / "other"))), [OVERLAY])
    with pytest.raises(SourceMismatch, match="not the base that was locked") as caught:
        cut(tiny, known)
    assert known.contents.base in str(caught.value)
    assert base.find(tiny).digest in str(caught.value)


def test_several_packages_in_several_places(tmp_path: Path) -> None:
    """vLLM in one site-packages, Dynamo in two distributions of another."""
    dist = "usr/lib/python3/dist-packages"
    dynamo = {"dynamo/frontend/main.py": b"main\n"}
    runtime = {"dynamo/_core.py": b"core\n"}
    layers = [
        *bases.plain(),
        bases.package(dynamo, "ai_dynamo-1.6.0.dist-info", site=dist),
        bases.package(runtime, "ai_dynamo_runtime-1.6.0.dist-info", site=dist),
    ]
    source = Layout(bases.layout(bases.image([bases.pack(one) for one in layers]), tmp_path / "base"))
    second = bases.overlay(
        {"dynamo/frontend/main.py": (b"main\n", b"new\n"), "dynamo/frontend/build.py": (None, b"fresh\n")},
        "dynamo==1.6.0",
    )
    found = base.find(source)
    known = locking.make(found, [OVERLAY, second])
    image = append.cut(found, known, [OVERLAY, second], bases.who(OVERLAY, second))
    rows = record.rows(content(image, f"{dist}/ai_dynamo-1.6.0.dist-info/RECORD"), "")
    assert "dynamo/frontend/build.py" in rows
    assert f"{dist}/ai_dynamo_runtime-1.6.0.dist-info/RECORD" not in members(image)
    assert content(image, f"{dist}/dynamo/frontend/main.py") == b"new\n"
    assert content(image, f"{SITE}/vllm/core.py") == bases.NEW_CORE
    with pytest.raises(Refused, match="two overlays change the same file"):
        append.cut(found, known, [OVERLAY, OVERLAY], bases.who(OVERLAY, OVERLAY))


def test_an_identity_of_other_overlays_is_refused(tiny: Layout) -> None:
    found = base.find(tiny)
    other = bases.overlay({"vllm/core.py": (bases.CORE, b"other\n")})
    with pytest.raises(SourceMismatch, match="identity has to name its overlays"):
        append.cut(found, locking.make(found, [OVERLAY]), [OVERLAY], bases.who(other))


def test_a_lock_comes_back_as_it_was_written(tiny: Layout, tmp_path: Path) -> None:
    known = locking.make(base.find(tiny), [OVERLAY])
    for _ in range(2):
        lock.write(tmp_path / "lock", known)
        assert lock.read(tmp_path / "lock") == known
    assert cut(tiny, lock.read(tmp_path / "lock")).digest == cut(tiny).digest


def test_an_executable_stays_one(tmp_path: Path) -> None:
    layers = [bases.root(), bases.package({"vllm/run.sh": b"#!/bin/sh\n"})]
    source = Layout(bases.layout(bases.image([bases.pack(one) for one in layers]), tmp_path / "base"))
    made = bases.overlay({"vllm/run.sh": (b"#!/bin/sh\n", b"#!/bin/sh\nexit 0\n")})
    change = made.changes[0]._replace(new=bases.text(b"#!/bin/sh\nexit 0\n", 0o100755))
    made = made._replace(changes=(change,))
    found = base.find(source)
    image = append.cut(found, locking.make(found, [made]), [made], bases.who(made))
    assert members(image)[f"{SITE}/vllm/run.sh"].mode == 0o775
