"""Case 16: killed at any moment, the disk full at any write, two runs at once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from repos import commit, files_of, git, head, lines, mail, repository, series, write
from verbs import patchline

# Runs a verb and kills itself, as kill -9 does, before the n-th thing that it does to the world.
KILLED = """
import os, signal, sys
left = int(sys.argv[1])
WRITES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.chmod", "subprocess.Popen", "shutil.rmtree"}
def hook(event, arguments):
    global left
    if event in WRITES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
from patchline import cli
sys.addaudithook(hook)
sys.exit(cli.main(sys.argv[2:]))
"""


def tree(root: Path) -> Path:
    files: dict[str, bytes | str] = {f"d{number % 3}/f{number}": lines(20) for number in range(8)}
    return repository(root, files | {"gone/x": "x\n", "mode": "m\n"})


def patches(repo: Path, folder: Path) -> Path:
    base = head(repo)
    for number in range(3):
        write(
            repo,
            {f"d{number}/f{number}": lines(20).replace("line 9\n", f"nine {number}\n"), f"new/deep{number}/y": "y\n"},
        )
        if number == 1:
            (repo / "gone" / "x").unlink()
            (repo / "mode").chmod(0o755)
        commit(repo, f"patch {number}")
    git(repo, "format-patch", "-q", "-o", str(folder), base)
    git(repo, "reset", "-q", "--hard", base)
    return series(folder, {}, "".join(f"{path.name}\n" for path in sorted(folder.iterdir())))


def moments(command: list[object], most: int = 300) -> Iterator[tuple[int, bool]]:
    """Runs `command` killed at its first, second, … write, until a run is not killed any more."""
    for moment in range(1, most):
        words = [sys.executable, "-c", KILLED, str(moment), *map(str, command)]
        done = subprocess.run(words, capture_output=True)
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            yield moment, False
            return
        yield moment, True
    pytest.fail("it never ended")


def test_killed_at_every_write_in_a_repository(tmp_path: Path) -> None:
    origin = tree(tmp_path / "origin")
    file, old = patches(origin, tmp_path / "s"), head(origin)
    copy = tmp_path / "wanted"
    shutil.copytree(origin, copy)
    assert patchline("apply", "--repo", copy, "--series", file).exit == 0
    new, after, before = head(copy), files_of(copy), files_of(origin)
    heads = []
    repo = tmp_path / "r"
    command: list[object] = ["apply", "--repo", repo, "--series", file]

    def fresh() -> None:
        shutil.rmtree(repo, ignore_errors=True)
        shutil.copytree(origin, repo, symlinks=True)
        git(repo, "update-index", "-q", "--refresh")

    fresh()
    for moment, killed in moments(command):
        if not killed:
            break
        assert head(repo) in (old, new)
        heads.append(head(repo))
        if not (repo / ".git" / "patchline" / "journal.json").exists() and head(repo) == old:
            assert files_of(repo) == before
        again = patchline(*command)
        assert again.exit == 0, (moment, again.err)
        assert (head(repo), files_of(repo)) == (new, after), moment
        assert git(repo, "status", "--porcelain") == "", moment
        assert sorted(path.name for path in (repo / ".git" / "patchline").iterdir()) == ["applied.json", "lock"]
        assert not (repo / ".git" / "index.lock").exists()
        fresh()
    assert heads.count(old) > 5
    assert heads.count(new) > 5


def test_killed_at_every_write_in_a_folder(tmp_path: Path) -> None:
    origin = tree(tmp_path / "origin")
    file, out = patches(origin, tmp_path / "s"), tmp_path / "o" / "out"
    shutil.rmtree(origin / ".git")
    command: list[object] = ["apply", "--source", origin, "--series", file, "--out", out]
    seen = 0
    for _, killed in moments(command):
        seen += 1
        if killed:
            assert not out.exists() or (out / "new" / "deep2" / "y").exists()
        if out.exists():
            assert [path.name for path in out.parent.iterdir()] == ["out"]
            shutil.rmtree(out)
    assert seen > 10


def test_killed_while_git_works(tmp_path: Path) -> None:
    origin = tree(tmp_path / "origin")
    file, old = patches(origin, tmp_path / "s"), head(origin)
    for step in range(12):
        repo = tmp_path / f"r{step}"
        shutil.copytree(origin, repo)
        words = [sys.executable, "-m", "patchline", "apply", "--repo", str(repo), "--series", str(file)]
        process = subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.04 + 0.02 * step)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        done = patchline("apply", "--repo", repo, "--series", file)
        assert done.exit == 0, done.err
        assert git(repo, "rev-list", "--count", f"{old}..HEAD").strip() == "3"
        assert git(repo, "status", "--porcelain") == ""


def test_a_dead_run_is_dropped_when_somebody_else_went_on(tmp_path: Path) -> None:
    repo = tree(tmp_path / "r")
    file = patches(repo, tmp_path / "s")
    command = [sys.executable, "-c", KILLED]
    for moment in range(1, 200):
        words = [*command, str(moment), "apply", "--repo", str(repo), "--series", str(file)]
        assert subprocess.run(words, capture_output=True).returncode == -signal.SIGKILL
        if (repo / ".git" / "patchline" / "journal.json").exists():
            break
    (repo / ".git" / "index.lock").unlink()
    git(repo, "reset", "-q", "--hard", git(repo, "rev-list", "--max-parents=0", "HEAD").strip())
    write(repo, {"mine": "mine\n"})
    mine = commit(repo, "mine")
    ended = patchline("apply", "--repo", repo, "--series", file)
    assert ended.exit == 0, ended.err
    assert "another program changed it" in ended.err
    assert git(repo, "rev-parse", "HEAD~3").strip() == mine


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, to be made smaller and larger."""
    if os.geteuid():
        pytest.skip("only root can mount a file system to fill")
    root = tmp_path / "disk"
    root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", root], check=True)
    yield root
    subprocess.run(["umount", root], check=True)


