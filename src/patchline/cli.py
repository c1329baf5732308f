"""The verbs: `python -m patchline VERB … [--json]`; the one place where errors become exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, NamedTuple

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
    "nightly": "the whole way: checkout, apply, lint, overlay, prove",
}
"""Each is a module of `patchline.commands`; only the one that is asked for is imported."""


class Outcome(NamedTuple):
    """What a verb has to say: `data` for machines, `text` for people."""

    data: dict[str, Any]
    text: str
    exit: Exit = Exit.DONE


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; returns the exit code that `errors.Exit` lists."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return Exit.DONE if words else Exit.USAGE
    if words[0] == "--version":
        print(f"patchline {__version__}")
        return Exit.DONE
    as_json = "--json" in words
    try:
        outcome = _verb(words[0])(words[1:])
    except PatchlineError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        print("patchline: stopped; run the same command again to go on", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the one handler of what nobody foresaw
        return _unforeseen(error, as_json)
    _print(outcome, as_json)
    return outcome.exit


def _verb(name: str) -> Callable[[Sequence[str]], Outcome]:
    if name not in VERBS:
        import difflib

        near = difflib.get_close_matches(name, VERBS, 1)
        hint = f"python -m patchline {near[0]}" if near else "python -m patchline --help"
        raise UsageError(f"there is no verb {name!r}", next=hint)
    module = import_module(f"patchline.commands.{name}")

    def call(arguments: Sequence[str]) -> Outcome:
        parser = argparse.ArgumentParser(
            prog=f"python -m patchline {name}", description=module.__doc__, allow_abbrev=False
        )
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


def _print(outcome: Outcome, as_json: bool) -> None:
    if not as_json:
        print(outcome.text)
        return
    import json

    print(json.dumps({"ok": outcome.exit is Exit.DONE, "exit": int(outcome.exit), **outcome.data}, indent=2))


def _fail(error: PatchlineError, as_json: bool) -> int:
    print(f"patchline: {error}", file=sys.stderr)
    if as_json:
        import json

        problem = {"kind": type(error).__name__, "what": error.what, "where": error.where, "next": error.next}
        print(json.dumps({"ok": False, "exit": int(error.exit), "error": problem}, indent=2))
    return error.exit


def _unforeseen(error: Exception, as_json: bool) -> int:
    import traceback

    from patchline.project import cache_dir

    log = cache_dir() / "patchline.log"
    where = str(log)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError as full:
        where = f"no log could be written: {full}"
    wrapped = PatchlineError(
        f"unforeseen {type(error).__name__}: {error}", where=where, next="send the log to whoever keeps this tool"
    )
    return _fail(wrapped, as_json)
