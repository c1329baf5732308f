"""Speed and memory of `apply --repo` beside git am, git apply and quilt, on the pinned vLLM tree, in one run.

Prints a table in Markdown and exits 1 when a limit is missed. A peer that is not installed is
reported as not run, and its limit as not measured.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.series.carried import carried

PATCHLINE = [sys.executable, "-m", "patchline"]
GIT = os.environ | {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "bench",
    "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "bench",
    "GIT_COMMITTER_EMAIL": "bench@localhost",
}


class Limit(NamedTuple):
    """One claim: `value` may be at most `most` (None: not measured)."""

    what: str
    value: float | None
    most: float
    unit: str


def run(command: Sequence[object], cwd: Path, **more: str) -> None:
    """Runs a command to its end, quietly, with `more` in its environment."""
    subprocess.run([str(word) for word in command], cwd=cwd, env=GIT | more, check=True, stdout=subprocess.DEVNULL)


def one_hunk_patches(tree: Path, count: int, folder: Path) -> Path:
    """Writes `count` patches of one hunk each, on different files, with a series file."""
    listed = subprocess.run(["git", "ls-files", "-z", "*.py"], cwd=tree, env=GIT, check=True, capture_output=True)
    names = [name for name in listed.stdout.decode().split("\0") if name]
    random.Random(1).shuffle(names)
    long = (name for name in names if len((tree / name).read_text().splitlines()) > 40)
    folder.mkdir()
    made = []
    for number, name in zip(range(count), long, strict=False):
        lines = (tree / name).read_text().split("\n")
        at = len(lines) // 2
        context = [f" {line}\n" for line in lines[at - 3 : at + 3]]
        hunk = "".join([*context[:3], f"+# patch {number}\n", *context[3:]])
        (folder / f"{number:04d}.patch").write_text(
            f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: bench <bench@localhost>\n"
            f"Date: Sun, 29 Nov 2026 12:00:00 +0000\nSubject: [PATCH] patch {number}\n\nWhy.\n---\n\n"
            f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -{at - 2},6 +{at - 2},7 @@\n{hunk}"
        )
        made.append(f"{number:04d}.patch")
    assert len(made) == count
    (folder / "series").write_text("".join(f"{name}\n" for name in made))
    return folder / "series"


class Bench:
    """A clone of the pinned tree, brought back to its base before every run."""

    def __init__(self, origin: Path, base: str, rounds: int, scratch: Path) -> None:
        self.base, self.rounds, self.repo = base, rounds, scratch / "repo"
        run(["git", "clone", "-q", "--no-tags", origin, self.repo], scratch)
        run(["git", "checkout", "-q", "-B", "bench", base], self.repo)

    def clean(self) -> None:
        """Back to the base, with a fresh index."""
        run(["git", "reset", "-q", "--hard", self.base], self.repo)
        shutil.rmtree(self.repo / ".pc", ignore_errors=True)
        run(["git", "status"], self.repo)

    def seconds(self, work: Callable[[], None], *, again: bool = False) -> float:
        """The median of some rounds; `again`: without going back to the base between them."""
        times = []
        for _ in range(self.rounds):
            if not again:
                self.clean()
            started = time.perf_counter()
            work()
            times.append(time.perf_counter() - started)
        return sorted(times)[len(times) // 2]

    def ours(self, series: Path) -> float:
        """Our application of a series."""
        return self.seconds(lambda: run([*PATCHLINE, "apply", "--repo", self.repo, "--series", series], self.repo))

    def quilt(self, series: Path) -> float | None:
        """`quilt push -a`; None where quilt is not installed."""
        if not shutil.which("quilt"):
            return None
        command = ["quilt", "--quiltrc", "-", "push", "-a", "-q"]
        return self.seconds(lambda: run(command, self.repo, QUILT_PATCHES=str(series.parent)))

    def memory(self, series: Path) -> float:
        """Peak memory in MiB of our process and of the git that it starts, whichever is larger."""
        self.clean()
        run([*PATCHLINE, "apply", "--repo", self.repo, "--series", series], self.repo)
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def measure(bench: Bench, scratch: Path) -> tuple[list[tuple[str, float | None]], list[Limit]]:
    """All figures in seconds, and the limits that they are held to."""
    few, many = (one_hunk_patches(bench.repo, count, scratch / f"s{count}") for count in (200, 1000))
    whole = scratch / "all.patch"
    whole.write_bytes(b"".join(path.read_bytes() for path in sorted(few.parent.glob("*.patch"))))
    memory = bench.memory(many)  # first: the peak is of all children so far, and git's clone is small
    helped = bench.seconds(lambda: run([*PATCHLINE, "--help"], bench.repo), again=True)
    ours = bench.ours(few)
    again = [*PATCHLINE, "apply", "--repo", bench.repo, "--series", few]
    idle = bench.seconds(lambda: run(again, bench.repo), again=True)
    thousand = bench.ours(many)
    mails = sorted(few.parent.glob("*.patch"))
    am = bench.seconds(lambda: run(["git", "am", "-q", *mails], bench.repo))
    stream = bench.seconds(lambda: run(["git", "apply", "--index", whole], bench.repo))
    quilt = bench.quilt(few)
    figures = [
        ("patchline apply, 200 patches", ours),
        ("git am, 200 patches", am),
        ("quilt push -a, 200 patches", quilt),
        ("git apply --index, the 200 as one stream, no commits", stream),
        ("patchline apply, 1,000 patches", thousand),
        ("patchline apply, nothing to do", idle),
        ("patchline --help", helped),
    ]
    limits = [
        Limit("200 patches against git am", ours / am, 1 / 10, "of its time"),
        Limit("200 patches against quilt push -a", ours / quilt if quilt else None, 1 / 10, "of its time"),
        Limit("200 patches against one git apply", ours / stream, 3, "times its time"),
        Limit("1,000 patches against 200", thousand / ours, 5.5, "times its time"),
        Limit("nothing to do against --help", idle / helped, 3, "times its time"),
        Limit("peak memory, 1,000 patches", memory, 300, "MiB"),
        Limit("--help", helped, 0.3, "s"),
    ]
    return figures, limits


def main() -> int:
    """Measures and prints; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, of which the median counts")
    rounds = parser.parse_args().rounds
    pin = carried("vllm")
    base = pin.base()
    with tempfile.TemporaryDirectory(prefix="patchline-bench-") as folder:
        figures, limits = measure(Bench(pin.repo, base, rounds, Path(folder)), Path(folder))
    print("| what | seconds |\n|---|---|")
    for what, seconds in figures:
        print(f"| {what} | {'not run' if seconds is None else f'{seconds:.3f}'} |")
    print("\n| limit | measured | at most | |\n|---|---|---|---|")
    missed = 0
    for limit in limits:
        held = limit.value is not None and limit.value <= limit.most
        missed += limit.value is not None and not held
        state = "held" if held else "not measured" if limit.value is None else "MISSED"
        value = "-" if limit.value is None else f"{limit.value:.3g}"
        print(f"| {limit.what} | {value} | {limit.most:.3g} {limit.unit} | {state} |")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
