"""The builder `docker` on a real daemon: the same files as `append`, and no failure of docker's goes unheard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import docker_daemons
import image_bases as bases
import pytest
import registries
from docker import DockerClient
from image_bases import OVERLAY, SITE

from patchline.errors import SourceMismatch, Unreachable, UsageError
from patchline.image import append, base, identity, locking
from patchline.image.append import Image
from patchline.image.layout import Layout, blob_path
from patchline.lines.docker import builder as docker_builder
from patchline.lines.docker import images as docker_images
from patchline.lines.line import Base as LineBase
from patchline.lines.line import Line

BUILDS = Path(__file__).parents[2] / "builds"
LINES = sorted(path.parent.name for path in BUILDS.glob("*/line.toml"))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerClient]:
    with docker_daemons.daemon(tmp_path_factory.mktemp("docker")) as running:
        yield running


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = docker_daemons.small(labels={"maintainer": "somebody", identity.OF_THE_BASE[0]: "of the base"})
    return bases.layout(made, tmp_path_factory.mktemp("small") / "base")


@pytest.fixture(scope="module")
def image(layout: Path) -> Image:
    found = base.find(Layout(layout))
    return append.cut(found, locking.make(found, [OVERLAY]), [OVERLAY], bases.who())


def line(folder: Path) -> Line:
    return Line("small", folder, "1.6.0", ("vllm==0.31.0",), (), LineBase(), {}, smoke=False)


def with_dockerfile(at: Path, text: str) -> Line:
    (at / "Dockerfile").write_text(text)
    return line(at)


def said(client: DockerClient, id: str) -> dict[str, str]:
    return {name: value for name, value in client.images.get(id).labels.items() if value}


def test_every_line_has_a_dockerfile() -> None:
    assert [name for name in LINES if (BUILDS / name / "Dockerfile").is_file()] == LINES
    assert LINES


@pytest.mark.parametrize("name", LINES)
def test_both_builders_give_the_same_files(client: DockerClient, image: Image, name: str) -> None:
    cut = docker_images.load(client, image)
    built = docker_builder.build(client, line(BUILDS / name), image).id
    assert built != cut
    ours, theirs = (docker_daemons.listing(client, one) for one in (cut, built))
    assert theirs == ours
    changed = [one for one in ours if SITE in one or "/etc/patchline/build.json" in one]
    assert any(one.startswith("f 664 1000 0") and one.endswith("vllm/deep/er/new.py") for one in changed)
    assert not any("gone" in one for one in changed)
    assert not any("core.cpython" in one for one in changed)
    assert any("core_two.cpython" in one for one in changed)


def test_both_builders_say_the_same(client: DockerClient, image: Image) -> None:
    cut = docker_images.load(client, image)
    built = docker_builder.build(client, line(BUILDS / LINES[0]), image).id
    assert said(client, built) == said(client, cut)
    assert said(client, cut)["patchline.overlay"] == bases.who().overlay
    assert identity.OF_THE_BASE[0] not in said(client, built)
    first, second = (client.images.get(one).attrs["Config"] for one in (cut, built))
    assert [first[key] for key in ("User", "Env")] == [second[key] for key in ("User", "Env")]
    assert first["User"] == "1000:0"


def test_an_image_has_the_id_of_its_configuration(client: DockerClient, image: Image) -> None:
    assert docker_images.load(client, image) == image.config.digest
    assert docker_images.load_base(client, image.base) == image.base.config.digest


def test_layers_that_are_there_are_not_sent(
    client: DockerClient, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker_images.load_base(client, image.base)
    client.images.remove(image.config.digest, force=True) if docker_images._has(client, image.config.digest) else None

    def refuse(_: object) -> Iterator[bytes]:
        raise AssertionError("a layer of the base was asked for")

    monkeypatch.setattr(image.base.source, "chunks", refuse)
    assert docker_images.load(client, image) == image.config.digest


def test_a_layer_with_other_bytes_is_not_taken_in(client: DockerClient, tmp_path: Path) -> None:
    made = docker_daemons.small(labels={"another": "one"})
    made = bases.image([*made.layers, bases.pack([bases.member("of/this/test", b"1")], "gzip")])
    found = base.find(Layout(bases.layout(made, tmp_path / "base")))
    blob = blob_path(tmp_path / "base", found.layers[-1].digest)
    blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    with pytest.raises((SourceMismatch, Unreachable)):
        docker_images.load_base(client, found)
    assert not docker_images._has(client, found.config.digest)


def test_a_base_by_its_digest_in_a_registry(
    client: DockerClient, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = docker_images.load_base(client, image.base)
    with registries.registry(tmp_path / "registry") as running:
        digest = docker_images.push(client, id, f"{running.host}/base", "small")
        wanted = f"{running.host}/base@{digest}"
        made = docker_builder.build(client, line(BUILDS / LINES[0]), image, wanted, (f"{running.host}/it", "one"))
        assert made.digest
        name = f"docker://{running.host}/it@{made.digest}"
        shown = registries.skopeo("inspect", "--config", "--tls-verify=false", name, cwd=tmp_path)
        assert bases.who().overlay in str(shown)


def test_a_push_that_fails_is_told(client: DockerClient, image: Image) -> None:
    id = docker_images.load(client, image)
    nobody = f"127.0.0.1:{registries.free_port()}"
    with pytest.raises(Unreachable, match=r"docker could not push .*: .*refused"):
        docker_images.push(client, id, f"{nobody}/it", "one")


def test_a_step_that_fails_is_told(client: DockerClient, image: Image, tmp_path: Path) -> None:
    wrong = with_dockerfile(tmp_path, "ARG BASE\nFROM ${BASE}\nRUN cat /nowhere\n")
    with pytest.raises(Unreachable, match=r"docker could not build small: .*returned a non-zero code: 1") as failed:
        docker_builder.build(client, wrong, image)
    assert "RUN cat /nowhere" in str(failed.value)


def test_a_dockerfile_that_is_none(client: DockerClient, image: Image, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"docker refuses the Dockerfile: .*NOTHING"):
        docker_builder.build(client, with_dockerfile(tmp_path, "NOTHING at all\n"), image)


def test_a_line_without_a_dockerfile(client: DockerClient, image: Image, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the line small has no Dockerfile"):
        docker_builder.build(client, line(tmp_path), image)


def test_a_base_that_is_nowhere(client: DockerClient, image: Image) -> None:
    nobody = f"127.0.0.1:{registries.free_port()}/base@sha256:{'0' * 64}"
    with pytest.raises(Unreachable):
        docker_builder.build(client, line(BUILDS / LINES[0]), image, nobody)


def test_old_images_go_from_a_daemon_of_our_own_only(
    client: DockerClient, image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, cut = docker_images.load_base(client, image.base), docker_images.load(client, image)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(docker_images, "OURS", "somebody=else")
        docker_images.keep_only(client, [])
        assert docker_images._has(client, cut)
    docker_images.keep_only(client, [base])
    assert [one.id for one in client.images.list()] == [base]
    assert docker_images.load(client, image) == cut
