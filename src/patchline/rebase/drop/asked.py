"""Which patch is meant, on which version, and which series it is judged from."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from packaging.version import Version

from patchline.errors import UsageError
from patchline.nearest import hint
from patchline.project import Project
from patchline.series import quilt
from patchline.series.carried import Carried, carried
from patchline.series.patch import Patch
from patchline.series.quilt import bare

_NUMBER = re.compile(r"(\d+)-")
_FROM = "rebased-from"


class Asked(NamedTuple):
    """The patch to drop."""

    here: Carried
    """The version that it is dropped in."""
    file: str
    """Its file's name there; where that series lacks it already, in `source`."""
    listed: bool
    """Whether the series of `here` still has it."""
    source: Carried
    """The series that it is judged from: that of an older version, where one has it."""
    source_file: str

    @property
    def name(self) -> str:
        """As people type it: `vllm/nixl-hybrid-manager-guard`."""
        return f"{self.here.upstream.name}/{bare(self.file)}"

    @property
    def path(self) -> str:
        """Of the patch file, below `patches/`; gone once it is dropped."""
        of = self.here if self.listed else self.source
        return f"{of.upstream.name}/{of.pin.version}/{self.file}"

    def patch(self) -> Patch:
        """The patch as `here` has it, or as `source` has it where that series lacks it."""
        of = self.here if self.listed else self.source
        return next(one for one in _patches(of) if one.name == self.file)


def is_meant(word: str, name: str) -> bool:
    """Whether `word` (a file name, a name without number and ending, or the number) means the file `name`."""
    number = _NUMBER.match(name)
    return word in (name, bare(name)) or bool(word.isdigit() and number and int(number[1]) == int(word))


def split(spec: str) -> tuple[str, str]:
    """Upstream and word of `vllm/WORD`, `patches/vllm/0.31.0/WORD`, or of a bare word, which is one of vllm's."""
    parts = [part for part in spec.split("/") if part]
    parts = parts[1:] if parts[:1] == ["patches"] else parts
    if not parts:
        raise UsageError("no patch is named", next="for example: python -m patchline drop vllm/NAME …")
    return (parts[0] if parts[1:] else "vllm"), parts[-1]


def place(project: Project, upstream: str, version: str) -> Carried:
    """The pin that `--in` means.

    Raises:
        UsageError: it is not pinned, or of another upstream.
    """
    found = carried(version if "==" in version else f"{upstream}=={version}", project)
    if found.upstream.name != upstream:
        raise UsageError(f"{found.name} is no version of {upstream}", next=f"--in {upstream}==VERSION")
    return found


def asked(here: Carried, word: str) -> Asked:
    """The one patch of `here`, or of an older version's series, that `word` means.

    Raises:
        UsageError: none, or several; or no series is carried on `here` at all.
    """
    listed = _listed(here)
    own = listed.get(here.pin.version, [])
    if file := _one(word, own, here.name):
        source, name = _source(here, listed, bare(file), _rebased_from(here, file))
        return Asked(here, file, True, source, name)
    older = [name for names in _older(here, listed).values() for name in names]
    file = _one(word, older, f"the series before {here.name}")
    if not file:
        names = [bare(name) for names in listed.values() for name in names]
        raise UsageError(f"no series has a patch {word!r}; {hint(word, names)}", where=str(here.folder.parent))
    source, name = _source(here, listed, bare(file), "")
    return Asked(here, name, False, source, name)


def _listed(here: Carried) -> dict[str, list[str]]:
    """The patch files of every version's series, of the pins' versions, by version."""
    found = {}
    for pin in here.upstream.pins:
        path = here.project.series_dir(here.upstream.name, pin.version) / "series"
        if path.is_file():
            found[pin.version] = [item.name for item in quilt.items(path)]
    return found


def _older(here: Carried, listed: dict[str, list[str]]) -> dict[str, list[str]]:
    own = Version(here.pin.version)
    return {version: names for version, names in listed.items() if Version(version) < own}


def _one(word: str, names: Iterable[str], where: str) -> str:
    """The name that is meant; empty where none is."""
    found = {bare(name): name for name in names if is_meant(word, name)}
    if len(found) > 1:
        raise UsageError(f"{word!r} means several patches of {where}: {', '.join(found)}", next="give a whole name")
    return next(iter(found.values()), "")


def _source(here: Carried, listed: dict[str, list[str]], key: str, stated: str) -> tuple[Carried, str]:
    """The series to judge from, with the patch's file there: the stated one, the carried one, else the newest older."""
    having = {version: name for version, names in _older(here, listed).items() for name in names if bare(name) == key}
    newest = sorted(having, key=Version, reverse=True)
    for version in (stated, here.upstream.carried, *newest):
        if version in having:
            return carried(f"{here.upstream.name}=={version}", here.project), having[version]
    return here, next(name for name in listed[here.pin.version] if bare(name) == key)


def _rebased_from(here: Carried, file: str) -> str:
    """The version that the trailer `Rebased-From:` names; empty where there is none."""
    patch = next(one for one in _patches(here) if one.name == file)
    named = patch.header.trailers.get(_FROM, [""])[-1]
    return named.partition(" ")[0].partition("==")[2]


def _patches(of: Carried) -> list[Patch]:
    return quilt.patches(quilt.files(of.series, own=True))
