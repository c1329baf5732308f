"""A real registry: what is read, pushed, mounted and tagged there, and what other people's tools make of it."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import image_bases as bases
import pytest
import registries
from image_bases import OVERLAY, SITE
from registries import PASSWORD, USER, Registry, skopeo
from token_server import REFRESH, token_server

from patchline.errors import Refused, SourceMismatch, Unreachable, UsageError
from patchline.image import append, base, locking
from patchline.image.append import Image
from patchline.image.layout import Layout
from patchline.image.model import Descriptor
from patchline.image.opening import opened
from patchline.image.reference import parse
from patchline.image.registry import download
from patchline.image.registry.client import Client
from patchline.image.registry.listing import tags
from patchline.image.registry.patience import Patience
from patchline.image.registry.push import Pushed, push
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import PIECE, upload
from patchline.image.source import Source

QUICK = Patience(tries=3, first=0.01, longest=0.02)


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A docker configuration of its own, with nothing in it."""
    folder = tmp_path / "docker"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_CONFIG", str(folder))
    return folder


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """The folder of a layout; its layers are of all three kinds, and one is longer than a piece of an upload."""
    long = [bases.member("data/big", os.urandom(PIECE + 12345))]
    kinds = ("", "gzip", "zstd", "")
    made = bases.image([bases.pack(one, how) for one, how in zip((*bases.plain(), long), kinds, strict=True)])
    return bases.layout(made, tmp_path / "base")


def copied(folder: Path, reference: str, cwd: Path) -> None:
    """Puts a layout into a registry, by skopeo."""
    skopeo("copy", "--preserve-digests", "--dest-tls-verify=false", f"oci:{folder}", f"docker://{reference}", cwd=cwd)


def cut(source: Source) -> Image:
    found = base.find(source)
    return append.cut(found, locking.make(found, [OVERLAY]), [OVERLAY], bases.who())


def pushed(image: Image, client: Client, name: str, beside: str = "") -> Pushed:
    return push(image, Repository(client, name, push=True, beside=[beside] if beside else []))


def test_the_same_image_from_a_registry_and_from_a_layout(shared: Registry, tiny: Path, tmp_path: Path) -> None:
    copied(tiny, f"{shared.host}/same/base:1", tmp_path)
    with opened(f"{shared.host}/same/base:1@{base.find(Layout(tiny)).digest}") as source:
        found = cut(source)
    assert found.digest == cut(Layout(tiny)).digest


def test_only_what_lacks_travels_and_the_base_is_mounted(shared: Registry, tiny: Path, tmp_path: Path) -> None:
    copied(tiny, f"{shared.host}/team/base:1", tmp_path)
    with Client(shared.host, QUICK) as client:
        source = Remote(Repository(client, "team/base"), parse(f"{shared.host}/team/base:1"))
        image = cut(source)
        before = client.transport.received
        first = pushed(image, client, "team/out", "team/base")
        assert first._replace(sent=0) == Pushed(image.digest, 0, 4, 0, 0)
        own = len(image.layer) + len(image.config.data) + len(image.manifest.data)
        assert first.sent == own
        again = pushed(image, client, "team/out", "team/base")
        assert again == Pushed(image.digest, 6, 0, 0, 0)
        assert client.transport.received - before < 10_000
    said = json.loads(
        skopeo(
            "inspect",
            "--no-tags",
            "--tls-verify=false",
            f"docker://{shared.host}/team/out@{image.digest}",
            cwd=tmp_path,
        )
    )
    assert said["Digest"] == image.digest
    assert said["Labels"]["patchline.overlay"] == OVERLAY.digest
    assert len(said["Layers"]) == 5


def test_an_image_goes_there_and_back(shared: Registry, tiny: Path, tmp_path: Path) -> None:
    """Pushed from a layout, copied back by skopeo, unpacked by umoci: the files of base and overlay."""
    plain = bases.image([bases.pack(one, how) for one, how in zip(bases.plain(), ("gzip",) * 3, strict=True)])
    image = cut(Layout(bases.layout(plain, tmp_path / "plain")))
    with Client(shared.host, QUICK) as client:
        done = pushed(image, client, "back/out")
        assert (done.there, done.mounted, done.copied) == (0, 0, 3)
        assert Repository(client, "back/out", push=True).tag(image.manifest, "v1.6.0-tiny.1")
    skopeo(
        "copy", "--src-tls-verify=false", f"docker://{shared.host}/back/out:v1.6.0-tiny.1", "oci:back:it", cwd=tmp_path
    )
    assert base.find(Layout(tmp_path / "back")).digest == image.digest
    subprocess.run(["umoci", "unpack", "--image", "back:it", "bundle"], cwd=tmp_path, check=True, capture_output=True)
    assert_files(tmp_path / "bundle" / "rootfs")


