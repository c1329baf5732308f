"""Time and size of the divergence page and of the changelog for a long synthetic series, each as a whole process.

The patches are made here: four hunks in three files each, as long as those that this project carries are on average,
with trailers, news, and a verdict on every version. Prints a table in Markdown and exits 1 when a limit
is missed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from patchline.pins import ArchivePin, PinFile, Upstream
from patchline.pins import write as write_pins
from patchline.project import Project

SECONDS = 3.0
BYTES = 3_000_000
"""Of the page, for `PATCHES` of them."""
PATCHES = 200
VERSIONS = ("0.28.0", "0.31.0", "0.32.0", "0.33.0")
VERDICTS = ("applies", "moved", "conflicts", "partly-upstream", "upstream", "not-needed")
WORDS = [
    *("cache", "region", "head", "layer", "block", "remote", "local", "rank", "engine"),
    *("page", "slice", "plan", "read", "write", "shard", "group", "copy", "size"),
]
NEWS = "The {0} of each {1} is counted by {2}.\n\nPatch: vllm/0.31.0/{3}\n"


class Ran(NamedTuple):
    """One process, and the size of what it made in bytes."""

    seconds: float
    """Wall time."""
    cpu: float
    """Seconds of a processor: on a machine with nothing else to do, the wall time."""
    size: int


def source(dice: random.Random, lines: int = 120) -> list[str]:
    """Python code of that many lines, with words of the trade in it."""
    found = []
    for number in range(lines // 4):
        one, two, three = dice.sample(WORDS, 3)
        found += [
            f"def {one}_{two}_{number}(self, {three}: int = {number}) -> list[int]:",
            f'    """The {one} of every {two} that a {three} has."""',
            f"    return [{three} * index for index in range({number})] if self.{one}_{two} else []",
            "",
        ]
    return found


def patch(dice: random.Random, number: int) -> tuple[str, str]:
    """A patch file's name and text: four hunks in three files, some fifteen lines added and eight removed."""
    one, two, three = dice.sample(WORDS, 3)
    name = f"{number:04d}-{one}-{two}-{three}.patch"
    diffs = []
    for at, hunks in enumerate((2, 1, 1)):
        old = source(dice)
        new = [*old]
        for hunk in range(hunks):
            line = 20 + 50 * hunk
            new[line : line + 2] = [f"    # {' '.join(dice.sample(WORDS, 6))}", *source(dice, 4)[:3]]
        path = f"vllm/{one}/{two}_{at}.py"
        diff = difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm="")
        diffs.append(f"diff --git a/{path} b/{path}\n" + "\n".join(diff) + "\n")
    body = "\n\n".join("\n".join(_sentences(dice)) for _ in (1, 2))
    trailers = "Origin: authored\nForwarded: no\nDrop-When: tests-pass-on-stock\nTests: tests/patches/vllm/test_it.py"
    head = "From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\nFrom: A <a@example.org>\n"
    head += f"Date: Sun, 29 Nov 2026 12:00:00 +0000\nSubject: [{one}] Count the {two} by its {three}\n\n"
    return name, f"{head}{body}\n\n{trailers}\n---\n\n{''.join(diffs)}"


def _sentences(dice: random.Random) -> list[str]:
    four = [dice.sample(WORDS, 4) for _ in range(3)]
    return [f"The {one} of a {two} is one {three}, and no {other} asks for it." for one, two, three, other in four]


def project(root: Path, count: int) -> Path:
    """A project with that many patches; gives the file of their verdicts."""
    made, dice = Project(root), random.Random(7)
    file = PinFile(name="vllm.tar.gz", sha256="0" * 64, size=1)
    pins = tuple(ArchivePin(kind="sdist", distribution="vllm", version=one, files=(file,)) for one in VERSIONS)
    write_pins(made.upstreams, {"vllm": Upstream(name="vllm", carried="0.31.0", pins=pins)})
    folder, news = made.series_dir("vllm", "0.31.0"), root / "changelog"
    for path in (folder, news, root / "tests" / "patches" / "vllm"):
        path.mkdir(parents=True)
    (root / "tests" / "patches" / "vllm" / "test_it.py").write_text("")
    names = []
    for number in range(1, count + 1):
        name, text = patch(dice, number)
        (folder / name).write_text(text)
        names.append(name)
        what = name.removesuffix(".patch")
        (news / f"2026-11-29-n{what}.carried.md").write_text(NEWS.format(*dice.sample(WORDS, 3), name))
    (folder / "series").write_text("".join(f"{name}\n" for name in names))
    said = [
        {"onto": f"vllm=={version}", "patches": [_judged(dice, name) for name in names]}
        for version in VERSIONS
        if version != "0.31.0"
    ]
    path = root / "verdicts.json"
    path.write_text(json.dumps({"versions": said}))
    return path


def _judged(dice: random.Random, name: str) -> dict[str, object]:
    return {"name": name, "verdict": dice.choice(VERDICTS), "evidence": ["2 of 4 hunks are there"]}


def run(root: Path, made: Path, *words: str) -> Ran:
    """The best of three runs of a verb."""
    runs = []
    for _ in range(3):
        made.unlink(missing_ok=True)
        began, before = time.perf_counter(), _cpu()
        subprocess.run([sys.executable, "-m", "patchline", *words], cwd=root, check=True, stdout=subprocess.DEVNULL)
        runs.append((time.perf_counter() - began, _cpu() - before))
    return Ran(min(wall for wall, _ in runs), min(cpu for _, cpu in runs), made.stat().st_size)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patches", type=int, default=PATCHES)
    count = parser.parse_args().patches
    with tempfile.TemporaryDirectory(prefix="patchline-") as folder:
        root = Path(folder) / "p"
        verdicts = project(root, count)
        out = root / "out"
        page = run(root, out / "index.html", "page", "--out", str(out), "--verdicts", str(verdicts), "--no-look")
        changelog = run(root, root / "SCICOM_CHANGELOGS.md", "changelog")
    print(
        f"{count} patches, best of three processes; at most {SECONDS:.0f} s of a processor and {BYTES / 1e6:.0f} MB\n"
    )
    print("| | s | s of a processor | MB |\n|---|---|---|---|")
    for what, ran in (("page", page), ("changelog", changelog)):
        print(f"| {what} | {ran.seconds:.2f} | {ran.cpu:.2f} | {ran.size / 1e6:.2f} |")
    return int(max(page.cpu, changelog.cpu) > SECONDS or page.size > BYTES)


if __name__ == "__main__":
    sys.exit(main())
