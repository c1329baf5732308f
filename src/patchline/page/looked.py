"""What the page looks for itself: an audit of every carried series' tree, and its verdicts on later pinned versions."""

from __future__ import annotations

from patchline import git
from patchline.audit import finding, tree
from patchline.errors import UsageError
from patchline.page.given import Audit, Finding, Verdict
from patchline.project import Project
from patchline.rebase import onto
from patchline.rebase.targets import targets
from patchline.rebase.words import Judged
from patchline.series import applied
from patchline.series.carried import Carried, every
from patchline.series.moves import held


def audits(project: Project) -> list[Audit]:
    """The checked-out pins, as they lie there, in the pins' order; one that is not here is checked out and patched.

    Raises:
        DoesNotApply: a series does not apply to its pin.
        SourceMismatch, Unreachable: a pin could not be brought here.
    """
    return [_audit(one) for one in every(project)]


def _audit(one: Carried) -> Audit:
    if not one.repo.is_dir() or _is_stock(one):
        one.apply()
    made = tree.pin(one)
    known = tuple(_finding(each.finding, each.reason) for each in made.known)
    return Audit(made.subject, made.compared, tuple(_finding(each) for each in made.findings), known)


def _is_stock(one: Carried) -> bool:
    """Whether the pin was only checked out, as `rebase` does it: nothing was ever applied or changed there."""
    base = one.base()
    with held(one.repo) as tree:
        if applied.load(tree.applied) or tree.head != base:
            return False
        return not git.work(one.repo, "status", "--porcelain")


def _finding(one: finding.Finding, reason: str = "") -> Finding:
    return Finding(one.kind, one.path, one.what, one.line, one.end, one.patch, one.detail, reason)


def verdicts(project: Project) -> list[Verdict]:
    """Every carried patch on every later pinned version, by its text; no test is run.

    Raises:
        As `audits`.
    """
    return [verdict for one in every(project) for verdict in _series(one)]


def _series(one: Carried) -> list[Verdict]:
    later = _later(one)
    judge = onto.judge_of(one) if later else None
    return [
        Verdict(one.upstream.name, new.pin.version, each.judged.name, each.judged.verdict.value, _why(each.judged))
        for new in later
        if judge
        for each in onto.verdicts(judge, one, new)
    ]


def _later(one: Carried) -> list[Carried]:
    try:
        return targets(one)
    except UsageError:  # nothing later is pinned
        return []


def _why(one: Judged) -> str:
    places = [f"{each.path}:{each.line}{f' ({each.why})' if each.why else ''}" for each in one.conflicts]
    return "; ".join([*one.evidence, *places])
