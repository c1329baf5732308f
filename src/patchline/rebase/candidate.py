"""The rebased series, written beside the old one: whole, or not at all."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import Refused
from patchline.files import clear_parts, folder_whole
from patchline.git import git
from patchline.proofs.held import explained
from patchline.rebase.explanations import Explanations, explanations
from patchline.series import history
from patchline.series.carried import Carried
from patchline.series.export import series_text
from patchline.series.mail import Header, written
from patchline.series.patch import Patch, parsed

RESOLUTIONS = "resolutions.json"
"""Beside a series: how its conflicts were resolved when it was rebased."""

_TRAILER = "Rebased-From"
_WORDS = re.compile(r"[A-Za-z][A-Za-z0-9-]*: .+|[ \t]+\S.*")


class Candidate(NamedTuple):
    """A rebased series as files."""

    folder: Path
    patches: dict[str, bytes]
    series: bytes
    resolutions: list[dict[str, Any]]
    explanations: Explanations

    def files(self) -> dict[str, bytes]:
        """All of its files, by name."""
        text = self.explanations.text.encode()
        return {**self.own(), **({explained.NAME: text} if text else {})}

    def own(self) -> dict[str, bytes]:
        """Those that nobody edits by hand."""
        more = {RESOLUTIONS: (json.dumps(self.resolutions, indent=1) + "\n").encode()} if self.resolutions else {}
        return {**self.patches, "series": self.series, **more}


def header(patch: Patch, old: Carried) -> Header:
    """The patch's header with a trailer that says which patch it was; everything else as it was."""
    origin = comes_from(old, hashlib.sha256(patch.raw).hexdigest())
    return patch.header._replace(body=_with(patch.header.body, f"{_TRAILER}: {origin}"), fields=())


def comes_from(old: Carried, digest: str) -> str:
    """What the trailer says of a patch of the series `old` whose file has the SHA-256 `digest`."""
    return f"{old.name} sha256:{digest}"


def bare(old: Header) -> Header:
    """The header without that trailer: what is to be compared of two series."""
    front, _, last = old.body.rpartition("\n\n")
    kept = "\n".join(line for line in last.split("\n") if not line.startswith(f"{_TRAILER}: "))
    return old._replace(body="\n\n".join(text for text in (front, kept) if text))


def _with(body: str, trailer: str) -> str:
    """`body` with the trailer at its end, in the place of an earlier one: that one is named by the patch it names."""
    front, _, last = body.rpartition("\n\n")
    lines = last.split("\n")
    if not all(_WORDS.fullmatch(line) for line in lines) or not last:
        return f"{body}\n\n{trailer}" if body else trailer
    kept = [line for line in lines if not line.startswith(f"{_TRAILER}: ")]
    return "\n\n".join(text for text in (front, "\n".join([*kept, trailer])) if text)


def candidate(
    repo: Path,
    base: str,
    head: str,
    names: Sequence[str],
    old: Carried,
    folder: Path,
    resolutions: list[dict[str, Any]],
) -> Candidate:
    """The commits from `base` to `head` of `repo` as the series that `folder` is to hold.

    Raises:
        Refused: a commit cannot be said as a patch.
        UsageError: the old series' explanations are not as they must be.
    """
    patches = dict(zip(names, _patches(repo, history.commits(repo, base, head), names), strict=True))
    text = series_text(old.series.read_text("utf-8", "surrogateescape"), list(patches), set(patches))
    said = explanations(old.folder / explained.NAME, patches)
    return Candidate(folder, patches, text.encode("utf-8", "surrogateescape"), resolutions, said)


def _patches(repo: Path, commits: Sequence[history.Commit], names: Sequence[str]) -> list[bytes]:
    """The patch files of commits, as `history.patch` makes them, with one git for all of them.

    Raises:
        Refused: a commit changes nothing, or its message would not come back from its patch file.
    """
    listed = "".join(f"{one.id}\n" for one in commits).encode()
    rest = git(repo, *(word for word in history.DIFF if word != "--no-commit-id"), "--stdin", input=listed)
    found = []
    for one, following, name in zip(commits, [*commits[1:], None], names, strict=True):
        rest = rest.removeprefix(f"{one.id}\n".encode())
        change, separator, rest = rest.partition(f"\n{following.id}\n".encode() if following else b"\0none")
        raw = written(one.header) + change + (b"\n" if separator else b"")
        if not change or parsed(raw, Path(name), name).header != one.header:
            raise Refused(
                f"{name} cannot be written as a patch: {'it changes nothing' if not change else 'its message'}",
                where=f"{repo}: {one.id}",
                next="take [PATCH], a line --- or a diff out of its message",
            )
        found.append(raw)
    return found


def publish(made: Candidate) -> bool:
    """Writes the candidate; False where it is there already, byte for byte.

    Raises:
        Refused: something else lies in its place.
    """
    if _same(made):
        return False
    clear_parts(made.folder)
    try:
        with folder_whole(made.folder) as part:
            for name, data in made.files().items():
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                (part / name).write_bytes(data)
    except Refused as there:
        raise Refused(
            f"{made.folder} holds another series already; nothing was written",
            where=str(made.folder),
            next=f"python -m patchline rebase … --dry-run to see the verdicts only; or rm -r {made.folder} first",
        ) from there
    return True


def _same(made: Candidate) -> bool:
    """Whether the folder holds the candidate; explanations and other files beside it are somebody's own."""
    return made.folder.is_dir() and all(
        (made.folder / name).is_file() and (made.folder / name).read_bytes() == data
        for name, data in made.own().items()
    )
