"""Files of an archive as one root commit."""

from __future__ import annotations

import tempfile
from pathlib import Path

from patchline import fast_import, git
from patchline.sources.archive import Member, newest


def commit(repo: Path, members: list[Member], message: str, who: str) -> str:
    """Commits `members` as the whole tree, dated by the newest of them, and returns the full id."""
    with tempfile.TemporaryFile(dir=repo / ".git") as stream:
        stream.write(b"feature done\n")
        stream.writelines(fast_import.commit(f"{who} {newest(members)} +0000", message.encode()))
        for member in sorted(members, key=lambda member: member.path):
            stream.writelines(fast_import.file(member.path, member.mode, member.read()))
        stream.write(b"\ndone\n")
        stream.seek(0)
        # Speed over size: the pack is local, and made again from the archive at any time.
        git.git(repo, "-c", "core.compression=1", "fast-import", "--quiet", "--depth=0", stdin=stream)
    made = git.commit_of(repo, fast_import.REF)
    git.git(repo, "update-ref", "-d", fast_import.REF)
    return made
