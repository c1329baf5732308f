"""Speed of `rebase --all` beside `git rebase` of the same commits, on the pinned vLLM trees, in one run.

The trees that both make are compared. Prints a table in Markdown and exits 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from patchline.rebase import onto, store
from patchline.rebase.align import ended
from patchline.rebase.merge import Labels, merge
from patchline.rebase.words import Verdict
from patchline.series import quilt
from patchline.series.carried import Carried, carried
from patchline.series.patch import Patch
from patchline.series.place import split
from patchline.series.plan import plan
from patchline.series.trees import CommitTree, Entry

VERSIONS = ("0.28.0", "0.32.0", "0.33.0")
CARRIED = "0.31.0"
LEAST = 5.0
"""How many times faster than git."""
BENT = 1.6
"""How much slower than in proportion the whole may be than its half."""
GIT = os.environ | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
}
MAIL = (
    f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: bench <bench@localhost>\n"
    "Date: Sun, 29 Nov 2026 12:00:00 +0000\nSubject: [bench] patch {}\n\nOrigin: authored\n---\n\n"
)


def git(repo: Path, *words: object) -> str:
    """Runs git and gives what it prints."""
    done = subprocess.run(["git", *map(str, words)], check=False, cwd=repo, env=GIT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"git {words}: {done.stderr[-2000:]}")
    return done.stdout.strip()


class Bench:
    """A project of its own whose work trees are the real ones, and a clone for git."""

    def __init__(self, scratch: Path, real: Path) -> None:
        self.root, self.scratch = scratch / "project", scratch
        (self.root / "work").mkdir(parents=True)
        (self.root / "builds").mkdir()
        shutil.copy(real / "builds/upstreams.toml", self.root / "builds")
        for version in (CARRIED, *VERSIONS):
            carried(f"vllm=={version}").base()
            (self.root / f"work/vllm-{version}").symlink_to(real / f"work/vllm-{version}")
        os.chdir(self.root)
        self.old = carried(f"vllm=={CARRIED}")
        self.new = [carried(f"vllm=={version}") for version in VERSIONS]

    def series(self, count: int, names: Sequence[str]) -> list[Patch]:
        """Writes patches of one hunk on the first `count` files."""
        folder = self.old.folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for number, name in enumerate(names[:count]):
            (folder / f"{number:04d}.patch").write_bytes(_patch(self.old, name, number))
        (folder / "series").write_text("".join(f"{number:04d}.patch\n" for number in range(len(names[:count]))))
        return quilt.patches(quilt.files(folder / "series"))

    def names(self, count: int) -> list[str]:
        """Files whose patch has a place on every version, as our verdicts say; git has to agree."""
        listed = git(self.old.repo, "ls-tree", "-r", "-z", "--name-only", self.old.base(), "vllm").split("\0")
        named = [name for name in listed if name.endswith(".py")]
        random.Random(1).shuffle(named)
        tree = CommitTree(self.old.repo, self.old.base())
        tree.load(named[: 3 * count])
        long = [name for name in named[: 3 * count] if len(_lines(tree, name)) > 40]
        self.series(len(long), long)
        judge = onto.judge_of(self.old)
        good = set(range(len(long)))
        for new in self.new:
            done = [one.judged.verdict for one in onto.verdicts(judge, self.old, new)]
            good &= {at for at, verdict in enumerate(done) if verdict in (Verdict.APPLIES, Verdict.MOVED)}
            there = CommitTree(new.repo, new.base())
            there.load(long)
            good = {at for at in good if _merges(tree, there, long[at], judge.steps[at].changes[long[at]])}
        return [long[at] for at in sorted(good)][:count]

    def ours(self, new: Sequence[Carried], out: Path) -> float:
        """Seconds of our verb, from its start to its end, with the series of every version written."""
        started = time.perf_counter()
        code = (
            "import sys; from patchline.rebase import onto; from patchline.rebase.course import Progress; "
            "from patchline.series.carried import carried; "
            "from pathlib import Path; old = carried(sys.argv[1]); judge = onto.judge_of(old)\n"
            "for name in sys.argv[3:]:\n"
            "    new = carried(name); done = onto.verdicts(judge, old, new)\n"
            "    found = Progress(old, new, [one.judged for one in done])\n"
            "    assert onto.offered(judge, found, done, Path(sys.argv[2])).written\n"
        )
        names = [one.name for one in new]
        subprocess.run([sys.executable, "-c", code, self.old.name, str(out), *names], check=True, cwd=self.root)
        return time.perf_counter() - started

    def clone(self, patches: Sequence[Patch]) -> tuple[Path, str]:
        """A repository with the series as commits, and the last of them."""
        repo = self.scratch / "clone"
        shutil.rmtree(repo, ignore_errors=True)
        repo.mkdir()
        store.make(repo, self.old.repo, *(one.repo for one in self.new), bare=False)
        steps = plan(CommitTree(self.old.repo, self.old.base()), patches).steps
        return repo, store.write(repo, self.old.base(), [(one.patch.header, one.changes) for one in steps])[-1]

    def gits(self, patches: Sequence[Patch]) -> tuple[float, dict[str, str]]:
        """Seconds of `git rebase` onto each version, and the trees; bringing the work tree there is not counted."""
        repo, head = self.clone(patches)
        total, trees = 0.0, {}
        for new in self.new:
            git(repo, "checkout", "-q", "-f", "--detach", new.base())
            git(repo, "status")
            started = time.perf_counter()
            git(repo, "-c", "gc.auto=0", "rebase", "-q", "--onto", new.base(), self.old.base(), head)
            total += time.perf_counter() - started
            trees[new.name] = git(repo, "rev-parse", "HEAD^{tree}")
        return total, trees

    def trees(self, out: Path) -> dict[str, str]:
        """The trees that our series make."""
        found = {}
        for new in self.new:
            patches = quilt.patches(quilt.files(out / "vllm" / new.pin.version / "series"))
            steps = plan(CommitTree(new.repo, new.base()), patches).steps
            with store.throwaway(new.repo) as repo:
                last = store.write(repo, new.base(), [(one.patch.header, one.changes) for one in steps])[-1]
                found[new.name] = git(repo, "rev-parse", f"{last}^{{tree}}")
        return found


def _merges(old: CommitTree, new: CommitTree, name: str, patched: Entry | None) -> bool:
    """Whether git merges a patched file without a conflict: it stops at code that moved far within its file."""
    base, ours = old.entry(name), new.entry(name)
    if base is None or ours is None or patched is None:
        return False
    return not merge(ours.data, base.data, patched.data, Labels("ours", "base", "theirs")).blocks


def _lines(tree: CommitTree, name: str) -> list[bytes]:
    entry = tree.entry(name)
    return split(ended(entry.data)) if entry else []


def _patch(old: Carried, name: str, number: int) -> bytes:
    """One comment more in the middle of a file."""
    lines = _lines(CommitTree(old.repo, old.base()), name)
    at = len(lines) // 2
    context = [b" " + line for line in lines[at - 3 : at + 3]]
    hunk = b"".join([*context[:3], b"+# patch %d\n" % number, *context[3:]])
    path = name.encode()
    diff = b"diff --git a/%b b/%b\n--- a/%b\n+++ b/%b\n" % (path, path, path, path)
    return MAIL.format(number).encode() + diff + b"@@ -%d,6 +%d,7 @@\n" % (at - 2, at - 2) + hunk


def main() -> int:
    """Measures and prints; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    real = carried(f"vllm=={CARRIED}").project.root
    with tempfile.TemporaryDirectory(prefix="patchline-bench-") as folder:
        bench = Bench(Path(folder), real)
        names = bench.names(args.count)
        half = bench.series(len(names) // 2, names)
        halved = min(bench.ours(bench.new, Path(folder, f"h{n}")) for n in range(args.rounds))
        patches = bench.series(len(names), names)
        outs = [Path(folder, f"o{number}") for number in range(args.rounds)]
        ours = sorted(bench.ours(bench.new, out) for out in outs)
        single = min(bench.ours(bench.new[:1], Path(folder, f"s{number}")) for number in range(args.rounds))
        gits, trees = bench.gits(patches)
        same = trees == bench.trees(outs[0])
    middle = ours[len(ours) // 2]
    print(f"{len(patches)} patches onto {', '.join(VERSIONS)}\n")
    print("| what | seconds |\n|---|---:|")
    print(f"| git rebase, three versions | {gits:.2f} |\n| ours, three versions | {middle:.2f} |")
    print(f"| ours, one version | {single:.2f} |\n| ours, {len(half)} patches on three versions | {halved:.2f} |")
    print(f"\n{gits / middle:.1f} times faster (least {LEAST}); the same trees: {'yes' if same else 'NO'}")
    print(json.dumps({"patches": len(patches), "git": gits, "ours": ours, "single": single, "half": halved}))
    linear = ours[0] <= BENT * 2 * halved and ours[0] <= BENT * 3 * single
    return 0 if gits / middle >= LEAST and same and linear and len(patches) == args.count else 1


if __name__ == "__main__":
    sys.exit(main())
