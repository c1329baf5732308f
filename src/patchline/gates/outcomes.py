"""What becomes of a play: it is brought up, asked, and its logs are read. The answer counts, not the status code."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from patchline.errors import ProofFailed, Unreachable
from patchline.gates.checks.answers import Api, ask
from patchline.gates.checks.endpoint import Endpoint, WrongAnswer, connect
from patchline.gates.checks.gemma4 import gemma4
from patchline.gates.checks.length import items_for
from patchline.gates.checks.listing import Form, bare, prompts, prose
from patchline.gates.checks.logs import logs as read_logs
from patchline.gates.checks.parity import Heard, agreement, hear
from patchline.gates.checks.recall import judge, recall
from patchline.gates.checks.result import Result, cut
from patchline.gates.fleet import Model, Refuses
from patchline.gates.plays import Play
from patchline.gates.runners.runner import ANSWER, Runner, Stand
from patchline.gates.stack.processes import StackFailed
from patchline.progress import say

SEED: dict[Api, int] = {"completions": 20, "chat": 30}
"""Of all lists, by API; recall, parity and lengths take numbers of their own.

No play sees what another one was asked.
"""

BUILD = "gemma-4, build"
"""The check that an image says which overlay it holds; engines that are processes of an environment say nothing."""

ENGINES = ("prefill", "decode", "engine")
"""Whose logs may hold the line of a refusal."""

What: TypeAlias = Literal["served", "refused", "answered", "broke"]


class Outcome(NamedTuple):
    """What became of one play, as evidence keeps it."""

    play: str
    what: What
    """`served`: asked and examined; `refused`: no token, or not even ready; `answered`, where that is not examined;
    `broke`: it could not be asked to the end."""
    said: str
    """Why it was refused: the line of a log that the fleet names, or else what was answered."""
    ready: float | None
    """Seconds until it was ready."""
    seconds: float
    checks: list[dict[str, Any]]
    """Each check with its numbers, as `check --json` gives it."""
    logs: list[dict[str, Any]]
    """Name, sha256 and bytes of each process's log."""
    faults: list[str]
    """Why it is not what the fleet expects."""


class Reference(NamedTuple):
    """What the one engine of a model answered."""

    items: int
    """Of the lists that it was asked about."""
    heard: Heard


References: TypeAlias = dict[tuple[str, Api], Reference]
"""By model and API."""


def play_out(runner: Runner, play: Play, logs: Path, references: References, overlay: str = "") -> Outcome:
    """Brings a play up, asks it, and takes it down; one alone adds to `references`, the others are compared with them.

    `overlay` is the digest that an image of the overlay's side has to name.

    Raises:
        UsageError: something that it needs is missing.
    """
    began, seen = time.monotonic(), _Seen()
    say(f"{play.name}: {_told(play)} is expected")
    try:
        with runner.serve(play, logs) as stand:
            seen.ready = round(stand.ready, 1)
            _ask(stand, play, references, seen, overlay if runner.image else "")
            stand.check()
    except (StackFailed, Unreachable, ProofFailed) as failed:
        _fail(play, seen, failed.what)
    if isinstance(play.expected, Refuses):
        _find(play.expected, logs, seen)
    if play.expected == "serves":
        seen.faults += [f"{one.check}: {fault}" for one in seen.checks for fault in _faults(one)]
        seen.faults += [seen.said] if seen.what == "broke" else []
    checks = [one.data() for one in seen.checks]
    seconds = round(time.monotonic() - began, 1)
    say(f"{play.name}: {seen.what}, {seconds:.0f} s{': ' + cut(seen.faults[0], 200) if seen.faults else ''}")
    return Outcome(play.name, seen.what, seen.said, seen.ready, seconds, checks, list(_digests(logs)), seen.faults)


class _Seen:
    """What is known of a play so far."""

    def __init__(self) -> None:
        self.what: What = "broke"
        self.said = ""
        self.ready: float | None = None
        self.checks: list[Result] = []
        self.faults: list[str] = []


def _fail(play: Play, seen: _Seen, why: str) -> None:
    """Something ended the play; what has answered before stays one that answered."""
    if seen.what == "answered":
        seen.said += f"; then {cut(why, 200)}"
    else:
        seen.what, seen.said = ("broke" if play.expected == "serves" else "refused"), cut(why, 400)


