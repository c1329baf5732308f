"""Remarks beside the lines of patch files, in the forms of GitHub's workflow commands and of GitLab's code quality."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from patchline.rebase.course import Progress
from patchline.rebase.report.spots import Spot, spots


def annotated(found: Sequence[Progress]) -> list[str]:
    """Lines that GitHub shows beside the patch files: `::error file=F,line=N,title=T::MESSAGE`."""
    return [_command(spot) for spot in spots(found)]


def _command(spot: Spot) -> str:
    level = "error" if spot.needs_hands else "notice"
    return f"::{level} file={_property(spot.path)},line={spot.line},title=rebase::{_escaped(spot.said)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def quality(found: Sequence[Progress]) -> str:
    """The JSON that GitLab shows in merge requests as code quality; each remark has a fingerprint of its own."""
    return json.dumps([_remark(spot) for spot in spots(found)], indent=1) + "\n"


def _remark(spot: Spot) -> dict[str, object]:
    said = f"{spot.path}\0{spot.line}\0{spot.said}".encode("utf-8", "surrogateescape")
    return {
        "description": spot.said,
        "check_name": "rebase",
        "fingerprint": hashlib.sha256(said).hexdigest(),
        "severity": "major" if spot.needs_hands else "info",
        "location": {"path": spot.path, "lines": {"begin": spot.line}},
    }
