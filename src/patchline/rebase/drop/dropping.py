"""Drops one patch in one version: all is checked and tried beside the project, then written, whole or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager

from patchline.errors import Refused, UsageError
from patchline.files import locked
from patchline.progress import say
from patchline.project import Project
from patchline.rebase import onto
from patchline.rebase.drop import journal, reasons, records
from patchline.rebase.drop.asked import Asked, asked, place, split
from patchline.rebase.drop.journal import Journal
from patchline.rebase.drop.leaning import Rest, rest
from patchline.rebase.drop.proving import Reproved, reproved
from patchline.rebase.drop.records import Tests
from patchline.rebase.drop.trial import check_lint, trial, without
from patchline.rebase.drop.wish import Already, Chronicle, Dropped, Wish
from patchline.series import quilt
from patchline.series.carried import Carried


def plan(project: Project, wish: Wish, chronicle: Chronicle) -> Dropped | Already:
    """All checks but the proof of the rest, and what would be written; nothing is.

    Raises:
        As `drop`, but for the proof.
    """
    with _held(project):
        if stopped := journal.waiting(project):
            raise Refused(
                f"the drop of {stopped.patch} in {stopped.onto} was stopped halfway",
                where=str(journal.path_of(project)),
                next="run that drop again without --dry-run: any drop finishes it first",
            )
        return _tried(project, wish, chronicle, dry=True)


def drop(project: Project, wish: Wish, chronicle: Chronicle) -> Dropped | Already:
    """Drops a patch. A drop that was stopped is finished first.

    Raises:
        UsageError: no such patch or pin, or a reason that is not understood.
        Refused: the verdict does not bear the reason out; there is no series on that version; or the rest
            cannot be proven here.
        DoesNotApply: later patches do not apply without it.
        ProofFailed: later patches are not proven without it.
        As `rebase.judge`, `prove` and `checkout`.
    """
    with _held(project):
        done = _finished(project, wish, chronicle)
        if done:
            return done
        found = _tried(project, wish, chronicle, dry=False)
        if isinstance(found, Dropped):
            here = found.asked.here
            series = here.folder.relative_to(project.root).as_posix()
            made = Journal(patch=found.asked.name, onto=here.name, series=series, writes=found.writes)
            journal.begin(project, made)
            _finish(project, made, chronicle)
        return found


def _held(project: Project) -> AbstractContextManager[None]:
    return locked(project.root / "work" / ".drop.lock", "a drop in this project")


def _finished(project: Project, wish: Wish, chronicle: Chronicle) -> Already | None:
    """Finishes a drop that was stopped; what it was, where it is the one that is asked for."""
    stopped = journal.waiting(project)
    if not stopped:
        return None
    _finish(project, stopped, chronicle)
    say(f"finished the drop of {stopped.patch} in {stopped.onto}, which was stopped halfway")
    upstream, word = split(wish.patch)
    news = chronicle.told(project, upstream, word, place(project, upstream, wish.version).name)
    same = stopped.onto == place(project, upstream, wish.version).name and news
    return Already(stopped.patch, stopped.onto, news) if same else None


def _finish(project: Project, found: Journal, chronicle: Chronicle) -> None:
    journal.finish(project, found)
    chronicle.generate(project)


def _tried(project: Project, wish: Wish, chronicle: Chronicle, *, dry: bool) -> Dropped | Already:
    reasons.check(wish.reason, wish.text)
    upstream, word = split(wish.patch)
    here = place(project, upstream, wish.version)
    found = _asked(here, word, chronicle.told(project, upstream, word, here.name))
    if isinstance(found, Already):
        return found
    judged = reasons.judged(found, wish.reason, run_tests=wish.run_tests, limit=wish.limit)
    left = _left(found)
    with trial(here) as after:
        beside = _beside(found, after, left)
        proof = _proof(after, here, found, left, wish, dry=dry)
        made = Dropped(found, wish, judged, [*left.files], left.written, *beside, proof, "", [])
        made = made._replace(news=chronicle.tell(after.project, made))
        check_lint(project, after.project)
        return made._replace(writes=journal.differences(project, after.project))


def _asked(here: Carried, word: str, news: str) -> Asked | Already:
    """The patch that is meant, or that it was dropped there already."""
    try:
        found = asked(here, word)
    except UsageError:
        if not news:
            raise
        return Already(f"{here.upstream.name}/{word}", here.name, news)
    if news and not found.listed:
        return Already(found.name, here.name, news)
    if not found.listed and not here.series.is_file():
        _check_nothing_carried(found)
    return found


def _check_nothing_carried(found: Asked) -> None:
    """A version without a series needs none where upstream has every patch.

    Raises:
        Refused: a rebase has to make it first.
    """
    here, source = found.here, found.source
    done = onto.verdicts(onto.judge_of(source), source, here)
    if any(one.changes for one in done):
        raise Refused(
            f"there is no series on {here.name} to drop {found.name} from; nothing was changed",
            where=str(here.folder),
            next=f"python -m patchline rebase {source.name} --onto {here.pin.version}",
        )


def _left(found: Asked) -> Rest:
    """The series without the patch; as it is, where a rebase has left the patch out."""
    if found.listed:
        return rest(found.here, found.file)
    if not found.here.series.is_file():
        return Rest({}, b"", [])
    files = quilt.files(found.here.series, own=True)
    names = [item.name for item in files.items]
    return Rest(dict(zip(names, files.raw, strict=True)), found.here.series.read_bytes(), [])


def _beside(found: Asked, after: Carried, left: Rest) -> tuple[Tests, int, int]:
    """Takes patch, tests and what else is its own out of the trial."""
    patch = found.patch()
    if not found.listed:
        return records.tests(after.project, patch), 0, 0
    gone = records.explanations(after.folder, found.file), records.resolutions(after.folder, found.file)
    without(after, left, found.file)
    return records.tests(after.project, patch), *gone


def _proof(after: Carried, here: Carried, found: Asked, left: Rest, wish: Wish, *, dry: bool) -> Reproved:
    if not left.files:
        return Reproved("nothing left")
    if dry:
        return Reproved("not run", patches=tuple(left.files))
    return reproved(after, here, found.file, limit=wish.limit, unproven=wish.unproven, record=wish.record)
