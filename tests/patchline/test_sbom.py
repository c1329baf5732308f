"""The bill of materials: valid by the library's own schemas, the same bytes each time, and everything in it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import releases
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from image_bases import ADDED, NEW_CORE, SITE, sha

from patchline.errors import SourceMismatch
from patchline.lines.build import Built
from patchline.pins import GitPin, Upstream, load
from patchline.pins import write as write_pins
from patchline.release import facts, sbom
from patchline.series.carried import carried


@pytest.fixture
def built(tmp_path: Path) -> Built:
    return releases.built(releases.project(tmp_path / "p"), releases.layout(tmp_path / "base"))


def made(one: Built) -> bytes:
    return sbom.sbom(facts.of(one.carried[0].project, one, {}, "9")).data


def said(one: Built) -> dict[str, Any]:
    data = made(one)
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(data.decode())
    assert fault is None, fault
    found: dict[str, Any] = json.loads(data)
    return found


def parts(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["bom-ref"]: one for one in found["components"]}


def properties(one: dict[str, Any]) -> dict[str, str]:
    return {pair["name"]: pair["value"] for pair in one.get("properties", [])}


def test_the_image(built: Built) -> None:
    found = said(built)
    assert found["specVersion"] == "1.6"
    image = found["metadata"]["component"]
    assert (image["name"], image["version"], image["type"]) == ("tiny", "1.6.0", "container")
    assert image["hashes"] == [{"alg": "SHA-256", "content": built.image.digest.removeprefix("sha256:")}]
    assert found["metadata"]["timestamp"] == "2026-10-16T01:02:03+00:00"
    assert found["metadata"]["tools"]["components"][0]["name"] == "patchline"
    assert set(parts(found)) == {"base", "layer", "vllm==0.31.0", "ai-dynamo-runtime==1.6.0"}
    assert {one["ref"]: one.get("dependsOn") for one in found["dependencies"]}["image"] == sorted(parts(found))


def test_the_pins_have_their_hashes(built: Built) -> None:
    runtime = parts(said(built))["ai-dynamo-runtime==1.6.0"]
    assert runtime["purl"] == "pkg:pypi/ai-dynamo-runtime@1.6.0"
    files = {one["url"]: one["hashes"][0]["content"] for one in runtime["externalReferences"]}
    assert files == releases.WHEELS
    assert "pedigree" not in runtime


def test_the_patches_are_the_pedigree(built: Built) -> None:
    vllm = parts(said(built))["vllm==0.31.0"]
    assert vllm["purl"] == "pkg:pypi/vllm@0.31.0"
    (ancestor,) = vllm["pedigree"]["ancestors"]
    assert (ancestor["purl"], ancestor["hashes"][0]["content"]) == ("pkg:pypi/vllm@0.31.0", releases.SDIST)
    (patch,) = vllm["pedigree"]["patches"]
    assert patch["type"] == "unofficial"
    assert patch["diff"]["url"] == "patches/vllm/0.31.0/0001-it.patch"
    assert patch["diff"]["text"]["content"] == releases.PATCH.decode()
    assert properties(vllm) == {
        "patchline:series": "vllm==0.31.0",
        "patchline:overlay": built.overlays[0].digest,
        "patchline:patch:0001-it.patch:commit": "d" * 40,
        "patchline:patch:0001-it.patch:file": sha(releases.PATCH),
    }


def test_a_patch_that_is_no_text(built: Built) -> None:
    (built.carried[0].folder / "0001-it.patch").write_bytes(b"\xff\n")
    text = parts(said(built))["vllm==0.31.0"]["pedigree"]["patches"][0]["diff"]["text"]
    assert base64.b64decode(text["content"]) == b"\xff\n"
    assert text["encoding"] == "base64"


def test_the_base_and_the_layer(built: Built) -> None:
    found = parts(said(built))
    base = built.image.base
    assert (found["base"]["name"], found["base"]["version"]) == ("base.example/tiny:1", base.digest)
    assert properties(found["base"])["patchline:base-lock"] == built.lock.contents.seal
    assert [properties(found["base"])[f"patchline:layer:00{n}"] for n in (1, 2, 3)] == [
        one.digest for one in base.layers
    ]
    layer = found["layer"]
    assert layer["version"] == sha(built.image.layer)
    files = {one["name"]: one["hashes"][0]["content"] for one in layer["components"]}
    assert files[f"/{SITE}/vllm/core.py"] == sha(NEW_CORE).removeprefix("sha256:")
    assert files[f"/{SITE}/vllm/new.py"] == sha(ADDED).removeprefix("sha256:")
    assert {"/etc/patchline/build.json", f"/{SITE}/vllm-0.31.0.dist-info/RECORD"} < set(files)
    assert f"/{SITE}/vllm/gone.py" in properties(layer).values()


def test_the_same_image_gives_the_same_bytes(tmp_path: Path, built: Built) -> None:
    other = releases.built(releases.project(tmp_path / "elsewhere"), releases.layout(tmp_path / "base"))
    assert made(other) == made(built)
    changed = releases.built(built.carried[0].project, releases.layout(tmp_path / "base"), b"x = 1\n")
    assert json.loads(made(changed))["serialNumber"] != json.loads(made(built))["serialNumber"]


def test_a_git_pin(built: Built) -> None:
    project = built.carried[0].project
    pin = GitPin(kind="git", version="0.31.0", url="https://example.org/v.git", tag="v0.31.0", commit="e" * 40)
    runtime = load(project.upstreams)["dynamo"]
    write_pins(project.upstreams, {"vllm": Upstream(name="vllm", carried="0.31.0", pins=(pin,)), "dynamo": runtime})
    vllm = parts(said(built._replace(carried=(carried("vllm", project),))))["vllm==0.31.0"]
    assert vllm["purl"] == f"pkg:generic/vllm@0.31.0?vcs_url=git%2Bhttps://example.org/v.git%40{'e' * 40}"
    assert vllm["pedigree"]["ancestors"][0]["externalReferences"][0]["comment"] == f"commit {'e' * 40}"


def test_an_image_that_carries_something_else(built: Built) -> None:
    other = built._replace(overlays=(releases.overlay(b"x = 1\n"),))
    with pytest.raises(SourceMismatch, match="says that it carries something else"):
        made(other)
