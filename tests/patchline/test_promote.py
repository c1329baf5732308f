"""A nightly becomes a release only where everything holds, as the same digest, and once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import promoting
import pytest
import registries
import releases
from image_bases import sha
from registries import Registry, skopeo
from registry_proxy import Handler, proxy
from releases import DAY, QUICK

from patchline.changelog import news
from patchline.cli import main
from patchline.errors import Exit, Refused, SourceMismatch, Unreachable, UsageError
from patchline.image import tags
from patchline.image.layout import Layout
from patchline.image.registry import referrers
from patchline.image.registry.client import Client
from patchline.image.registry.listing import tags as all_tags
from patchline.image.registry.push import push
from patchline.image.registry.repository import Repository
from patchline.lines.build import Built
from patchline.lines.line import Line
from patchline.project import Project
from patchline.proofs import evidence, grafts
from patchline.proofs.env import Environment
from patchline.release import records
from patchline.release.promote import promote
from patchline.release.publish import publish
from patchline.release.released import Released
from patchline.seal import sealed

NIGHTLY = f"v1.6.0-nightly-{DAY}-tiny.1"
RELEASE = "v1.6.0-tiny.1"


@pytest.fixture(scope="module")
def small_vllm(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return promoting.environment(tmp_path_factory.mktemp("env"))


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory, small_vllm: Environment) -> Path:
    """A project with its proofs; each test has a copy."""
    home = tmp_path_factory.mktemp("proven")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATCHLINE_CACHE", str(home / "cache"))
        promoting.stand_in(patched, small_vllm)
        return promoting.project(home / "p").root


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_vllm: Environment, proven: Path) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "docker"))
    monkeypatch.setenv("PATCHLINE_CACHE", str(proven.parent / "cache"))
    promoting.stand_in(monkeypatch, small_vllm)
    monkeypatch.setattr(referrers, "SETTLE", 0.0)


@pytest.fixture
def project(proven: Path, tmp_path: Path) -> Project:
    return Project(shutil.copytree(proven, tmp_path / "p", symlinks=True))


@pytest.fixture
def built(project: Project, tmp_path: Path) -> Built:
    """An image for which everything holds."""
    made = promoting.built(project, releases.layout(tmp_path / "base"))
    promoting.passed(made)
    promoting.smoked(made)
    return made


def nightly(built: Built, host: str, name: str) -> str:
    with Client(host, QUICK) as client:
        return publish(built, Repository(client, name, push=True), date=DAY).tag


def promoted(built: Built, host: str, name: str, nightly: str = NIGHTLY, to: str = "", **more: bool) -> Released:
    project = built.carried[0].project
    with Client(host, QUICK) as client:
        source = Repository(client, name, push=True)
        target = Repository(client, to, push=True, beside=[name]) if to else None
        return promote(project, promoting.tiny(project), nightly, source, target, **more)


def tags_of(host: str, name: str) -> dict[str, str | None]:
    with Client(host, QUICK) as client:
        repository = Repository(client, name)
        return {str(tag): repository.digest_of(str(tag)) for tag in tags.ours(all_tags(repository))}


def test_a_release(shared: Registry, built: Built, project: Project, tmp_path: Path) -> None:
    assert nightly(built, shared.host, "a/out") == NIGHTLY
    with proxy(shared.host) as before:
        done = promoted(built, before.host, "a/out")
        sent = [one for one in before.asked if one.startswith(("PUT", "POST"))]
    assert (done.tag, done.digest, done.already) == (RELEASE, built.image.digest, False)
    assert sent == [sent[0], f"PUT /v2/a/out/manifests/{RELEASE}"]  # the claim, and the tag: nothing is built or sent
    assert tags_of(shared.host, "a/out") == dict.fromkeys((NIGHTLY, RELEASE), built.image.digest)
    place = f"docker://{shared.host}/a/out:{RELEASE}"
    said = json.loads(skopeo("inspect", "--no-tags", "--tls-verify=false", place, cwd=tmp_path))
    assert said["Digest"] == built.image.digest
    found = records.of(project).get(RELEASE)
    assert found is not None
    assert (found.nightly, found.image) == (NIGHTLY, built.image.digest)
    assert sorted(found.evidence) == [
        "builds/evidence/tiny/smoke.json",
        *(f"builds/evidence/vllm-0.31.0/{kind}.json" for kind in ("gate-cpu", "hunks", "prove")),
    ]
    assert all(sha((project.root / path).read_bytes()) == digest for path, digest in found.evidence.items())


def test_the_plan(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "plan/out")
    with proxy(shared.host) as before:
        done = promoted(built, before.host, "plan/out", dry_run=True)
        assert {one.split()[0] for one in before.asked} <= {"GET", "HEAD"}
    assert [(step.what, step.done) for step in done.plan] == [
        ("image", True),
        ("overlay", True),
        ("prove", True),
        ("hunks", True),
        ("gate", True),
        ("smoke", True),
        ("record", False),
        ("tag", False),
    ]
    assert (done.tag, done.dry_run) == (RELEASE, True)
    assert records.of(project).names() == [NIGHTLY]
    assert tags_of(shared.host, "plan/out") == {NIGHTLY: built.image.digest}


def test_by_its_digest_and_twice(shared: Registry, built: Built) -> None:
    nightly(built, shared.host, "twice/out")
    assert promoted(built, shared.host, "twice/out", built.image.digest).tag == RELEASE
    with proxy(shared.host) as before:
        again = promoted(built, before.host, "twice/out")
        assert {one.split()[0] for one in before.asked} <= {"GET", "HEAD"}
    assert (again.tag, again.already) == (RELEASE, True)


def test_into_another_repository(shared: Registry, built: Built, tmp_path: Path) -> None:
    nightly(built, shared.host, "from/nightly")
    done = promoted(built, shared.host, "from/nightly", to="to/release")
    assert (done.tag, done.repository) == (RELEASE, f"{shared.host}/to/release")
    assert [(step.what, step.done) for step in done.plan][-3:] == [("copy", False), ("record", False), ("tag", False)]
    assert tags_of(shared.host, "from/nightly") == {NIGHTLY: built.image.digest}
    assert tags_of(shared.host, "to/release") == {RELEASE: built.image.digest}
    with Client(shared.host, QUICK) as client:
        both = [
            referrers.listed(Repository(client, name), built.image.digest) for name in ("from/nightly", "to/release")
        ]
        assert both[0] == both[1]
        assert len(both[1]) == 2
        assert json.loads(referrers.read(Repository(client, "to/release"), both[1][0]).data)
    place = f"docker://{shared.host}/to/release:{RELEASE}"
    skopeo("copy", "--src-tls-verify=false", place, "oci:back:it", cwd=tmp_path)
    assert promoted(built, shared.host, "from/nightly", to="to/release").already


def test_into_another_registry(shared: Registry, built: Built, tmp_path: Path) -> None:
    nightly(built, shared.host, "far/nightly")
    project = built.carried[0].project
    with registries.registry(tmp_path / "registry") as other:
        with Client(shared.host, QUICK) as near, Client(other.host, QUICK) as far:
            target = Repository(far, "far/release", push=True)
            done = promote(project, promoting.tiny(project), NIGHTLY, Repository(near, "far/nightly"), target)
            assert len(referrers.listed(target, built.image.digest)) == 2
        assert tags_of(other.host, "far/release") == {RELEASE: built.image.digest}
    assert done.repository == f"{other.host}/far/release"


def without(project: Project, name: str) -> None:
    (project.root / f"builds/evidence/{name}.json").unlink()


MISSING = {
    "vllm-0.31.0/prove": ("prove vllm==0.31.0: there is no evidence of it", "nox -s prove -- vllm==0.31.0 --record"),
    "vllm-0.31.0/hunks": ("hunks vllm==0.31.0: there is no evidence of it", "nox -s hunks -- vllm==0.31.0 --record"),
    "vllm-0.31.0/gate-cpu": ("gate cpu", "nox -s \"gate(fleet='cpu')\" -- --record"),
    "tiny/smoke": ("smoke sha256:", "nox -s smoke -- tiny --record"),
}


@pytest.mark.parametrize("name", MISSING)
@pytest.mark.parametrize("dry_run", [False, True])
def test_without_evidence_it_is_refused(name: str, dry_run: bool, shared: Registry, built: Built) -> None:
    place = f"without/{name.replace('/', '-')}-{dry_run}".lower()
    nightly(built, shared.host, place)
    without(built.carried[0].project, name)
    with pytest.raises(Refused) as caught:
        promoted(built, shared.host, place, dry_run=dry_run)
    assert caught.value.exit == Exit.REFUSED
    for text in ("1 of 6 needs do not hold", *MISSING[name]):
        assert text in str(caught.value)
    assert tags_of(shared.host, place) == {NIGHTLY: built.image.digest}


def test_everything_that_is_missing_is_named(
    shared: Registry, built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    nightly(built, shared.host, "all/out")
    for name in MISSING:
        without(built.carried[0].project, name)
    with pytest.raises(Refused, match="4 of 6 needs do not hold"):
        promoted(built, shared.host, "all/out")
    assert "to do  smoke" in capsys.readouterr().err  # the plan came first


def test_evidence_of_other_tests_is_none(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "other/tests")
    (project.root / "tests/patches/vllm/test_it.py").write_text(promoting.TEST + "\n")
    with pytest.raises(Refused, match=r"its evidence is of other inputs: tests/patches/vllm/test_it\.py"):
        promoted(built, shared.host, "other/tests")


def test_evidence_that_was_edited(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "edited/evidence")
    path = project.root / "builds/evidence/tiny/smoke.json"
    path.write_text(path.read_text().replace('"passed": true', '"passed": 1', 1))
    with pytest.raises(SourceMismatch, match="edited"):
        promoted(built, shared.host, "edited/evidence")


def test_proofs_are_judged_again(shared: Registry, built: Built, project: Project) -> None:
    """Sealed as it should be, of today's inputs: what it says of the tests does not prove the patch."""
    nightly(built, shared.host, "judged/out")
    path = project.root / "builds/evidence/vllm-0.31.0/prove.json"
    found = evidence.read(path)
    assert found is not None
    text = json.dumps(found.result).replace('"failed"', '"passed"')
    evidence.keep(sealed(msgspec.structs.replace(found, result=json.loads(text))), project)
    with pytest.raises(Refused, match=r"prove vllm==0\.31\.0: its evidence does not show it"):
        promoted(built, shared.host, "judged/out")


