"""Evidence: what a proof found, bound by digests to everything that it was found on.

It is kept in the project (`builds/evidence/`, in version control) or in the cache, and counts only where
all that it covers is today's. What is kept are outcomes; verdicts are drawn from them each time.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from patchline import __version__, files
from patchline.errors import SourceMismatch
from patchline.progress import say
from patchline.project import Project, cache_dir
from patchline.seal import sealed

SCHEMA = 2
"""Of the files; one of another schema is not evidence."""

_ROOM = Path(__file__).parent
_CODE = (_ROOM.parent / "kv_heads.py", _ROOM.parent / "overlay.py")
"""Outside this room, what decides what a proof finds."""

_MAKING = ("env.py", "grafts.py", "pip_said.py")
"""What makes an environment: its recipe and its requirements stand for it."""


class Evidence(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One result. Its file is JSON with these fields."""

    schema: int
    """`SCHEMA`, or it is not evidence."""
    kind: str
    """What was shown: `prove`, `hunks`, `upstream-stock` …"""
    of: str
    """The pin: `vllm==0.31.0`."""
    covers: dict[str, str]
    """Digests, or words, by what they are of; evidence counts only while all of them are today's."""
    made: str
    """When, as ISO 8601 in UTC. For people."""
    host: dict[str, str]
    """What it ran on: processor, Python, resolved packages. For people."""
    result: Any
    """The outcomes, in JSON's types."""
    seal: str
    """sha256 of all the rest: who edits evidence by hand is told so."""

    @property
    def digest(self) -> str:
        """sha256 of what it covers, in hex: the name of its file in the cache."""
        return digest_of(self.kind, self.of, self.covers)


def new(kind: str, of: str, covers: dict[str, str], result: Any, packages: dict[str, str]) -> Evidence:
    """Evidence of now, on this machine; `result` is made of JSON's types."""
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    host = {"machine": platform.machine(), "python": platform.python_version(), "patchline": __version__, **packages}
    return sealed(Evidence(SCHEMA, kind, of, covers, made, host, result, ""))


def digest_of(kind: str, of: str, covers: dict[str, str]) -> str:
    """sha256, in hex, of the canonical JSON of kind, pin and coverage."""
    parts = json.dumps([SCHEMA, kind, of, covers], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(parts.encode()).hexdigest()


def code(part: str = "") -> dict[str, str]:
    """Covers the modules of this room, and of one `part` of it, that run tests and draw verdicts."""
    here = [path for path in _ROOM.glob("*.py") if path.name not in _MAKING]
    found = {"machine": platform.machine(), "patchline's proofs": _digest([*here, *_CODE])}
    return found | ({f"patchline's proofs: {part}": _digest((_ROOM / part).glob("*.py"))} if part else {})


def _digest(paths: Iterable[Path]) -> str:
    total = hashlib.sha256()
    for path in sorted(paths):
        total.update(f"{path.relative_to(_ROOM.parent).as_posix()}\0{_sha256(path)}\0".encode())
    return f"sha256:{total.hexdigest()}"


def tests(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """Covers test files, and all that they may import or read.

    That is what lies beside them; of a folder `vllm-since-0.32` also the folder `vllm`, which it is named after.
    """
    own = {(root / path).parent for path in paths}
    named = {one for folder in own for one in folder.parent.glob("*") if folder.name.startswith(f"{one.name}-")}
    folders = sorted(own | named)
    found = {path for folder in folders for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    return {path.relative_to(root).as_posix(): f"sha256:{_sha256(path)}" for path in sorted(found)}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def find(project: Project, kind: str, of: str, covers: dict[str, str]) -> Evidence | None:
    """The evidence of exactly this coverage, from the project or else from the cache.

    Where the project's own covers other things, it is said which.

    Raises:
        SourceMismatch: a file of evidence is damaged, or was edited.
    """
    committed = path_of(project, kind, of)
    for path in (committed, _cached(digest_of(kind, of, covers))):
        found = read(path)
        if found and (found.kind, found.of, found.covers) == (kind, of, covers):
            say(f"{kind} of {of}: evidence of {found.made} covers exactly this ({_shown(path, project)})")
            return found
        if found and path == committed:
            say(f"{kind} of {of}: {_shown(path, project)} is of other inputs: {_differing(found.covers, covers)}")
    return None


def keep(evidence: Evidence, project: Project | None = None) -> Path:
    """Writes evidence into the `project`, for version control, or else into the cache."""
    path = path_of(project, evidence.kind, evidence.of) if project else _cached(evidence.digest)
    data = msgspec.json.format(msgspec.json.encode(evidence, order="sorted"), indent=1)
    files.write_whole(path, data + b"\n")
    return path


def path_of(project: Project, kind: str, of: str) -> Path:
    """Where the project keeps its evidence of one kind for one pin."""
    return project.root / "builds" / "evidence" / of.replace("==", "-") / f"{kind}.json"


def _cached(digest: str) -> Path:
    return cache_dir() / "evidence" / f"{digest}.json"


def _shown(path: Path, project: Project) -> str:
    return str(path.relative_to(project.root)) if path.is_relative_to(project.root) else "in the cache"


class _Schema(msgspec.Struct):
    schema: int


def read(path: Path) -> Evidence | None:
    """The evidence in a file; None where there is none, or of another schema.

    Raises:
        SourceMismatch: it is damaged, or was edited.
    """
    again = f"rm {path}; the proof runs again"
    try:
        data = path.read_bytes()
        if msgspec.json.decode(data, type=_Schema).schema != SCHEMA:
            return None
        found = msgspec.json.decode(data, type=Evidence)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as bad:
        raise SourceMismatch(f"this evidence is damaged: {bad}", where=str(path), next=again) from bad
    if sealed(found) != found:
        raise SourceMismatch("this evidence was edited: its seal is of something else", where=str(path), next=again)
    return found


def _differing(old: dict[str, str], new: dict[str, str]) -> str:
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
