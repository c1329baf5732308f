"""The verbs: `python -m patchline VERB … [--json]`; the one place where errors become exit codes."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NamedTuple, NoReturn, TextIO

from patchline import __version__
from patchline.errors import Exit, PatchlineError, UsageError

VERBS = {
    "pin": "record an upstream version with its hashes",
    "checkout": "bring a pinned upstream here, as a git repository",
    "apply": "put a series of patches on its pin, on a repository or on a folder",
    "export": "write the commits of a checked-out pin back as its series",
    "new": "make the work tree's changes a new patch at the end of the series",
    "refresh": "put the work tree's changes into one patch of the series",
    "reorder": "give the series another order",
    "lint": "check series, patches and trailers",
    "overlay": "show the files that a series changes in the installed package, with their digest",
    "prove": "show that each patch's tests fail on stock and pass on the overlay",
    "hunks": "show that some test fails without each piece of each patch, and with each small mistake in it",
    "upstream-tests": "run upstream's own tests on stock and on the overlay, and compare",
    "check": "check the answers of a running endpoint, and what its engines logged",
    "gate": "run a fleet's gate: every layout on stock and on the overlay, with the answers checked",
    "layouts": "show for a model what each prefill and decode TP means, and which pairs vLLM serves",
    "build": "cut a line's image: its base, and one layer with the overlay",
    "publish": "push a line's image, attach what it is made of, record it, and give it the next free tag",
    "promote": "make a tested nightly a release: the same digest, another tag",
    "reproduce": "cut a release's image again from its record, and compare digests",
    "smoke": "serve with a line's image in real containers, and check the answers",
    "rebase": "say what each patch is on another version, and write the rebased series",
    "range": "compare two carried series, patch by patch",
    "drop": "drop a patch that upstream has, the rest proven again and the changelog told",
    "status": "one table of what is carried, and what would let us drop it",
    "audit": "find every byte that neither upstream nor a patch accounts for: in a tree, a package or an image",
    "changelog": "write SCICOM_CHANGELOGS.md from patches, evidence, releases and news",
    "page": "write the divergence page: what is carried, why, since when, and what nothing explains",
    "nightly": "the whole way: checkout, apply, lint, overlay, prove, image, gates, smoke test",
}
"""Each is a module of `patchline.commands`; only the one that is asked for is imported."""


_INTERRUPTED = 130
"""What a shell gives for a program that Ctrl-C ended."""


class Outcome(NamedTuple):
    """What a verb has to say: `data` for machines, `text` for people."""

    data: dict[str, Any]
    text: str
    exit: Exit = Exit.DONE


class _End(NamedTuple):
    """How a run ends: its exit code, and what goes to standard output and to standard error."""

    code: int
    out: str
    err: str = ""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns the exit code that `errors.Exit` lists, or 130 where it was interrupted.

    Where nobody reads the output any more (a closed pipe) the code is still the verb's own. Output that
    cannot be written (a full disk) is an error, with code 1 where the verb itself was done.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        signal.signal(signal.SIGTERM, _interrupt)
    gc.disable()  # a run is short and leaves no cycles worth the looking: a twentieth of its time
    try:
        end = _run(words, "--json" in words)
        return _tell(end)
    except KeyboardInterrupt:  # while a slow reader keeps us waiting
        if sys.stdout is not None:
            _drop(sys.stdout)
        return _INTERRUPTED


def _interrupt(*_: object) -> NoReturn:
    """Lets SIGTERM end a run as Ctrl-C does: what it started is ended, too."""
    raise KeyboardInterrupt


def _run(words: Sequence[str], as_json: bool) -> _End:
    try:
        outcome = _outcome(words)
        return _End(outcome.exit, _json(outcome.exit, outcome.data) if as_json else outcome.text)
    except PatchlineError as error:
        return _failed(error, as_json)
    except KeyboardInterrupt:
        return _interrupted(as_json)
    except Exception as error:  # noqa: BLE001 - the one handler of what nobody foresaw
        return _failed(_unforeseen(error), as_json)


def _outcome(words: Sequence[str]) -> Outcome:
    if not words or words[0] in ("-h", "--help"):
        return Outcome({"help": _help()}, _help(), Exit.DONE if words else Exit.USAGE)
    if words[0] == "--version":
        return Outcome({"version": __version__}, f"patchline {__version__}")
    try:
        return _verb(words[0])(words[1:])
    except _HelpAsked as asked:
        return Outcome({"help": asked.text}, asked.text)


class _HelpAsked(Exception):
    """Somebody wants to read the help of a verb."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class _Parser(argparse.ArgumentParser):
    """One that leaves printing and ending the process to `main`."""

    def error(self, message: str) -> NoReturn:
        usage = " ".join(self.format_usage().split())
        raise UsageError(message, where=usage, next=f"{self.prog} --help")

    def print_help(self, file: object = None) -> NoReturn:  # noqa: ARG002 - argparse gives it
        raise _HelpAsked(self.format_help().rstrip())


