"""A release is cut again from its record: the same bytes, or the input that is another one is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import image_bases as bases
import msgspec
import pytest
import registries
from lined import BASE, LINE, NAME, REGISTRY, layers, lined, put
from registries import Registry
from releases import QUICK
from repos import git

from patchline.cli import main
from patchline.errors import Exit, SourceMismatch, UsageError
from patchline.image.registry import referrers
from patchline.image.registry.client import Client
from patchline.image.registry.repository import Repository
from patchline.lines.build import building
from patchline.lines.pinning import pin
from patchline.project import Project
from patchline.release import inputs, record, records, reproduce, schema
from patchline.release.publish import publish
from patchline.release.reproduce import HERE

jsonschema = import_module("jsonschema")  # it has no types
ROOT = Path(__file__).parents[2]
TAG = f"v1.6.0-nightly-20261016-{NAME}.1"
PATCH = "patches/demo/1.0/0002-four-heads.patch"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registries.registry(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path, hub: Registry, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project in git whose first nightly is published; its record is committed after it."""
    monkeypatch.setenv(REGISTRY, hub.host)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setattr(referrers, "SETTLE", 0.0)
    put(hub, tmp_path / "base", bases.image(layers()))
    project = lined(tmp_path / "p")
    pin(project, NAME)
    git(project.root, "init", "-q")
    (project.root / ".gitignore").write_text("work/\nbuild/\n")
    saved(project, "as it was released")
    with building(project, NAME) as built, Client(hub.host, QUICK) as client:
        publish(built, Repository(client, f"out/{tmp_path.name}", push=True), date="20261016")
    saved(project, "its record")
    return project


def saved(project: Project, message: str) -> None:
    git(project.root, "add", "-A")
    git(project.root, "commit", "-q", "-m", message)


def path(project: Project, tag: str = TAG) -> Path:
    return project.root / f"changelog/releases/{tag}.json"


def edit(made: Project, /, **fields: object) -> None:
    """Another record, under a seal that is right."""
    found = record.read(path(made))
    path(made).write_bytes(record.text(msgspec.structs.replace(found, **fields)))


def names(found: tuple[inputs.Difference, ...]) -> list[str]:
    return [one.what for one in found]


def test_the_same_image_again(
    made: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.root)
    assert main(["reproduce", TAG, "--json"]) == Exit.DONE
    said = json.loads(capsys.readouterr().out)
    assert (said["same"], said["tree"], said["here"], said["inputs"]) == (True, HERE, [], [])
    assert [one["what"] for one in said["digests"]] == ["manifest", "config", "layer"]
    assert said["digests"][0]["found"] == record.read(path(made)).image
    assert main(["reproduce", TAG]) == Exit.DONE
    assert f"{TAG}: cut again from the work tree, the same image" in capsys.readouterr().out


def test_a_release_is_its_nightlys_image(made: Project) -> None:
    one = record.read(path(made))
    released = f"v1.6.0-{NAME}.1"
    promoted = msgspec.structs.replace(one, tag=released, nightly=TAG, project="0" * 40, patchline="999")
    path(made, released).write_bytes(record.text(promoted))
    done = reproduce.reproduce(made, released)
    assert (done.same, done.record.tag, names(done.inputs)) == (True, TAG, [])


def test_a_base_whose_tag_moved(made: Project, hub: Registry, tmp_path: Path) -> None:
    put(hub, tmp_path / "other", bases.image(layers(dynamo="1.6.1")))
    with pytest.raises(SourceMismatch, match="not the image that was pinned"), building(made, NAME):
        pass
    done = reproduce.reproduce(made, TAG)
    assert (done.same, done.tree) == (True, HERE)


def test_patches_that_moved_on_are_taken_from_the_records_commit(
    made: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.root)
    patch = made.root / PATCH
    patch.write_bytes(patch.read_bytes().replace(b"four = 4", b"five = 5"))
    saved(made, "another patch")
    before = git(made.root, "status", "--porcelain")
    assert main(["reproduce", TAG]) == Exit.DONE
    said = capsys.readouterr().out
    assert "the work tree has other inputs today:" in said
    assert "patch demo==1.0 0002-four-heads.patch" in said
    assert f"cut again from commit {record.read(path(made)).project}, the same image" in said
    assert git(made.root, "status", "--porcelain") == before
    assert main(["reproduce", TAG, "--here"]) == Exit.FINDINGS
    said = capsys.readouterr().out
    assert "inputs that are not the record's:" in said
    assert f"{TAG}: NOT cut again" in said


def test_a_line_that_is_gone_is_taken_from_the_records_commit(made: Project) -> None:
    for file in sorted((made.root / f"builds/{NAME}").rglob("*")):
        if file.is_file():
            file.unlink()
    done = reproduce.reproduce(made, TAG)
    assert done.same
    assert {"dynamo", "base name", "series demo==1.0", "pin ai-dynamo==1.6.0, ai_dynamo-1.6.0-py3-none-any.whl"} < {
        *names(done.here)
    }


