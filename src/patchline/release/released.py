"""What became of an image on its way to a tag: published as a nightly, or promoted to a release."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from patchline.release import plan
from patchline.release.plan import Plan


class Released(NamedTuple):
    """One image, with the tag that it got."""

    tag: str
    """In a dry run the one that it would get."""
    digest: str
    repository: str
    record: Path
    plan: Plan
    """As it was found: what holds and what was done before, and what this run did, or in a dry run would do."""
    already: bool
    """Whether nothing was left to do."""
    dry_run: bool
    nightly: str = ""
    """Of a release: the tag that it was tested under."""


def data(done: Released) -> dict[str, Any]:
    """What became of it, for machines."""
    nightly = {"nightly": done.nightly} if done.nightly else {}
    said = {"tag": done.tag, **nightly, "digest": done.digest, "repository": done.repository}
    flags = {"already": done.already, "dry_run": done.dry_run}
    return {**said, "record": str(done.record), **flags, "plan": plan.data(done.plan)}