def _verb(name: str) -> Callable[[Sequence[str]], Outcome]:
    if name not in VERBS:
        import difflib

        near = difflib.get_close_matches(name, VERBS, 1)
        hint = f"python -m patchline {near[0]}" if near else "python -m patchline --help"
        raise UsageError(f"there is no verb {name!r}", next=hint)
    module = import_module(f"patchline.commands.{name.replace('-', '_')}")

    def call(arguments: Sequence[str]) -> Outcome:
        parser = _Parser(prog=f"python -m patchline {name}", description=module.__doc__, allow_abbrev=False)
        parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
        module.configure(parser)
        outcome: Outcome = module.run(parser.parse_args(arguments))
        return outcome

    return call


def _help() -> str:
    width = max(map(len, VERBS))
    verbs = "\n".join(f"  {name:{width}}  {what}" for name, what in VERBS.items())
    codes = "\n".join(f"  {code.value}  {code.name.lower().replace('_', ' ')}" for code in Exit)
    return f"usage: python -m patchline VERB … [--json]\n\n{verbs}\n\nVERB --help tells more. Exit codes:\n{codes}"


def _json(code: int, data: dict[str, Any]) -> str:
    import json

    return json.dumps({"ok": code == Exit.DONE, "exit": int(code), **data}, indent=2)


def _failed(error: PatchlineError, as_json: bool) -> _End:
    problem = {"kind": type(error).__name__, "what": error.what, "where": error.where, "next": error.next}
    return _End(error.exit, _json(error.exit, {"error": problem}) if as_json else "", f"patchline: {error}")


def _interrupted(as_json: bool) -> _End:
    problem = {"kind": "Interrupted", "what": "stopped", "where": "", "next": "run the same command again to go on"}
    out = _json(_INTERRUPTED, {"error": problem}) if as_json else ""
    return _End(_INTERRUPTED, out, f"patchline: {problem['what']}; {problem['next']}")


def _unforeseen(error: Exception) -> PatchlineError:
    """The error as people see it; all that is known about it goes to a log file."""
    import traceback

    from patchline.project import cache_dir

    try:
        log = cache_dir() / "patchline.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
        where = str(log)
    except (OSError, RuntimeError) as full:  # RuntimeError: nobody knows where the user's home is
        where = f"no log could be written: {full}"
    return PatchlineError(
        f"unforeseen {type(error).__name__}: {error}", where=where, next="send the log to whoever keeps this tool"
    )


def _tell(end: _End) -> int:
    """Prints both texts; the exit code is the run's, or 1 where it was done and its output is lost."""
    _write(sys.stderr, end.err)  # where that cannot be written, nobody can be told
    lost = _write(sys.stdout, end.out)
    if lost is None or isinstance(lost, BrokenPipeError):
        return end.code
    _write(sys.stderr, f"patchline: standard output cannot be written: {lost.strerror}")
    return end.code or Exit.UNFORESEEN


def _write(stream: TextIO | None, text: str) -> OSError | None:
    """Writes `text` as a line, with escapes for what the stream's encoding lacks; gives what stopped it."""
    if not text or stream is None:
        return None
    try:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
        print(text, file=stream, flush=True)
    except OSError as failed:
        _drop(stream)
        return failed
    return None


def _drop(stream: TextIO) -> None:
    """Turns a stream to nowhere: what it still holds would fail again, with a traceback, at Python's end."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())