def test_inputs_that_no_commit_has_are_named_and_nothing_is_cut(made: Project) -> None:
    one = record.read(path(made))
    patches = (one.series[0].patches[0], msgspec.structs.replace(one.series[0].patches[1], file=f"sha256:{'0' * 64}"))
    edit(
        made,
        series=(msgspec.structs.replace(one.series[0], patches=patches),),
        pins={**one.pins, "demo==1.0": {"demo-1.0.tar.gz": "1" * 64}},
        base=msgspec.structs.replace(one.base, digest=f"sha256:{'2' * 64}"),
        builder="docker",
    )
    done = reproduce.reproduce(made, TAG)
    assert (done.same, done.tree, done.digests) == (False, "", ())
    assert names(done.inputs) == [
        "builder",
        "base digest",
        "pin demo==1.0, demo-1.0.tar.gz",
        "patch demo==1.0 0002-four-heads.patch",
    ]


def test_a_commit_that_is_not_there(made: Project) -> None:
    edit(made, project="1" * 40)
    (made.root / PATCH).write_text("")
    done = reproduce.reproduce(made, TAG)
    assert (done.same, done.tree, names(done.inputs)) == (False, "", ["patch demo==1.0 0002-four-heads.patch"])


def test_a_base_that_is_another_one(made: Project, hub: Registry, tmp_path: Path) -> None:
    """The line stands on the next version of it; the record's commit still pins the old one."""
    newer = BASE.replace("1.6.0", "1.6.1")
    put(hub, tmp_path / "other", bases.image([*layers(), bases.pack(bases.root(), "gzip")]), newer)
    folder = made.root / f"builds/{NAME}"
    (folder / "line.toml").write_text(LINE.replace(BASE, newer))
    (folder / "base.toml").unlink()
    shutil.rmtree(folder / "base")
    pin(made, NAME)
    done = reproduce.reproduce(made, TAG)
    assert (done.same, done.tree[:7], names(done.here)) == (True, "commit ", ["base name", "base digest"])


def test_another_version_of_the_tool_is_tried(
    made: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made.root)
    edit(made, patchline="0.0.older")
    assert main(["reproduce", TAG]) == Exit.DONE
    assert "    record: 0.0.older" in capsys.readouterr().out
    edit(made, layer=f"sha256:{'3' * 64}")
    assert main(["reproduce", TAG, "--json"]) == Exit.FINDINGS
    said = json.loads(capsys.readouterr().out)
    assert [one["what"] for one in said["digests"] if one["found"] != one["recorded"]] == ["layer"]
    assert [one["what"] for one in said["inputs"]] == ["patchline"]


def test_a_revision_that_nobody_gives_makes_another_image(made: Project) -> None:
    """Only a cut shows it: the files of the project do not say what an image will name."""
    edit(made, revision="4" * 40, image=f"sha256:{'5' * 64}")
    done = reproduce.reproduce(made, TAG)
    assert (done.same, names(done.inputs)) == (False, ["revision"])


def test_a_record_edited_by_hand_is_refused(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    data = path(made).read_bytes()
    path(made).write_bytes(data.replace(b'"created": "20', b'"created": "19'))
    with pytest.raises(SourceMismatch, match="this release record was edited"):
        reproduce.reproduce(made, TAG)
    monkeypatch.chdir(made.root)
    assert main(["reproduce", TAG]) == Exit.SOURCE_MISMATCH


def test_a_record_of_another_schema_and_one_that_is_not_there(made: Project) -> None:
    path(made).write_bytes(path(made).read_bytes().replace(b'"schema": 1', b'"schema": 2'))
    with pytest.raises(SourceMismatch, match="of schema 2, not 1"):
        reproduce.reproduce(made, TAG)
    with pytest.raises(UsageError, match="there is no release record"):
        reproduce.reproduce(made, f"v1.6.0-{NAME}.9")


def test_tag_or_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce"]) == Exit.USAGE
    assert main(["reproduce", TAG, "--schema"]) == Exit.USAGE
    capsys.readouterr()
    assert main(["reproduce", "--schema"]) == Exit.DONE
    assert capsys.readouterr().out.encode() == schema.text()


def test_the_schema_is_the_committed_one_and_holds_for_records(made: Project) -> None:
    committed = (ROOT / "changelog/releases" / schema.FILE).read_bytes()
    assert committed == schema.text(), f"python -m patchline reproduce --schema > changelog/releases/{schema.FILE}"
    checker = jsonschema.Draft202012Validator(schema.schema())
    checker.check_schema(schema.schema())
    found = json.loads(path(made).read_bytes())
    checker.validate(found)
    for wrong in ({**found, "more": 1}, {**found, "schema": 2}, {**found, "base": "x"}):
        assert not checker.is_valid(wrong)
    described = schema.schema()["$defs"]["Record"]["properties"]
    assert "goes into the image's digest" in described["created"]["description"]


def test_the_schemas_file_is_no_record(made: Project) -> None:
    (made.root / "changelog/releases" / schema.FILE).write_bytes(schema.text())
    assert records.of(made).names() == [TAG]
