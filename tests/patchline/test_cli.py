"""The command line itself: help, errors in text and JSON, and what nobody foresaw."""

from __future__ import annotations

from pathlib import Path

import pytest
from verbs import patchline

from patchline import cli
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
