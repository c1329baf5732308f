"""What the changelog tells of a patch that is carried no more: why, when, and which upstream version made it so."""

from __future__ import annotations

from patchline.changelog import entries, news
from patchline.changelog.words import listed, number
from patchline.project import Project
from patchline.rebase.drop.asked import is_meant
from patchline.rebase.drop.wish import Dropped
from patchline.series import quilt

KIND = "dropped"

_WHY = {
    "upstream": "{version} has it",
    "not-needed": "its tests pass on {version} without it",
    "superseded": "it is superseded in {version}",
}


def tell(project: Project, found: Dropped) -> str:
    """Writes the news of a drop; its path from the project's root."""
    here = found.asked.here
    name = f"{quilt.bare(found.asked.file)} in {here.pin.version}"
    fields = {"Patch": found.asked.path, "Upstream": here.name}
    path = news.write(project, KIND, name, text(found), fields=fields, again=True)
    return path.relative_to(project.root).as_posix()


def told(project: Project, upstream: str, word: str, onto: str) -> str:
    """The path of the news that a patch was dropped in the version `onto`; empty where there is none."""
    for one in news.read(project):
        meant = any(patch.upstream == upstream and is_meant(word, patch.file) for patch in one.patches)
        if meant and one.kind == KIND and one.upstream == onto:
            return one.path.relative_to(project.root).as_posix()
    return ""


def text(found: Dropped) -> str:
    """The news, in Markdown: whole sentences."""
    version = entries.spelled(found.asked.here.name)
    why = _WHY.get(found.wish.reason, f"{found.wish.reason.replace('-', ' ')}, in {{version}}").format(version=version)
    sentences = [f"{_subject(found)}: {why}.", *_evidence(found), *_words(found.wish.text), _tests(found), _rest(found)]
    return " ".join(sentence for sentence in sentences if sentence)


def _subject(found: Dropped) -> str:
    return f"`{quilt.bare(found.asked.file)}` is dropped"


def _evidence(found: Dropped) -> list[str]:
    judged, source = found.judged, entries.spelled(found.asked.source.name)
    why = f": {'; '.join(judged.evidence)}" if judged.evidence else ""
    return [f"Judged from {source}, its verdict is `{judged.verdict.value}`{why}."]


def _words(said: str) -> list[str]:
    said = " ".join(said.split())
    return [said if said.endswith((".", "!", "?")) else f"{said}."] if said else []


def _tests(found: Dropped) -> str:
    gone, stay = found.tests.removed, found.tests.stay
    parts = []
    if gone:
        parts.append(f"{number(len(gone), 'test file')} went with it: {listed([f'`{path}`' for path in gone])}.")
    if stay:
        parts.append(f"{number(len(stay), 'test file')} {'stays' if len(stay) == 1 else 'stay'} for other patches.")
    return " ".join(parts)


def _rest(found: Dropped) -> str:
    left, proof = found.left, found.proof
    version = entries.spelled(found.asked.here.name)
    if not left:
        return f"Nothing is left to carry on {version}."
    counted = f"The {number(len(left), 'patch', 'patches')} left on {version}"
    are = "is" if len(left) == 1 else "are"
    if proof.state == "proven":
        without = f", without compiled code ({proof.why})" if proof.why else ""
        return f"{counted} {are} proven without it{without}."
    return f"{counted} {are} not proven without it{': ' + proof.why if proof.why else ''}."
