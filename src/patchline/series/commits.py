"""Writes a plan as commits, one a patch, in one pass of `git fast-import`; touches no branch."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from patchline.git import git, line
from patchline.series.mail import Header
from patchline.series.plan import Changes, Step

AUTHOR = ("patchline", "patchline@localhost")
"""Who a commit is by when its patch does not say."""

_REF = b"refs/patchline/import"
_SPOOL = 32 << 20  # bytes of the stream that are kept in memory; more goes to a temporary file


def write(repo: Path, base: str, steps: Iterable[Step]) -> list[str]:
    """Writes one commit a step on top of `base`; returns their ids, in order.

    The ids depend on `base` and the patches alone: the committer is the author, at the author's
    date, so the same series gives the same ids on every machine. No ref and no file of the work
    tree changes; killed half way, nothing can be seen of it.
    """
    return write_changes(repo, base, [(step.patch.header, step.changes) for step in steps])


def write_changes(repo: Path, base: str, commits: list[tuple[Header, Changes]]) -> list[str]:
    """As `write`, for changes that have no patch yet."""
    fallback = None
    if any(header.seconds is None for header, _ in commits):
        fallback = line(repo, "show", "-s", "--format=%at +0000", base)
    with tempfile.SpooledTemporaryFile(_SPOOL) as stream:
        out: BinaryIO = stream  # type: ignore[assignment]
        parent = base
        for mark, (header, changes) in enumerate(commits, 1):
            _commit(out, mark, parent, header, changes, fallback)
            parent = f":{mark}"
        out.write(b"".join(b"get-mark :%d\n" % mark for mark in range(1, len(commits) + 1)))
        out.write(b"reset %s\nfrom %s\n\ndone\n" % (_REF, b"0" * len(base)))
        stream.rollover()  # git reads it from a file
        stream.seek(0)
        answer = git(repo, "fast-import", "--quiet", "--force", "--done", "--depth=0", stdin=out)
    return answer.decode().split()


def _commit(out: BinaryIO, mark: int, parent: str, header: Header, changes: Changes, fallback: str | None) -> None:
    name, email = (header.name, header.email) if header.name or header.email else AUTHOR
    when = fallback if header.seconds is None else f"{header.seconds} {header.zone}"
    person = f"{name} <{email}> {when}".lstrip().encode()
    message = header.message.encode("utf-8", "surrogateescape")
    out.write(b"commit %s\nmark :%d\nauthor %s\ncommitter %s\n" % (_REF, mark, person, person))
    out.write(b"data %d\n%s\nfrom %s\n" % (len(message), message, parent.encode()))
    for path, entry in sorted(changes.items(), key=lambda item: item[1] is not None):
        if entry is None:
            out.write(b"D %s\n" % quoted(path))
        else:
            out.write(b"M %o inline %s\ndata %d\n" % (entry.mode, quoted(path), len(entry.data)))
            out.write(entry.data)
            out.write(b"\n")
    out.write(b"\n")


def quoted(path: str) -> bytes:
    """`path` as fast-import reads it: in quotes, with C escapes, where it needs them."""
    name = os.fsencode(path)
    if not re.search(rb'["\\\n\x00-\x1f]', name):
        return name
    return b'"' + re.sub(rb'["\\\x00-\x1f]', lambda match: b"\\%03o" % match[0][0], name) + b'"'
