"""The verb `drop` with the patches that are really carried, on vLLM's real sources: plans only."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from patchline import cli
from patchline.project import Project

ROOT = Path(__file__).parents[2]
GUARD, HEADS = "nixl-hybrid-manager-guard", "nixl-per-region-kv-heads"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of this project's patches, tests, news and pins."""
    monkeypatch.delenv("PATCHLINE_CACHE")
    for name in ("patches", "tests/patches", "changelog"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    made = Project(tmp_path)
    made.upstreams.parent.mkdir()
    shutil.copy(ROOT / "builds" / "upstreams.toml", made.upstreams)
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.network
def test_the_carried_patches_on_0_32_0(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--in", "0.32.0", "--dry-run", "--json"]
    assert cli.main(["drop", f"vllm/{GUARD}", "--reason", "upstream", *words]) == 5
    assert "where its verdict is moved" in capsys.readouterr().err
    own = ["--reason", "superseded", "--text", "Another cache manager does it.", *words]
    assert cli.main(["drop", f"vllm/{GUARD}", *own]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert (plan["judged_from"], plan["verdict"], plan["rewritten"]) == ("vllm==0.31.0", "moved", [])
    assert (plan["left"], plan["proof"]["state"]) == ([f"0001-{HEADS}.patch"], "not run")
    assert plan["tests"]["removed"] == []  # 0.31.0 carries it still
    assert cli.main(["drop", f"vllm/{HEADS}", *own]) == 3
    assert f"0002-{GUARD}.patch: vllm/" in capsys.readouterr().err
    assert (project.series_dir("vllm", "0.32.0") / f"0002-{GUARD}.patch").exists()
