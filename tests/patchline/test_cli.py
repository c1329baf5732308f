"""The command line itself: help, errors in text and JSON, and what nobody foresaw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from carrying import project
from repos import mail, repository, series
from verbs import patchline

from patchline import __version__, cli
from patchline.errors import Exit, Refused


def test_help_lists_every_verb_and_every_code() -> None:
    ended = patchline("--help")
    assert ended.exit == 0
    for verb, what in cli.VERBS.items():
        assert f"  {verb} " in ended.out
        assert what in ended.out
    for code in Exit:
        assert f"  {code.value}  {code.name.lower().replace('_', ' ')}" in ended.out


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_help_and_json(verb: str) -> None:
    ended = patchline(verb, "--help")
    assert ended.exit == 0
    assert "--json" in ended.out


def test_no_verb_and_a_wrong_option() -> None:
    assert patchline().exit == 2
    ended = patchline("lint", "--nope")
    assert ended.exit == 2
    assert "unrecognized arguments: --nope" in ended.err


def test_an_error_says_what_where_and_the_next_command() -> None:
    error = Refused("what failed", where="a/place", next="a command")
    assert str(error) == "what failed\n  where: a/place\n  next:  a command"


def test_what_nobody_foresaw_is_one_line_and_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_world: Path
) -> None:
    from patchline.commands import lint

    def broken(_: object) -> cli.Outcome:
        raise ZeroDivisionError("never seen")

    monkeypatch.setattr(lint, "run", broken)
    assert cli.main(["lint"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("patchline: unforeseen ZeroDivisionError: never seen\n")
    assert "Traceback" not in err
    assert "Traceback" in (own_world / "patchline.log").read_text()


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from patchline.commands import lint

    def stopped(_: object) -> cli.Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(lint, "run", stopped)
    assert cli.main(["lint"]) == 130
    assert "run the same command again" in capsys.readouterr().err


def test_ended_by_sigterm_as_by_ctrl_c() -> None:
    code = "import os\nfrom patchline import cli\nfrom patchline.commands import lint\nlint.run = lambda _: os.kill(os.getpid(), 15)\nimport sys\nsys.argv[1:] = ['lint']\nsys.exit(cli.main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, "run the same command again" in done.stderr) == (130, True)


def test_interrupted_with_json_is_one_object(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from patchline.commands import lint

    def stopped(_: object) -> cli.Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(lint, "run", stopped)
    assert cli.main(["lint", "--json"]) == 130
    said = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["exit"], said["error"]["kind"]) == (False, 130, "Interrupted")


@pytest.mark.parametrize("words", [["lint", "--nope"], ["overlay"], ["prove", "--limit", "x"], ["nope"], []])
def test_a_wrong_command_line_with_json_is_one_object(words: list[str]) -> None:
    ended = patchline(*words, "--json")
    assert (ended.exit, ended.data["exit"], ended.data["ok"]) == (2, 2, False)
    assert ended.data["error"]["kind"] == "UsageError"
    if words and words[0] in cli.VERBS:
        assert f"usage: python -m patchline {words[0]} [-h] [--json]" in ended.data["error"]["where"]
        assert ended.data["error"]["next"] == f"python -m patchline {words[0]} --help"


def test_help_with_json_is_one_object() -> None:
    ended = patchline("lint", "--help", "--json")
    assert ended.exit == 0
    assert "--json" in ended.data["help"]
    assert "Exit codes" in patchline("--help", "--json").data["help"]
    assert patchline("--version", "--json").data["version"] == __version__


def test_a_run_with_nothing_to_do_imports_nothing_that_places_hunks(tmp_path: Path) -> None:
    repo = repository(tmp_path / "r", {"f": "one\n"})
    file = series(tmp_path / "s", {"p.patch": mail("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n")})
    words = ("apply", "--repo", repo, "--series", file)
    loud = {"PYTHONPROFILEIMPORTTIME": "1"}
    assert "patchline.series.place\n" in patchline(*words, env=loud).err
    again = patchline(*words, env=loud)
    assert "nothing to do" in again.out
    imported = {line.rpartition("|")[2].strip() for line in again.err.splitlines()}
    assert "patchline.series.placement" in imported
    assert imported.isdisjoint({"patchline.series.place", "patchline.series.hunks", "patchline.series.plan"})


STRICT = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict"}


def test_what_the_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    made = project(tmp_path / "p", ("[Demo] Add umlaut", {"demo/\u00e4.py": "x\n"}))
    raw = Path(os.fsdecode(os.fsencode(tmp_path) + b"/raw\xff"))
    made.root.rename(raw)
    ended = patchline("overlay", "demo", cwd=raw, env=STRICT)
    assert (ended.exit, ended.err.count("Traceback")) == (0, 0), ended.err
    assert "\\udcc3\\udca4.py" in ended.out
    assert patchline("checkout", "demo", "--json", cwd=raw, env=STRICT).data["ok"]
    assert patchline("lint", "x\u00e4", cwd=raw, env=STRICT).exit == 2


def piped(words: list[str], stdout: int) -> tuple[int, str]:
    command = [sys.executable, "-m", "patchline", *words]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--help"], 0), (["lint", "--help"], 0), (["--version"], 0), (["nope"], 2), (["nope", "--json"], 2), ([], 2)],
)
def test_a_reader_that_is_gone_is_no_error(words: list[str], code: int) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        exit, err = piped(words, write)
    finally:
        os.close(write)
    assert exit == code
    assert err == "" or err.startswith("patchline: there is no verb 'nope'\n")
    assert "BrokenPipe" not in err


def test_output_that_cannot_be_written_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        for words in (["--help"], ["lint", "--help"], ["--version", "--json"]):
            wanted = "patchline: standard output cannot be written: No space left on device\n"
            assert piped(words, full.fileno()) == (1, wanted)
        assert piped(["nope", "--json"], full.fileno())[0] == 2


def test_both_streams_gone_or_never_there() -> None:
    code = "import os, sys; os.close(1); os.close(2); os.execv(sys.executable, [sys.executable, '-m', 'patchline', *sys.argv[1:]])"
    assert subprocess.run([sys.executable, "-c", code, "--version"]).returncode == 0
    assert subprocess.run([sys.executable, "-c", code, "nope"]).returncode == 2
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "patchline", "--help"], stdout=full, stderr=full)
    assert done.returncode == 1


def test_what_nobody_foresaw_with_a_path_that_is_no_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], own_world: Path
) -> None:
    from patchline.commands import lint

    def broken(_: object) -> cli.Outcome:
        raise OSError(5, "broken", "x\udcff")

    monkeypatch.setattr(lint, "run", broken)
    assert cli.main(["lint"]) == 1
    assert "unforeseen OSError" in capsys.readouterr().err
    assert "\\udcff" in (own_world / "patchline.log").read_text()
