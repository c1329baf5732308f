"""What a registry has attached to an image: provenance and bill of materials, and what is wrong with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import image_bases as bases
import pytest
import registries
from auditing import Said, audit, keep
from lined import NAME, REGISTRY, layers, lined, put
from registries import Registry
from releases import QUICK

from patchline.image.model import Descriptor
from patchline.image.registry import referrers
from patchline.image.registry.client import Client
from patchline.image.registry.referrers import Artifact
from patchline.image.registry.repository import Repository
from patchline.lines.build import Built, building
from patchline.lines.pinning import pin
from patchline.project import Project
from patchline.release import facts, provenance, records, sbom
from patchline.release.publish import artifacts, publish

TAG = f"v1.6.0-nightly-20261016-{NAME}.1"
EVIDENCE = "builds/evidence/demo-1.0/cpu.json"
SECOND = "0002-four-heads.patch"
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registries.registry(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, hub: Registry) -> Iterator[tuple[Project, Built]]:
    """A project with one committed nightly, in the repository `out/whole`."""
    root = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATCHLINE_CACHE", str(root / "cache"))
        patch.setenv("DOCKER_CONFIG", str(root / "docker"))
        patch.setenv(REGISTRY, hub.host)
        patch.setattr(referrers, "SETTLE", 0.0)
        put(hub, root / "base", bases.image(layers()))
        made = lined(root / "p")
        pin(made, NAME)
        with building(made, NAME) as built:
            with Client(hub.host, QUICK) as client:
                publish(built, Repository(client, "out/whole", push=True), date="20261016")
            keep(made.root)
            yield made, built


@pytest.fixture(autouse=True)
def here(world: tuple[Project, Built], monkeypatch: pytest.MonkeyPatch) -> None:
    root = world[0].root
    monkeypatch.setenv("PATCHLINE_CACHE", str(root.parent / "cache"))
    monkeypatch.setenv("DOCKER_CONFIG", str(root.parent / "docker"))
    monkeypatch.setattr(referrers, "SETTLE", 0.0)
    monkeypatch.chdir(root)


def attached(world: tuple[Project, Built], hub: Registry, name: str, *changed: Artifact) -> str:
    """The image in another repository, with these artifacts; its name by digest."""
    _, built = world
    subject = Descriptor(built.image.manifest.fields["mediaType"], built.image.digest, len(built.image.manifest.data))
    with Client(hub.host, QUICK) as client:
        from patchline.image.registry.push import push

        target = Repository(client, f"other/{name}", push=True, beside=["out/whole"])
        push(built.image, target)
        referrers.attach(target, subject, changed)
    return f"{hub.host}/other/{name}@{built.image.digest}"


def ours(world: tuple[Project, Built], evidence: dict[str, str] | None = None) -> tuple[Artifact, Artifact]:
    """Bill and provenance, as they are attached."""
    bill, said = artifacts(facts.of(*world, evidence or {}))
    return bill, said


def with_change(one: Artifact, change: Change) -> Artifact:
    said = json.loads(one.data)
    change(said)
    return one._replace(data=json.dumps(said).encode())


def findings(said: Said) -> list[tuple[str, str]]:
    return [(one["kind"], one["what"]) for each in said.data["audits"] for one in each["findings"]]


def test_what_was_published_is_right(hub: Registry, capsys: pytest.CaptureFixture[str]) -> None:
    said = audit(capsys, "--image", f"{hub.host}/out/whole:{TAG}")
    assert (said.exit, said.kinds, said.notes) == (0, [], ""), said.whats


def test_a_release_without_anything_attached(
    world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    said = audit(capsys, "--image", attached(world, hub, "bare"))
    assert said.exit == 8
    assert said.kinds == [("provenance", TAG), ("provenance", TAG)]
    assert "this is a release, and no provenance of ours is attached to it" in said.whats
    assert "this is a release, and no bill of materials of ours is attached to it" in said.whats


def test_an_image_that_is_no_release_needs_nothing(
    world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    image = attached(world, hub, "free")
    monkeypatch.setattr(records.Records, "names", lambda self: [])
    said = audit(capsys, "--image", image)
    assert (said.exit, said.kinds) == (0, []), said.whats
    assert "nothing is attached to it, and no release record is of it" in said.notes


def test_a_tag_of_a_release_is_one_without_a_record(
    world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    attached(world, hub, "tagged")
    tag = f"v1.6.0-{NAME}.7"
    with Client(hub.host, QUICK) as client:
        Repository(client, "other/tagged", push=True).put(world[1].image.manifest, tag)
    monkeypatch.setattr(records.Records, "names", lambda self: [])
    said = audit(capsys, "--image", f"{hub.host}/other/tagged:{tag}")
    assert said.kinds == [("provenance", tag), ("provenance", tag)]


PARAMETERS = ("predicate", "buildDefinition", "externalParameters")


def _at(said: dict[str, Any], *path: str) -> Any:
    for name in path:
        said = said[name]
    return said


def _patch(said: dict[str, Any]) -> dict[str, Any]:
    return next(one for one in _at(said, *PARAMETERS[:2])["resolvedDependencies"] if one["name"].endswith(SECOND))


def _dependencies(said: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _at(said, *PARAMETERS[:2])["resolvedDependencies"]
    return found


LIES: dict[str, tuple[Change, str]] = {
    "another image": (
        lambda said: said["subject"][0]["digest"].update(sha256="0" * 64),
        f"its image is sha256:{'0' * 64}, and the image's is sha256:",
    ),
    "another line": (
        lambda said: _at(said, *PARAMETERS).update(line="other"),
        f"its line is other, and the image's is {NAME}",
    ),
    "another base": (
        lambda said: _at(said, *PARAMETERS)["base"].update(digest=f"sha256:{'1' * 64}"),
        f"its base is sha256:{'1' * 64}, and the image's is sha256:",
    ),
    "another series": (
        lambda said: _at(said, *PARAMETERS).update(series=["demo==2.0"]),
        "its series is demo==2.0, and the image's is demo==1.0",
    ),
    "another commit of a patch": (
        lambda said: _patch(said)["annotations"].update(commit="2" * 40),
        f"its patch {SECOND} on demo==1.0 is commit {'2' * 40}, and the labels say ",
    ),
    "other bytes of a patch": (
        lambda said: _patch(said)["digest"].update(sha256="3" * 64),
        f"its patch patches/demo/1.0/{SECOND} is sha256:{'3' * 64}, and no such file is or was in the project",
    ),
    "a patch less": (
        lambda said: _dependencies(said).remove(_patch(said)),
        f"it does not name the patch {SECOND} on demo==1.0",
    ),
    "a patch more": (
        lambda said: _dependencies(said).append({**_patch(said), "name": "patches/demo/1.0/0003-more.patch"}),
        "it names the patch 0003-more.patch on demo==1.0, and the labels do not",
    ),
    "another pinned file": (
        lambda said: next(one for one in _dependencies(said) if one["name"] == "demo-1.0.tar.gz")["digest"].update(
            sha256="4" * 64
        ),
        f"its pinned file demo-1.0.tar.gz is {'4' * 64}, and the pin says ",
    ),
    "evidence that nobody has": (
        lambda said: _at(said, "predicate", "runDetails").update(
            byproducts=[{"name": "builds/evidence/demo-1.0/none.json", "digest": {"sha256": "5" * 64}}]
        ),
        "it names the evidence builds/evidence/demo-1.0/none.json of sha256:5555",
    ),
    "evidence from outside": (
        lambda said: _at(said, "predicate", "runDetails").update(
            byproducts=[{"name": "../../etc/passwd", "digest": {"sha256": "5" * 64}}]
        ),
        "it names the evidence ../../etc/passwd of",
    ),
    "no parameters": (lambda said: _at(said, *PARAMETERS[:2]).pop("externalParameters"), "it is not understood"),
}


@pytest.mark.parametrize("name", LIES)
def test_provenance_that_lies(
    name: str, world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    bill, said = ours(world)
    change, what = LIES[name]
    found = audit(capsys, "--image", attached(world, hub, name.replace(" ", "-"), bill, with_change(said, change)))
    assert found.exit == 8
    kinds, whats = zip(*findings(found), strict=True)
    assert set(kinds) == {"provenance"}
    assert len(whats) == 2  # the lie, and that it is not what the record says
    assert sum(one.startswith(what) for one in whats) == 1, whats
    assert any(one.startswith("its record says that sha256:") for one in whats)


def _one(said: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in said["components"] if one["name"] == name)
    return found


def _property(one: dict[str, Any], name: str) -> dict[str, str]:
    found: dict[str, str] = next(each for each in one["properties"] if each["name"] == f"patchline:{name}")
    return found


BILLS: dict[str, tuple[Change, str]] = {
    "another version": (
        lambda said: _one(said, "ai-dynamo").update(version="1.7.0"),
        "it lists ai-dynamo 1.7.0, and the image has 1.6.0",
    ),
    "what is not there": (
        lambda said: _one(said, "ai-dynamo").update(name="nixl"),
        "it lists nixl 1.6.0, and the image has none",
    ),
    "another overlay": (
        lambda said: _property(said["metadata"]["component"], "overlay").update(value="sha256:1"),
        "its overlay is sha256:1, and the label says sha256:",
    ),
    "another overlay of a series": (
        lambda said: _property(_one(said, "demo"), "overlay").update(value="sha256:2"),
        "its overlay of demo==1.0 is sha256:2, and the labels say sha256:",
    ),
    "another image": (
        lambda said: said["metadata"]["component"].update(hashes=[]),
        "it is of another image than sha256:",
    ),
    "another base": (
        lambda said: next(one for one in said["components"] if one["type"] == "container").update(version="sha256:3"),
        "its base is sha256:3, and the label says sha256:",
    ),
    "another file": (
        lambda said: next(
            one for one in _one(said, "layer")["components"] if one["name"].endswith("/demo/core.py")
        ).update(hashes=[{"alg": "SHA-256", "content": "6" * 64}]),
        "it lists /",
    ),
    "no components": (lambda said: said.pop("components"), "it is not understood"),
}


@pytest.mark.parametrize("name", BILLS)
def test_a_bill_that_lies(
    name: str, world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    bill, said = ours(world)
    change, what = BILLS[name]
    image = attached(world, hub, f"bill-{name.replace(' ', '-')}", with_change(bill, change), said)
    found = audit(capsys, "--image", image)
    assert found.exit == 8
    whats = [one for kind, one in findings(found) if kind == "provenance"]
    assert len(whats) == len(findings(found)) == 2
    assert sum(one.startswith(what) for one in whats) == 1, whats


def test_evidence_that_is_committed_or_once_was(
    world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    project, _ = world
    file = project.root / EVIDENCE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("passed\n")
    evidence = {EVIDENCE: bases.sha(b"passed\n")}
    image = attached(world, hub, "evidence", *ours(world, evidence))
    record_only = "its record says that sha256:"  # since the record's provenance has no evidence
    whats = [what for _, what in findings(audit(capsys, "--image", image))]
    assert [what for what in whats if not what.startswith(record_only)] == []
    file.write_text("edited by hand\n")
    whats = [what for _, what in findings(audit(capsys, "--image", image))]
    named = [what for what in whats if not what.startswith(record_only)]
    assert named == [
        f"it names the evidence {EVIDENCE} of {evidence[EVIDENCE]}, and no such file is or was in the project"
    ]
    file.write_text("passed\n")
    keep(project.root, "evidence")
    file.write_text("recorded again\n")
    keep(project.root, "evidence again")
    whats = [what for _, what in findings(audit(capsys, "--image", image))]
    assert [what for what in whats if not what.startswith(record_only)] == []


def test_what_others_attach_is_theirs(
    world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    bill, said = ours(world)
    theirs = with_change(said, lambda one: _at(one, "predicate", "runDetails")["builder"].update(id="urn:theirs"))
    scan, odd = Artifact("application/vnd.scan+json", b"{}"), Artifact(provenance.KIND, b"no JSON")
    found = audit(capsys, "--image", attached(world, hub, "theirs", bill, said, theirs, scan, odd))
    assert (found.exit, found.kinds) == (0, []), found.whats
    found = audit(capsys, "--image", attached(world, hub, "only-theirs", bill, theirs))
    assert [what[:54] for _, what in findings(found)] == ["this is a release, and no provenance of ours is attach"]


def test_an_attached_document_that_is_gone(
    world: tuple[Project, Built], hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    bill, said = ours(world)
    image = attached(world, hub, "gone", bill, said)
    digest = world[1].image.digest
    with Client(hub.host, QUICK) as client:
        target = Repository(client, "other/gone", push=True)
        (listed,) = [one for one in referrers.listed(target, digest) if one.artifact_type == sbom.KIND]
        target.remove(listed.digest)
    whats = "\n".join(what for _, what in findings(audit(capsys, "--image", image)))
    assert "a referrer is listed and is not there" in whats
    assert "no bill of materials of ours is attached" in whats
