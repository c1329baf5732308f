"""The gemma-4 checks: a tool call with thinking on, one with thinking off, JSON output, and the build's identity."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from patchline.errors import Unreachable
from patchline.gates.checks.answers import Answer, chat
from patchline.gates.checks.endpoint import Endpoint, WrongAnswer, read
from patchline.gates.checks.result import Result, cut, silent
from patchline.progress import say

BUILD = "/build"
"""Where the frontend says which build it is, beside `/v1`."""

_TOOL = "get_weather"
_CITY = "Kuala Lumpur"
_TOKENS = 2048
"""Tokens of an answer: a thinking model has to come to its end."""

_MARKERS = re.compile(
    r"<\|?/?(?:channel|think|tool_call|tool_response|tool|turn)\|?>"  # gemma-4's, as vLLM's parser has them; others'
    r"|^\s*thought\n"  # what is left of gemma-4's thinking where the markers were taken away as special tokens
)


class _Weather(msgspec.Struct, forbid_unknown_fields=True):
    """The tool's arguments: the schema that is sent, and what the call's arguments have to be."""

    city: str
    unit: Literal["celsius", "fahrenheit"]


class _Person(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON output: the schema that is sent, and what the answer has to be."""

    name: str
    age: int
    city: str


class _Series(msgspec.Struct):
    overlay: str


class _Build(msgspec.Struct):
    overlay: str
    """Of all series of the image together; that of the one there is."""
    series: list[_Series] = []


class Found(NamedTuple):
    """What one of the four found."""

    faults: list[str]
    numbers: dict[str, Any]


def gemma4(endpoint: Endpoint, *, overlay: str | None = None) -> list[Result]:
    """Runs all four, whatever the others find; with `overlay` the build has to be of that overlay."""
    checks: dict[str, Callable[[], Found]] = {
        "tool call, thinking on": lambda: tool_call(endpoint, thinking=True),
        "tool call, thinking off": lambda: tool_call(endpoint, thinking=False),
        "JSON output": lambda: json_output(endpoint),
        "build": lambda: build(endpoint, overlay),
    }
    results = []
    for name, check in checks.items():
        results.append(_ran(name, check))
        say(f"gemma-4, {name}: {_told(results[-1])}")
    return results


def tool_call(endpoint: Endpoint, *, thinking: bool) -> Found:
    """One turn that needs a tool. The call is in `tool_calls`, and no thinking is in the content.

    Raises:
        Unreachable, UsageError, WrongAnswer: as `endpoint.read` says.
    """
    body = {
        "messages": [{"role": "user", "content": f"What is the weather in {_CITY} now, in celsius? Use the tool."}],
        "tools": [{"type": "function", "function": _tool()}],
        "tool_choice": "auto",
        "chat_template_kwargs": {"enable_thinking": thinking},
        "max_tokens": _TOKENS,
    }
    answer = chat(endpoint, body)
    faults = _wrong_calls(answer) + _leaks(answer)
    if not thinking and answer.reasoning:
        faults.append(f"thinking is off, and the answer has reasoning: {cut(answer.reasoning)!r}")
    return Found(faults, _counts(answer) | {"calls": len(answer.calls), "reasoning_characters": len(answer.reasoning)})


def json_output(endpoint: Endpoint) -> Found:
    """One turn whose answer is JSON of a schema, all of it, with the right values.

    Raises:
        Unreachable, UsageError, WrongAnswer: as `endpoint.read` says.
    """
    body = {
        "messages": [
            {"role": "user", "content": "Ada is 36 years old and lives in London. Give her name, age and city as JSON."}
        ],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "person", "strict": True, "schema": _schema(_Person)},
        },
        "chat_template_kwargs": {"enable_thinking": False},
        "max_tokens": _TOKENS,
    }
    answer = chat(endpoint, body)
    return Found(_leaks(answer) + _wrong_person(answer.text), _counts(answer))


def build(endpoint: Endpoint, overlay: str | None) -> Found:
    """What the frontend says about its build: JSON whose `overlay` is the digest of an overlay.

    The one that is expected may be that of all its series, or of one of them: a gate is of one series.

    Raises:
        Unreachable, UsageError, WrongAnswer: as `endpoint.read` says.
    """
    found = read(endpoint, BUILD, _Build)
    said = list(dict.fromkeys((found.overlay, *(one.overlay for one in found.series))))
    if wrong := [one for one in said if not re.fullmatch(r"sha256:[0-9a-f]{64}", one)]:
        return Found([f"the build's overlay is no digest: {cut(wrong[0])!r}"], {"overlay": cut(found.overlay)})
    if overlay is not None and overlay not in said:
        listed = " and ".join(said)
        return Found([f"the build is of overlay {listed}; {overlay} is expected"], {"overlay": found.overlay})
    return Found([], {"overlay": found.overlay})


def _ran(name: str, check: Callable[[], Found]) -> Result:
    try:
        found = check()
    except WrongAnswer as wrong:
        return Result(f"gemma-4, {name}", 1, [wrong.what], {})
    except Unreachable as error:
        return silent(f"gemma-4, {name}", error)
    return Result(f"gemma-4, {name}", 1, found.faults, found.numbers)


def _tool() -> dict[str, Any]:
    return {"name": _TOOL, "description": "The weather in a city, now", "parameters": _schema(_Weather)}


def _schema(shape: type[msgspec.Struct]) -> dict[str, Any]:
    _, parts = msgspec.json.schema_components((shape,))
    return {name: value for name, value in parts[shape.__name__].items() if name not in ("title", "description")}


def _wrong_calls(answer: Answer) -> list[str]:
    if not answer.calls:
        return [f"no tool call; the content is {cut(answer.text)!r}"]
    return [fault for call in answer.calls if (fault := _wrong_call(call.name, call.arguments))]


def _wrong_call(name: str, arguments: str) -> str | None:
    if name != _TOOL:
        return f"the call is of {cut(name)!r}, not of {_TOOL!r}"
    try:
        weather = msgspec.json.decode(arguments, type=_Weather)
    except (ValueError, RecursionError) as bad:
        return f"the call's arguments are not what the schema says: {bad}: {cut(arguments)!r}"
    if _CITY.lower() not in weather.city.lower() or weather.unit != "celsius":
        return f"the call asks for something else than {_CITY} in celsius: {cut(arguments)!r}"
    return None


def _wrong_person(text: str) -> list[str]:
    try:
        person = msgspec.json.decode(text, type=_Person)
    except (ValueError, RecursionError) as bad:
        return [f"the answer is not JSON of the schema: {bad}: {cut(text)!r}"]
    right = "ada" in person.name.lower() and person.age == 36 and "london" in person.city.lower()
    return [] if right else [f"the JSON says something else than the question: {cut(text)!r}"]


def _leaks(answer: Answer) -> list[str]:
    """Thinking that stands in the content."""
    if marker := _MARKERS.search(answer.text):
        return [f"the content has the marker {cut(marker[0])!r}: {cut(answer.text)!r}"]
    thought = answer.reasoning.strip()
    if len(thought) >= 20 and thought[:80] in answer.text:
        return [f"the content repeats the reasoning: {cut(answer.text)!r}"]
    return []


def _counts(answer: Answer) -> dict[str, Any]:
    return {"prompt_tokens": answer.prompt_tokens, "answer_tokens": answer.answer_tokens}


def _told(result: Result) -> str:
    if result.unreachable:
        return result.unreachable.what
    return result.faults[0] if result.faults else "right"
