"""Checkouts: the same commit everywhere, the upstream's own bytes, whole or not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import PLAIN, TOP, entry, pin_of, project_with, sdist, tar, wheel

from patchline import git
from patchline.download import cached
from patchline.errors import PatchlineError, Refused, SourceMismatch, Unreachable, UsageError
from patchline.files import locked
from patchline.pins import ArchivePin, GitPin, Pin, Upstream, load, select
from patchline.project import Project
from patchline.sources.checkout import BASE, Checkout, checkout

BASE_OF_PLAIN = "cc4a85c2b3fb0fc4daf48b6bfcf253aa8007038a"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PATCHLINE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def keep(pin: ArchivePin, data: bytes) -> None:
    path = cached(pin.files[0].name, pin.files[0].sha256)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def made(tmp_path: Path, data: bytes, name: str = "demo-1.0.tar.gz") -> tuple[Project, Upstream, ArchivePin]:
    pin = pin_of(data, name)
    keep(pin, data)
    return *project_with(tmp_path / "project", pin), pin


def tree(repo: Path) -> dict[str, bytes]:
    paths = (path for path in repo.rglob("*") if path.is_file() or path.is_symlink())
    names = ((path.relative_to(repo).as_posix(), path) for path in paths)
    return {name: path.read_bytes() for name, path in names if not name.startswith(".git/")}


def whole(done: Checkout, files: dict[str, bytes]) -> None:
    """The work tree, the base and the branches are what they have to be."""
    assert tree(done.repo) == files
    assert git.git(done.repo, "status", "--porcelain", "--ignored") == b""
    assert git.line(done.repo, "symbolic-ref", "HEAD") == "refs/heads/patchline"
    refs = git.git(done.repo, "for-each-ref", "--format=%(refname) %(objectname)").decode().splitlines()
    assert refs == [f"{ref} {done.base}" for ref in ("refs/heads/base", "refs/heads/patchline", BASE)]
    assert [path.name for path in done.repo.parent.iterdir() if path.name.startswith(".part-")] == []
    for name, data in files.items():
        assert git.git(done.repo, "cat-file", "blob", f"{BASE}:{name}") == data
    git.git(done.repo, "fsck", "--strict")


def test_the_upstreams_own_bytes(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    done = checkout(project, upstream, pin)
    assert done.repo == project.root / "work" / "demo-1.0"
    whole(done, PLAIN)
    assert os.access(done.repo / "demo" / "run.sh", os.X_OK)
    log = git.line(done.repo, "log", "-1", "--format=%an <%ae>|%cn <%ce>|%aI|%cI|%P|%B", BASE)
    who = "patchline <patchline@localhost>"
    assert log.startswith(f"{who}|{who}|2023-11-14T22:13:20+00:00|2023-11-14T22:13:20+00:00||demo 1.0\n\n")
    assert f"File: demo-1.0.tar.gz\nSha256: {pin.files[0].sha256}" in log


HOSTILE = """\
[core]
autocrlf = true
eol = crlf
excludesFile = {home}/ignore
attributesFile = {home}/attributes
[commit]
gpgSign = true
[user]
name = Someone
[init]
defaultBranch = other
templateDir = {home}/template
defaultObjectFormat = sha256
[filter "evil"]
smudge = touch {home}/ran; cat
clean = touch {home}/ran; cat
required = true
"""


def test_the_same_commit_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    first = checkout(project, upstream, pin)
    home = tmp_path / "home"
    (home / "template" / "hooks").mkdir(parents=True)
    (home / ".gitconfig").write_text(HOSTILE.format(home=home))
    (home / "ignore").write_text("*\n")
    (home / "attributes").write_text("* text eol=crlf filter=evil\n")
    odd = {"HOME": home, "TZ": "Asia/Kathmandu", "LANG": "tr_TR.UTF-8", "GIT_AUTHOR_NAME": "Someone"}
    odd |= {"GIT_AUTHOR_DATE": "2001-01-01T00:00:00", "GIT_DIR": home, "GIT_DEFAULT_HASH": "sha256"}
    for name, value in odd.items():
        monkeypatch.setenv(name, str(value))
    umask = os.umask(0o077)
    try:
        second = checkout(Project(tmp_path / "second"), upstream, pin)
    finally:
        os.umask(umask)
    assert second.base == first.base == BASE_OF_PLAIN
    whole(second, PLAIN)
    assert not (home / "ran").exists()


def test_a_wheel(tmp_path: Path) -> None:
    files = {"demo/x.py": b"x\n", "demo-1.0.dist-info/RECORD": b""}
    project, upstream, pin = made(tmp_path, wheel(files), "demo-1.0-py3-none-any.whl")
    done = checkout(project, upstream, pin)
    whole(done, files)
    assert git.line(done.repo, "log", "-1", "--format=%aI") == "2024-02-03T04:05:06+00:00"


def test_links_in_the_tree_and_odd_names(tmp_path: Path) -> None:
    files = {'od"d \u00e4': b"a", "\udcff": b"not utf-8"}
    entries = [entry(f"{TOP}/{name}", data) for name, data in files.items()]
    link = entry(f"{TOP}/l", kind=b"2", link='od"d \u00e4')
    project, upstream, pin = made(tmp_path, tar(*entries, link))
    done = checkout(project, upstream, pin)
    assert tree(done.repo) == files | {"l": b"a"}
    assert os.readlink(done.repo / "l") == 'od"d \u00e4'
    assert git.git(done.repo, "ls-tree", BASE, "l").startswith(b"120000 blob")


def test_a_second_call_costs_nothing_and_touches_nothing(tmp_path: Path, cache: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    done = checkout(project, upstream, pin)
    (done.repo / "README.md").write_bytes(b"work in progress\n")
    cached(pin.files[0].name, pin.files[0].sha256).unlink()  # so it cannot be read again
    began = time.perf_counter()
    assert checkout(project, upstream, pin) == done
    assert time.perf_counter() - began < 0.2  # 0.003 s on a quiet machine
    assert (done.repo / "README.md").read_bytes() == b"work in progress\n"


def failed(error: type[PatchlineError], project: Project, upstream: Upstream, pin: Pin) -> str:
    with pytest.raises(error) as caught:
        checkout(project, upstream, pin)
    return str(caught.value)


def test_a_checkout_of_other_bytes(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    done = checkout(project, upstream, pin)
    other = pin_of(sdist({"x": b""}))
    text = failed(SourceMismatch, project, upstream, other)
    assert "demo-1.0 was checked out from another source than is pinned now" in text
    assert pin.files[0].sha256 in text
    assert other.files[0].sha256 in text
    assert f"next:  rm -r {done.repo}, then run again" in text
    whole(done, PLAIN)


def test_something_else_in_its_place(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    mine = project.work_dir("demo", "1.0") / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    assert "is there, but no checkout of patchline made it" in failed(Refused, project, upstream, pin)
    assert mine.read_text() == "mine"


def test_a_lost_base(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    done = checkout(project, upstream, pin)
    git.git(done.repo, "update-ref", "-d", BASE)
    assert f"has lost its ref {BASE}" in failed(Refused, project, upstream, pin)


def test_wrong_bytes_are_refused_before_unpacking(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    keep(pin, sdist() + b"!")
    assert "is not the file that was pinned" in failed(SourceMismatch, project, upstream, pin)
    assert not project.work_dir("demo", "1.0").exists()


@pytest.mark.parametrize("name", [f"{TOP}/.git/hooks/post-checkout", f"{TOP}/../../escaped", "/tmp/escaped"])
def test_hostile_archives_write_nothing(tmp_path: Path, name: str) -> None:
    data = tar(entry(f"{TOP}/a"), entry(name, b"#!/bin/sh\n", 0o755))
    project, upstream, pin = made(tmp_path, data)
    before = sorted(path for path in tmp_path.rglob("*") if path.suffix != ".lock" and path.name != "work")
    assert "is not a source that can be unpacked" in failed(SourceMismatch, project, upstream, pin)
    after = sorted(path for path in tmp_path.rglob("*") if path.suffix != ".lock" and path.name != "work")
    assert after == before


def test_a_pin_with_one_file_for_each_platform(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, wheel({"x": b""}), "demo-1.0-a.whl")
    two = ArchivePin(kind="wheel", distribution="demo", version="1.0", files=(*pin.files, *pin_of(b"y", "b.whl").files))
    assert "demo 1.0 has 2 files" in failed(UsageError, project, upstream, two)


# --- interrupted

BIG = {f"pkg/m{number:04}.py": (f"x = {number}\n" * 50).encode() for number in range(600)}
CODE = """\
import sys
from pathlib import Path
from patchline.pins import load, select
from patchline.project import Project
from patchline.sources.checkout import checkout
project = Project(Path(sys.argv[1]))
print("started", flush=True)
print(checkout(project, *select(load(project.upstreams), "demo")).base)
"""


def start(project: Project) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CODE, str(project.root)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen(command, text=True, process_group=0, **pipes)  # type: ignore[call-overload]
    assert running.stdout.readline() == "started\n"
    return running  # type: ignore[no-any-return]


@pytest.mark.parametrize("orphans", [False, True], ids=["with its git", "alone"])
def test_killed_at_any_moment(tmp_path: Path, orphans: bool) -> None:
    project, upstream, pin = made(tmp_path, sdist(BIG))
    repo = project.work_dir("demo", "1.0")
    began = time.monotonic()
    base = start(project).communicate()[0].strip()
    lasts = time.monotonic() - began
    halves = 0
    for moment in range(5):
        subprocess.run(["rm", "-rf", repo], check=True)
        running = start(project)
        time.sleep(lasts * moment / 5)
        kill = os.kill if orphans else os.killpg
        kill(running.pid, signal.SIGKILL)
        running.communicate()
        halves += not repo.exists()
        done = checkout(project, upstream, pin)
        assert done == Checkout(repo, base)
        assert tree(repo) == BIG
    whole(done, BIG)
    assert halves > 2


def test_two_at_once(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist(BIG))
    runs = [start(project) for _ in range(3)]
    ends = [(run.communicate(), run.returncode) for run in runs]
    assert sum(code == 0 for _, code in ends) >= 1
    for (_, stderr), code in ends:
        assert code == 0 or "another run of patchline works on" in stderr
    whole(checkout(project, upstream, pin), BIG)


def test_refused_while_locked(tmp_path: Path) -> None:
    project, upstream, pin = made(tmp_path, sdist())
    with locked(project.root / "work" / ".demo-1.0.lock", "it"):
        text = failed(Refused, project, upstream, pin)
    assert text.startswith("another run of patchline works on ")
    assert "nothing was changed" in text
    checkout(project, upstream, pin)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB (its size is changed with `resize`)."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", disk], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting needs root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def resize(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", disk], check=True)


def test_disk_full_at_any_write(small_disk: Path, tmp_path: Path) -> None:
    data = sdist(BIG)
    pin = pin_of(data)
    keep(pin, data)
    project, upstream = project_with(small_disk, pin)
    repo = project.work_dir("demo", "1.0")
    refusals = []
    for kilobytes in (64, 200, 400, 900, 1800):
        resize(small_disk, kilobytes)
        with pytest.raises((PatchlineError, OSError)) as caught:
            checkout(project, upstream, pin)
        refusals.append(str(caught.value))
        assert not repo.exists()
        assert not list(repo.parent.glob(".part-*"))
    assert all("No space left" in text or "unable to write" in text for text in refusals), refusals
    resize(small_disk, 64_000)
    whole(checkout(project, upstream, pin), BIG)


# --- git pins


@pytest.fixture
def forge(tmp_path: Path) -> Path:
    """A repository elsewhere, with an annotated tag v1 behind its head."""
    repo = tmp_path / "forge"
    repo.mkdir()
    git.git(repo, "init", "-q", "-b", "main")
    git.git(repo, "config", "user.name", "u")
    git.git(repo, "config", "user.email", "u@localhost")
    (repo / "x.py").write_bytes(b"x = 1\r\n")
    (repo / ".gitattributes").write_bytes(b"*.py text eol=lf\n")
    git.git(repo, "-c", "core.safecrlf=false", "add", ".")
    git.git(repo, "commit", "-q", "-m", "one")
    git.git(repo, "tag", "-a", "v1", "-m", "v1")
    git.git(repo, "commit", "-q", "--allow-empty", "-m", "two")
    return repo


def git_pin(url: str, commit: str) -> GitPin:
    return GitPin(kind="git", version="1.0", url=url, tag="v1", commit=commit)


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_a_tag(tmp_path: Path, forge: Path, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    commit = git.commit_of(forge, "v1")
    project, pin = Project(tmp_path / "project"), git_pin(form.format(forge), commit)
    upstream = Upstream(name="tool", carried="1.0", pins=(pin,))
    done = checkout(project, upstream, pin)
    assert done == Checkout(project.work_dir("tool", "1.0"), commit)
    assert (done.repo / "x.py").read_bytes() == git.git(done.repo, "cat-file", "blob", "HEAD:x.py")
    assert git.line(done.repo, "symbolic-ref", "HEAD") == "refs/heads/patchline"
    assert git.git(done.repo, "status", "--porcelain") == b""
    assert checkout(project, upstream, pin) == done
    assert os.environ["GIT_DIR"] == "/nowhere"


def test_a_tag_that_moved(tmp_path: Path, forge: Path) -> None:
    wanted, moved = git.commit_of(forge, "v1"), git.commit_of(forge, "main")
    git.git(forge, "tag", "-f", "v1", "main")
    project, pin = Project(tmp_path / "project"), git_pin(str(forge), wanted)
    text = failed(SourceMismatch, project, Upstream(name="tool", carried="1.0", pins=(pin,)), pin)
    assert f"wanted: {wanted}" in text
    assert f"found:  {moved}" in text
    assert not project.work_dir("tool", "1.0").exists()


@pytest.mark.parametrize("url", ["/nowhere/at/all", "http://127.0.0.1:9/x.git"])
def test_a_repository_that_is_not_there(tmp_path: Path, url: str) -> None:
    project, pin = Project(tmp_path / "project"), git_pin(url, "a" * 40)
    upstream = Upstream(name="tool", carried="1.0", pins=(pin,))
    text = failed(Unreachable, project, upstream, pin)
    assert "the repository did not answer" in text
    assert "next:  check the url and the network, then run again" in text
    assert not (tmp_path / "ran").exists()
    assert not project.work_dir("tool", "1.0").exists()


def test_a_url_that_runs_a_command(tmp_path: Path) -> None:
    project, pin = Project(tmp_path / "project"), git_pin(f"ext::sh -c touch% {tmp_path}/ran", "a" * 40)
    text = failed(UsageError, project, Upstream(name="tool", carried="1.0", pins=(pin,)), pin)
    assert "would make git run a command" in text
    assert not (tmp_path / "ran").exists()


@pytest.mark.network
def test_real_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATCHLINE_CACHE")
    upstream, pin = select(load(Path(__file__).parents[2] / "builds" / "upstreams.toml"), "vllm==0.31.0")
    done = checkout(Project(tmp_path), upstream, pin)
    assert done.base == "5588510182ceb509c65e6bddf06f667670758531"
    assert (done.repo / "vllm" / "__init__.py").exists()
