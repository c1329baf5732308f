"""Check the answers of an OpenAI-compatible endpoint, and what its engines logged.

recall: nine prompts that each hide a code in a long list and ask for it back. parity: the same tokens and
log-probabilities as another endpoint. gemma4: tool calls with thinking on and off, JSON output, the build. logs: each
decode rank's transfer plan, and no failed transfer. The API key is taken from PATCHLINE_API_KEY.
"""

from __future__ import annotations

import argparse
import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from patchline.cli import Outcome
from patchline.errors import Exit, ProofFailed, Unreachable, UsageError
from patchline.gates.checks.answers import Api
from patchline.gates.checks.endpoint import KEY, LIMIT, Endpoint, connect, key_of, root_of
from patchline.gates.checks.gemma4 import gemma4
from patchline.gates.checks.length import items_for
from patchline.gates.checks.listing import ITEMS, WORDS, Form, bare, prompts, prose
from patchline.gates.checks.logs import logs
from patchline.gates.checks.parity import BOUND, TOP, parity
from patchline.gates.checks.recall import recall
from patchline.gates.checks.result import Result, silent
from patchline.progress import say


class _Lists(NamedTuple):
    """The lists that recall and parity ask about."""

    form: Form
    items: int
    seed: int
    api: Api


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("url", nargs="?", metavar="URL", help="of the endpoint; not needed for --logs alone")
    _add_checks(parser)
    _add_lists(parser)
    parser.add_argument("--model", metavar="NAME", help="which of several models (default: the only one)")
    parser.add_argument("--api-key-env", metavar="NAME", help=f"environment variable with the API key (default: {KEY})")
    parser.add_argument(
        "--limit", type=_positive, default=LIMIT, metavar="SECONDS", help=f"for one request (default: {LIMIT:.0f})"
    )


def _add_checks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recall", action="store_true", help="nine of nine codes come back")
    parser.add_argument("--parity", metavar="OTHER", help="URL of an endpoint that gives the same, token by token")
    parser.add_argument(
        "--bound", type=_positive, default=BOUND, help=f"largest difference of log-probabilities (default: {BOUND:g})"
    )
    parser.add_argument(
        "--top", type=_count, default=TOP, metavar="K", help=f"most probable tokens that are compared (default: {TOP})"
    )
    parser.add_argument("--gemma4", action="store_true", help="the four gemma-4 checks")
    parser.add_argument("--expect-overlay", metavar="DIGEST", help="the overlay that the build has to name")
    parser.add_argument(
        "--logs", type=Path, nargs="+", metavar="PATH", help="log files of one pair, or folders with *.log files"
    )
    parser.add_argument("--decode-tp", type=_tp, metavar="D", help="of the pair whose logs are read")
    parser.add_argument("--prefill-tp", type=_tp, metavar="P", help="of the pair whose logs are read")


def _add_lists(parser: argparse.ArgumentParser) -> None:
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--length", type=_count, metavar="N", help=f"items of a list (default: {ITEMS})")
    length.add_argument("--tokens", type=_count, metavar="N", help="tokens of a prompt, about, instead of items")
    parser.add_argument(
        "--form", choices=("prose", "list"), default="prose", help="prompts in English, or bare lines `k12 v34`"
    )
    parser.add_argument(
        "--words",
        type=_count,
        default=WORDS,
        metavar="N",
        help=f"ids and codes of form list: 0 … N-1 (default: {WORDS})",
    )
    parser.add_argument("--api", choices=("chat", "completions"), help="default: chat; completions for form list")
    parser.add_argument(
        "--answer-tokens", type=_count, metavar="N", help="tokens of a recall answer (default: 64; 1 for form list)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        help="gives the same lists again (default: another one each run, so that no cache knows them)",
    )


def run(args: argparse.Namespace) -> Outcome:
    """Runs the checks that are asked for, each whatever the others find.

    Raises:
        UsageError: no check is asked for, or the arguments do not fit together.
    """
    _refuse(args)
    results = [logs(args.logs, decode=args.decode_tp, prefill=args.prefill_tp)] if args.logs else []
    if _asks(args):
        results += _of_endpoint(args, key_of(args.api_key_env))
    return Outcome(data(results), text(results), _exit(results))


def _refuse(args: argparse.Namespace) -> None:
    """Every refusal, before anything is asked."""
    if not (args.logs or _asks(args)):
        raise UsageError("no check is asked for", next="ask for --recall, --parity OTHER, --gemma4 or --logs PATH")
    if _asks(args) and not args.url:
        raise UsageError("the endpoint's URL is missing", next="python -m patchline check URL …")
    if args.parity and root_of(args.parity) == root_of(args.url):
        raise UsageError("parity with itself shows nothing", where=args.url, next="give two endpoints")
    if args.expect_overlay and not args.gemma4:
        raise UsageError("--expect-overlay belongs to --gemma4", next="add --gemma4")
    _refuse_tps(args.logs, args.decode_tp, args.prefill_tp)


