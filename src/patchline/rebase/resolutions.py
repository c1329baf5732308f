"""How conflicts were resolved: recorded with the series, offered the next time, never applied unseen."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from patchline.errors import UsageError
from patchline.project import Project
from patchline.rebase.align import Alignment, align
from patchline.rebase.candidate import RESOLUTIONS
from patchline.rebase.content import text
from patchline.rebase.merge import Block
from patchline.series.place import split


class Resolution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody made of one conflict. Texts are whole lines."""

    key: str
    """Digest of the three sides: the same conflict has the same key, in whatever file and version."""
    patch: str
    path: str
    base: str
    ours: str
    theirs: str
    before: str
    """Lines right before the conflict that the resolution changes as well."""
    after: str
    resolved: str
    """What stands in the place of `before`, the conflict and `after`."""
    elsewhere: int = 0
    """Places outside of all conflicts that the person changed in the file: where there are some, this is not all."""


class Offer(NamedTuple):
    """A resolution that is recorded for a conflict at hand."""

    resolution: Resolution
    source: Path


def key(base: str, ours: str, theirs: str) -> str:
    """The conflict's key, 16 hex digits."""
    return hashlib.sha256(json.dumps([base, ours, theirs]).encode()).hexdigest()[:16]


def recorded(project: Project, upstream: str) -> dict[str, Offer]:
    """Every recorded resolution of an upstream's series, by key; of two, the last version's.

    Raises:
        UsageError: a file of resolutions is not as it must be.
    """
    found: dict[str, Offer] = {}
    for path in sorted((project.root / "patches" / upstream).glob(f"*/{RESOLUTIONS}")):
        try:
            listed = msgspec.json.decode(path.read_bytes(), type=list[Resolution])
        except msgspec.MsgspecError as wrong:
            raise UsageError(
                f"the recorded resolutions are not understood: {wrong}", where=str(path), next=f"git checkout -- {path}"
            ) from wrong
        found |= {one.key: Offer(one, path) for one in listed}
    return found


def offers(blocks: Iterable[Block], known: dict[str, Offer]) -> list[Offer]:
    """The recorded resolutions of these conflicts."""
    keys = dict.fromkeys(key(*map(text, _sides(block))) for block in blocks)
    return [known[one] for one in keys if one in known]


def record(patch: str, path: str, marked: bytes, blocks: Sequence[Block], resolved: bytes) -> list[Resolution]:
    """What became of each conflict of a file with markers.

    Not recorded are conflicts between which no line was left as it was, since nothing tells them
    apart, and files that are not UTF-8, since a record is text.
    """
    if not _is_text(marked + resolved):
        return []
    lines, now = split(marked), split(resolved)
    pairs = align(marked, resolved)
    found, elsewhere = [], len(_outside(pairs, blocks))
    for block in blocks:
        before, after = pairs.before(block.begin), pairs.after(block.end)
        first, end = before.one + 1, after.one
        if any(other is not block and other.begin < end and other.end > first for other in blocks):
            continue
        sides = {name: text(side) for name, side in zip(("base", "ours", "theirs"), _sides(block), strict=True)}
        found.append(
            Resolution(
                key=key(sides["base"], sides["ours"], sides["theirs"]),
                patch=patch,
                path=path,
                **sides,
                before=text(lines[first : block.begin]),
                after=text(lines[block.end : end]),
                resolved=text(now[before.other + 1 : after.other]),
                elsewhere=elsewhere,
            )
        )
    return found


def _outside(pairs: Alignment, blocks: Sequence[Block]) -> list[tuple[int, int, int, int]]:
    """The changes that touch no conflict."""
    return [one for one in pairs.changes if not any(one[0] <= each.end and one[1] >= each.begin for each in blocks)]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sides(block: Block) -> tuple[list[bytes], list[bytes], list[bytes]]:
    return block.base, block.ours, block.theirs


def take(marked: bytes, blocks: Sequence[Block], chosen: Resolution) -> bytes | None:
    """The file with one conflict resolved as it was before; None where no conflict in it is that one."""
    if not _is_text(marked):
        return None
    lines = split(marked)
    before, after = (split(part.encode()) for part in (chosen.before, chosen.after))
    for block in blocks:
        if key(*map(text, _sides(block))) == chosen.key:
            first, end = block.begin - len(before), block.end + len(after)
            if first >= 0 and lines[first : block.begin] == before and lines[block.end : end] == after:
                return b"".join([*lines[:first], chosen.resolved.encode(), *lines[end:]])
    return None


def decoded(listed: Sequence[dict[str, Any]]) -> list[Resolution]:
    """Resolutions as `as_json` gave them."""
    return [msgspec.convert(one, Resolution) for one in listed]


def as_json(found: Sequence[Resolution]) -> list[dict[str, Any]]:
    """For the file beside the series, each conflict once."""
    return [msgspec.to_builtins(one) for one in {one.key: one for one in found}.values()]
