"""Lines: what their files may say, pinned bases, and the same image from the same inputs anywhere."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import image_bases as bases
import pytest
from lined import BASE, FILES, LINE, NAME, REGISTRY, layers, lined, put
from registries import Registry, registry, skopeo

from patchline.cli import main
from patchline.errors import PatchlineError, Refused, SourceMismatch, UsageError
from patchline.image import append
from patchline.lines import nights, pinned
from patchline.lines.build import Built, building
from patchline.lines.line import line, names
from patchline.lines.pinning import pin
from patchline.project import Project, find


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture
def made(tmp_path: Path, hub: Registry, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose base is in the registry, not pinned yet."""
    monkeypatch.setenv(REGISTRY, hub.host)
    put(hub, tmp_path / "base", bases.image(layers()))
    return lined(tmp_path / "p")


def cut(project: Project) -> Built:
    with building(project, NAME) as built:
        return built


def test_the_projects_own_lines() -> None:
    here = find(Path(__file__))
    assert names(here) == ["cpu-smoke", "gemma4-hetero-tp"]
    assert [line(here, name).base.named is None for name in names(here)] == [True, False]
    assert list(line(here, "gemma4-hetero-tp").gates) == ["cpu", "h20", "b300"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "missing required field"),
        (LINE.replace("dynamo =", "Dynamo ="), "unknown field `Dynamo`"),
        (LINE.replace('dynamo = "1.6.0"', 'dynamo = "1.6"\ndate = 1'), "unknown field `date`"),
        (LINE.replace('dynamo = "1.6.0"', 'dynamo = "latest"'), "'latest' is no version"),
        (LINE.replace('["demo==1.0"]', "[]"), "it carries no series"),
        (LINE.replace("demo==1.0", "demo"), "'demo' is no pin"),
        (LINE.replace("ai-dynamo==1.6.0", "demo==1.0"), "a pin is there twice"),
        (LINE.replace("[base.named]", '[base.made]\nsuite = "x"\npackages = []\n[base.named]'), "either named or made"),
        (LINE.replace('cpu = "overlay"', ""), "neither a gate nor a smoke test"),
        (LINE.replace('"overlay"', '"nothing"'), "Invalid enum value 'nothing'"),
    ],
)
def test_a_line_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    project = lined(tmp_path / "p", text)
    with pytest.raises(UsageError) as caught:
        line(project, NAME)
    assert said in str(caught.value)
    assert "line.toml" in caught.value.where


def test_a_line_that_is_not_there(made: Project) -> None:
    with pytest.raises(UsageError, match=r"no line 'demo-lime'.*demo-line"):
        line(made, "demo-lime")


def test_an_unpinned_base_is_refused(made: Project) -> None:
    with pytest.raises(UsageError, match="is not pinned") as caught:
        cut(made)
    assert caught.value.next == f"nox -s pin -- {NAME}"