def assert_files(root: Path) -> None:
    site = root / SITE
    assert (site / "vllm/core.py").read_bytes() == bases.NEW_CORE
    assert (site / "vllm/deep/er/new.py").read_bytes() == bases.ADDED
    assert (site / "vllm/__init__.py").read_bytes() == bases.INIT
    assert not (site / "vllm/gone.py").exists()
    assert sorted(path.name for path in (site / "vllm/__pycache__").iterdir()) == [
        "__init__.cpython-312.pyc",
        "core_two.cpython-312.pyc",
    ]
    found = (site / "vllm/core.py").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o664, 1000)
    assert stat.S_IMODE((site / "vllm").stat().st_mode) == 0o775
    assert json.loads((root / "etc/patchline/build.json").read_bytes())["overlay"] == OVERLAY.digest


def test_a_layout_that_we_wrote(tiny: Path, tmp_path: Path) -> None:
    plain = bases.image([bases.pack(one, "gzip") for one in bases.plain()])
    image = cut(Layout(bases.layout(plain, tmp_path / "plain")))
    for _ in range(2):
        append.write(image, tmp_path / "out")
    assert json.loads(skopeo("inspect", "oci:out", cwd=tmp_path))["Digest"] == image.digest
    skopeo("copy", "oci:out", "oci:again:it", cwd=tmp_path)
    subprocess.run(["umoci", "unpack", "--image", "again:it", "bundle"], cwd=tmp_path, check=True, capture_output=True)
    assert_files(tmp_path / "bundle" / "rootfs")
    skopeo("copy", "oci:out", "docker-archive:saved.tar:it:1", cwd=tmp_path)
    assert cut_again(tmp_path / "saved.tar") == "this base is not what the overlay was made for"


def cut_again(archive: Path) -> str:
    """An image of ours is no base for the same overlay."""
    with pytest.raises(SourceMismatch) as caught, opened(f"docker-archive:{archive}") as source:
        cut(source)
    return caught.value.what.splitlines()[0]


def test_a_layout_without_the_bases_layers(tiny: Path, tmp_path: Path) -> None:
    image = cut(Layout(tiny))
    append.write(image, tmp_path / "out", whole=False)
    sizes = [path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sum(sizes) < 40_000
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("precious")
    with pytest.raises(Refused, match="is no OCI image layout"):
        append.write(image, tmp_path / "other")


def test_a_tag_is_never_moved(shared: Registry, tiny: Path) -> None:
    image = cut(Layout(tiny))
    found = base.find(Layout(tiny))
    other = append.cut(found, locking.make(found, [OVERLAY]), [OVERLAY], bases.who(revision="e" * 40))
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "tags/out", push=True)
        assert tags(target) == []
        for one in (image, other):
            push(one, target)
        assert target.tag(image.manifest, "v1.6.0-tiny.1")
        assert not target.tag(image.manifest, "v1.6.0-tiny.1")
        with pytest.raises(Refused, match="tags are never moved") as caught:
            target.tag(other.manifest, "v1.6.0-tiny.1")
        assert image.digest in str(caught.value)
        assert other.digest in str(caught.value)
        assert target.digest_of("v1.6.0-tiny.1") == image.digest
        assert tags(target) == ["v1.6.0-tiny.1"]


def test_a_base_whose_tag_moved(shared: Registry, tiny: Path, tmp_path: Path) -> None:
    copied(tiny, f"{shared.host}/moved/base:1", tmp_path)
    pinned = base.find(Layout(tiny)).digest
    other = bases.image([bases.pack(bases.root())])
    copied(bases.layout(other, tmp_path / "other"), f"{shared.host}/moved/base:1", tmp_path)
    with pytest.raises(SourceMismatch) as caught, opened(f"{shared.host}/moved/base:1@{pinned}") as source:
        base.find(source)
    assert f"pinned: {pinned}\n  tag 1: {other.digest}" in str(caught.value)
    gone = bases.sha(b"gone")
    with pytest.raises(SourceMismatch, match="which is gone"), opened(f"{shared.host}/moved/base@{gone}") as source:
        base.find(source)
    with (
        pytest.raises(SourceMismatch, match="the registry has no nothing"),
        opened(f"{shared.host}/moved/base:nothing") as source,
    ):
        base.find(source)


