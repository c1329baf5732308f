"""What a model answers, through the chat API or the completions API, in one shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from patchline.gates.checks.endpoint import Endpoint, WrongAnswer, place, read

Api = Literal["chat", "completions"]

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

Top = Mapping[str, float]


class Step(NamedTuple):
    """One token of an answer, with natural logarithms of probabilities."""

    token: str
    logprob: float
    top: Top
    """The most probable tokens at this place."""


class Call(NamedTuple):
    """One tool call; `arguments` is the text that should be JSON."""

    name: str
    arguments: str


class Answer(NamedTuple):
    """The first choice of an answer."""

    text: str
    reasoning: str
    calls: tuple[Call, ...]
    steps: tuple[Step, ...] | None
    """None where the answer has no log-probabilities."""
    prompt_tokens: int | None
    answer_tokens: int | None
    """Both as `usage` says, if it does."""


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _ToolCall(msgspec.Struct):
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning: str | None = None
    """vLLM's name."""
    reasoning_content: str | None = None
    """Dynamo's name, and older vLLM's."""
    tool_calls: list[_ToolCall] | None = None


class _Token(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Place(_Token):
    top_logprobs: list[_Token] | None = None


class _ChatLogprobs(msgspec.Struct):
    content: list[_Place] | None = None


class _ChatChoice(msgspec.Struct):
    message: _Message
    logprobs: _ChatLogprobs | None = None


class _Chat(msgspec.Struct):
    choices: list[_ChatChoice]
    usage: _Usage | None = None


class _TextLogprobs(msgspec.Struct):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float] | None] | None = None


class _TextChoice(msgspec.Struct):
    text: str
    logprobs: _TextLogprobs | None = None


class _Text(msgspec.Struct):
    choices: list[_TextChoice]
    usage: _Usage | None = None


def ask(endpoint: Endpoint, prompt: str, api: Api, *, tokens: int, logprobs: int = 0) -> Answer:
    """The answer to one prompt: at most `tokens` tokens, the most probable ones.

    With `logprobs` the answer is asked for log-probabilities, of so many tokens at each place.

    Raises:
        Unreachable, UsageError, WrongAnswer: as `endpoint.read` says.
    """
    common = {"max_tokens": tokens}
    if api == "completions":
        extra = {"logprobs": logprobs} if logprobs else {}
        return complete(endpoint, {"prompt": prompt, **common, **extra})
    extra = {"logprobs": True, "top_logprobs": logprobs} if logprobs else {}
    return chat(endpoint, {"messages": [{"role": "user", "content": prompt}], **common, **extra})


def chat(endpoint: Endpoint, body: Mapping[str, Any]) -> Answer:
    """The answer of the chat API to `body`, without randomness.

    Raises:
        Unreachable, UsageError, WrongAnswer: as `endpoint.read` says.
    """
    got = read(endpoint, CHAT, _Chat, {"model": endpoint.model, "temperature": 0, **body})
    choice = _first(got.choices, place(endpoint, CHAT))
    message = choice.message
    calls = tuple(Call(call.function.name, call.function.arguments) for call in message.tool_calls or [])
    reasoning = message.reasoning or message.reasoning_content or ""
    return Answer(message.content or "", reasoning, calls, _chat_steps(choice), *_counts(got.usage))


def complete(endpoint: Endpoint, body: Mapping[str, Any]) -> Answer:
    """The answer of the completions API to `body`, without randomness.

    Raises:
        Unreachable, UsageError, WrongAnswer: as `endpoint.read` says.
    """
    got = read(endpoint, COMPLETIONS, _Text, {"model": endpoint.model, "temperature": 0, **body})
    where = place(endpoint, COMPLETIONS)
    choice = _first(got.choices, where)
    return Answer(choice.text, "", (), _text_steps(choice, where), *_counts(got.usage))


def _first(choices: list[Any], where: str) -> Any:
    if not choices:
        raise WrongAnswer("the answer has no choices", where=where, next="read the logs of the frontend")
    return choices[0]


def _counts(usage: _Usage | None) -> tuple[int | None, int | None]:
    return (usage.prompt_tokens, usage.completion_tokens) if usage else (None, None)


def _chat_steps(choice: _ChatChoice) -> tuple[Step, ...] | None:
    if choice.logprobs is None or choice.logprobs.content is None:
        return None
    return tuple(Step(_name(at), at.logprob, _top(at.top_logprobs or [])) for at in choice.logprobs.content)


def _top(tokens: list[_Token]) -> Top:
    """By name; of tokens with one name the more probable one counts."""
    top: dict[str, float] = {}
    for one in tokens:
        top[_name(one)] = max(one.logprob, top.get(_name(one), -math.inf))
    return top


def _name(token: _Token) -> str:
    """The token's text; where that is no whole character, its bytes."""
    if token.bytes and "\ufffd" in token.token:
        return repr(bytes(byte & 255 for byte in token.bytes))
    return token.token


def _text_steps(choice: _TextChoice, where: str) -> tuple[Step, ...] | None:
    said = choice.logprobs
    if said is None:
        return None
    tops = said.top_logprobs or [None] * len(said.tokens)
    if not len(said.tokens) == len(said.token_logprobs) == len(tops):
        raise WrongAnswer(
            f"the answer's log-probabilities do not match: {len(said.tokens)} tokens, {len(said.token_logprobs)}"
            f" log-probabilities, {len(tops)} lists of the most probable tokens",
            where=where,
            next="see that an OpenAI-compatible server answers at this URL",
        )
    return tuple(
        Step(token, logprob, top or {})
        for token, logprob, top in zip(said.tokens, said.token_logprobs, tops, strict=True)
    )