def test_disk_full_at_any_write(tmp_path: Path, small_disk: Path) -> None:
    repo = tree(small_disk / "r")
    file = patches(repo, tmp_path / "s")
    old, before = head(repo), files_of(repo)
    used = os.statvfs(small_disk)
    page = used.f_frsize
    full = (used.f_blocks - used.f_bfree) * page
    failures = 0
    for spare in range(200):
        subprocess.run(["mount", "-o", f"remount,size={full + spare * page}", small_disk], check=True)
        ended = patchline("apply", "--repo", repo, "--series", file)
        if ended.exit == 0:
            break
        failures += 1
        assert "Traceback" not in ended.err
        assert (head(repo), files_of(repo)) == (old, before), (spare, ended.err)
        assert not (repo / ".git" / "index.lock").exists()
        subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
        assert git(repo, "status", "--porcelain") == ""
    assert failures > 5
    assert git(repo, "rev-list", "--count", f"{old}..HEAD").strip() == "3"
    assert git(repo, "status", "--porcelain") == ""


def test_disk_full_for_a_folder(tmp_path: Path, small_disk: Path) -> None:
    origin = tree(tmp_path / "origin")
    file = patches(origin, tmp_path / "s")
    subprocess.run(["mount", "-o", "remount,size=32k", small_disk], check=True)
    ended = patchline("apply", "--source", origin, "--series", file, "--out", small_disk / "out")
    assert ended.exit == 1
    assert "No space left on device" in ended.err
    assert list(small_disk.iterdir()) == []


def test_two_runs_at_once(tmp_path: Path) -> None:
    repo = tree(tmp_path / "r")
    file, old = patches(repo, tmp_path / "s"), head(repo)
    words = [sys.executable, "-m", "patchline", "apply", "--repo", str(repo), "--series", str(file)]
    runs = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(6)]
    ends = [(run.communicate()[1].decode(), run.returncode) for run in runs]
    assert {code for _, code in ends} <= {0, 5}, ends
    assert any(code == 0 for _, code in ends)
    for text, code in ends:
        assert code == 0 or "another run of patchline works on" in text
    assert git(repo, "rev-list", "--count", f"{old}..HEAD").strip() == "3"
    assert git(repo, "status", "--porcelain") == ""


def test_git_holds_the_index(tmp_path: Path) -> None:
    repo = tree(tmp_path / "r")
    file, old, before = patches(repo, tmp_path / "s"), head(repo), files_of(repo)
    (repo / ".git" / "index.lock").touch()
    ended = patchline("apply", "--repo", repo, "--series", file)
    assert ended.exit == 5
    assert "git holds the index" in ended.err
    assert (head(repo), files_of(repo)) == (old, before)
    assert (repo / ".git" / "index.lock").exists()


def test_in_the_middle_of_a_merge(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": lines(3)})
    git(repo, "checkout", "-q", "-b", "other")
    write(repo, {"f": "other\n"})
    commit(repo, "other")
    git(repo, "checkout", "-q", "main")
    write(repo, {"f": "main\n"})
    commit(repo, "main")
    git(repo, "merge", "-q", "other", ok=False)
    diff = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-main\n+x\n"
    ended = patchline("apply", "--repo", repo, "--series", series(tmp_path / "s", {"p.patch": mail(diff)}))
    assert ended.exit == 5
    assert "is in the middle of a merge" in ended.err