def _told(play: Play) -> str:
    return play.expected if isinstance(play.expected, str) else f"a refusal: {play.expected.refuses}"


def _ask(stand: Stand, play: Play, references: References, seen: _Seen, overlay: str) -> None:
    endpoint = connect(stand.url, model=stand.model, limit=ANSWER)
    if play.expected != "serves":
        seen.what, seen.said = _one_answer(endpoint, play)
        return
    for api in play.apis:
        seen.checks += _of_api(endpoint, play, api, SEED[api], references)
    if play.form == "dynamo" and play.description.gemma4:
        named = overlay and play.side == "overlay"
        seen.checks += [one for one in gemma4(endpoint, overlay=overlay or None) if named or one.check != BUILD]
    if play.form != "alone":
        engines = [stand.logs[name] for name in ("prefill", "decode")]
        seen.checks.append(read_logs(engines, decode=play.layout.decode, prefill=play.layout.prefill))
    seen.what = "served"


def _form(model: Model) -> Form:
    return bare(model.words, model.words) if model.words else prose()


def _of_api(endpoint: Endpoint, play: Play, api: Api, seed: int, references: References) -> Iterator[Result]:
    """Recall and parity. A play alone has nothing to agree with: it becomes what the others are compared with."""
    model, form = play.description, _form(play.description)
    known = references.get((model.name, api))
    if known is None and play.form != "alone":
        yield Result(f"parity, {api}", 0, ["the one engine gave no answers to compare with"], {})
        return
    items = known.items if known else items_for(endpoint, form, api, model.tokens, seed + 2)
    found = recall(endpoint, form, items=items, seed=seed, api=api)
    yield found._replace(check=f"recall, {api}")
    heard = hear(endpoint, [prompt.text for prompt in prompts(form, items, seed + 1)], api=api)
    if play.form == "alone":
        references[model.name, api] = Reference(items, heard)
    elif known:
        yield agreement(heard, known.heard, bound=play.fleet.parity_bound)._replace(check=f"parity, {api}")


def _faults(result: Result) -> list[str]:
    if result.unreachable:
        return [result.unreachable.what]
    return result.faults or ([] if result.passed else ["it looked at nothing"])


def _one_answer(endpoint: Endpoint, play: Play) -> tuple[What, str]:
    """What comes of one prompt; `refused` where not one token does."""
    model, form = play.description, _form(play.description)
    prompt = prompts(form, _about(model), SEED["chat"], 1)[0]
    try:
        answer = ask(endpoint, prompt.text, "chat", tokens=form.answer_tokens)
    except (Unreachable, WrongAnswer) as refused:
        return "refused", cut(refused.what, 400)
    return "answered", f"{answer.text!r}: {judge(prompt, answer.text) or 'that is right'}"


def _about(model: Model) -> int:
    """Items of a prompt of about the model's length, where nobody can be asked: one takes two tokens, in prose 20."""
    return max(3, model.tokens // (2 if model.words else 20))


def _find(expected: Refuses, logs: Path, seen: _Seen) -> None:
    """Looks for the line that the fleet names, and adds the faults."""
    line = next(_around(re.compile(expected.refuses), logs), None)
    if seen.what == "answered":
        seen.faults.append(f"it is to be refused, and answered {seen.said}")
    if line is None:
        seen.faults.append(f"no log has a line like {expected.refuses!r}: {cut(seen.said, 200)}")
    else:
        seen.said = line


def _around(pattern: re.Pattern[str], logs: Path) -> Iterator[str]:
    """Where an engine's log matches: the match, and a little of its line before and after."""
    for path in sorted(path for path in logs.rglob("*.log") if path.stem in ENGINES):
        with path.open(errors="replace") as file:
            for line in file:
                if found := pattern.search(line):
                    yield line[max(0, found.start() - 100) : found.end() + 100].strip("\n")


def _digests(logs: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(logs.rglob("*.log")):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        yield {"name": path.stem, "sha256": f"sha256:{digest}", "bytes": path.stat().st_size}
