"""The evidence that a project keeps: what it has of one kind, and which files of it speak of a release."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from patchline.image import digests
from patchline.project import Project
from patchline.proofs import evidence
from patchline.proofs.evidence import Evidence


def kept(project: Project, kind: str, of: str) -> Evidence | None:
    """The project's evidence of that kind, of one pin or line, whatever it covers; what is another's is none.

    Raises:
        SourceMismatch: it is damaged, or was edited.
    """
    found = evidence.read(evidence.path_of(project, kind, of))
    return found if found and (found.kind, found.of) == (kind, of) else None


def files(project: Project, pins: Iterable[str], line: str, of: Collection[str]) -> dict[str, str]:
    """Digest by path of the evidence that covers one of these digests, of the line and of the series on `pins`.

    Raises:
        SourceMismatch: a file of evidence is damaged, or was edited.
    """
    found: dict[str, str] = {}
    for name in sorted({*(pin.replace("==", "-") for pin in pins), line}):
        for path in sorted((project.root / "builds" / "evidence" / name).glob("*.json")):
            one = evidence.read(path)
            if one and set(one.covers.values()) & set(of):
                found[path.relative_to(project.root).as_posix()] = digests.of(path.read_bytes())
    return found
