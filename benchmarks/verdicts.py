"""How often a verdict is right, on upstream's own changes between the pinned vLLM versions; prints confusion tables.

Every hunk is a patch of its own, carried on the older version. Exits 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from patchline.rebase.align import align
from patchline.rebase.judge import Judge
from patchline.rebase.whither import Whither
from patchline.rebase.words import Verdict
from patchline.series import history
from patchline.series.carried import Carried, carried
from patchline.series.diff import FileDiff
from patchline.series.hunks import Hunk
from patchline.series.mail import Header, written
from patchline.series.patch import Patch, parsed
from patchline.series.place import split
from patchline.series.trees import CommitTree, Entry

HEAD = written(Header("bench", "bench@localhost", 0, "+0000", "[bench] one change", ""))
NAME = re.compile(rb"[A-Za-z_][A-Za-z_0-9]{2,}")


class Change(NamedTuple):
    """One hunk of upstream's own change of one file."""

    path: str
    hunk: Hunk


class Version:
    """One pinned version, read once."""

    def __init__(self, spec: str) -> None:
        self.carried: Carried = carried(spec)
        self.tree = CommitTree(self.carried.repo, self.carried.base())
        self.name = self.carried.name

    def lines(self, path: str) -> list[bytes]:
        """The lines of a file; none where there is none."""
        entry = self.tree.entry(path)
        return split(entry.data) if entry else []


class Edited(CommitTree):
    """A version with one file changed."""

    def __init__(self, tree: CommitTree, path: str, data: bytes) -> None:
        super().__init__(tree.repo, tree.commit)
        self.plain, self.path, self.data = tree, path, data

    def load(self, paths: object) -> None:
        """All is loaded by the plain tree."""

    def entry(self, path: str) -> Entry | None:
        """The changed file, or the plain tree's."""
        found = self.plain.entry(path)
        return Entry(found.mode, self.data) if found and path == self.path else found


class Pair:
    """Two versions, and upstream's change from one to the other."""

    def __init__(self, old: Version, new: Version) -> None:
        self.old, self.new = old, new
        self.whither = Whither(old.tree, new.tree)
        env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(old.carried.repo / ".git" / "objects")}
        from patchline.git import git

        diff = git(new.carried.repo, *history.DIFF[:-1], old.tree.commit, new.tree.commit, env=env)
        files = _whole(diff)
        self.files = [one for one in files if one.action == "modify" and one.hunks and one.path.endswith(".py")]
        paths = [one.path for one in self.files]
        old.tree.load(paths)
        new.tree.load(paths)
        self.changes = [Change(one.path, hunk) for one in self.files for hunk in one.hunks]

    def removed(self, path: str) -> set[int]:
        """The lines, from 0, of a file of the old version that git does not find in the new one."""
        old, new = (b"".join(version.lines(path)) for version in (self.old, self.new))
        return {at for at, pair in enumerate(align(old, new).pairs) if pair < 0}

    def judge(self, patches: Sequence[Patch], onto: CommitTree | None = None) -> list[Verdict]:
        """The verdicts of patches that are carried on the old version."""
        judge = Judge(self.old.tree, patches, self.old.name)
        done = judge.onto(onto or self.new.tree, self.new.name, whither=self.whither)
        return [one.judged.verdict for one in done]


def _whole(diff: bytes) -> tuple[FileDiff, ...]:
    """The text changes of a long diff; what a patch may not say (links, binary files) is left out."""
    found: list[FileDiff] = []
    for piece in re.split(rb"^(?=diff --git )", diff, flags=re.MULTILINE)[1:]:
        if b"\n@@ -" in piece and b"\n--- a/" in piece and b" mode " not in piece.split(b"\n@@", 1)[0]:
            found += parsed(HEAD + piece, Path("bench"), "bench").files
    return tuple(found)


def patch(path: str, old: Sequence[bytes], new: Sequence[bytes], start: int, name: str = "0001-bench.patch") -> Patch:
    """A patch of one hunk, whose common lines at both ends are its context."""
    lead = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    lead = min(lead, 3)  # with more, a block that repeats its context would speak of the file's end
    rest = list(zip(reversed(old[lead:]), reversed(new[lead:]), strict=False))
    trail = next((at for at, (a, b) in enumerate(rest) if a != b), len(rest))
    hunk = [b" " + line for line in old[:lead]]
    hunk += [b"-" + line for line in old[lead : len(old) - trail]]
    hunk += [b"+" + line for line in new[lead : len(new) - trail]]
    hunk += [b" " + line for line in old[len(old) - trail :]]
    lines = b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in hunk)
    head = b"@@ -%d,%d +%d,%d @@\n" % (start, len(old), start, len(new))
    name_ = path.encode()
    raw = HEAD + b"diff --git a/%b b/%b\n--- a/%b\n+++ b/%b\n" % (name_, name_, name_, name_) + head + lines
    return parsed(raw, Path(name), name)


def one(change: Change, name: str = "0001-bench.patch") -> Patch:
    """A change as a patch."""
    return patch(change.path, change.hunk.old, change.hunk.new, change.hunk.old_start, name)


