"""The provenance that is attached to an image, held against its labels, the project's evidence, patches and pins."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from patchline.audit import committed
from patchline.audit.finding import ATTACHED, Finding
from patchline.audit.labels import Said
from patchline.image.base import Base
from patchline.pins import load
from patchline.pins.model import GitPin
from patchline.project import Project
from patchline.release.provenance import BUILDER_ID, PREDICATE


class _Named(msgspec.Struct, frozen=True):
    name: str = ""
    uri: str = ""
    digest: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def sha256(self) -> str:
        return f"sha256:{self.digest.get('sha256', '')}"


class _Base(msgspec.Struct, frozen=True):
    digest: str


class _Parameters(msgspec.Struct, frozen=True):
    line: str
    base: _Base
    series: tuple[str, ...]


class _Definition(msgspec.Struct, frozen=True, rename="camel"):
    external_parameters: _Parameters
    resolved_dependencies: tuple[_Named, ...]


class _Builder(msgspec.Struct, frozen=True):
    id: str


class _Details(msgspec.Struct, frozen=True):
    builder: _Builder
    byproducts: tuple[_Named, ...] = ()


class _Predicate(msgspec.Struct, frozen=True, rename="camel"):
    build_definition: _Definition
    run_details: _Details


class _Whose(msgspec.Struct, frozen=True):
    """As much as every statement has."""

    predicate_type: str = msgspec.field(name="predicateType")
    predicate: msgspec.Raw


class _Built(msgspec.Struct, frozen=True, rename="camel"):
    class Details(msgspec.Struct, frozen=True):
        builder: _Builder

    run_details: Details


class _Statement(msgspec.Struct, frozen=True):
    subject: tuple[_Named, ...]
    predicate: _Predicate


def is_ours(data: bytes) -> bool:
    """Whether it is the provenance of this tool's builder; others may attach what they like."""
    try:
        found = msgspec.json.decode(data, type=_Whose)
        who = msgspec.json.decode(found.predicate, type=_Built).run_details.builder.id
    except (msgspec.MsgspecError, RecursionError):
        return False
    return found.predicate_type == PREDICATE and who == BUILDER_ID


def findings(project: Project, image: Base, said: Said, data: bytes, path: str) -> Iterator[Finding]:
    """Everything in the statement at `path` that is not so."""
    try:
        found = msgspec.json.decode(data, type=_Statement)
    except (msgspec.MsgspecError, RecursionError) as bad:
        yield Finding(ATTACHED, path, f"it is not understood ({bad})")
        return
    definition = found.predicate.build_definition
    parameters = definition.external_parameters
    subjects = [one.sha256 for one in found.subject]
    pairs = [
        ("image", ", ".join(subjects), image.digest),
        ("line", parameters.line, said.line),
        ("base", parameters.base.digest, said.base),
        ("series", " ".join(sorted(parameters.series)), " ".join(sorted(one.pin for one in said.series))),
    ]
    for name, told, wanted in pairs:
        if told != wanted:
            yield Finding(ATTACHED, path, f"its {name} is {told}, and the image's is {wanted or 'not said'}")
    yield from _patches(project, said, definition.resolved_dependencies, path)
    yield from _pins(project, definition.resolved_dependencies, path)
    for one in found.predicate.run_details.byproducts:
        if not committed.has(project, one.name, one.sha256):
            what = f"it names the evidence {one.name} of {one.sha256}, and no such file is or was in the project"
            yield Finding(ATTACHED, path, what)


def _patches(project: Project, said: Said, named: tuple[_Named, ...], path: str) -> Iterator[Finding]:
    """Every patch by pin and name: those of the labels, with their commits, as files that the project has."""
    told = {(one.annotations.get("pin", ""), one.name.rpartition("/")[2]): one for one in named if one.annotations}
    wanted = {(one.pin, patch.name): patch.id for one in said.series for patch in one.patches}
    for key in sorted({*told, *wanted}):
        pin, patch = key
        if key not in told:
            yield Finding(ATTACHED, path, f"it does not name the patch {patch} on {pin}", patch=patch)
        elif key not in wanted:
            yield Finding(ATTACHED, path, f"it names the patch {patch} on {pin}, and the labels do not", patch=patch)
        elif (commit := told[key].annotations.get("commit", "")) != wanted[key]:
            what = f"its patch {patch} on {pin} is commit {commit or 'none'}, and the labels say {wanted[key]}"
            yield Finding(ATTACHED, path, what, patch=patch)
        elif not committed.has(project, told[key].name, told[key].sha256):
            what = f"its patch {told[key].name} is {told[key].sha256}, and no such file is or was in the project"
            yield Finding(ATTACHED, path, what, patch=patch)


def _pins(project: Project, named: tuple[_Named, ...], path: str) -> Iterator[Finding]:
    """The pinned files of that name; what is pinned no more says nothing."""
    pinned: dict[str, set[str]] = {}
    for pin in [pin for upstream in load(project.upstreams).values() for pin in upstream.pins]:
        own = [(pin.url, pin.commit)] if isinstance(pin, GitPin) else [(one.name, one.sha256) for one in pin.files]
        for name, value in own:
            pinned.setdefault(name, set()).add(value)
    for one in named:
        wanted, value = pinned.get(one.name), "".join(one.digest.values())
        if wanted and value not in wanted:
            yield Finding(
                ATTACHED, path, f"its pinned file {one.name} is {value}, and the pin says {', '.join(wanted)}"
            )
