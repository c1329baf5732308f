"""What is known of a carried patch, in whole sentences that can be quoted alone."""

from __future__ import annotations

from collections.abc import Sequence

from patchline.changelog.entries import Entry, spelled
from patchline.changelog.marks import Counts
from patchline.changelog.proven import GatePassed
from patchline.release.record import Record

_DIGEST = 12
"""Digits of a digest that people are shown."""


def number(count: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if words[1:] else words)


def lines(added: int, removed: int) -> str:
    """`+12 -3`."""
    return f"+{added:,} -{removed:,}"


def short(digest: str) -> str:
    """A digest's first digits."""
    return digest.removeprefix("sha256:")[:_DIGEST]


def size(entry: Entry) -> str:
    """How much it changes."""
    return (
        f"It changes {number(len(entry.files), 'file')} ({lines(entry.added, entry.removed)} lines): "
        f"{', '.join(map(_file, entry.files))}."
    )


def _file(one: Counts) -> str:
    return f"`{one.path}` ({'binary' if one.binary else lines(one.added, one.removed)})"


def forwarded(entry: Entry) -> str:
    """Where upstream was told of it."""
    values = [value for value in entry.trailer("forwarded") if value]
    links = [value for value in values if value not in ("no", "not-needed")]
    if links:
        return f"It was forwarded to upstream: {listed(links)}."
    if "not-needed" in values:
        return "It is not for upstream, so it is not forwarded."
    return "It is not forwarded to upstream yet." if values else "Whether it was forwarded to upstream is not said."


def drop(entry: Entry) -> str:
    """What lets us drop it."""
    found = [_condition(value) for value in entry.trailer("drop-when") if value]
    return f"It can be dropped when {', or when '.join(found)}." if found else "When it can be dropped is not said."


def _condition(value: str) -> str:
    if value == "tests-pass-on-stock":
        return "its tests pass on stock"
    if value.startswith("upstream-version"):
        return f"upstream's version is {value.rpartition('>=')[2].strip()} or later"
    return value.strip().removeprefix("when ").rstrip(".")


def held(entry: Entry) -> str:
    """The tests that hold it by their files, and what they notice."""
    if not entry.tests:
        return "No tests are named that hold it."
    where = (
        f"They are in {_files(entry.tests)}." if entry.proof else f"It is held by the tests in {_files(entry.tests)}."
    )
    return " ".join(part for part in (_proof(entry), where, _noticed(entry)) if part)


def proven(entry: Entry) -> str:
    """As `held`, without the files."""
    return " ".join(part for part in (_proof(entry), _noticed(entry)) if part) or "No evidence is of today's tests."


def _proof(entry: Entry) -> str:
    found = entry.proof
    if not found:
        return ""
    one = found.red == 1
    more = "shows" if found.kept == 1 else "show"
    kept = f"; {found.kept:,} more {more} what stays as it is" if found.kept else ""
    return (
        f"It is held by {number(found.red, 'test')} that {'fails' if one else 'fail'} on stock and "
        f"{'passes' if one else 'pass'} with it{kept} ({found.day})."
    )


def _files(paths: Sequence[str]) -> str:
    """Paths, their common folder said once."""
    folders = {path.rpartition("/")[0] for path in paths}
    if len(folders) > 1 or not paths[1:]:
        return listed([f"`{path}`" for path in paths])
    names = listed([f"`{path.rpartition('/')[2]}`" for path in paths])
    return f"`{min(folders)}/`: {names}"


def _noticed(entry: Entry) -> str:
    found = entry.held
    if not found:
        return ""
    without = "any of" if found.held == found.pieces else f"{found.held:,} of"
    return (
        f"Without {without} its {number(found.pieces, 'changed part')} a test fails, and of "
        f"{number(found.mistakes, 'small mistake')} made in its lines {found.noticed:,} are noticed ({found.day})."
    )


def gates(entry: Entry) -> str:
    """The gates that its series passed, and those that it did not."""
    if not entry.gates:
        return "No gate is set up for it."
    return " ".join(_gate(one) for one in entry.gates if one.state != "no record") + _unrecorded(entry.gates)


def _gate(one: GatePassed) -> str:
    if one.state in ("passed", "passed before"):
        doubt = "; no proof shows that these are today's patches" if one.state == "passed before" else ""
        return (
            f"The gate {one.fleet} was passed on {one.day}, in {number(one.plays, 'run')} of real engines, "
            f"with the overlay `{short(one.overlay)}`{doubt}."
        )
    return f"The gate {one.fleet} was not passed ({one.day}): {one.why}."


def _unrecorded(found: Sequence[GatePassed]) -> str:
    names = [one.fleet for one in found if one.state == "no record"]
    if not names:
        return ""
    space = " " if len(names) < len(found) else ""
    return f"{space}There is no record yet of the {'gate' if len(names) == 1 else 'gates'} {listed(names)}."


def release(entry: Entry) -> str:
    """Since when it is in an image."""
    if not entry.release:
        return "It is in no release yet."
    one = entry.release
    return f"The first release that has it is `{one.tag}` ({one.made[:10]}, image `{short(one.image)}`)."


def tagged(one: Record) -> str:
    """What a tag means."""
    each = [f"{number(len(series.patches), 'patch', 'patches')} on {spelled(series.pin)}" for series in one.series]
    promoted = f", promoted from `{one.nightly}`" if one.nightly else ""
    return f"`{one.tag}` is of the line {one.line}{promoted}: image `{one.image}`, with {listed(each)}."


def all_of(entry: Entry) -> list[str]:
    """Every sentence of a changelog's entry, in order."""
    return [
        f"It has been carried since {entry.since}, as `{entry.path}`.",
        size(entry),
        forwarded(entry),
        held(entry),
        gates(entry),
        release(entry),
        drop(entry),
    ]