def test_a_wrong_layer_is_found_while_it_is_copied(shared: Registry, tiny: Path) -> None:
    image = cut(Layout(tiny))
    path = tiny / "blobs" / image.base.layers[3].digest.replace(":", "/")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with Client(shared.host, QUICK) as client, pytest.raises(SourceMismatch, match="wrong bytes"):
        pushed(image, client, "wrong/out")
    with Client(shared.host, QUICK) as client:
        assert Repository(client, "wrong/out").manifest(image.digest) is None


def test_long_blobs_go_in_pieces(shared: Registry) -> None:
    data = os.urandom(2 * PIECE + 1)
    blob = Descriptor(bases.LAYER, bases.sha(data), len(data))
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "pieces/out", push=True)
        assert not upload(target, blob, lambda: (data[at : at + 1_000_003] for at in range(0, len(data), 1_000_003)))
        assert target.has(blob)
        assert b"".join(download.blob(target, blob)) == data


def log_in(folder: Path, host: str, **more: str) -> None:
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (folder / "config.json").write_text(json.dumps({"auths": {host: more or {"auth": auth}}}))


def test_basic_authentication(tiny: Path, tmp_path: Path, nobody: Path) -> None:
    image = cut(Layout(tiny))
    with registries.registry(tmp_path / "registry", auth=registries.htpasswd(tmp_path / "users")) as running:
        with Client(running.host, QUICK) as client, pytest.raises(Refused) as caught:
            pushed(image, client, "basic/out")
        assert f"{running.host} refuses us: it wants a name and a password" in str(caught.value)
        assert f"next:  docker login {running.host}" in str(caught.value)
        log_in(nobody, running.host)
        with Client(running.host, QUICK) as client:
            pushed(image, client, "basic/out")
        words = (
            "inspect",
            "--no-tags",
            "--tls-verify=false",
            f"--creds={USER}:{PASSWORD}",
            f"docker://{running.host}/basic/out@{image.digest}",
        )
        assert json.loads(skopeo(*words, cwd=tmp_path))["Digest"] == image.digest
        log_in(nobody, running.host, auth=base64.b64encode(f"{USER}:wrong".encode()).decode())
        with (
            Client(running.host, QUICK) as client,
            pytest.raises(Refused, match="does not accept who we are") as caught,
        ):
            pushed(image, client, "basic/other")
        assert "wrong" not in str(caught.value)


