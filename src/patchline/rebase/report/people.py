"""One version's verdicts, for people at a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from patchline.rebase.course import Progress
from patchline.rebase.report.details import counts, details
from patchline.rebase.resolutions import Offer


def text(found: Progress) -> str:
    """The verdicts, what there is to know about each, and the next command."""
    lines = [f"{found.old.name} on {found.new.name}"]
    for one in found.judged:
        lines.append(f"  {one.verdict.value:15} {one.name}{counts(one)}")
        lines += [f"    {line}" for line in details(one, changes=True)]
    return "\n".join([*lines, *_ending(found)])


def _ending(found: Progress) -> Iterator[str]:
    yield from (f"dropped, as was said: {name}" for name in found.dropped)
    yield from (f"no longer explained, since it is not in the rebased patches: {name}" for name in found.unexplained)
    name = found.old.upstream.name
    if found.folder:
        yield f"{'written' if found.written else 'there already'}: {found.folder}"
    if found.tree:
        yield f"{found.patch} waits for hands in {found.tree}:"
        yield from (f"  {path}" for path in found.files)
        for offer in found.offers:
            yield from _offer(offer, name)
        yield f"then: python -m patchline rebase {name} --continue; or --abort"


def _offer(offer: Offer, name: str) -> Iterator[str]:
    yield f"resolved before ({offer.source}), as {offer.resolution.key}:"
    yield from (f"  | {line}" for line in offer.resolution.resolved.splitlines())
    if more := offer.resolution.elsewhere:
        where = f"{offer.source.parent}/{offer.resolution.patch}"
        yield f"  it is not all: {more} more places of the file were changed by hand; see {where}"
    yield f"  take it: python -m patchline rebase {name} --take {offer.resolution.key}"
