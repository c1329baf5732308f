"""The words of an audit: what was compared, what a patch accounts for, and what nothing does."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

ATTACHED = "provenance"
"""Kind of findings on what is attached to an image."""

KINDS = {
    "unexplained": "a difference from upstream that no patch accounts for",
    "carried-missing": "a carried change that is not in place",
    "changed": "a file whose bytes are not those that it has to have",
    "mode": "a file with its bytes, and with another mode or owner than it has to have",
    "missing": "a file that has to be there and is not",
    "extra": "a file that nothing accounts for",
    "unlike-pin": "a file that is as it was installed, and not as in the pin's source",
    "record": "a RECORD that does not say what is there",
    "stale-bytecode": "byte-code that is not of the source beside it",
    "unchecked-bytecode": "byte-code that Python runs without a look at its source",
    "sourceless-bytecode": "byte-code without a source",
    "shadowed": "another place of the same package on sys.path",
    "member": "what no layer of an image should hold",
    "label": "a label that does not say what is there",
    ATTACHED: "what is attached to an image, or is not, and does not say what is there",
    "schema": "what another version of this tool wrote",
    "explains-nothing": "an entry of known.toml that stands for nothing",
}
"""What findings are called, in the order in which people read them. Their names stay: other programs know them."""


class Finding(NamedTuple):
    """One thing that nothing explains."""

    kind: str
    path: str
    """Of the file, from the top of the tree or the root of the image; of a label its name."""
    what: str
    line: int = 0
    """The first line, from 1; 0 where the whole file is meant."""
    end: int = 0
    """The last line."""
    patch: str = ""
    """The patch that it belongs to, or the nearest one in that file."""
    detail: tuple[str, ...] = ()
    """The lines themselves, as a diff has them; some of them where they are many."""
    found: str = ""
    """Digest of the bytes that are there, where they are known."""
    commits: tuple[str, ...] = ()
    """Id and subject of the fork's commits that touch the file and are no patch of the series."""


class Explained(NamedTuple):
    """One run of changed lines, and the patches that it belongs to. Lines count from 1, ends are left out."""

    path: str
    old: tuple[int, int]
    """Upstream's lines."""
    new: tuple[int, int]
    """The fork's lines; both are (0, 0) where the file is no text."""
    patches: tuple[str, ...]


class Known(NamedTuple):
    """A finding that a line's `known.toml` gives a reason for."""

    finding: Finding
    reason: str


class Audit(NamedTuple):
    """What one audit found."""

    subject: str
    """What was audited: `vllm==0.31.0`, or an image's name."""
    compared: int
    """Files that were compared; never none."""
    findings: tuple[Finding, ...]
    explained: tuple[Explained, ...] = ()
    known: tuple[Known, ...] = ()
    notes: tuple[str, ...] = ()
    """What people should know and what is no fault."""
    facts: Mapping[str, str] = MappingProxyType({})
    """What it was compared with: digests and commits, by their names."""


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """By kind, in the order of `KINDS`, then by place."""
    kinds = list(KINDS)
    return tuple(sorted(findings, key=lambda one: (kinds.index(one.kind), one.path, one.line, one.what)))
