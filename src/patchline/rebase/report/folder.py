"""The report of a rebase as files: what a CI job shows, keeps, and ends with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from patchline.files import write_whole
from patchline.rebase.course import Progress
from patchline.rebase.report.annotations import annotated, quality
from patchline.rebase.report.junit import junit
from patchline.rebase.report.machine import data
from patchline.rebase.report.markdown import markdown

_JSON = "report.json"
_NAMES = ("report.md", "junit.xml", "annotations.txt", "code-quality.json", "needs-hands", _JSON)
SERIES = "series"
"""Below the report: the candidate series, as `UPSTREAM/VERSION/`."""


def begin(folder: Path) -> None:
    """Clears an earlier report away, so that a run that breaks leaves none; other files there stay."""
    if (folder / _JSON).is_file() and (folder / SERIES).is_dir():
        shutil.rmtree(folder / SERIES)
    for name in _NAMES:
        (folder / name).unlink(missing_ok=True)


def write(folder: Path, found: Sequence[Progress], notes: Sequence[str] = ()) -> None:
    """Writes the report; its last file is `report.json`.

    `needs-hands` lists the patches that need them and is there only if some do: nox ends with 1 whatever its
    session ended with, so a job that runs it tells by this file.
    """
    waiting = [f"{each.name} on {one.new.name}" for one in found for each in one.judged if each.needs_hands]
    files = {
        "report.md": markdown(found, notes),
        "annotations.txt": "".join(f"{line}\n" for line in annotated(found)),
        "code-quality.json": quality(found),
        **({"needs-hands": "".join(f"{line}\n" for line in waiting)} if waiting else {}),
    }
    for name, text in files.items():
        write_whole(folder / name, text.encode("utf-8", "surrogateescape"))
    write_whole(folder / "junit.xml", junit(found))
    whole = {"versions": [data(one) for one in found], "notes": list(notes)}
    write_whole(folder / _JSON, (json.dumps(whole, indent=1) + "\n").encode())