def stands(change: Change, version: Version) -> bool:
    """Whether the change's lines are whole in a version, and what they replaced is not: no verdict is asked."""
    text = b"\n" + b"".join(version.lines(change.path))
    return text.count(b"\n" + b"".join(change.hunk.new)) == 1 and b"\n" + b"".join(change.hunk.old) not in text


# Upstream has it


def taken(pair: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """Each change on the version that made it."""
    for change in changes:
        yield pair.judge([one(change)])[0]


def later(pair: Pair, last: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """Each change of the first pair on the version after, where its lines still stand."""
    both = Pair.__new__(Pair)
    both.old, both.new, both.whither = pair.old, last.new, Whither(pair.old.tree, last.new.tree)
    for change in changes:
        if stands(change, last.new):
            yield both.judge([one(change)])[0]


def squashed(pair: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """Two neighbouring changes of one file as two patches, which upstream made in one."""
    for file in pair.files:
        for first, second in zip(file.hunks, file.hunks[1:], strict=False):
            if Change(file.path, first) in changes:
                shift = len(first.new) - len(first.old)
                patches = [
                    one(Change(file.path, first), "0001-first.patch"),
                    patch(file.path, second.old, second.new, second.old_start + shift, "0002-second.patch"),
                ]
                yield from pair.judge(patches)


def neighbour(pair: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """Upstream changed the line right before or after the change as well."""
    for number, change in enumerate(changes):
        hunk, lines = change.hunk, pair.new.lines(change.path)
        begin = hunk.new_start - 1
        at = begin + hunk.leading - 1 if number % 2 else begin + len(hunk.new) - hunk.trailing
        if not 0 <= at < len(lines) or not NAME.search(lines[at]):
            continue
        if (number % 2 and not hunk.leading) or (not number % 2 and not hunk.trailing):
            continue
        edited = [*lines[:at], NAME.sub(rb"\g<0>_too", lines[at], count=1), *lines[at + 1 :]]
        yield pair.judge([one(change)], Edited(pair.new.tree, change.path, b"".join(edited)))[0]


def followed(pair: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """Upstream put another function right after the change."""
    for change in changes:
        hunk, lines = change.hunk, pair.new.lines(change.path)
        at = hunk.new_start - 1 + len(hunk.new) - hunk.trailing
        last = hunk.new[: len(hunk.new) - hunk.trailing][hunk.leading :][-1:]
        if last and last[0] not in hunk.old:
            more = [b"\n", b"def another_function():\n", b"    return None\n"]
            yield pair.judge(
                [one(change)], Edited(pair.new.tree, change.path, b"".join([*lines[:at], *more, *lines[at:]]))
            )[0]


# Upstream has a part of it


def changed_again(pair: Pair, changes: Sequence[Change], rng: random.Random) -> Iterator[Verdict]:
    """A later change of one of at least two added lines."""
    for change in changes:
        hunk, lines = change.hunk, pair.new.lines(change.path)
        begin = hunk.new_start - 1
        added = [
            at
            for at in range(hunk.leading, len(hunk.new) - hunk.trailing)
            if NAME.search(hunk.new[at]) and hunk.new[at] not in hunk.old
        ]
        if len(added) > 1:
            at = begin + rng.choice(added)
            edited = [*lines[:at], NAME.sub(b"changed_again", lines[at], count=1), *lines[at + 1 :]]
            yield pair.judge([one(change)], Edited(pair.new.tree, change.path, b"".join(edited)))[0]


# Upstream does not have it


def mutated(pair: Pair, changes: Sequence[Change], rng: random.Random) -> Iterator[Verdict]:
    """The change with one name in one added line another one."""
    for change in changes:
        hunk = change.hunk
        added = [
            at
            for at in range(hunk.leading, len(hunk.new) - hunk.trailing)
            if NAME.search(hunk.new[at]) and hunk.new[at] not in hunk.old
        ]
        if added:
            at = rng.choice(added)
            new = [*hunk.new[:at], NAME.sub(b"something_else", hunk.new[at], count=1), *hunk.new[at + 1 :]]
            yield pair.judge([patch(change.path, hunk.old, new, hunk.old_start)])[0]


def beside(pair: Pair, changes: Sequence[Change], rng: random.Random, kind: str) -> Iterator[Verdict]:
    """A line of ours added, or a line that upstream kept removed, right beside what upstream changed."""
    for change in changes:
        hunk, lines = change.hunk, pair.old.lines(change.path)
        spots = [*range(hunk.leading), *range(len(hunk.old) - hunk.trailing, len(hunk.old))]
        spots = [hunk.old_start - 1 + spot for spot in spots if NAME.search(hunk.old[spot])]
        if not spots:
            continue
        at = rng.choice(spots)
        first, end = max(0, at - 3), min(len(lines), at + 4)
        old = lines[first:end]
        middle = [lines[at], b"    ours = added_by_us(1)\n"] if kind == "add" else []
        new = [*lines[first:at], *middle, *lines[at + 1 : end]]
        made = patch(change.path, old, new, first + 1)
        if made.files[0].hunks[0].trailing:  # else it would speak of the file's end
            yield pair.judge([made])[0]


def not_yet(pair: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """A change that only the version after has, carried on the oldest one."""
    for change in changes:
        text = b"\n" + b"".join(pair.old.lines(change.path))
        if text.count(b"\n" + b"".join(change.hunk.old)) == 1 and not stands(change, pair.new):
            start = text.index(b"\n" + b"".join(change.hunk.old))
            yield pair.judge([patch(change.path, change.hunk.old, change.hunk.new, text[: start + 1].count(b"\n"))])[0]


def reverted(last: Pair, changes: Sequence[Change]) -> Iterator[Verdict]:
    """The reverse of a change of the first pair, carried on the version that made it; judged on the one after.

    Left out are those that upstream may have made: none of what they remove is left, by git's own diff of the two
    versions, and all that they add is there.
    """
    for change in changes:
        hunk = change.hunk
        back = hunk._replace(old=hunk.new, new=hunk.old, old_start=hunk.new_start)
        now = set(last.new.lines(change.path))
        kept = range(back.old_start - 1 + back.leading, back.old_start - 1 + len(back.old) - back.trailing)
        gone = last.removed(change.path)
        lines = last.old.lines(change.path)
        left = [at for at in kept if at not in gone and NAME.search(lines[at]) and lines[at] not in back.new]
        if now and (left or not set(back.new) - set(back.old) <= now):
            yield last.judge([one(Change(change.path, back))])[0]


class Row(NamedTuple):
    """One line of the confusion table: what is true, and how often each verdict was given."""

    truth: str
    what: str
    given: Counter[Verdict]
    limit: Callable[[Counter[Verdict]], bool]


def never_upstream(given: Counter[Verdict]) -> bool:
    """What upstream does not have, or not all of, is never said to be upstream or not needed."""
    return not given[Verdict.UPSTREAM] and not given[Verdict.NOT_NEEDED]


def nearly_all(given: Counter[Verdict]) -> bool:
    """At least 99% upstream."""
    return given[Verdict.UPSTREAM] >= 0.99 * given.total() > 0


def rows(count: int, seed: int) -> Iterator[Row]:
    """Every line of the table, as it is measured."""
    v31, v32, v33 = (Version(f"vllm=={version}") for version in ("0.31.0", "0.32.0", "0.33.0"))
    first, second = Pair(v31, v32), Pair(v32, v33)
    rng = random.Random(seed)
    for pair, name in ((first, "0.31→0.32"), (second, "0.32→0.33")):
        some = rng.sample(pair.changes, min(count, len(pair.changes)))
        yield Row("upstream", f"{name}: taken", Counter(taken(pair, some)), nearly_all)
        yield Row("upstream", f"{name}: two squashed", Counter(squashed(pair, some)), nearly_all)
        yield Row("upstream", f"{name}: neighbour changed", Counter(neighbour(pair, some)), nearly_all)
        yield Row("upstream", f"{name}: function added after", Counter(followed(pair, some)), nearly_all)
        yield Row(
            "partly", f"{name}: one added line changed again", Counter(changed_again(pair, some, rng)), never_upstream
        )
        yield Row("not upstream", f"{name}: one name another", Counter(mutated(pair, some, rng)), never_upstream)
        yield Row("not upstream", f"{name}: line added beside", Counter(beside(pair, some, rng, "add")), never_upstream)
        yield Row(
            "not upstream", f"{name}: line removed beside", Counter(beside(pair, some, rng, "remove")), never_upstream
        )
    some = rng.sample(first.changes, min(count, len(first.changes)))
    yield Row("upstream", "0.31→0.32 on 0.33, lines still there", Counter(later(first, second, some)), nearly_all)
    yield Row("not upstream", "0.31→0.32 reverted, on 0.33", Counter(reverted(second, some)), never_upstream)
    some = rng.sample(second.changes, min(2 * count, len(second.changes)))
    yield Row("not upstream", "0.32→0.33 carried on 0.31, on 0.32", Counter(not_yet(first, some)), never_upstream)


def main() -> int:
    """Prints the table; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=400, help="changes of each pair of versions (default: 400)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    verdicts = [one for one in Verdict if one is not Verdict.NOT_NEEDED]
    print("| truth | patches | n | " + " | ".join(one.value for one in verdicts) + " | held |")
    print("|---|---|---:|" + "---:|" * len(verdicts) + "---|")
    started, held = time.perf_counter(), True
    for row in rows(args.count, args.seed):
        good = row.given.total() > 0 and row.limit(row.given)
        held &= good
        numbers = " | ".join(str(row.given[one]) for one in verdicts)
        print(f"| {row.truth} | {row.what} | {row.given.total()} | {numbers} | {'yes' if good else 'NO'} |", flush=True)
    print(f"\n{time.perf_counter() - started:.0f} s, seed {args.seed}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