def test_proofs_without_compiled_code_release_nothing(
    shared: Registry, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    nightly(built, shared.host, "in/part")
    monkeypatch.setitem(grafts.BUILDS, "0.31.0", "0.30.0")
    with pytest.raises(Refused, match=r"prove vllm==0\.31\.0: it can only be proven without its compiled code: vllm=="):
        promoted(built, shared.host, "in/part")


def test_a_gate_of_another_overlay(shared: Registry, built: Built) -> None:
    nightly(built, shared.host, "gate/overlay")
    promoting.passed(built, overlay=sha(b"another"))
    with pytest.raises(Refused, match=f"it was passed with another overlay: {sha(b'another')}"):
        promoted(built, shared.host, "gate/overlay")


def test_a_gate_that_was_not_passed(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "gate/failed")
    kept = promoting.passed(built)
    result = json.loads(json.dumps(kept.result).replace('"passed": true', '"passed": false', 1))
    evidence.keep(sealed(msgspec.structs.replace(kept, result=result)), project)
    with pytest.raises(Refused, match="its record does not show that it was passed"):
        promoted(built, shared.host, "gate/failed")


def image_line(project: Project) -> Line:
    """The same line, whose gate has to have run in the image."""
    path = project.root / "builds/tiny/line.toml"
    path.write_text(path.read_text().replace('cpu = "overlay"', 'cpu = "image"'))
    return promoting.tiny(project)


def test_a_gate_in_the_image(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "gate/image")
    image_line(project)
    with pytest.raises(Refused, match="it ran in no image, and not in this one"):
        promoted(built, shared.host, "gate/image")
    promoting.passed(built, image=sha(b"another"))
    with pytest.raises(Refused, match=f"it ran in {sha(b'another')}, and not in this one"):
        promoted(built, shared.host, "gate/image")
    promoting.passed(built, image=built.image.digest)
    assert promoted(built, shared.host, "gate/image").tag == RELEASE


def test_a_smoke_test_of_another_image(shared: Registry, built: Built) -> None:
    nightly(built, shared.host, "smoke/image")
    promoting.smoked(built, image=sha(b"another"))
    with pytest.raises(Refused, match=f"it ran in another image: {sha(b'another')}"):
        promoted(built, shared.host, "smoke/image")


def test_a_smoke_test_that_left_something_out(shared: Registry, built: Built) -> None:
    nightly(built, shared.host, "smoke/part")
    promoting.smoked(built, checks=("recall, chat",))
    with pytest.raises(Refused, match="logs did not run"):
        promoted(built, shared.host, "smoke/part")


def test_todays_patches_are_others(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "today/out")
    patch = built.carried[0].folder / "0001-it.patch"
    patch.write_text(patch.read_text().replace("return 42", "return 43"))
    with pytest.raises(Refused, match=r"vllm==0\.31\.0: the image has sha256:") as caught:
        promoted(built, shared.host, "today/out")
    assert built.overlays[0].digest in str(caught.value)
    assert tags_of(shared.host, "today/out") == {NIGHTLY: built.image.digest}


def test_the_nightly_was_moved(shared: Registry, built: Built, tmp_path: Path) -> None:
    nightly(built, shared.host, "moved/out")
    other = releases.built(releases.project(tmp_path / "other"), releases.layout(tmp_path / "base"), b"x = 1\n")
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "moved/out", push=True)
        push(other.image, target)
        target.put(other.image.manifest, NIGHTLY)
    with pytest.raises(SourceMismatch, match=f"{NIGHTLY} is not what its record says") as caught:
        promoted(built, shared.host, "moved/out")
    assert built.image.digest in str(caught.value)
    assert other.image.digest in str(caught.value)


