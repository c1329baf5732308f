"""What `--nearest` makes of a Debian source package is what `dpkg-source -x` makes of it.

The odd rules are dpkg-source's and GNU patch's own; each has a package made here. Where
dpkg-source refuses, so do we.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from repos import files_of, lines
from verbs import patchline

Patches = Mapping[str, bytes | str]

TREE: dict[str, bytes | str] = {
    "f": lines(30),
    "f.old": lines(30),
    "run": "#!/bin/sh\n",
    "empty": "",
    "emptyrun": "",
    "one": "only\n",
    "bare": "a\nb\nc",
    "crlf": lines(9).replace("\n", "\r\n"),
    "same": "x\ny\nz\n" * 9,
    "blanks": "a\n\nb\n\n\nc\n\n",
    "dir/deep/f": lines(9),
    "dir/g": lines(9),
    "with blank": lines(9),
}
RUNS = {"run", "emptyrun"}


def at(number: int, count: int = 3, old: str = "f", new: str = "", stated: int = 0, first: str = "") -> str:
    """A diff of one hunk: line `number` of `old` gets a neighbour, with `count` lines of context."""
    begin, around = number - count, lines(2 * count, number - count).splitlines()
    marked = [f" {line}" for line in around]
    marked.insert(count, "+new")
    body = "\n".join(marked)
    return f"--- {first or 'a/' + old}\n+++ {new or 'b/' + old}\n@@ -{stated or begin},{2 * count} +{stated or begin},{2 * count + 1} @@\n{body}\n"


def hunk(old: int, new: int, text: str) -> str:
    """A hunk with its counts."""
    marks = [line[:1] for line in text.splitlines() if not line.startswith("\\")]
    return f"@@ -{old},{sum(mark != '+' for mark in marks)} +{new},{sum(mark != '-' for mark in marks)} @@\n{text}"


def head(old: str = "a/f", new: str = "b/f") -> str:
    return f"--- {old}\n+++ {new}\n"


ONE = at(10)
EPOCH = "1970-01-01 00:00:00.000000000 +0000"
LATER = "2020-01-01 00:00:00.000000000 +0000"
GONE = "".join(f"-line {number}\n" for number in range(1, 31))
WHOLE_F = hunk(1, 0, GONE)

APPLY: dict[str, str | bytes | Patches] = {
    # which of two names
    "old name only exists": at(10, first="a/f", new="b/g"),
    "new name only exists": at(10, first="a/g", new="b/f"),
    "both exist: shorter base name": at(10, first="a/f.old", new="b/f"),
    "both exist: fewer folders": at(5, first="a/dir/deep/f", new="b/dir/g"),
    "both exist: as long, so the first": head("a/dir/g", "b/dir/g") + hunk(1, 1, "-line 1\n+x\n line 2\n"),
    "absolute name": at(10, first="/f", new="/f"),
    "absolute name beside one that exists": at(10, first="/usr/src/orig/f", new="b/f"),
    "doubled slashes": at(5, first="a//dir//g", new="b//dir//g"),
    "a dot in the name": at(5, first="a/./dir/g", new="b/./dir/g"),
    "a name without folders beside one with": at(10, first="f.orig", new="b/f"),
    "blanks in a name": at(5, first=f"a/with blank\t{LATER}", new=f"b/with blank\t{LATER}"),
    "blanks and a date after blanks": at(10, first="a/f 2020-01-01", new="b/f   2020-01-01"),
    "blank before the tab": at(10, first=f"a/f \t{LATER}", new=f"b/f \t{LATER}"),
    "words after a tab": at(10, first="a/f\t(revision 1)", new="b/f\t(working copy)"),
    # making and removing
    "made: null": head("/dev/null", "b/new/dir/x") + hunk(0, 1, "+x\n"),
    "made: epoch": head(f"a/new/x\t{EPOCH}", f"b/new/x\t{LATER}") + hunk(0, 1, "+x\n"),
    "made: epoch in another zone": head("a/new/x\t1970-01-01 01:00:00.000000000 +0100", "b/new/x") + hunk(0, 1, "+x\n"),
    "made: neither": head("a/new/x", "b/new/x") + hunk(0, 1, "+x\n"),
    "made: two names, fewer new folders": head("a/new/deep/x", "b/dir/x") + hunk(0, 1, "+x\n"),
    "made: over an empty file": head("/dev/null", "b/emptyrun") + hunk(0, 1, "+x\n"),
    "made: null name of one that is there": head("/dev/null", "b/f") + at(10).split("\n", 2)[2],
    "at the top without context, file there": head() + hunk(0, 1, "+x\n"),
    "removed: null": head(new="/dev/null") + WHOLE_F,
    "removed: epoch": head(new=f"b/f\t{EPOCH}") + WHOLE_F,
    "removed: old epoch form": head(new="b/f\tThu Jan  1 00:00:00 1970") + WHOLE_F,
    "removed: 1969": head(new="b/f\t1969-12-31 19:00:00.000000000 -0500") + WHOLE_F,
    "emptied, so removed": head() + WHOLE_F,
    "emptied executable": head("a/run", "b/run") + hunk(1, 0, "-#!/bin/sh\n"),
    "removed and made again": {"p1": head(new="/dev/null") + WHOLE_F, "p2": head("/dev/null", "b/f") + hunk(0, 1, "+x\n")},
    "last file of a folder removed": head("a/dir/deep/f", "/dev/null") + hunk(1, 0, GONE.replace("-line 1\n", "-line 1\n", 1)[: len("-line 1\n") * 9]),
    # ends of files
    "chopped last blank line": (head("a/blanks", "b/blanks") + hunk(2, 2, " \n-b\n+B\n \n")).removesuffix(" \n"),
    "two chopped blank lines": (head("a/blanks", "b/blanks") + hunk(1, 1, " a\n \n-b\n+B\n \n \n")).removesuffix(" \n \n"),
    "last blank line without its newline": (head("a/blanks", "b/blanks") + hunk(2, 2, " \n-b\n+B\n \n")).removesuffix("\n"),
    "blank lines that lost their blank": head("a/blanks", "b/blanks") + hunk(1, 1, " a\n\n-b\n+B\n\n\n c\n"),
    "newline taken": head("a/one", "b/one") + hunk(1, 1, "-only\n+only\n\\ No newline at end of file\n"),
    "newline given": head("a/bare", "b/bare") + hunk(1, 1, " a\n b\n-c\n\\ No newline at end of file\n+c\n"),
    "appended to a line without newline": head("a/bare", "b/bare") + hunk(2, 2, " b\n-c\n\\ No newline at end of file\n+c\n+d\n\\ No newline at end of file\n"),
    "context without newline": head("a/bare", "b/bare") + hunk(1, 1, "-a\n+A\n b\n c\n\\ No newline at end of file\n"),
    "added without context after a line without newline": head("a/bare", "b/bare") + hunk(3, 4, "+d\n"),
    "made without newline": head("/dev/null", "b/x") + hunk(0, 1, "+x\n\\ No newline at end of file\n"),
    # carriage returns
    "patch with CRLF, file without": ONE.replace("\n", "\r\n"),
    "patch without, file with CRLF": head("a/crlf", "b/crlf") + hunk(4, 4, " line 4\r\n-line 5\r\n+five\r\n line 6\r\n"),
    "one diff with CRLF, one without": ONE.replace("\n", "\r\n") + at(5, old="dir/g"),
    "CR in the second header only": ONE.replace("+++ b/f\n", "+++ b/f\r\n"),
    "CR in the first header only": ONE.replace("--- a/f\n", "--- a/f\r\n"),
    "CRLF in added lines": ONE.replace("+new\n", "+new\r\n"),
    # places
    "offset down": at(10, stated=12),
    "offset up": at(10, stated=2),
    "far away": at(10, stated=900),
    "two places as near": head("a/same", "b/same") + hunk(8, 8, " x\n+new\n y\n"),
    "nearest above": head("a/same", "b/same") + hunk(12, 12, " x\n+new\n y\n z\n"),
    "offset carried on": head() + at(10, stated=8).split("\n", 2)[2] + at(20, stated=18).split("\n", 2)[2],
    "offset carried on to lines alike": {
        "p1": head("a/same", "b/same") + hunk(0, 1, "+q\n+r\n"),
        "p2": head("a/same", "b/same") + hunk(1, 1, " x\n+new\n y\n") + hunk(13, 14, " x\n+new\n y\n"),
    },
    "short context at the end": head() + hunk(28, 28, " line 29\n+x\n line 30\n").replace("28", "29"),
    "ends with its file": head() + hunk(5, 5, " line 28\n line 29\n line 30\n+x\n"),
    "less context below, at the end": head() + hunk(20, 20, " line 28\n line 29\n+x\n line 30\n"),
    "less context above, not at line 1": head() + hunk(12, 12, " line 11\n+x\n line 12\n line 13\n"),
    "starts with its file": head() + hunk(1, 1, "+x\n line 1\n line 2\n line 3\n"),
    "contexts that overlap": head() + hunk(8, 8, " line 8\n line 9\n+x\n line 10\n line 11\n") + hunk(10, 11, " line 10\n line 11\n+y\n line 12\n line 13\n"),
    "no context: added": head() + hunk(10, 11, "+x\n"),
    "no context: removed": head() + hunk(10, 9, "-line 10\n"),
    "no context: changed": head() + hunk(10, 10, "-line 10\n+ten\n"),
    "no context, after an offset": head() + at(10, stated=5).split("\n", 2)[2] + hunk(20, 22, "+x\n"),
    "no context, past the end": head() + hunk(99, 100, "+x\n"),
    "no context: many": head() + hunk(0, 1, "+top\n") + hunk(5, 7, "+x\n+y\n") + hunk(9, 12, "-line 9\n") + hunk(30, 33, "+end\n"),
    "one file twice": ONE + at(20),
    # text around
    "prose before, between and after": f"Some prose.\n\n---\n f | 1 +\n\n{ONE}\nmore prose\n  - a point\n+ another\n\n{at(5, old='dir/g')}\nthe end\n",
    "indices and rules": f"Index: x/f\n===================================================================\n{ONE}Only in x: y\n",
    "what binary files differ": f"{ONE}Binary files a/x.png and b/x.png differ\n{at(5, old='dir/g')}",
    "lines like an ed script": f"3d\n{ONE}2,4c\n.\nw\n",
    "a field that is no date": f"From: A <a@b>\nDate: someday\nSubject: x\n\n{ONE}",
    "a header of another encoding": f"Author: J\udcfcrgen\n{ONE}".encode("utf-8", "surrogateescape"),
    "a coding that is not so": f"From: A <a@b>\nSubject: x\nContent-Transfer-Encoding: base64\n\n{ONE}",
    "a mail of many parts": f"From: A <a@b>\nSubject: x\nContent-Type: multipart/mixed; boundary=x\n\n--x\n{ONE}--x--\n",
    "a quoted diff before a rule": f"Subject: x\n\n{at(20)}\n---\n\n{ONE}",
    "an empty patch": {"p1": "", "p2": ONE},
    # git's own
    "git: made executable": f"diff --git a/x b/x\nnew file mode 100755\nindex 0000000..1234567\n{head('/dev/null', 'b/x')}{hunk(0, 1, '+x')}\n",
    "git: made empty": f"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\ndiff --git a/f b/f\n{ONE}",
    "git: made, but both names are given": f"diff --git a/x b/x\nnew file mode 100755\n{head('a/x', 'b/x')}{hunk(0, 1, '+x')}\n",
    "git: mode": "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n",
    "git: mode taken": "diff --git a/run b/run\nold mode 100755\nnew mode 100644\n",
    "git: mode and text": f"diff --git a/f b/f\nold mode 100644\nnew mode 100755\nindex 1234567..2345678\n{ONE}",
    "git: mode of an empty file": "diff --git a/empty b/empty\nold mode 100644\nnew mode 100755\n",
    "git: mode that it has not": f"diff --git a/f b/f\nindex 1234567..2345678 100755\n{ONE}",
    "git: removed": f"diff --git a/f b/f\ndeleted file mode 100644\nindex 1234567..0000000\n{head(new='/dev/null')}{WHOLE_F}",
    "git: removed empty": "diff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n",
    "git: renamed": "diff --git a/dir/g b/new/g\nsimilarity index 100%\nrename from dir/g\nrename to new/g\n",
    "git: renamed and changed": f"diff --git a/f b/h\nsimilarity index 90%\nrename from f\nrename to h\nindex 1..2 100644\n{at(10, first='a/f', new='b/h')}",
    "git: copied": "diff --git a/run b/run2\nsimilarity index 100%\ncopy from run\ncopy to run2\n",
    "git: binary without data": f"diff --git a/x.png b/x.png\nindex 1234567..2345678 100644\nBinary files a/x.png and b/x.png differ\n{ONE}",
    "git: two names that differ": f"diff --git a/f.orig b/f\nindex 1234567..2345678 100644\n{at(10, first='a/f.orig', new='b/f')}",
    "git: text between header and diff": f"diff --git a/x b/x\nnew file mode 100755\nindex 0000000..1234567\nIndex: x\n===\n{head('/dev/null', 'b/x')}{hunk(0, 1, '+x')}\n",
    "git: a header and another file": f"diff --git a/f b/f\nold mode 100644\nnew mode 100755\n{at(5, old='dir/g')}",
    "git: made, by its ids only": f"diff --git a/x b/x\nindex 0000000..1234567\n{head('a/x', 'b/x')}{hunk(0, 1, '+x')}\n",
    "git: copied from a changed file": f"diff --git a/f b/f\nindex 1..2 100644\n{ONE}diff --git a/f b/h\nsimilarity index 100%\ncopy from f\ncopy to h\n",
    "git: mode 600": f"diff --git a/x b/x\nnew file mode 100600\n{head('/dev/null', 'b/x')}{hunk(0, 1, '+x')}\n",
    "git: in CRLF": f"diff --git a/f b/f\nold mode 100644\nnew mode 100755\nindex 1234567..2345678\n{ONE}".replace("\n", "\r\n"),
}  # fmt: skip

REFUSE: dict[str, str | bytes] = {
    "garbage only": "no patch here\n",
    "blank lines only": "\n\n",
    "no such lines": ONE.replace("line 9", "line nine"),
    "no such file": at(10, old="nofile"),
    "no name is left": ONE.replace("a/f", "f").replace("b/f", "f"),
    "made: it is there": head("/dev/null", "b/f") + hunk(0, 1, "+x\n"),
    "made: epoch, and it is there": head(f"a/f\t{EPOCH}", f"b/f\t{LATER}") + hunk(0, 1, "+x\n"),
    "removed, but bytes are left": head(new="/dev/null") + hunk(1, 0, GONE.removesuffix("-line 30\n")),
    "git: removed, but bytes are left": f"diff --git a/f b/f\ndeleted file mode 100644\n{head(new='/dev/null')}{hunk(1, 0, GONE[:-9])}",
    "applied already": at(10).replace("+new\n", "") .replace("@@ -7,6 +7,7 @@", "@@ -7,6 +7,6 @@"),
    "cut short": ONE.removesuffix(" line 11\n line 12\n"),
    "hunks out of order": head() + hunk(20, 20, " line 20\n+x\n line 21\n") + hunk(5, 6, " line 5\n+y\n line 6\n"),
    "patch with CRLF, file too": head("a/crlf", "b/crlf").replace("\n", "\r\n") + hunk(4, 4, " line 4\r\n-line 5\r\n+five\r\n line 6\r\n"),
    "less context below, not at the end": head() + hunk(10, 10, " line 10\n line 11\n+x\n line 12\n"),
    "starts with its file, but does not": head() + hunk(1, 1, "+x\n line 2\n line 3\n line 4\n"),
    "a context diff": "*** a/f\n--- b/f\n***************\n*** 1,2 ****\n- line 1\n  line 2\n--- 1 ----\n",
    "git: renamed empty": "diff --git a/empty b/e2\nsimilarity index 100%\nrename from empty\nrename to e2\n",
    "git: copied empty": "diff --git a/empty b/e2\nsimilarity index 100%\ncopy from empty\ncopy to e2\n",
    "up and away": head("a/../../x", "b/../../x") + hunk(0, 1, "+x\n"),
}  # fmt: skip


def package(root: Path, patches: Patches, series: str = "") -> Path:
    """A source package of format 3.0 (quilt); its .dsc."""
    root.mkdir()
    debian: dict[str, bytes | str] = {f"debian/patches/{name}": data for name, data in patches.items()}
    debian |= {
        "debian/source/format": "3.0 (quilt)\n",
        "debian/patches/series": series or "".join(f"{name}\n" for name in patches),
    }
    debian["debian/changelog"] = (
        "demo (1-1) unstable; urgency=low\n\n  * x\n\n -- A B <a@b.c>  Thu, 01 Jan 2026 00:00:00 +0000\n"
    )
    _tar(root / "demo_1.orig.tar.gz", {f"demo-1/{name}": data for name, data in TREE.items()})
    _tar(root / "demo_1-1.debian.tar.gz", debian)
    text = "Format: 3.0 (quilt)\nSource: demo\nBinary: demo\nArchitecture: all\nVersion: 1-1\nMaintainer: A B <a@b.c>\nStandards-Version: 4.6.0\n"
    for field, hashed in (("Checksums-Sha1", "sha1"), ("Checksums-Sha256", "sha256"), ("Files", "md5")):
        text += f"{field}:\n"
        for file in sorted(root.glob("*.tar.gz")):
            data = file.read_bytes()
            text += f" {hashlib.new(hashed, data).hexdigest()} {len(data)} {file.name}\n"
    (root / "demo_1-1.dsc").write_text(text)
    return root / "demo_1-1.dsc"


def _tar(path: Path, files: Mapping[str, bytes | str]) -> None:
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, data in files.items():
            raw = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.mode = (
                len(raw),
                1_700_000_000,
                0o755 if name.rpartition("/")[2] in RUNS else 0o644,
            )
            tar.addfile(info, io.BytesIO(raw))


def unpacked(dsc: Path, out: Path, *options: str) -> bool:
    command = ["dpkg-source", "--no-check", "-x", *options, str(dsc), str(out)]
    return subprocess.run(command, capture_output=True, env=os.environ | {"LC_ALL": "C"}).returncode == 0


def compared(tmp_path: Path, dsc: Path, series: str = "debian/patches/series") -> None:
    """Unpacks twice, applies ours to the raw one, and compares all but quilt's own folder."""
    assert unpacked(dsc, tmp_path / "raw", "--skip-patches")
    assert unpacked(dsc, tmp_path / "theirs"), "dpkg-source refuses"
    ended = patchline(
        "apply",
        "--nearest",
        "--source",
        tmp_path / "raw",
        "--series",
        tmp_path / "raw" / series,
        "--out",
        tmp_path / "ours",
        "--json",
    )
    assert ended.exit == 0, ended.err + ended.out
    theirs = {name: what for name, what in files_of(tmp_path / "theirs").items() if not name.startswith(".pc/")}
    assert files_of(tmp_path / "ours") == theirs


