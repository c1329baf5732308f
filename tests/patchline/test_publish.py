"""A nightly, published to a real registry: in order, whole, once, and under a tag that never means anything else."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import registries
import releases
from image_bases import sha
from registries import Registry, skopeo
from registry_proxy import Handler, Proxy, proxy
from releases import DAY, QUICK

from patchline.errors import Exit, PatchlineError, Refused, SourceMismatch, Unreachable, UsageError
from patchline.image import model, tags
from patchline.image.registry import referrers
from patchline.image.registry.client import Client
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.push import push
from patchline.image.registry.repository import Repository
from patchline.image.registry.transport import Transport
from patchline.lines.build import Built
from patchline.project import Project
from patchline.release import claims, plan, record, records
from patchline.release.publish import publish
from patchline.release.released import Released

FIRST, SECOND = (f"v1.6.0-nightly-{DAY}-tiny.{number}" for number in (1, 2))
STEP = int(os.environ.get("PATCHLINE_KILL_STEP", "11"))
"""Every so many moments a run is killed."""
OTHER = b"def answer():\n    return 43\n"


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return releases.project(tmp_path / "p")


@pytest.fixture
def built(project: Project, tmp_path: Path) -> Built:
    return releases.built(project, releases.layout(tmp_path / "base"))


@pytest.fixture
def changed(project: Project, tmp_path: Path) -> Built:
    """Another image of the same line."""
    return releases.built(project, releases.layout(tmp_path / "base"), OTHER)


def published(built: Built, host: str, name: str, **more: object) -> Released:
    with Client(host, QUICK) as client:
        return publish(built, Repository(client, name, push=True), **{"date": DAY, **more})  # type: ignore[arg-type]


def tags_of(host: str, name: str) -> dict[str, str | None]:
    """What the tags of releases mean."""
    with Client(host, QUICK) as client:
        repository = Repository(client, name)
        return {str(tag): repository.digest_of(str(tag)) for tag in tags.ours(all_tags(repository))}


def assert_whole(host: str, name: str, built: Built) -> None:
    """Everything that belongs to a published image is there, once, and nothing that served the way."""
    with Client(host, QUICK) as client:
        repository = Repository(client, name)
        found = repository.manifest(built.image.digest)
        assert found is not None
        assert found.document.data == built.image.manifest.data
        config, layers = model.manifest(found.document, "")
        assert all(repository.has(one) for one in (config, *layers))
        attached = referrers.listed(repository, built.image.digest)
        assert [one.artifact_type for one in attached] == [
            "application/vnd.cyclonedx+json",
            "application/vnd.in-toto+json",
        ]
        for one in attached:
            assert json.loads(referrers.read(repository, one).data)


def test_a_nightly(shared: Registry, built: Built, project: Project, tmp_path: Path) -> None:
    done = published(built, shared.host, "a/out")
    assert (done.tag, done.digest, done.already) == (FIRST, built.image.digest, False)
    assert [(step.what, step.done) for step in done.plan] == [
        ("push", False),
        ("attach", False),
        ("attach", False),
        ("record", False),
        ("tag", False),
    ]
    place = f"docker://{shared.host}/a/out:{FIRST}"
    said = json.loads(skopeo("inspect", "--no-tags", "--tls-verify=false", place, cwd=tmp_path))
    assert said["Digest"] == built.image.digest
    assert said["Labels"]["patchline.overlay"] == built.overlays[0].digest
    skopeo("copy", "--src-tls-verify=false", place, "oci:back:it", cwd=tmp_path)
    assert_whole(shared.host, "a/out", built)
    with Client(shared.host, QUICK) as client:
        index = referrers.tag_of(built.image.digest)
        assert sorted(all_tags(Repository(client, "a/out"))) == sorted([index, FIRST])  # no claim is left
    assert [path.name for path in (project.root / "changelog/releases").iterdir()] == [f"{FIRST}.json"]
    assert list((project.root / "build/releases").iterdir()) == []


def test_the_record(shared: Registry, built: Built, project: Project) -> None:
    done = published(built, shared.host, "record/out")
    found = records.of(project).get(FIRST)
    assert found is not None
    assert done.record == project.root / f"changelog/releases/{FIRST}.json"
    assert (found.image, found.repositories) == (built.image.digest, (f"{shared.host}/record/out",))
    assert found.base.lock == built.lock.contents.seal
    assert found.pins["vllm==0.31.0"] == {"vllm-0.31.0.tar.gz": releases.SDIST}
    assert found.pins["ai-dynamo-runtime==1.6.0"] == releases.WHEELS
    assert found.series[0].patches[0].file == sha(releases.PATCH)
    assert found.series[0].overlay == built.overlays[0].digest
    with Client(shared.host, QUICK) as client:
        attached = referrers.listed(Repository(client, "record/out"), built.image.digest)
    assert found.referrers == {one.artifact_type: one.digest for one in attached}
    text = done.record.read_text()
    assert str(project.root) not in text


@pytest.mark.parametrize("what", ["image", "seal", "schema", "cut short", "another tag"])
def test_an_edited_record_is_refused(shared: Registry, built: Built, what: str) -> None:
    done = published(built, shared.host, f"edited/{what.replace(' ', '-')}")
    text = done.record.read_text()
    if what == "cut short":
        text = text[:-20]
    elif what == "another tag":
        done.record.rename(done.record.with_name(f"{SECOND}.json"))
    else:
        fields = json.loads(text)
        text = json.dumps({**fields, what: 2 if what == "schema" else f"sha256:{'0' * 64}"})
    if what != "another tag":
        done.record.write_text(text)
    with pytest.raises(SourceMismatch) as caught:
        published(built, shared.host, f"edited/{what.replace(' ', '-')}")
    assert caught.value.exit == Exit.SOURCE_MISMATCH


def test_a_record_that_is_laid_out_otherwise_is_the_same(shared: Registry, built: Built) -> None:
    done = published(built, shared.host, "laid/out")
    done.record.write_text(json.dumps(json.loads(done.record.read_text())))
    assert published(built, shared.host, "laid/out").already


def test_published_twice_is_published_once(shared: Registry, built: Built) -> None:
    published(built, shared.host, "twice/out")
    with proxy(shared.host) as before:
        again = published(built, before.host, "twice/out")
        assert {one.split()[0] for one in before.asked} <= {"GET", "HEAD"}
    assert again.already
    assert again.tag == FIRST
    assert plan.is_done(again.plan)
    assert tags_of(shared.host, "twice/out") == {FIRST: built.image.digest}


def test_another_one_of_the_same_image(shared: Registry, built: Built) -> None:
    published(built, shared.host, "another/out")
    again = published(built, shared.host, "another/out", another=True)
    assert (again.tag, again.already) == (SECOND, False)
    assert tags_of(shared.host, "another/out") == dict.fromkeys((FIRST, SECOND), built.image.digest)
    assert_whole(shared.host, "another/out", built)
    assert published(built, shared.host, "another/out").tag == SECOND


def test_the_number_is_that_of_the_day(shared: Registry, built: Built, changed: Built) -> None:
    assert published(built, shared.host, "day/out").tag == FIRST
    assert published(changed, shared.host, "day/out").tag == SECOND
    assert published(changed, shared.host, "day/out", date="20261017").tag == "v1.6.0-nightly-20261017-tiny.1"
    assert published(built, shared.host, "day/out").tag == FIRST


def test_a_number_that_only_the_records_know(shared: Registry, built: Built, changed: Built) -> None:
    """The registry forgot it, or it is another registry's."""
    published(built, shared.host, "known/one")
    assert published(changed, shared.host, "known/two").tag == SECOND