def _refuse_tps(paths: list[Path] | None, decode: int | None, prefill: int | None) -> None:
    if bool(paths) != bool(decode) or bool(paths) != bool(prefill):
        raise UsageError("--logs, --decode-tp and --prefill-tp belong together", next="give all three")
    if decode and prefill and max(decode, prefill) % min(decode, prefill):
        raise UsageError(f"no pair has decode TP {decode} and prefill TP {prefill}: neither divides the other")


def _asks(args: argparse.Namespace) -> bool:
    return bool(args.recall or args.parity or args.gemma4)


def _of_endpoint(args: argparse.Namespace, key: str | None) -> list[Result]:
    """The results of all checks that ask an endpoint; where it is not there, none of them got an answer."""
    try:
        endpoint = connect(args.url, model=args.model, key=key, limit=args.limit)
        say(f"{endpoint.shown} serves {endpoint.model}")
        lists = _lists(args, endpoint) if args.recall or args.parity else None
    except Unreachable as error:
        return [silent(name, error) for name in _names(args)]
    except ProofFailed as wrong:
        return [Result(name, 0, [wrong.what], {"where": wrong.where}) for name in _names(args)]
    results = []
    if lists and args.recall:
        results.append(_tried("recall", lambda: _recall(args, endpoint, lists)))
    if lists and args.parity:
        results.append(_tried("parity", lambda: _parity(args, endpoint, lists, key)))
    return results + (gemma4(endpoint, overlay=args.expect_overlay) if args.gemma4 else [])


def _names(args: argparse.Namespace) -> list[str]:
    asked = {"recall": args.recall, "parity": args.parity, "gemma-4": args.gemma4}
    return [name for name, wanted in asked.items() if wanted]


def _lists(args: argparse.Namespace, endpoint: Endpoint) -> _Lists:
    form = bare(args.words, args.words) if args.form == "list" else prose()
    api: Api = args.api or ("completions" if args.form == "list" else "chat")
    seed = secrets.randbelow(2**32) if args.seed is None else args.seed
    items = items_for(endpoint, form, api, args.tokens, seed + 2) if args.tokens else args.length or ITEMS
    return _Lists(form, items, seed, api)


def _tried(name: str, check: Callable[[], Result]) -> Result:
    try:
        return check()
    except Unreachable as error:
        return silent(name, error)
    except ProofFailed as wrong:
        return Result(name, 0, [wrong.what], {"where": wrong.where})


def _recall(args: argparse.Namespace, endpoint: Endpoint, lists: _Lists) -> Result:
    return recall(endpoint, lists.form, items=lists.items, seed=lists.seed, api=lists.api, tokens=args.answer_tokens)


def _parity(args: argparse.Namespace, endpoint: Endpoint, lists: _Lists, key: str | None) -> Result:
    other = connect(args.parity, model=args.model, key=key, limit=args.limit)
    texts = [prompt.text for prompt in prompts(lists.form, lists.items, lists.seed + 1)]  # no cache has them
    return parity(endpoint, other, texts, api=lists.api, top=args.top, bound=args.bound)


def _exit(results: list[Result]) -> Exit:
    """A fault is a fault, whoever else did not answer."""
    if any(not result.passed and result.unreachable is None for result in results):
        return Exit.PROOF_FAILED
    return Exit.UNREACHABLE if any(result.unreachable for result in results) else Exit.DONE


def data(results: list[Result]) -> dict[str, Any]:
    """The results for machines."""
    return {"passed": all(result.passed for result in results), "checks": [result.data() for result in results]}


def text(results: list[Result]) -> str:
    """The results for people."""
    lines = [line for result in results for line in _told(result)]
    passed = sum(result.passed for result in results)
    return "\n".join([*lines, f"{passed} of {len(results)} checks passed"])


def _told(result: Result) -> list[str]:
    if result.unreachable:
        return [f"NO ANSWER  {result.check}", *(f"  {line}" for line in str(result.unreachable).splitlines())]
    head = f"{'passed' if result.passed else 'FAILED'}  {result.check}"
    return [f"{head}{_numbers(result)}", *(f"  FAULT: {fault}" for fault in result.faults)]


def _numbers(result: Result) -> str:
    """The few numbers that people want to see."""
    numbers = result.numbers
    match result.check:
        case "recall" if numbers.get("of"):
            said = f"{numbers['right']} of {numbers['of']}, lists of {numbers['items']} items, seed {numbers['seed']}"
        case "parity" if numbers.get("largest"):
            largest = numbers["largest"]["difference"]
            said = f"{numbers['tokens']} tokens, largest difference {largest:.3g}, {numbers['bound']:g} allowed"
        case "logs":
            said = f"{numbers['plans']} transfer plans, {numbers['expected']} expected"
        case "gemma-4, build" if numbers:
            said = f"overlay {numbers['overlay']}"
        case _:
            return ""
    return f": {said}"


def _positive(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise argparse.ArgumentTypeError(f"{word} is not a number above zero")
    return number


def _count(word: str, most: int = 10**9) -> int:
    number = int(word) if word.isascii() and word.isdigit() and len(word) <= 10 else 0
    if not 1 <= number <= most:
        raise argparse.ArgumentTypeError(f"{word} is not a number from 1 to {most}")
    return number


def _tp(word: str) -> int:
    return _count(word, 1024)