@pytest.mark.parametrize("name", APPLY)
def test_an_odd_rule(tmp_path: Path, name: str) -> None:
    patch = APPLY[name]
    compared(tmp_path, package(tmp_path / "p", patch if isinstance(patch, Mapping) else {"p.patch": patch}))


@pytest.mark.parametrize(
    "text", [f"Prose:\n\n{{}}\n{at(20)}", f"{at(20)}\nProse:\n\n{{}}", "{}"], ids=["before", "after", "alone"]
)
def test_an_indented_diff_is_refused_as_gnu_patch_would_apply_it(tmp_path: Path, text: str) -> None:
    dsc = package(tmp_path / "p", {"p.patch": text.format("".join(f"    {line}\n" for line in ONE.splitlines()))})
    assert unpacked(dsc, tmp_path / "raw", "--skip-patches")
    assert unpacked(dsc, tmp_path / "theirs")
    assert (tmp_path / "theirs" / "f").read_text() != TREE["f"]
    ended = patchline(
        "apply",
        "--nearest",
        "--source",
        tmp_path / "raw",
        "--series",
        tmp_path / "raw/debian/patches/series",
        "--out",
        tmp_path / "ours",
    )
    assert ended.exit == 3, ended.out


@pytest.mark.parametrize("name", REFUSE)
def test_what_dpkg_source_refuses_is_refused(tmp_path: Path, name: str) -> None:
    dsc = package(tmp_path / "p", {"p.patch": REFUSE[name]})
    assert unpacked(dsc, tmp_path / "raw", "--skip-patches")
    assert not unpacked(dsc, tmp_path / "theirs")
    ended = patchline(
        "apply",
        "--nearest",
        "--source",
        tmp_path / "raw",
        "--series",
        tmp_path / "raw/debian/patches/series",
        "--out",
        tmp_path / "ours",
    )
    assert ended.exit == 3, ended.out
    assert not (tmp_path / "ours").exists()