def test_a_number_that_only_the_registry_knows(
    shared: Registry, built: Built, changed: Built, project: Project
) -> None:
    done = published(built, shared.host, "unknown/out")
    done.record.unlink()
    assert published(changed, shared.host, "unknown/out").tag == SECOND
    assert published(built, shared.host, "unknown/out").tag == FIRST  # the record is written again
    found = records.of(project).get(FIRST)
    assert found is not None
    assert found.image == built.image.digest


def test_the_same_image_in_another_repository_has_the_same_tag(shared: Registry, built: Built) -> None:
    published(built, shared.host, "same/one")
    again = published(built, shared.host, "same/two")
    assert (again.tag, again.already) == (FIRST, False)
    assert_whole(shared.host, "same/two", built)


def test_a_dry_run_changes_nothing(shared: Registry, built: Built, project: Project) -> None:
    with proxy(shared.host) as before:
        done = published(built, before.host, "dry/out", dry_run=True)
        assert {one.split()[0] for one in before.asked} <= {"GET", "HEAD"}
    assert (done.tag, done.dry_run, done.already) == (FIRST, True, False)
    assert not (project.root / "changelog").exists()
    assert not (project.root / "build").exists()
    assert plan.text(done.plan).splitlines()[-1] == f"to do  tag          {FIRST}"
    assert plan.data(done.plan)[0] == {"what": "push", "of": f"{before.host}/dry/out@{done.digest}", "done": False}


