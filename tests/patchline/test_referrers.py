"""What is attached to an image: in a real registry without the API, and with a FAKE API before it."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Barrier, Thread

import pytest
import releases
from image_bases import sha
from registries import Registry, skopeo
from registry_proxy import Handler, proxy
from releases import QUICK

from patchline.errors import SourceMismatch, Unreachable
from patchline.image import model, tags
from patchline.image.append import Image
from patchline.image.model import Descriptor
from patchline.image.registry import referrers
from patchline.image.registry.client import Client
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.push import push
from patchline.image.registry.referrers import Artifact
from patchline.image.registry.repository import Repository

ONE = Artifact("application/vnd.one+json", b'{"one": 1}', {"a": "b"})
TWO = Artifact("application/vnd.two+json", b'{"two": 2}')


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return releases.built(releases.project(tmp_path / "p"), releases.layout(tmp_path / "base")).image


def subject(image: Image) -> Descriptor:
    return Descriptor(model.MANIFEST, image.digest, len(image.manifest.data))


def kinds(repository: Repository, image: Image) -> list[str]:
    return [one.artifact_type for one in referrers.listed(repository, image.digest)]


@pytest.mark.parametrize("api", [False, True])
def test_attached_once_and_read_back(shared: Registry, image: Image, api: bool) -> None:
    with proxy(shared.host, api=api) as before, Client(before.host, QUICK) as client:
        target = Repository(client, f"once/api-{api}".lower(), push=True)
        push(image, target)
        assert referrers.listed(target, image.digest) == []
        digests = referrers.attach(target, subject(image), [ONE, TWO])
        asked = len([one for one in before.asked if one.startswith("PUT")])
        assert referrers.attach(target, subject(image), [TWO, ONE]) == digests[::-1]
        assert len([one for one in before.asked if one.startswith("PUT")]) == asked
        first, second = referrers.listed(target, image.digest)
        assert [first.digest, second.digest] == digests
        assert (first.artifact_type, first.annotations, second.annotations) == (ONE.kind, {"a": "b"}, {})
        assert referrers.read(target, first) == ONE
        assert referrers.read(target, second) == TWO
        assert (referrers.tag_of(image.digest) in all_tags(target)) is not api


def test_the_manifest_is_that_of_the_specification(shared: Registry, image: Image, tmp_path: Path) -> None:
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "spec/out", push=True)
        push(image, target)
        (digest,) = referrers.attach(target, subject(image), [ONE])
    place = f"docker://{shared.host}/spec/out"
    found = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"{place}@{digest}", cwd=tmp_path))
    assert found == {
        "schemaVersion": 2,
        "mediaType": model.MANIFEST,
        "artifactType": ONE.kind,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": sha(b"{}"), "size": 2},
        "layers": [{"mediaType": ONE.kind, "digest": sha(ONE.data), "size": len(ONE.data)}],
        "subject": {"mediaType": model.MANIFEST, "digest": image.digest, "size": len(image.manifest.data)},
        "annotations": {"a": "b"},
    }
    tag = image.digest.replace(":", "-")
    index = json.loads(skopeo("inspect", "--raw", "--tls-verify=false", f"{place}:{tag}", cwd=tmp_path))
    assert index["mediaType"] == model.INDEX
    assert [(one["digest"], one["artifactType"]) for one in index["manifests"]] == [(digest, ONE.kind)]


def test_tags_of_releases_do_not_see_the_index(shared: Registry, image: Image) -> None:
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "tags/out", push=True)
        push(image, target)
        referrers.attach(target, subject(image), [ONE])
        target.tag(image.manifest, "v1.6.0-nightly-20261016-tiny.1")
        listed = all_tags(target)
        assert len(listed) == 2
        assert [str(tag) for tag in tags.ours(listed)] == ["v1.6.0-nightly-20261016-tiny.1"]
        assert tags.next_free(tags.first("1.6.0", "tiny", "20261016"), listed).number == 2


def test_what_others_attached_is_kept(shared: Registry, image: Image) -> None:
    """With fields that nobody here knows."""
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "others/out", push=True)
        push(image, target)
        theirs = {"mediaType": model.MANIFEST, "digest": image.digest, "size": len(image.manifest.data), "odd": [1]}
        index = {"schemaVersion": 2, "mediaType": model.INDEX, "manifests": [theirs], "more": {"x": 1}}
        target.put(model.made(index), referrers.tag_of(image.digest))
        referrers.attach(target, subject(image), [ONE])
        found = target.manifest(referrers.tag_of(image.digest))
        assert found is not None
        assert found.document.fields["manifests"][0] == theirs
        assert found.document.fields["more"] == {"x": 1}
        assert kinds(target, image) == ["", ONE.kind]


def test_writers_at_one_moment_lose_nothing(shared: Registry, image: Image) -> None:
    """All read the same index, and only then the first one writes."""
    many = [Artifact(f"application/vnd.n{number}+json", b"%d" % number) for number in range(4)]
    together, met = Barrier(len(many), timeout=200), list[int]()

    def meet(handler: Handler) -> bool:
        """Everybody's first write of the index waits for everybody's."""
        if handler.command == "PUT" and "manifests/sha256-" in handler.path and len(met) < len(many):
            met.append(1)
            together.wait()
        return False

    faults: list[Exception] = []

    def write(one: Artifact) -> None:
        try:
            with Client(before.host, QUICK) as client:
                referrers.attach(Repository(client, "race/out", push=True), subject(image), [one])
        except Exception as fault:  # noqa: BLE001 - told below
            faults.append(fault)

    with proxy(shared.host) as before, Client(shared.host, QUICK) as client:
        target = Repository(client, "race/out", push=True)
        push(image, target)
        before.before = meet
        threads = [Thread(target=write, args=(one,)) for one in many]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        assert sorted(kinds(target, image)) == sorted(one.kind for one in many)


def test_somebody_who_always_writes_over_it(shared: Registry, image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(referrers, "SETTLE", 0.0)
    empty = model.made({"schemaVersion": 2, "mediaType": model.INDEX, "manifests": []})
    with proxy(shared.host) as before, Client(before.host, QUICK) as client, Client(shared.host, QUICK) as other:
        target = Repository(client, "over/out", push=True)
        push(image, target)

        def over(handler: Handler) -> bool:
            if handler.command == "PUT" and "manifests/sha256-" in handler.path:
                Repository(other, "over/out", push=True).put(empty, referrers.tag_of(image.digest))
            return False

        before.after = over
        with pytest.raises(Unreachable, match="others kept writing over the list"):
            referrers.attach(target, subject(image), [ONE])
        before.after = lambda _: False
        referrers.attach(target, subject(image), [ONE])
        assert kinds(target, image) == [ONE.kind]


BAD = {
    "no index": (b'{"schemaVersion": 2, "mediaType": "%s"}' % model.INDEX.encode(), "it has no manifests"),
    "not JSON": (b"<html>", "this is not what it should be"),
    "entries without a digest": (b'{"manifests": [{"mediaType": "a"}]}', "this is no list of referrers"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_api_that_answers_nonsense(name: str, shared: Registry, image: Image) -> None:
    data, message = BAD[name]
    with proxy(shared.host) as before, Client(before.host, QUICK) as client:
        before.before = lambda handler: "/referrers/" in handler.path and handler.say(200, data)
        with pytest.raises(SourceMismatch, match=message):
            referrers.listed(Repository(client, "bad/out"), image.digest)


def test_the_api_page_by_page(shared: Registry, image: Image) -> None:
    pages = [
        b'{"manifests": [{"mediaType": "m", "digest": "sha256:1", "size": 1}]}',
        b'{"manifests": [{"mediaType": "m", "digest": "sha256:2", "size": 1}]}',
    ]

    def page(handler: Handler) -> bool:
        last = "last=1" in handler.path
        more = {} if last else {"Link": f'<{handler.path}?last=1>; rel="next"'}
        return handler.say(200, pages[last], more)

    with proxy(shared.host) as before, Client(before.host, QUICK) as client:
        before.before = page
        found = referrers.listed(Repository(client, "pages/out"), image.digest)
    assert [one.digest for one in found] == ["sha256:1", "sha256:2"]


def test_the_tag_means_an_image(shared: Registry, image: Image) -> None:
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "taken/out", push=True)
        push(image, target)
        target.put(image.manifest, referrers.tag_of(image.digest))
        with pytest.raises(SourceMismatch, match="should mean an index"):
            referrers.attach(target, subject(image), [ONE])


def test_other_bytes_are_refused(shared: Registry, image: Image) -> None:
    with proxy(shared.host) as before, Client(before.host, QUICK) as client:
        target = Repository(client, "bytes/out", push=True)
        push(image, target)
        referrers.attach(target, subject(image), [ONE])
        (found,) = referrers.listed(target, image.digest)
        before.before = lambda handler: "/blobs/" in handler.path and handler.say(200, b'{"one": 2}')
        with pytest.raises(SourceMismatch, match="wrong bytes"):
            referrers.read(target, found)
