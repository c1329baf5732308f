"""The provenance: an in-toto statement with everything that went into an image, and nothing of the machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import releases
from image_bases import sha

from patchline.lines.build import Built
from patchline.release import facts, proof, provenance

EVIDENCE = {"builds/evidence/vllm-0.31.0/prove.json": sha(b"it")}


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return releases.built(releases.project(tmp_path / "p"), releases.layout(tmp_path / "base"))


def said(one: Built, evidence: dict[str, str] = EVIDENCE) -> dict[str, Any]:
    artifact = provenance.provenance(facts.of(one.carried[0].project, one, evidence, "9"))
    found: dict[str, Any] = json.loads(artifact.data)
    return found


def test_the_statement(built: Built) -> None:
    found = said(built)
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    assert found["subject"] == [{"name": "tiny", "digest": {"sha256": built.image.digest.removeprefix("sha256:")}}]
    definition, details = found["predicate"]["buildDefinition"], found["predicate"]["runDetails"]
    assert definition["externalParameters"] == {
        "line": "tiny",
        "dynamo": "1.6.0",
        "base": {"name": "base.example/tiny:1", "digest": built.image.base.digest, "platform": "linux/amd64"},
        "series": ["vllm==0.31.0"],
    }
    assert details["builder"] == {"id": "urn:patchline:builder:append", "version": {"patchline": "9"}}
    (by,) = details["byproducts"]
    assert by == {"name": next(iter(EVIDENCE)), "digest": {"sha256": sha(b"it").removeprefix("sha256:")}}


def test_all_that_went_in(built: Built) -> None:
    found = said(built)["predicate"]["buildDefinition"]["resolvedDependencies"]
    by_name = {one["name"]: one["digest"]["sha256"] for one in found}
    assert by_name == {
        "vllm-0.31.0.tar.gz": releases.SDIST,
        **releases.WHEELS,
        "patches/vllm/0.31.0/0001-it.patch": sha(releases.PATCH).removeprefix("sha256:"),
        "base": built.image.base.digest.removeprefix("sha256:"),
        "base lock": built.lock.contents.seal.removeprefix("sha256:"),
    }
    assert [one["uri"] for one in found if one["name"] == "base"] == [f"pkg:oci/tiny@{built.image.base.digest}"]
    assert [one["annotations"] for one in found if "annotations" in one] == [
        {"commit": "d" * 40, "pin": "vllm==0.31.0"}
    ]


def test_the_same_bytes_elsewhere(built: Built, tmp_path: Path) -> None:
    other = releases.built(releases.project(tmp_path / "elsewhere"), releases.layout(tmp_path / "elsewhere-base"))
    assert said(other) == said(built)
    assert str(tmp_path) not in json.dumps(said(built))


def test_only_evidence_on_these_overlays_counts(built: Built) -> None:
    from patchline.proofs import evidence

    project, overlay, image = built.carried[0].project, built.overlays[0].digest, built.image.digest
    for kind, of, covers in (
        ("prove", "vllm==0.31.0", {"0001-it.patch: overlay": overlay}),
        ("hunks", "vllm==0.31.0", {"0001-it.patch: overlay": sha(b"another")}),
        ("prove", "vllm==0.32.0", {"0001-it.patch: overlay": overlay}),
        ("smoke", "tiny", {"image": image}),
        ("old-smoke", "tiny", {"image": sha(b"another")}),
    ):
        evidence.keep(evidence.new(kind, of, covers, {}, {}), project)
    found = proof.files(project, ["vllm==0.31.0"], "tiny", {overlay, image})
    assert sorted(found) == ["builds/evidence/tiny/smoke.json", "builds/evidence/vllm-0.31.0/prove.json"]
    assert found["builds/evidence/tiny/smoke.json"] == sha(
        (project.root / "builds/evidence/tiny/smoke.json").read_bytes()
    )
