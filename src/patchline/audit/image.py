"""Audit of an image: what it says, and every file of its pinned packages; it is not run, and not unpacked to disk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from patchline.audit import attached, distributions, known, labels, layers, project_says, syspath
from patchline.audit.compared import Compared, compared
from patchline.audit.finding import Audit, Explained, Finding, ordered
from patchline.audit.labels import Said
from patchline.audit.made import pin_tree
from patchline.audit.project_says import Agreed
from patchline.audit.syspath import Setting
from patchline.audit.view import View, patterns
from patchline.audit.wanted import PinTree, installed
from patchline.errors import SourceMismatch
from patchline.image import identity, lock
from patchline.image.base import Base, find
from patchline.image.lock import Lock
from patchline.image.opening import opened
from patchline.lines.line import Line, line, names
from patchline.progress import say
from patchline.project import Project, cache_dir
from patchline.series.carried import every


class _Question(NamedTuple):
    """All that an image is held against."""

    line: Line | None
    said: Said
    agreed: Agreed
    lock: Lock | None
    stock: bool

    @property
    def tops(self) -> list[str]:
        found = {top for one in self.agreed.made for top in one.tops}
        return sorted(found or {one.upstream.name for one in self.agreed.carried})


def audit(project: Project, reference: str, line_name: str, platform: str, *, stock: bool = False) -> Audit:
    """Audits the image that `reference` means now, by its digest; `stock` for a base, which holds no overlay.

    Raises:
        SourceMismatch: its bytes are not those of its digests, it is no image, or has none of the packages.
        Refused: a layer cannot be read.
        UsageError: no such line, or nothing says what has to be in the image.
        Unreachable: the registry does not answer.
    """
    with opened(reference) as source:
        image = find(source, platform=platform)
        question = _question(project, image, line_name, stock)
        kept = {change.path for one in question.agreed.made for change in one.overlay.changes}
        start = syspath.setting(image.config.fields.get("config") or {})
        view = layers.view(image, patterns(question.tops, kept, start.path))
        there = attached.read(project, source, image)
    found = _compared(question, view, pin_tree(project, question.agreed.carried, question.tops), start)
    if not found.held:
        raise SourceMismatch("no file could be compared", where=image.where)
    entries = known.read(question.line.folder) if question.line else ()
    hung = () if stock else attached.findings(project, image, question.said, view, there)
    every_one = dict.fromkeys(
        [*_said(question, view), *hung, *found.findings]
    )  # packages of one place share distributions
    left, accepted = known.split(list(every_one), entries)
    notes = (*question.agreed.notes, *(() if stock else there.notes), *_notes(question, found.unread, view))
    facts = {"image": image.digest, "line": question.line.name if question.line else "", "base": question.said.base}
    facts |= {} if stock else project_says.facts(question.agreed.made)
    return Audit(reference, found.held, ordered(left), tuple(found.explained), tuple(accepted), notes, facts)


def _compared(question: _Question, view: View, pins: PinTree, start: Setting) -> Compared:
    """Every package at every place of it."""
    findings, explained, held, unread = list[Finding](), list[Explained](), 0, 0
    places = installed(view, question.tops)
    for place in places:
        one = compared(view, place, question.lock, [each.patched for each in question.agreed.made], pins)
        findings += [*one.findings, *syspath.findings(view, place, start)]
        explained += one.explained
        held, unread = held + one.held, unread + one.unread
    named = {one.path for one in findings}
    findings += [one for one in distributions.unlisted(view, places) if one.path not in named]
    return Compared(held, findings, explained, unread)


def _question(project: Project, image: Base, line_name: str, stock: bool) -> _Question:
    said = labels.read(image)
    if stock:
        return _Question(None, said, Agreed(tuple(every(project)), (), (), ()), _lock(project, image.digest), stock)
    findings = []
    wanted = line_name or (said.line if said.line in names(project) else "")
    if said.line and said.line not in names(project):
        findings.append(Finding("label", f"{labels.OURS}line", f"the repository has no line {said.line}"))
    if line_name and said.line and said.line != line_name:
        findings.append(Finding("label", f"{labels.OURS}line", f"it says {said.line}, and not {line_name}"))
    chosen = line(project, wanted) if wanted else None
    agreed = project_says.agreed(project, chosen, said)
    agreed = agreed._replace(findings=(*findings, *agreed.findings))
    return _Question(chosen, said, agreed, _lock(project, said.base), stock)


def _lock(project: Project, base: str) -> Lock | None:
    """The lock of the image's base: a line's own, or one of a base that was made here."""
    own = [line(project, name).lock for name in names(project)]
    for folder in (*own, *sorted((cache_dir() / "base-locks").glob("*"))):
        if (folder / "lock.json").is_file():
            try:
                found = lock.read(folder)
            except SourceMismatch as bad:
                if folder in own:
                    raise
                say(f"{folder}: {bad.what}")
                continue
            if found.contents.base == base:
                return found
    return None


def _said(question: _Question, view: View) -> Iterator[Finding]:
    """Everything that the image says of itself, and what its layers should not hold."""
    yield from question.said.findings
    yield from question.agreed.findings
    data = view.read(identity.FILE) if identity.FILE in view.files else None
    if question.stock:
        if not question.said.silent or data is not None:
            yield Finding("label", identity.FILE, "a base says nothing in the name of patchline, and this image does")
    elif question.said.silent and data is None:
        yield Finding("label", f"{labels.OURS}line", "the image says nothing of what is in it")
    else:
        yield from labels.inside(question.said, data)
    yield from _base(question)
    yield from (Finding("member", path, what) for path, what in sorted(view.odd.items()))


def _base(question: _Question) -> Iterator[Finding]:
    chosen = question.line
    if chosen is None or chosen.base.named is None or not question.said.base:
        return
    from patchline.lines import pinned

    found = pinned.read(chosen)
    if found is not None and found.manifest != question.said.base:
        what = f"it says {question.said.base}, and the base of {chosen.name} is pinned to {found.manifest}"
        yield Finding("label", f"{labels.OURS}base", what)


def _notes(question: _Question, unread: int, view: View) -> list[str]:
    said = [f"{unread} files that RECORD lists lie outside of what an audit reads"] if unread else []
    if coded := sum(path.endswith(".pyc") for path in view.files):
        said.append(f"{coded} files of byte-code were held against their sources by their heads only")
    if question.lock is None:
        said.append("no base lock is of its base: files were held against RECORD and the pins' sources only")
    return said