# Real packages: many offsets and a file that stays empty; context at line 1; a patch file of no bytes; a date without its time

REAL = ["busybox", "exim4", "giflib", "nginx", "procps", "unzip", "zsh"]


@pytest.fixture(scope="session")
def apt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which apt-get knows the sources of the machine's own Debian mirror, and writes nothing to it."""
    root = tmp_path_factory.mktemp("apt")
    targets = _told(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)", "Created-By: Packages"]
    )
    found = {line.removeprefix("Debian|") for line in targets.splitlines() if line.startswith("Debian|")}
    # Security updates are replaced any day, and a mirror's lists may name files that are gone already.
    mirrors = sorted(line for line in found if "-security|" not in line)
    assert mirrors, "apt has no lists of a Debian mirror; run: apt-get update"
    (root / "sources").write_text("".join("deb-src {} {} {}\n".format(*mirror.split("|")) for mirror in mirrors))
    for folder in ("lists/partial", "cache/archives/partial", "parts"):
        (root / folder).mkdir(parents=True)
    (root / "conf").write_text(
        f'Dir::Etc::sourcelist "{root}/sources";\nDir::Etc::sourceparts "{root}/parts";\nDir::State::lists "{root}/lists";\n'
        f'Dir::Cache "{root}/cache";\nAcquire::Languages "none";\nAcquire::Check-Valid-Until "false";\nAPT::Sandbox::User "";\n'
    )
    env = {"APT_CONFIG": str(root / "conf")}
    _told(["apt-get", "-q", "update", "--error-on=any"], env)
    return env


def _told(command: list[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, env=os.environ | (env or {}) | {"LC_ALL": "C"}, cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.network
@pytest.mark.parametrize("name", REAL)
def test_a_real_package(tmp_path: Path, apt: dict[str, str], name: str) -> None:
    _told(["apt-get", "-q", "source", "--download-only", name], apt, tmp_path)
    (dsc,) = tmp_path.glob("*.dsc")
    compared(tmp_path, dsc)