def test_token_authentication_and_a_helper(
    tiny: Path, tmp_path: Path, nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docker-registry believes the token server; the password comes from a credential helper."""
    image = cut(Layout(tiny))
    helper = tmp_path / "bin" / "docker-credential-test"
    helper.parent.mkdir()
    with (
        token_server(tmp_path / "tokens") as tokens,
        registries.registry(tmp_path / "registry", auth=tokens.auth) as running,
    ):
        answer = json.dumps({"ServerURL": running.host, "Username": USER, "Secret": PASSWORD})
        helper.write_text(f"#!/bin/sh\nread host\n[ \"$1 $host\" = 'get {running.host}' ] && echo '{answer}'\n")
        helper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{helper.parent}:{os.environ['PATH']}")
        (nobody / "config.json").write_text(json.dumps({"credHelpers": {running.host: "test"}}))
        with Client(running.host, QUICK) as client:
            pushed(image, client, "token/base")
            assert len(tokens.asked) == 1
            done = pushed(image, client, "token/out", "token/base")
            assert (done.mounted, done.copied) == (0, 4)  # the base is not in this registry
            found = Remote(Repository(client, "token/base"), parse(f"{running.host}/token/base@{image.digest}"))
            third = image._replace(base=image.base._replace(source=found))
            done = pushed(third, client, "token/third", "token/base")
            assert (done.mounted, done.copied) == (4, 0)
        assert tokens.asked[-1]["scope"] == ["repository:token/base:pull", "repository:token/third:pull,push"]
        log_in(nobody, running.host, identitytoken=REFRESH)
        with Client(running.host, QUICK) as client:
            assert Repository(client, "token/out").manifest(image.digest) is not None
        assert tokens.methods[-1] == "POST"
        tokens.may = ("pull",)
        with Client(running.host, QUICK) as client, pytest.raises(Refused, match="or that we may do this"):
            pushed(image, client, "token/fourth")


def test_a_helper_that_fails_says_no_secret(nobody: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from patchline.image.registry import credentials

    helper = tmp_path / "docker-credential-odd"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    (nobody / "config.json").write_text('{"credsStore": "odd"}')
    with pytest.raises(UsageError, match="cannot run the credential helper docker-credential-odd"):
        credentials.of("registry.example")
    for body, message in (("echo hunter2; exit 3", "ended with status 3"), ("echo hunter2", "did not answer in JSON")):
        helper.write_text(f"#!/bin/sh\n{body}\n")
        helper.chmod(0o755)
        with pytest.raises(UsageError, match=message) as caught:
            credentials.of("registry.example")
        assert "hunter2" not in str(caught.value)
    helper.write_text("#!/bin/sh\necho credentials not found in native keychain; exit 1\n")
    assert credentials.of("registry.example") is None
    (nobody / "config.json").write_text('{"credsStore": "../odd"}')
    with pytest.raises(UsageError, match="is no name of a credential helper"):
        credentials.of("registry.example")


def test_dockers_configuration(nobody: Path) -> None:
    from patchline.image.registry import credentials

    auth = base64.b64encode(b"a:b:c").decode()
    (nobody / "config.json").write_text(
        json.dumps({"auths": {"https://old.example/v1/": {"auth": auth}}, "HttpHeaders": {"x": "y"}})
    )
    found = credentials.of("old.example")
    assert found is not None
    assert (found.user, found.secret) == ("a", "b:c")
    assert "b:c" not in repr(found)
    assert credentials.of("other.example") is None
    for text, message in (
        ('{"auths": {"a.example": {"auth": "hunter2!"}}}', "is damaged"),
        ("hunter2", "cannot be read"),
    ):
        (nobody / "config.json").write_text(text)
        with pytest.raises(UsageError, match=message) as caught:
            credentials.of("a.example")
        assert "hunter2" not in str(caught.value)


def test_nothing_of_a_credential_is_in_the_image(tiny: Path, tmp_path: Path, nobody: Path) -> None:
    image = cut(Layout(tiny))
    with registries.registry(tmp_path / "registry", auth=registries.htpasswd(tmp_path / "users")) as running:
        log_in(nobody, running.host)
        with Client(running.host, QUICK) as client:
            pushed(image, client, "secret/out")
        assert PASSWORD.encode() not in image.layer + image.config.data + image.manifest.data
        assert not [
            path for path in running.storage.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()
        ]


def test_a_registry_whose_storage_is_full(tiny: Path, tmp_path: Path) -> None:
    """The long layer does not fit: it is said, nothing is half pushed, and with room the same push completes."""
    image = cut(Layout(tiny))
    with registries.registry(tmp_path / "registry", most=1_000_000) as running:
        with Client(running.host, QUICK) as client, pytest.raises(Unreachable, match="the registry did not do it"):
            pushed(image, client, "full/out")
        with Client(running.host, QUICK) as client:
            assert Repository(client, "full/out").manifest(image.digest) is None
    with registries.registry(tmp_path / "registry") as running, Client(running.host, QUICK) as client:
        done = pushed(image, client, "full/out")
        assert (done.there, done.copied) == (5, 1)


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from test_image_registry import QUICK, Client, Layout, cut, pushed
from patchline.image.registry.repository import Repository
left = int(sys.argv[4])
real = Repository.path
def counted(self, rest):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, rest)
Repository.path = counted
with Client(sys.argv[2], QUICK) as client:
    print(pushed(cut(Layout(Path(sys.argv[1]))), client, "killed/out").digest)
"""


def test_a_push_that_is_killed_anywhere_completes(shared: Registry, tiny: Path) -> None:
    """Killed before its first, third, fifth … request; each run goes on, and the last one ends."""
    image, killed = cut(Layout(tiny)), 0
    for requests in range(1, 30, 3):
        words = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            KILLED,
            str(tiny),
            shared.host,
            str(Path(__file__).parent),
            str(requests),
        ]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode == 0:
            assert done.stdout.strip() == image.digest
            break
        assert done.returncode == -9, done.stderr
        killed += 1
        with Client(shared.host, QUICK) as client:
            found = Repository(client, "killed/out").manifest(image.digest)
        assert found is None
    assert killed >= 2
    assert done.returncode == 0
    with Client(shared.host, QUICK) as client:
        assert Repository(client, "killed/out").manifest(image.digest) is not None