def test_a_nightly_has_a_date(shared: Registry, built: Built) -> None:
    for date in ("", "20261332", "today"):
        with pytest.raises(UsageError, match="date"):
            published(built, shared.host, "date/out", date=date)


def test_a_tag_that_was_moved(shared: Registry, built: Built, changed: Built) -> None:
    published(built, shared.host, "moved/out")
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "moved/out", push=True)
        push(changed.image, target)
        target.put(changed.image.manifest, FIRST)
    with pytest.raises(SourceMismatch, match=f"the tag {FIRST} was moved") as caught:
        published(built, shared.host, "moved/out")
    assert built.image.digest in str(caught.value)
    assert changed.image.digest in str(caught.value)


def test_a_tag_that_was_removed_is_set_again(shared: Registry, built: Built) -> None:
    published(built, shared.host, "removed/out")
    with Client(shared.host, QUICK) as client:
        Repository(client, "removed/out", push=True).remove(built.image.digest)
    assert tags_of(shared.host, "removed/out") == {}
    assert published(built, shared.host, "removed/out").tag == FIRST
    assert tags_of(shared.host, "removed/out") == {FIRST: built.image.digest}


def spoiled(what: str, how: Callable[[Handler], bool]) -> Callable[[Handler], bool]:
    """Meets every request whose `METHOD path` has these words in it."""
    method, part = what.split()
    return lambda handler: handler.command == method and part in handler.path and how(handler)


