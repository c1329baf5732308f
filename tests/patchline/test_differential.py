"""Random trees, edits, drift and damage: ours against git's own answers and against brute force.

One example is a batch of cases from one seed, so that git is asked once for many of them.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repos import QUIET, files_of, git, mail, write

from patchline.errors import PatchlineError
from patchline.series.hunks import Hunk
from patchline.series.mail import Header, written
from patchline.series.patch import Patch, parsed
from patchline.series.place import place, split
from patchline.series.placement import Rule
from patchline.series.plan import plan
from patchline.series.trees import Entry, FolderTree

seeds = st.integers(0, 2**32 - 1)
repeatable = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

Files = dict[str, Entry]


class MemoryTree:
    """A tree that needs no disk."""

    def __init__(self, files: Files) -> None:
        self.files = files

    def load(self, paths: Iterable[str]) -> None:
        """Nothing to read."""

    def entry(self, path: str) -> Entry | None:
        return self.files.get(path)

    def below(self, path: str) -> list[str]:
        return [name for name in self.files if name.startswith(path + "/")]


class Case(NamedTuple):
    """A tree, what it becomes, and what git says is between them."""

    old: Files
    new: Files
    diff: bytes = b""


# Making cases

_NAMES = [
    "f", "g.py", "dir/f", "dir/sub/deep.c", "with blank", "two  blanks ", 'quo"te', "back\\slash", "tab\tname", "new\nline", "ümlaut", "a/b/a/b",
    "b/x", "a/x", "dev/null", "x b/x", "-dash", "日本/語", "ctrl\x01", "--- a", "\udcff\udcfe", "e/'single'", "a b/c d/e f",
]  # fmt: skip
_LINES = [b"", b"a", b"b", b"c", b"}", b"    x = 1", b"-- sql", b"++ plus", b"-", b"+", b" lead", b"trail ", b"tab\t", b"\\ No newline", b"@@ -1 +1 @@",
          b"diff --git a/f b/f", b"--- a/f", b"+++ b/f", b"\xff\xfe raw", b"\x0b\x0c", "grüße".encode(), b"cr\r", b"in\rside", b"-- "]  # fmt: skip


def _text(rng: random.Random) -> bytes:
    lines = [
        rng.choice(_LINES) if rng.random() < 0.6 else b"line %d" % rng.randrange(40)
        for _ in range(rng.choice((0, 1, 3, 12, 40)))
    ]
    end = rng.choice((b"\n", b"\n", b"\n", b"\r\n"))
    text = b"".join(line + end for line in lines)
    return text[: -len(end)] if text and rng.random() < 0.15 else text


def _binary(rng: random.Random) -> bytes:
    return b"\0" + rng.randbytes(rng.choice((1, 60, 3000))) * rng.choice((1, 3))


def _edited(rng: random.Random, data: bytes) -> bytes:
    lines = split(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randint(0, len(lines))
        lines[at : at + rng.randrange(3)] = [rng.choice(_LINES) + b"\n" for _ in range(rng.randrange(3))]
    text = b"".join(
        line if line.endswith(b"\n") or at == len(lines) - 1 else line + b"\n" for at, line in enumerate(lines)
    )
    return text[:-1] if rng.random() < 0.1 and text.endswith(b"\n") else text


def _fits(files: Files, name: str) -> bool:
    return all(not one.startswith(name + "/") and not name.startswith(one + "/") for one in files)


def _case(rng: random.Random) -> Case:
    old: Files = {}
    for name in rng.sample(_NAMES, rng.randint(1, 6)):
        if _fits(old, name):
            old[name] = Entry(
                rng.choice((0o100644, 0o100644, 0o100755)), _binary(rng) if rng.random() < 0.15 else _text(rng)
            )
    new = dict(old)
    for name in list(new):
        _change(rng, new, name)
    for name in rng.sample(_NAMES, rng.randint(0, 2)):
        if name not in new and _fits(new, name) and _fits(old, name):
            new[name] = Entry(rng.choice((0o100644, 0o100755)), _binary(rng) if rng.random() < 0.2 else _text(rng))
    return Case(old, new)


def _change(rng: random.Random, files: Files, name: str) -> None:
    kind = rng.choice(("keep", "edit", "edit", "edit", "delete", "mode", "rename", "copy", "replace"))
    mode, data = files[name]
    if kind in ("delete", "rename"):
        del files[name]
    if kind in ("rename", "copy"):
        target = rng.choice(_NAMES)
        if target not in files and _fits(files, target):
            files[target] = Entry(mode, _edited(rng, data) if rng.random() < 0.5 and b"\0" not in data else data)
    elif kind == "mode":
        files[name] = Entry(mode ^ 0o111, data)
    elif kind == "replace":
        files[name] = Entry(mode, _binary(rng))
    elif kind == "edit":
        files[name] = Entry(mode, _edited(rng, data) if b"\0" not in data else data + b"\0x")


# Asking git


def _quoted(name: str) -> bytes:
    return b'"%b"' % re.sub(rb'["\\\x00-\x1f]', lambda match: b"\\%03o" % match[0][0], os.fsencode(name))


def _commit(mark: int, files: Files, parent: str) -> bytes:
    out = [
        b"commit refs/heads/x\nmark :%d\ncommitter A <a@b> 1 +0000\ndata 0\n" % mark,
        parent.encode(),
        b"deleteall\n",
    ]
    for name, (mode, data) in files.items():
        out.append(b"M %o inline %b\ndata %d\n%b\n" % (mode, _quoted(name), len(data), data))
    return b"".join(out) + b"\n"


def _with_diffs(repo: Path, cases: list[Case], *options: str) -> list[Case]:
    stream = b"".join(
        _commit(2 * at + 1, case.old, "")
        + b"reset refs/heads/x\n"
        + _commit(2 * at + 2, case.new, f"from :{2 * at + 1}\n")
        + b"reset refs/heads/x\n"
        for at, case in enumerate(cases)
    )
    marks = b"".join(b"get-mark :%d\n" % (2 * at + 2) for at in range(len(cases)))
    ids = git(repo, "fast-import", "--quiet", "--force", "--done", input=stream + marks + b"done\n").split()
    command = ["git", "diff-tree", "--stdin", "-p", "-r", "--binary", "--full-index", *options]
    out = subprocess.run(
        command,
        cwd=repo,
        env=os.environ | QUIET,
        input="".join(f"{id}\n" for id in ids).encode(),
        capture_output=True,
        check=True,
    )
    said = re.split(rb"^([0-9a-f]{40})\n", out.stdout, flags=re.MULTILINE)[1:]
    diffs = dict(zip(said[::2], said[1::2], strict=True))
    return [case._replace(diff=diffs.get(id.encode(), b"")) for case, id in zip(cases, ids, strict=True)]


def _parsed(raw: bytes) -> Patch:
    return parsed(raw, Path("p.patch"), "p.patch")


def _result(files: Files, patch: Patch, rule: Rule = Rule.UNIQUE) -> Files:
    total = plan(MemoryTree(files), [patch], rule).total
    return {name: entry for name, entry in (files | total).items() if entry is not None}


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("differential")
    git(root, "init", "-q")
    return root


def _options(rng: random.Random) -> list[str]:
    options = [
        f"-U{rng.choice((1, 2, 3, 3, 3, 10))}",
        rng.choice(("--no-renames", "-M", "-M", "-C")),
        rng.choice(("--patience", "--minimal", "--histogram")),
    ]
    if "-C" in options:
        options.append("--find-copies-harder")
    return options + rng.choice(([], [], ["--inter-hunk-context=4"]))


@settings(repeatable, max_examples=40)
@given(seeds)
def test_what_git_writes_makes_the_tree_that_git_has(repo: Path, seed: int) -> None:
    rng = random.Random(seed)
    for case in _with_diffs(repo, [_case(rng) for _ in range(40)], *_options(rng)):
        if not case.diff:
            assert case.old == case.new
            continue
        raw = case.diff if rng.random() < 0.5 else mail("").encode() + case.diff + b"-- \n2.39.5\n\n"
        assert _result(case.old, _parsed(raw)) == case.new, case.diff.decode(errors="backslashreplace")


def test_the_same_through_folders(repo: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    for at, case in enumerate(_with_diffs(repo, [_case(rng) for _ in range(60)], "-M")):
        if case.diff:
            root = tmp_path / str(at)
            _write(root, case.old)
            made = plan(FolderTree(root), [_parsed(case.diff)]).total
            assert {name: entry for name, entry in (case.old | made).items() if entry is not None} == case.new


def _write(root: Path, files: Files) -> None:
    write(root, {name: entry.data for name, entry in files.items()})
    root.mkdir(exist_ok=True)
    for name, entry in files.items():
        (root / name).chmod(entry.mode & 0o777)


# Files that drifted


def _drifted(rng: random.Random, data: bytes) -> bytes:
    lines = split(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.randint(0, len(lines))
        if rng.random() < 0.3 and lines:
            del lines[at : at + 1]
        elif rng.random() < 0.4 and lines:  # a second place that looks alike
            begin = rng.randrange(len(lines))
            lines[at:at] = lines[begin : begin + rng.randint(1, 9)]
        else:
            lines[at:at] = [rng.choice(_LINES[:6]) + b"\n" for _ in range(rng.randint(1, 3))]
    return b"".join(
        line if line.endswith(b"\n") or at == len(lines) - 1 else line + b"\n" for at, line in enumerate(lines)
    )


def _brute(lines: list[bytes], hunks: tuple[Hunk, ...]) -> bytes | None:
    """The strict rule, word for word and slowly; None where a hunk has no place."""
    out, done, shift = [], 0, 0
    for hunk in hunks:
        if not hunk.old:
            return b"".join(hunk.new) if not lines and len(hunks) == 1 else None
        first = hunk.leading < hunk.trailing and hunk.old_start <= 1
        final = hunk.trailing == 0 < hunk.leading
        places = [at for at in range(len(lines)) if lines[at : at + len(hunk.old)] == hunk.old]
        places = [at for at in places if not (first and at) and not (final and at + len(hunk.old) < len(lines))]
        stated = hunk.old_start - 1 + shift
        at = (
            stated
            if stated in places and stated >= done
            else places[0]
            if len(places) == 1 and places[0] >= done
            else None
        )
        if at is None:
            return None
        out += lines[done:at] + hunk.new
        done, shift = at + len(hunk.old), at - hunk.old_start + 1
    out += lines[done:]
    return b"".join(out) if all(line.endswith(b"\n") for line in out[:-1]) else None


def _gits(root: Path, data: bytes, raw: bytes, *options: str) -> bytes | None:
    """What `git apply` makes of a file; None where it refuses."""
    (root / "f").write_bytes(data)
    done = subprocess.run(
        ["git", "apply", *options, "-"],
        cwd=root,
        env=os.environ | QUIET | {"GIT_CEILING_DIRECTORIES": str(root.parent)},
        input=raw,
        capture_output=True,
    )
    return (root / "f").read_bytes() if done.returncode == 0 else None


def _drift_cases(rng: random.Random, repo: Path, count: int, context: int) -> list[Case]:
    texts = [
        b"".join(b"%b\n" % rng.choice((*_LINES[:6], b"l%d" % rng.randrange(30))) for _ in range(rng.randint(5, 40)))
        for _ in range(count)
    ]
    cases = [Case({"f": Entry(0o100644, text)}, {"f": Entry(0o100644, _edited(rng, text) or b"x\n")}) for text in texts]
    return [case for case in _with_diffs(repo, cases, f"-U{context}") if case.diff]


@settings(repeatable, max_examples=80)
@given(seeds)
def test_a_drifted_file_against_brute_force(repo: Path, seed: int) -> None:
    rng = random.Random(seed)
    for case in _drift_cases(rng, repo, 30, rng.choice((0, 1, 2, 3, 3))):
        hunks = _parsed(case.diff).files[0].hunks
        lines = split(_drifted(rng, case.old["f"].data))
        new, _, refusals = place("f", lines, hunks, Rule.UNIQUE)
        assert (None if refusals else b"".join(new)) == _brute(lines, hunks), (lines, case.diff)


@settings(repeatable, max_examples=15)
@given(seeds)
def test_a_drifted_file_against_git_apply(repo: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng, root = random.Random(seed), tmp_path_factory.mktemp("apply")
    context = rng.choice((0, 1, 2, 3, 3))
    for case in _drift_cases(rng, repo, 30, context):
        data = _drifted(rng, case.old["f"].data)
        new, placements, refusals = place("f", split(data), _parsed(case.diff).files[0].hunks, Rule.UNIQUE)
        git_says = _gits(root, data, case.diff, *([] if context else ["--unidiff-zero"]))
        how = {one.how for one in placements}
        if refusals:
            continue  # git takes the nearest place, and brute force says that ours are right
        if how <= {"stated", "unique"} and git_says is not None:
            assert b"".join(new) == git_says, (data, case.diff)
        # where git refuses and we do not, the place is the stated one or the only one
        assert git_says is not None or how & {"unique", "shifted", "stated"}


_GNU = (
    "patch",
    "-t",
    "-F",
    "0",
    "-N",
    "-p1",
    "-u",
    "-V",
    "never",
    "-E",
    "-b",
    "-B",
    ".pc/",
    "--reject-file=-",
)  # dpkg-source's


@settings(repeatable, max_examples=15)
@given(seeds)
def test_the_nearest_place_against_gnu_patch(repo: Path, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    rng, root = random.Random(seed), tmp_path_factory.mktemp("gnu")
    for case in _drift_cases(rng, repo, 30, rng.choice((0, 1, 2, 3, 3))):
        data = _drifted(rng, case.old["f"].data)
        (root / "f").write_bytes(data)
        done = subprocess.run(_GNU, cwd=root, input=case.diff, capture_output=True)
        try:
            patch = parsed(case.diff, Path("p"), "p", lenient=True)
            ours: bytes | None = _result({"f": Entry(0o100644, data)}, patch, Rule.NEAREST).get("f", Entry(0, b"")).data
        except PatchlineError:
            ours = None
        assert ours == ((root / "f").read_bytes() if done.returncode == 0 else None), (data, case.diff, done.stdout)


@settings(repeatable, max_examples=10)
@given(seeds)
def test_where_gnu_patch_takes_a_git_diff_so_do_we(
    repo: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng, root = random.Random(seed), tmp_path_factory.mktemp("gnu")
    for at, case in enumerate(
        _with_diffs(repo, [_case(rng) for _ in range(25)], "-U3", rng.choice(("-M", "-C", "--no-renames")))
    ):
        raw = case.diff if rng.random() < 0.5 else case.diff.replace(b"\n", b"\r\n")
        if not raw or b"GIT binary" in raw or b"blanks " in raw:  # GNU patch knows no names that end in a blank
            continue
        folder = root / str(at)
        _write(folder, case.old)
        done = subprocess.run(_GNU, cwd=folder, input=raw, capture_output=True)
        if done.returncode == 0:
            found = {name: what for name, what in files_of(folder).items() if not name.startswith(".pc/")}
            ours = _result(case.old, parsed(raw, Path("p"), "p", lenient=True), Rule.NEAREST)
            assert {name: (f"{entry.mode & 0o777:o}", entry.data) for name, entry in ours.items()} == found, raw


# Damaged patches


def _damaged(rng: random.Random, raw: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at, many = rng.randrange(len(raw)), rng.choice((0, 1, 1, 2, 9, 60))
        put = rng.choice(
            (
                b"",
                bytes([rng.randrange(256)]),
                b"\n",
                b"\n--- a/f\n",
                raw[at : at + 40],
                b"-",
                b"+",
                b" ",
                b"9",
                b"\0",
                b"\r",
            )
        )
        raw = raw[:at] + put + raw[at + many :] or b"x"
    return raw


@settings(repeatable, max_examples=30)
@given(seeds)
def test_damage_is_refused_in_words_or_harmless(repo: Path, seed: int) -> None:
    rng = random.Random(seed)
    for case in _with_diffs(repo, [_case(rng) for _ in range(20)], *_options(rng)):
        for _ in range(5 if case.diff else 0):
            raw = _damaged(rng, case.diff if rng.random() < 0.5 else mail("").encode() + case.diff)
            for rule in Rule:
                with suppress(PatchlineError):
                    _result(case.old, parsed(raw, Path("p"), "p", lenient=rule is Rule.NEAREST), rule)


@settings(repeatable, max_examples=20)
@given(seeds)
def test_damage_never_makes_another_tree_than_git_makes(
    repo: Path, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    rng, root = random.Random(seed), tmp_path_factory.mktemp("damage")
    at = 0
    for case in _with_diffs(repo, [_case(rng) for _ in range(12)], *_options(rng)):
        if not case.diff:
            continue
        at += 1
        folder = root / str(at)
        _write(folder, case.old)
        raw = _damaged(rng, case.diff)
        try:
            ours = _result(case.old, _parsed(raw))
        except PatchlineError:
            continue
        done = subprocess.run(
            ["git", "apply", "-"],
            cwd=folder,
            env=os.environ | QUIET | {"GIT_CEILING_DIRECTORIES": str(root)},
            input=raw,
            capture_output=True,
        )
        if done.returncode == 0:
            found = {name: (f"{entry.mode & 0o777:o}", entry.data) for name, entry in ours.items()}
            assert found == files_of(folder), raw


# Headers

_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_body_lines = st.one_of(
    _words,
    st.sampled_from(
        [
            "---",
            "--- a/f",
            "+++ b/f",
            "@@ -1 +1 @@",
            "-a",
            "+b",
            "diff --git a/f b/f",
            "From: A <a@b>",
            "From x",
            ">From y",
            "-- ",
            "  trailing  ",
            "Signed-off-by: Ann <a@b>",
            "Origin: x",
            "Subject: y",
            "[PATCH] z",
            " f | 2 +-",
            " 1 file changed",
            "Index: f",
            "\tindented",
            "#",
            "",
        ]
    ),
)
_headers = st.builds(
    Header,
    name=st.one_of(_words, st.sampled_from(["Ann", '"Ann"', 'Ann "A" B', "Änn, B.", "=?utf-8?q?x?="])),
    email=st.one_of(st.just("ann@example.org"), _words),
    seconds=st.one_of(st.integers(-(2**33), 2**35), st.integers(-(2**62), 2**62)),
    zone=st.one_of(st.sampled_from(["+0000", "-0330", "+1400", "-0000", "+2400", "+9999", "+0099"])),
    subject=st.one_of(
        _words,
        _words.map("[Tag][PATCH 1/2] ".__add__),
        _words.map("[PATCH] ".__add__),
        st.sampled_from(["a: b", "From: x", "=?utf-8?b?4pyT?="]),
    ),
    body=st.lists(_body_lines, max_size=8).map("\n".join),
    fields=st.just(()),
)
_CHANGE = b"diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-old\n+new\n"


@settings(repeatable, max_examples=500)
@given(_headers)
def test_a_header_is_read_back_or_seen_to_differ(header: Header) -> None:
    """`history.patch` compares and refuses; here nothing else may happen, and the change may never get lost."""
    try:
        found = _parsed(written(header) + _CHANGE)
    except PatchlineError:
        return
    if found.header == header:
        assert [diff.path for diff in found.files] == ["f"]
        assert found.files[0].hunks[0].new == [b"new\n"]


_plain = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"], exclude_characters="<>"), min_size=1, max_size=9
)
_plain_line = st.lists(_plain, min_size=1, max_size=6).map(" ".join)


@settings(repeatable, max_examples=200)
@given(
    st.builds(
        Header,
        name=_plain_line.filter(lambda name: '"' not in name and "=?" not in name),
        email=st.just("ann@example.org"),
        seconds=st.integers(0, 2**33),
        zone=st.sampled_from(["+0000", "-0330", "+1400", "+0545"]),
        subject=_plain_line.filter(lambda subject: "=?" not in subject and not subject.startswith("[PATCH")),
        body=st.lists(st.one_of(st.just(""), st.just("    --- a/f"), st.just("[tag] x  "), _plain_line), max_size=6)
        .map("\n".join)
        .map(lambda body: body.strip("\n")),
        fields=st.just(()),
    ).filter(
        lambda header: (
            not re.search(r"^(From:|---|@@|diff --git)", header.body, re.MULTILINE)
            and not header.body.startswith("From")
        )
    )
)
def test_an_ordinary_header_is_read_back(header: Header) -> None:
    assert _parsed(written(header) + _CHANGE).header == header
