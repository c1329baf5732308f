"""A whole small project that carries patches on a pinned demo package."""

from __future__ import annotations

from pathlib import Path

from making import pin_of, sdist
from repos import commit, git, head, lines, patch_of, repository, write

from patchline.download import cached
from patchline.pins import Upstream
from patchline.pins import write as write_pins
from patchline.project import Project

SOURCE: dict[str, bytes] = {
    "demo/__init__.py": b"",
    "demo/core.py": b"def heads(total, tp):\n    return total\n\n\n" + lines(30).replace("line", "# line").encode(),
    "demo/data.txt": b"one\r\ntwo\r\n",
    "demo.egg-info/top_level.txt": b"demo\n",
    "docs/index.md": b"# demo\n",
    "csrc/fast.cu": b"int x;\n",
    "setup.py": b"from setuptools import setup\n",
}
TRAILERS = "Origin: authored\nForwarded: no\nDrop-When: tests-pass-on-stock\nTests: tests/patches/demo/test_{}.py"


def project(root: Path, *changes: tuple[str, dict[str, str]]) -> Project:
    """A project with the demo pinned and in the cache, and one patch for each (subject, files).

    The patch of subject `[Demo] Do it` is `000N-do-it.patch`, its tests `test_do.py`.
    """
    data = sdist(SOURCE)
    pin = pin_of(data)
    file = cached(pin.files[0].name, pin.files[0].sha256)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    made = Project(root)
    write_pins(made.upstreams, {"demo": Upstream(name="demo", carried="1.0", pins=(pin,))})
    if changes:
        _series(made, root.parent / f"{root.name}-scratch", changes)
    return made


def _series(made: Project, scratch: Path, changes: tuple[tuple[str, dict[str, str]], ...]) -> None:
    repo = repository(scratch, SOURCE)
    folder = made.series_dir("demo", "1.0")
    names = []
    for number, (subject, files) in enumerate(changes, 1):
        word = subject.split("] ")[-1].split()[0].lower()
        write(repo, dict(files))
        commit(repo, f"{subject}\n\nWhy it is so.\n\n{TRAILERS.format(word)}")
        name = f"{number:04d}-{subject.split('] ')[-1].lower().replace(' ', '-')}.patch"
        text = patch_of(repo, "--zero-commit", "--no-signature", "--full-index", "--no-stat", "-k")
        front, _, diff = text.partition("\ndiff --git ")
        write(folder, {name: f"{front}---\n\ndiff --git {diff}"})
        write(made.root, {f"tests/patches/demo/test_{word}.py": ""})
        names.append(name)
    write(folder, {"series": "".join(f"{name}\n" for name in names)})


def core(**lines_changed: str) -> dict[str, str]:
    """`demo/core.py` with lines replaced: `core(l3="x")` makes `# line 3` an `x`."""
    text = SOURCE["demo/core.py"].decode()
    for key, new in lines_changed.items():
        text = text.replace(f"# line {key[1:]}\n", f"{new}\n")
    return {"demo/core.py": text}


__all__ = ["SOURCE", "commit", "core", "git", "head", "project", "write"]