WRONG: dict[str, tuple[str, Callable[[Handler], bool], str]] = {
    "another manifest": (
        "GET /manifests/sha256:",
        lambda handler: handler.say(200, b"{}", {"Content-Type": model.MANIFEST}),
        "the registry sent wrong bytes",
    ),
    "another layer": ("GET /blobs/", lambda handler: handler.say(200, b"x"), "wrong (size|bytes)"),
    "layers that are lost": ("HEAD /blobs/", lambda handler: handler.say(404), "lacks layers of the base"),
    "an index that stays empty": (
        "GET /manifests/sha256-",
        lambda handler: handler.say(404),
        "others kept writing|does not list",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_registry_that_holds_something_else(
    name: str, shared: Registry, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(referrers, "SETTLE", 0.0)
    what, how, message = WRONG[name]
    target = f"wrong/{name.replace(' ', '-')}"
    with Client(shared.host, QUICK) as client:
        push(built.image, Repository(client, target, push=True))
    with proxy(shared.host) as before, pytest.raises(PatchlineError, match=message):
        before.before = spoiled(what, how)
        published(built, before.host, target)
    assert tags_of(shared.host, target) == {}
    assert published(built, shared.host, target).tag == FIRST
    assert_whole(shared.host, target, built)


@pytest.mark.parametrize("status", [503, 507])
@pytest.mark.parametrize("what", ["PUT /manifests/sha256:", "PUT /manifests/sha256-", "POST /blobs/", f"PUT {FIRST}"])
def test_a_registry_that_does_not_do_it(what: str, status: int, shared: Registry, built: Built) -> None:
    target = f"fails/{releases.sha256(what)[:8]}-{status}"
    with proxy(shared.host) as before:
        before.before = spoiled(what, lambda handler: handler.say(status))
        with pytest.raises(Unreachable):
            published(built, before.host, target)
    assert tags_of(shared.host, target) == {}
    assert published(built, shared.host, target).tag == FIRST
    assert_whole(shared.host, target, built)


def test_the_registry_dies_at_any_request(tmp_path: Path, shared: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one request on nothing is answered: before it was done, or after it."""
    monkeypatch.setattr(referrers, "SETTLE", 0.0)
    base, ended = releases.layout(tmp_path / "base"), []
    for late in (False, True):
        for number in range(2, 80, 5):
            name = f"dies/{late}-{number}".lower()
            built = releases.built(releases.project(tmp_path / name), base)
            with proxy(shared.host) as before:
                _die(before, number, late=late)
                try:
                    published(built, before.host, name)
                except Unreachable:
                    pass
                else:
                    ended.append(number)
                    break
            assert set(tags_of(shared.host, name)) <= {FIRST}
            if tags_of(shared.host, name):
                assert_whole(shared.host, name, built)
            assert published(built, shared.host, name).tag == FIRST
            assert tags_of(shared.host, name) == {FIRST: built.image.digest}
            assert_whole(shared.host, name, built)
    assert len(ended) == 2
    assert min(ended) > 20


def _die(before: Proxy, number: int, *, late: bool) -> None:
    def dead(handler: Handler) -> bool:
        return len(before.asked) >= number and handler.hang_up()

    if late:
        before.before = lambda handler: len(before.asked) > number and handler.hang_up()
        before.after = dead
    else:
        before.before = dead


def test_full_storage(built: Built, tmp_path: Path) -> None:
    """The registry's own storage: it has no room for a blob of that size."""
    with registries.registry(tmp_path / "registry", most=3000) as running:
        with pytest.raises(Unreachable):
            published(built, running.host, "full/out")
        assert tags_of(running.host, "full/out") == {}
    with registries.registry(tmp_path / "registry") as running:
        assert published(built, running.host, "full/out").tag == FIRST
        assert_whole(running.host, "full/out", built)


WRITES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.chmod"}


def killed(moment: int, act: Callable[[], object]) -> bool:
    """Does it in a process of its own, which dies, as by kill -9, before a request, after one, or before a write."""
    pid = os.fork()
    if pid:
        status = os.waitpid(pid, 0)[1]
        assert status in (0, signal.SIGKILL), status
        return status != 0
    left = moment

    def event() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def hook(what: str, arguments: tuple[Any, ...]) -> None:
        flags = arguments[2] if what == "open" else None
        if what in WRITES or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            event()

    real = Transport.send

    def send(*arguments: Any) -> Any:
        event()
        answer = real(*arguments)
        event()
        return answer

    Transport.send = send  # type: ignore[method-assign, assignment]
    sys.addaudithook(hook)
    try:
        act()
        os._exit(0)
    except BaseException:  # noqa: BLE001 - the child must not go on with the tests
        traceback.print_exc()
        os._exit(1)


def test_killed_at_any_moment(shared: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next run completes, with the same tag, and no tag ever stood on something incomplete."""
    monkeypatch.setattr(referrers, "SETTLE", 0.0)
    base, seen = releases.layout(tmp_path / "base"), list[bool]()
    for moment in range(1, 400, STEP):
        root, name = tmp_path / f"p{moment}", f"killed/n{moment}"
        built = releases.built(releases.project(root), base)
        dead = killed(moment, lambda built=built, name=name: published(built, shared.host, name))  # type: ignore[misc]
        there = tags_of(shared.host, name)
        assert set(there) <= {FIRST}
        seen.append(bool(there))
        made = [*(root / "changelog/releases").glob("v*"), *(root / "build/releases").glob("v*")]
        if there:
            assert_whole(shared.host, name, built)
            assert [record.read(path).image for path in made][:1] == [built.image.digest]
        assert there or not (root / f"changelog/releases/{FIRST}.json").exists()
        if not dead:
            break
        assert published(built, shared.host, name).tag == FIRST
        assert tags_of(shared.host, name) == {FIRST: built.image.digest}
        assert_whole(shared.host, name, built)
        kept = [path.name for path in (root / "changelog/releases").glob("*.json")]
        assert (kept, list((root / "build/releases").glob("*.json"))) == ([f"{FIRST}.json"], [])
        with Client(shared.host, QUICK) as client:
            assert claims.claims(all_tags(Repository(client, name))) == []
    assert not dead
    assert seen.count(False) > 60 // STEP
    assert seen.count(True) >= 2


@pytest.mark.parametrize("meet", ["list", "claim", "tag"])
@pytest.mark.parametrize("removes", [True, False])
def test_two_at_one_moment(meet: str, removes: bool, shared: Registry, tmp_path: Path) -> None:
    """Different images of one line, from two checkouts, that wait for each other at a moment: each gets a number."""
    base, name = releases.layout(tmp_path / "base"), f"race/{meet}-{removes}".lower()
    both = [releases.built(releases.project(tmp_path / str(n)), base, b"n = %d\n" % n) for n in range(3)]
    together, met, done, faults = Barrier(len(both), timeout=200), list[int](), dict[str, str](), list[Exception]()
    slow: list[int] = []
    moments: dict[str, Callable[[Handler], bool]] = {
        "list": lambda one: "tags/list" in one.path,
        "claim": lambda one: one.command == "PUT" and ".claim-" in one.path,
        "tag": lambda one: one.command == "HEAD" and one.path.endswith(FIRST),
    }
    moment = moments[meet]

    def wait(handler: Handler) -> bool:
        if handler.command == "DELETE" and not removes:
            return handler.say(405)
        if moment(handler) and len(met) < len(both):
            met.append(1)
            together.wait()
        if handler.command == "PUT" and handler.path.endswith(FIRST):
            slow.append(1)
            time.sleep(0.4 * len(slow))  # who comes second does so after the first one has read his tag again
        return False

    def run(one: Built) -> None:
        try:
            done[one.image.digest] = published(one, before.host, name).tag
        except Exception as fault:  # noqa: BLE001 - told below
            faults.append(fault)

    with proxy(shared.host) as before:
        before.before = wait
        threads = [Thread(target=run, args=(one,)) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert faults == []
    set_ = [one for one in before.asked if re.fullmatch(r"PUT .*-tiny\.[0-9]+", one)]
    assert len(set_) == len(set(set_))  # no tag was set twice
    assert tags_of(shared.host, name) == {tag: digest for digest, tag in done.items()}
    assert len(set(done.values())) == 3
    for one in both:
        (path,) = (one.carried[0].project.root / "changelog/releases").iterdir()
        assert (record.read(path).tag, record.read(path).image) == (done[one.image.digest], one.image.digest)
    assert sorted(done.values()) == [f"v1.6.0-nightly-{DAY}-tiny.{number}" for number in (1, 2, 3)]


def test_two_runs_of_one_image_in_one_checkout(shared: Registry, built: Built) -> None:
    done, faults = list[str](), list[Exception]()

    def run() -> None:
        try:
            done.append(published(built, shared.host, "one/out").tag)
        except Exception as fault:  # noqa: BLE001 - told below
            faults.append(fault)

    threads = [Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert set(done) == {FIRST}
    assert tags_of(shared.host, "one/out") == {FIRST: built.image.digest}
    assert_whole(shared.host, "one/out", built)


def test_somebody_elses_tool_takes_the_tag(shared: Registry, built: Built, changed: Built) -> None:
    """It claims nothing, and comes between our last look and our tag: the next number is taken."""
    with proxy(shared.host) as before, Client(shared.host, QUICK) as client:
        other = Repository(client, "tool/out", push=True)
        push(changed.image, other)

        def over(handler: Handler) -> bool:
            if handler.command == "PUT" and handler.path.endswith(FIRST):
                other.put(changed.image.manifest, FIRST)
            return False

        before.after = over
        done = published(built, before.host, "tool/out")
    assert done.tag == SECOND
    assert tags_of(shared.host, "tool/out") == {FIRST: changed.image.digest, SECOND: built.image.digest}
    assert [path.name for path in done.record.parent.iterdir()] == [f"{SECOND}.json"]


def test_a_claim_of_one_who_died_is_passed_by(
    shared: Registry, built: Built, changed: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "WAIT", 0.3)
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "dead/out", push=True)
        with pytest.raises(Unreachable), claims.claimed(target, FIRST, changed.image.digest):
            raise Unreachable("as if it died")
    assert published(built, shared.host, "dead/out").tag == SECOND
    assert published(changed, shared.host, "dead/out").tag == SECOND.replace(".2", ".3")  # numbers go up


def test_ones_own_claim_is_no_hindrance(shared: Registry, built: Built) -> None:
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "own/out", push=True)
        with pytest.raises(Unreachable), claims.claimed(target, FIRST, built.image.digest):
            raise Unreachable("as if it died")
        assert published(built, shared.host, "own/out").tag == FIRST
        assert claims.claims(all_tags(target)) == []


def test_a_tag_that_is_too_long_to_be_claimed(shared: Registry, built: Built) -> None:
    with Client(shared.host, QUICK) as client:
        long = claims.claimed(Repository(client, "long/out", push=True), "v1-" + "a" * 110, built.image.digest)
        with pytest.raises(UsageError, match="too long to be claimed"), long:
            pass


def test_everybody_is_always_faster(shared: Registry, built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "alone", lambda *_: False)
    with pytest.raises(Refused, match="others took every tag like"):
        published(built, shared.host, "faster/out")
    assert tags_of(shared.host, "faster/out") == {}
    monkeypatch.undo()
    assert published(built, shared.host, "faster/out").tag == FIRST