def test_a_nightly_that_is_gone(shared: Registry, built: Built) -> None:
    nightly(built, shared.host, "gone/out")
    with pytest.raises(SourceMismatch, match="no such tag, and the image is not there"):
        promoted(built, shared.host, "gone/elsewhere")


def test_what_was_attached_is_gone(shared: Registry, built: Built) -> None:
    nightly(built, shared.host, "attached/out")
    with Client(shared.host, QUICK) as client:
        target = Repository(client, "attached/out", push=True)
        assert target.remove(str(target.digest_of(referrers.tag_of(built.image.digest))))
    with pytest.raises(Refused, match=r"application/vnd.cyclonedx\+json is not attached"):
        promoted(built, shared.host, "attached/out")
    nightly(built, shared.host, "attached/out")  # the next command that was named
    assert promoted(built, shared.host, "attached/out").tag == RELEASE


def test_labels_that_lie(shared: Registry, built: Built) -> None:
    """The registry's answer for the configuration would say another overlay; its digest stands in the way."""
    nightly(built, shared.host, "labels/out")
    config = built.image.config.data.replace(built.overlays[0].digest.encode(), sha(b"another").encode())
    with proxy(shared.host) as before, pytest.raises(SourceMismatch, match="wrong bytes"):
        before.before = lambda handler: (
            f"/blobs/{built.image.config.digest}" in handler.path
            and (handler.command == "GET" and handler.say(200, config))
        )
        promoted(built, before.host, "labels/out")


