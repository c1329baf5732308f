"""Files of an archive as one root commit, through `git fast-import`: raw bytes, no filters."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from patchline import git
from patchline.sources.archive import Member, newest

_REF = "refs/patchline/import"


def commit(repo: Path, members: list[Member], message: str, who: str) -> str:
    """Commits `members` as the whole tree, dated by the newest of them, and returns the full id."""
    text = message.encode()
    stamp = f"{who} {newest(members)} +0000"
    head = [
        b"feature done\n",
        f"commit {_REF}\nauthor {stamp}\ncommitter {stamp}\ndata {len(text)}\n".encode(),
        text,
    ]
    with tempfile.TemporaryFile(dir=repo / ".git") as stream:
        stream.writelines(head)
        stream.writelines(_files(members))
        stream.write(b"\ndone\n")
        stream.seek(0)
        # Speed over size: the pack is local, and made again from the archive at any time.
        git.git(repo, "-c", "core.compression=1", "fast-import", "--quiet", "--depth=0", stdin=stream)
    made = git.commit_of(repo, _REF)
    git.git(repo, "update-ref", "-d", _REF)
    return made


def _files(members: Iterable[Member]) -> Iterator[bytes]:
    for member in members:
        data = member.read()
        path = member.path.replace('"', '\\"').encode("utf-8", "surrogateescape")
        yield b'M %o inline "%s"\ndata %d\n' % (member.mode, path, len(data))
        yield data
        yield b"\n"