def test_pin_then_build(
    made: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(made.root)
    assert main(["pin", NAME]) == 0
    assert f"pinned the base of {NAME}" in capsys.readouterr().out
    assert main(["build", NAME, "--whole", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    seen = json.loads(skopeo("inspect", f"oci:{said['layout']}", cwd=tmp_path))
    assert seen["Digest"] == said["digest"]
    assert seen["Labels"]["patchline.overlay"] == said["overlay"]
    assert seen["Labels"]["patchline.pins"] == "ai-dynamo==1.6.0 demo==1.0"
    assert seen["Labels"]["org.opencontainers.image.base.name"] == BASE
    assert [one["patches"][1]["name"] for one in said["series"]] == ["0002-four-heads.patch"]
    assert pinned.needed(line(made, NAME), BASE).manifest == said["base"]["digest"]


def test_the_same_image_elsewhere(made: Project, tmp_path: Path) -> None:
    pin(made, NAME)
    shutil.copytree(made.root, tmp_path / "elsewhere" / "clone", ignore=shutil.ignore_patterns("work"))
    ours, theirs = cut(made), cut(Project(tmp_path / "elsewhere" / "clone"))
    assert theirs.image.digest == ours.image.digest
    assert theirs.image.layer == ours.image.layer
    append.write(theirs.image, tmp_path / "out", whole=False)


def test_a_base_that_moved(made: Project, hub: Registry, tmp_path: Path) -> None:
    first = pin(made, NAME)
    assert pin(made, NAME) == first
    other = put(hub, tmp_path / "other", bases.image(layers({**FILES, "demo/more.py": b""})))
    with pytest.raises(SourceMismatch) as caught:
        cut(made)
    assert first.digest in str(caught.value)
    assert other.digest in str(caught.value)
    with pytest.raises(Refused) as refused:
        pin(made, NAME)
    assert first.digest in str(refused.value)
    assert other.digest in str(refused.value)


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (layers({**FILES, "demo/core.py": b"def heads():\n    return 0\n"}), "is not the pin's"),
        (layers(dynamo="1.6.1"), "ai-dynamo 1.6.0 is pinned, and the base has 1.6.1"),
        ([bases.pack(bases.root())], "no installed Python package"),
    ],
)
def test_a_base_that_does_not_suit_is_not_pinned(
    made: Project, hub: Registry, tmp_path: Path, base: list[bases.Packed], said: str
) -> None:
    put(hub, tmp_path / "other", bases.image(base))
    with pytest.raises(SourceMismatch) as caught:
        pin(made, NAME)
    assert said in str(caught.value)
    assert pinned.read(line(made, NAME)) is None


def test_another_base_than_the_pinned_one(made: Project) -> None:
    pin(made, NAME)
    path = made.root / "builds" / NAME / "line.toml"
    path.write_text(path.read_text().replace('1.6.0"\nregistry', '1.6.1"\nregistry'))
    with pytest.raises(UsageError, match=r"is not the pinned one: vendor/runtime:1\.6\.0"):
        cut(made)


@pytest.mark.parametrize("damage", ["", "name = 1\n", 'name = "a"\ndigest = "sha256:0"\nmanifest = "x"\n'])
def test_a_damaged_pin(made: Project, damage: str) -> None:
    pin(made, NAME)
    pinned.path(line(made, NAME)).write_text(damage)
    with pytest.raises(SourceMismatch):
        cut(made)


def test_a_lock_that_is_gone(made: Project) -> None:
    pin(made, NAME)
    shutil.rmtree(line(made, NAME).lock)
    with pytest.raises(UsageError, match="no base lock"):
        cut(made)


def test_the_registry_is_a_setting(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    pin(made, NAME)
    monkeypatch.delenv(REGISTRY)
    with pytest.raises(UsageError, match=REGISTRY):
        cut(made)


def test_a_line_of_another_dynamo(tmp_path: Path) -> None:
    made = lined(tmp_path / "p", LINE.replace('dynamo = "1.6.0"', 'dynamo = "1.7.0"'))
    with pytest.raises(PatchlineError, match=r"of Dynamo 1\.7\.0"):
        pin(made, NAME)


def test_pin_options_do_not_go_with_a_line(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made.root)
    assert main(["pin", NAME, "--carry"]) == 2


def test_publish_through_the_verb(
    made: Project, hub: Registry, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A dry run changes nothing; then the first tag of the day; then the same one again."""
    pin(made, NAME)
    monkeypatch.chdir(made.root)
    words = ["publish", NAME, "--to", f"{hub.host}/ours/out", "--date", "20261130"]
    assert main([*words, "--dry-run"]) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["tag"] == "v1.6.0-nightly-20261130-demo-line.1"
    seen = json.loads(
        skopeo("inspect", "--tls-verify=false", f"docker://{hub.host}/ours/out:{said['tag']}", cwd=tmp_path)
    )
    assert seen["Digest"] == said["digest"]
    assert main(words) == 0
    assert f"published already: {hub.host}/ours/out:{said['tag']}" in capsys.readouterr().out


@pytest.mark.parametrize("to", ["out", "127.0.0.1:5000/out:tag", "127.0.0.1:5000/out@sha256:" + "0" * 64])
def test_a_target_that_is_no_repository(made: Project, monkeypatch: pytest.MonkeyPatch, to: str) -> None:
    pin(made, NAME)
    monkeypatch.chdir(made.root)
    assert main(["publish", NAME, "--to", to]) == 2


def test_which_lines_a_nightly_builds(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that cannot be built is told with the next command, but fails where it was asked for."""
    assert nights.choose(made, []) == ([], {NAME: f"its base {BASE} is not pinned; nox -s pin -- {NAME}"})
    assert nights.choose(made, [NAME]) == ([NAME], {})
    pin(made, NAME)
    assert nights.choose(made, []) == ([NAME], {})
    monkeypatch.delenv(REGISTRY)
    assert nights.choose(made, [])[1] == {NAME: f"{REGISTRY} does not say which registry has its base"}
    with pytest.raises(UsageError, match="no line 'x'"):
        nights.choose(made, ["x"])


@pytest.mark.parametrize(
    "words", [["--push", "127.0.0.1:5000/out:1"], ["--builder", "docker", "--push", "127.0.0.1:5000/out"]]
)
def test_what_does_not_go_together(made: Project, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    pin(made, NAME)
    monkeypatch.chdir(made.root)
    assert main(["build", NAME, *words]) == 2