def test_what_is_no_nightly(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "none/out")
    with pytest.raises(UsageError, match=r"there is no release record of v1\.6\.0-nightly-20261017-tiny\.1"):
        promoted(built, shared.host, "none/out", "v1.6.0-nightly-20261017-tiny.1")
    promoted(built, shared.host, "none/out")
    with pytest.raises(UsageError, match="is a release already"):
        promoted(built, shared.host, "none/out", RELEASE)


def test_of_another_line(shared: Registry, built: Built, project: Project) -> None:
    nightly(built, shared.host, "line/out")
    other = msgspec.structs.replace(promoting.tiny(project), name="other")
    with Client(shared.host, QUICK) as client, pytest.raises(UsageError, match="is of tiny on Dynamo"):
        promote(project, other, NIGHTLY, Repository(client, "line/out", push=True))


def test_a_registry_that_dies_anywhere(shared: Registry, built: Built, tmp_path: Path) -> None:
    """Copied to another repository: the same command completes it."""
    nightly(built, shared.host, "dies/nightly")
    ended = 0
    for number in range(3, 120, 9):
        project = Project(shutil.copytree(built.carried[0].project.root, tmp_path / f"p{number}", symlinks=True))
        to = f"dies/release-{number}"
        with proxy(shared.host) as before, Client(before.host, QUICK) as client:
            before.before = lambda handler, at=number: len(handler.proxy.asked) >= at and handler.hang_up()  # type: ignore[misc]
            source, target = (Repository(client, name, push=True) for name in ("dies/nightly", to))
            try:
                promote(project, promoting.tiny(project), NIGHTLY, source, target)
                ended = number
            except Unreachable:
                pass
        with Client(shared.host, QUICK) as client:
            source, target = (Repository(client, name, push=True) for name in ("dies/nightly", to))
            if not ended:
                assert (RELEASE in all_tags(target)) <= (len(referrers.listed(target, built.image.digest)) == 2)
                assert promote(project, promoting.tiny(project), NIGHTLY, source, target).tag == RELEASE
            assert len(referrers.listed(target, built.image.digest)) == 2
        assert tags_of(shared.host, to) == {RELEASE: built.image.digest}
        assert (project.root / f"changelog/releases/{RELEASE}.json").is_file()
        if ended:
            break
    assert ended > 30


def test_two_at_once(shared: Registry, built: Built, project: Project, tmp_path: Path) -> None:
    """Of one image, from two checkouts: both end well, with the same tag."""
    nightly(built, shared.host, "both/out")
    other = Project(shutil.copytree(project.root, tmp_path / "other", symlinks=True))
    together, met, done = Barrier(2, timeout=200), list[int](), list[Released]()

    def wait(handler: Handler) -> bool:
        if handler.command == "HEAD" and handler.path.endswith(RELEASE) and len(met) < 2:
            met.append(1)
            together.wait()
        return False

    with proxy(shared.host) as before:
        before.before = wait

        def run(each: Project) -> None:
            with Client(before.host, QUICK) as client:
                target = Repository(client, "both/out", push=True)
                done.append(promote(each, promoting.tiny(each), NIGHTLY, target))

        threads = [Thread(target=run, args=(each,)) for each in (project, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one.tag for one in done] == [RELEASE, RELEASE]
    assert promoted(built, shared.host, "both/out").already
    assert tags_of(shared.host, "both/out") == dict.fromkeys((NIGHTLY, RELEASE), built.image.digest)


def test_two_images_at_once(shared: Registry, proven: Path, tmp_path: Path) -> None:
    """From two checkouts, on different bases: each gets a number, and no tag is moved."""
    both = []
    for number in range(2):
        project = Project(shutil.copytree(proven, tmp_path / f"p{number}", symlinks=True))
        made = promoting.built(project, _base(tmp_path / f"base{number}", number))
        promoting.passed(made)
        promoting.smoked(made)
        both.append((made, nightly(made, shared.host, "images/out")))
    assert both[0][0].image.digest != both[1][0].image.digest
    together, met, done = Barrier(2, timeout=200), list[int](), dict[str, str | None]()

    def wait(handler: Handler) -> bool:
        if handler.command == "PUT" and ".claim-" in handler.path and len(met) < 2:
            met.append(1)
            together.wait()
        return False

    with proxy(shared.host) as before:
        before.before = wait

        def run(made: Built, tag: str) -> None:
            done[promoted(made, before.host, "images/out", tag).tag] = made.image.digest

        threads = [Thread(target=run, args=one) for one in both]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(done) == ["v1.6.0-tiny.1", "v1.6.0-tiny.2"]
    released = {tag: digest for tag, digest in tags_of(shared.host, "images/out").items() if "nightly" not in tag}
    assert released == done


def _base(at: Path, number: int) -> Layout:
    import image_bases as bases

    layers = [*bases.plain(), [bases.member("etc/number", b"%d" % number)]]
    bases.layout(bases.image([bases.pack(one, "gzip") for one in layers]), at)
    return Layout(at)


def test_the_verb_tells_of_it(
    shared: Registry,
    built: Built,
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    nightly(built, shared.host, "verb/out")
    monkeypatch.chdir(project.root)
    assert main(["promote", "tiny", NIGHTLY, "--dry-run"]) == Exit.DONE
    assert not [one for one in news.read(project) if one.release]
    capsys.readouterr()
    assert main(["promote", "tiny", NIGHTLY, "--json"]) == Exit.DONE
    said = json.loads(capsys.readouterr().out)
    [one] = [one for one in news.read(project) if one.release]
    assert (said["tag"], said["news"], one.release) == (RELEASE, f"changelog/{one.path.name}", RELEASE)
    one.path.unlink()  # as a run that was killed before it leaves it
    assert main(["promote", "tiny", NIGHTLY]) == Exit.DONE
    assert f"news {said['news']}\n" in capsys.readouterr().out
    assert main(["promote", "tiny", NIGHTLY, "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["news"] == ""
