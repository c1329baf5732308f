"""Checks of running endpoints: right answers pass, and each fault is caught, by its own message, inside its limit."""

from __future__ import annotations

import json
import math
import re
import socket
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from random import Random
from typing import Any

import endpoints
import pytest
from endpoints import BUILD, CHAT, COMPLETIONS, HTML, MODELS, OVERLAY, Behaviour, Served
from verbs import Ended, patchline

from patchline.errors import Exit, PatchlineError, ProofFailed, Unreachable, UsageError
from patchline.gates.checks import exchange, listing
from patchline.gates.checks.answers import Answer, Step, ask
from patchline.gates.checks.endpoint import WrongAnswer, connect, key_of, root_of
from patchline.gates.checks.gemma4 import gemma4
from patchline.gates.checks.length import items_for
from patchline.gates.checks.listing import bare, prompts, prose
from patchline.gates.checks.logs import logs
from patchline.gates.checks.parity import compare, parity
from patchline.gates.checks.recall import judge, recall
from patchline.gates.checks.result import Result, cut


@pytest.fixture
def served() -> Iterator[Served]:
    with endpoints.endpoint() as running:
        yield running


@pytest.fixture
def other() -> Iterator[Served]:
    with endpoints.endpoint() as running:
        yield running


def recalled(served: Served, seed: int = 1, limit: float = 10.0) -> Result:
    return recall(connect(served.url, limit=limit), prose(), items=20, seed=seed)


# The endpoint


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("https://h/engine/v1/", "https://h/engine"),
    ],
)
def test_a_url_is_taken_with_v1_or_without(url: str, root: str) -> None:
    assert root_of(url) == root


@pytest.mark.parametrize("url", ["", "h:8000", "ftp://h", "http://", "http://h/?a=b", "http://h:99999", "http://[::1"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        root_of(url)


def test_the_model_is_asked_for(served: Served) -> None:
    assert connect(served.url).model == "tiny"
    assert connect(served.url, model="given").model == "given"
    assert served.paths == [MODELS]


def test_several_models_are_listed(served: Served) -> None:
    served.answers[MODELS] = endpoints.json_of({"data": [{"id": "a"}, {"id": "b"}]})
    with pytest.raises(UsageError) as raised:
        connect(served.url)
    assert str(raised.value) == (
        f"the endpoint serves 2 models: a, b\n  where: {served.url}/v1/models\n  next:  say which with --model NAME"
    )


def test_no_model_is_a_wrong_answer(served: Served) -> None:
    served.answers[MODELS] = endpoints.json_of({"data": []})
    with pytest.raises(WrongAnswer, match="serves no model"):
        connect(served.url)


def test_a_key_goes_along_and_comes_from_the_environment(served: Served) -> None:
    connect(served.url, key="secret")
    connect(served.url)
    assert served.keys == ["Bearer secret", None]
    assert key_of(None, {}) is None
    assert key_of(None, {"PATCHLINE_API_KEY": "k"}) == "k"
    assert key_of("MINE", {"MINE": "m", "PATCHLINE_API_KEY": "k"}) == "m"
    with pytest.raises(UsageError, match="the environment variable MINE is not set"):
        key_of("MINE", {})
    with pytest.raises(UsageError) as raised:
        key_of(None, {"PATCHLINE_API_KEY": "secret\nHost: else"})
    assert "secret" not in str(raised.value)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def test_nobody_there() -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    with pytest.raises(Unreachable) as raised:
        connect(url)
    assert str(raised.value) == (
        f"no answer: All connection attempts failed\n  where: {url}/v1/models\n"
        "  next:  see that the server runs there, then run the same command again"
    )


def test_no_proxy_stands_before_this_machine(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert connect(served.url).model == "tiny"


def test_what_is_no_http_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        from threading import Thread

        def speak() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = Thread(target=speak)
        thread.start()
        with pytest.raises(Unreachable, match="no answer: "):
            connect(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


STATUS = [
    (500, {"error": {"message": "EngineCore died"}}, Unreachable, "the endpoint answered 500 Internal Server Error: EngineCore died"),
    (503, {"message": "no worker"}, Unreachable, "the endpoint answered 503 Service Unavailable: no worker"),
    (429, {}, Unreachable, "the endpoint answered 429 Too Many Requests: '{}'"),
    (400, {"error": {"message": "too\nlong"}}, WrongAnswer, "the endpoint answered 400 Bad Request: too long"),
    (404, {"detail": "Not Found"}, WrongAnswer, "the endpoint answered 404 Not Found: '{\"detail\": \"Not Found\"}'"),
    (302, {}, WrongAnswer, "the endpoint answered 302 Found: '{}'"),
    (401, {"error": {"message": "no key"}}, UsageError, "the endpoint answered 401 Unauthorized: no key"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "body", "kind", "what"), STATUS)
def test_a_status_is_told_with_what_it_says(
    served: Served, status: int, body: Any, kind: type[PatchlineError], what: str
) -> None:
    served.answers[CHAT] = endpoints.json_of(body, status)
    with pytest.raises(kind) as raised:
        recalled(served) if kind is not WrongAnswer else ask(connect(served.url), "hi", "chat", tokens=1)
    assert raised.value.what == what
    assert raised.value.where == f"{served.url}{CHAT}"
    assert raised.value.next
    assert len(served.asked) == 1  # nothing is tried again


def test_a_500_is_told_whole(served: Served) -> None:
    served.answers[CHAT] = endpoints.json_of({"error": {"message": "SPLIT region 5"}}, 500)
    with pytest.raises(Unreachable) as raised:
        recalled(served)
    assert str(raised.value) == (
        f"the endpoint answered 500 Internal Server Error: SPLIT region 5\n  where: {served.url}{CHAT}\n"
        "  next:  read the logs of the frontend and of both engines"
    )


@pytest.mark.parametrize("value", ["0", "1", "", "date"])
def test_429_is_asked_again_when_it_says_so(served: Served, value: str) -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=1), usegmt=True)
    busy = endpoints.json_of({}, 429, {"Retry-After": soon if value == "date" else value} if value else {})
    right = endpoints.json_of({"data": [{"id": "tiny"}]})
    served.answers[MODELS] = endpoints.in_turn(busy, right)
    if value:
        assert connect(served.url, limit=10).model == "tiny"
    else:
        with pytest.raises(Unreachable, match="answered 429"):
            connect(served.url, limit=10)
    assert len(served.paths) == (2 if value else 1)


def test_429_for_longer_than_the_limit_ends_at_once(served: Served) -> None:
    served.answers[MODELS] = endpoints.json_of({}, 429, {"Retry-After": "3600"})
    began = time.monotonic()
    with pytest.raises(Unreachable) as raised:
        connect(served.url, limit=5)
    assert time.monotonic() - began < 2
    assert str(raised.value) == (
        f"the endpoint answered 429 Too Many Requests: '{{}}'\n  where: {served.url}{MODELS}\n"
        "  next:  run again when it has less to do"
    )


def test_429_for_ever_ends_at_the_limit(served: Served) -> None:
    served.answers[MODELS] = endpoints.json_of({}, 429, {"Retry-After": "0"})
    began = time.monotonic()
    with pytest.raises(Unreachable):
        connect(served.url, limit=0.6)
    assert time.monotonic() - began < 2
    assert 2 <= len(served.paths) <= 7


@pytest.mark.parametrize(
    ("each", "pause", "headers"),
    [(b" " * 1000, 0.001, False), (b"x", 0.2, False), (b"X-A: b\r\n", 0.2, True), (b"", 60.0, False)],
    ids=["stream", "drip", "dripping headers", "silence"],
)
def test_what_never_ends_ends_at_the_limit(served: Served, each: bytes, pause: float, headers: bool) -> None:
    served.answers[CHAT] = endpoints.dripping(served, each, pause, headers)
    began = time.monotonic()
    with pytest.raises(Unreachable) as raised:
        ask(connect(served.url, limit=0.7), "hi", "chat", tokens=1)
    assert time.monotonic() - began < 2
    assert re.fullmatch(r"no whole answer within 0\.7 s; \d+ bytes of one came", raised.value.what)
    assert raised.value.next == "see what the server does, or give a longer --limit"


def test_a_broken_connection(served: Served) -> None:
    served.answers[CHAT] = endpoints.reset
    with pytest.raises(Unreachable, match="no answer: "):
        recalled(served)


def test_a_body_without_end_in_sight_is_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "MOST", 10_000)
    served.answers[CHAT] = endpoints.dripping(served, b" " * 4000, 0.001)
    with pytest.raises(WrongAnswer, match="the answer is longer than"):
        ask(connect(served.url, limit=10), "hi", "chat", tokens=1)


NO_ANSWERS = [
    (HTML, "the answer is no JSON (text/html): '<!DOCTYPE html><html><body>Welcome to the balancer</body></html>'"),
    (endpoints.raw(b"", "application/json"), "the answer is no JSON (application/json): an empty body"),
    (endpoints.raw(b"\xff\xfe", "x"), "the answer is no JSON (x): '\ufffd\ufffd'"),
    (endpoints.raw(b'{"x": ' + b"[" * 100_000, "x"), f"the answer is no JSON (x): '{chr(123)}\"x\": {'[' * 114} …'"),
    (endpoints.json_of([]), "the answer has another shape: Expected `object`, got `array`"),
    (endpoints.json_of({}), "the answer has another shape: Object missing required field `choices`"),
    (endpoints.json_of({"choices": []}), "the answer has no choices"),
    (endpoints.json_of({"choices": None}), "the answer has another shape: Expected `array`, got `null` - at `$.choices`"),
    (
        endpoints.json_of({"choices": [{"message": {"content": 1}}]}),
        "the answer has another shape: Expected `str | null`, got `int` - at `$.choices[0].message.content`",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("behaviour", "what"), NO_ANSWERS)
def test_a_200_that_is_no_answer_fails_the_check(served: Served, behaviour: Behaviour, what: str) -> None:
    served.answers[CHAT] = behaviour
    result = recalled(served)
    assert not result.passed
    assert result.faults == [f"prompt {number}: {what}" for number in range(1, 10)]


# Recall


@pytest.mark.parametrize("form", [prose(), bare()], ids=["prose", "list"])
def test_nine_prompts_from_the_first_item_to_the_last(form: listing.Form) -> None:
    made = prompts(form, 41, 7)
    assert [prompt.at for prompt in made] == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    assert [prompt.depth for prompt in made] == [at / 8 for at in range(9)]
    assert len({prompt.code for prompt in made}) == 9
    assert len({prompt.text for prompt in made}) == 9
    for prompt in made:
        assert prompt.items[prompt.at][1] == prompt.code
        assert len(prompt.items) == len(dict(prompt.items)) == len({code for _, code in prompt.items}) == 41
        assert endpoints.reads(prompt.text) == prompt.code
        assert {code for _, code in prompt.items} | {each.code for each in made} == {prompt.code, *prompt.wrong}
    assert made == prompts(form, 41, 7)
    assert not {prompt.code for prompt in prompts(prose(), 41, 7)} & {prompt.code for prompt in prompts(prose(), 41, 8)}


def test_the_forms_texts() -> None:
    first = prompts(prose(), 3, 1)[0]
    a, b, c = (code for _, code in first.items)
    assert first.text == (
        "Here is a list of 3 items. Each item has its own code.\n\n"
        f"item 1: its code is {a}.\nitem 2: its code is {b}.\nitem 3: its code is {c}.\n\n"
        "What is the code of item 1? Answer with that one code and nothing else."
    )
    assert re.fullmatch(r"[B-DF-HJ-NP-TV-XZ]{4}[1-9]\d{3}", a)
    second = prompts(bare(8, 30), 3, 1)[4]
    (i, u), (j, v), (k, w) = second.items
    assert second.text == f"{i} {u}\n{j} {v}\n{k} {w}\n{j}"
    assert {i, j, k} <= {f"k{number}" for number in range(8)}


def test_the_same_prompts_on_every_machine() -> None:
    assert [prompt.code for prompt in prompts(prose(), 3, 0)][:2] == ["KMJR6123", "KDCD6658"]
    assert prompts(bare(), 3, 0)[0].text == "k98 v83\nk67 v80\nk124 v4\nk98"


@pytest.mark.parametrize(("form", "items"), [(prose(), 2), (prose(), 10**9), (bare(16, 16), 17), (bare(8, 8), 8)])
def test_lists_that_cannot_be(form: listing.Form, items: int) -> None:
    with pytest.raises(UsageError):
        prompts(form, items, 1)


def test_right_answers_pass(served: Served) -> None:
    result = recalled(served)
    assert result.passed
    assert (result.examined, result.faults) == (9, [])
    assert (result.numbers["right"], result.numbers["of"], result.numbers["items"]) == (9, 9, 20)
    row = result.numbers["prompts"][8]
    assert (row["depth"], row["got"], row["answer_tokens"]) == (1.0, row["expected"], 4)
    assert row["prompt_tokens"] > 100
    assert row["seconds"] >= 0
    json.dumps(result.data())
    assert {body["temperature"] for body in served.asked} == {0}


def test_the_list_form_asks_for_one_token_of_the_completions_api(served: Served) -> None:
    result = recall(connect(served.url), bare(), items=12, seed=3, api="completions")
    assert result.passed
    assert set(served.paths) == {MODELS, COMPLETIONS}
    assert {body["max_tokens"] for body in served.asked} == {1}


def test_a_wordy_right_answer_passes(served: Served) -> None:
    served.says = lambda prompt: f"The code is **{endpoints.reads(prompt)}**."
    assert recalled(served).passed


def first_of(prompt: str) -> str:
    return endpoints.listed(prompt)[0]


WRONG: dict[str, tuple[Callable[[str], str], str]] = {
    "fluent nonsense": (
        lambda prompt: "Certainly! The weather in the valley is mild.",
        '{code} was asked for, and no code came: "Certainly! The weather in the valley is mild."',
    ),
    "nothing": (lambda prompt: "", "{code} was asked for, and no code came: an empty answer"),
    "part of a word": (
        lambda prompt: f"X{endpoints.reads(prompt)}",
        '{code} was asked for, and no code came: "X{code}"',
    ),
    "a neighbour's": (
        lambda prompt: endpoints.listed(prompt)[5],
        '{code} was asked for, and the code of item 6 came: "{sixth}"',
    ),
    "every code": (
        lambda prompt: f"{endpoints.reads(prompt)} or {endpoints.listed(prompt)[5]}",
        '{code} is there, and so is the code of item 6: "{code} or {sixth}"',
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_is_caught(served: Served, what: str) -> None:
    served.says, fault = WRONG[what]
    result = recalled(served)
    assert not result.passed
    first = prompts(prose(), 20, 1)[0]
    assert result.faults[0] == "prompt 1: " + fault.format(code=first.code, sixth=first.items[5][1])
    asked = [fault.partition(":")[0] for fault in result.faults]
    right = [] if what not in ("a neighbour's", "every code") else ["prompt 3"]  # it asks for that item itself
    assert [f"prompt {number}" for number in range(1, 10)] == sorted(asked + right)


def test_the_answer_of_another_prompt_is_caught(served: Served) -> None:
    kept: list[str] = []

    def cached(prompt: str) -> str:
        kept.append(endpoints.reads(prompt))
        return kept[0]

    served.says = cached
    result = recalled(served)
    assert result.numbers["right"] == 1
    codes = [prompt.code for prompt in prompts(prose(), 20, 1)]
    assert result.faults[0] == (f'prompt 2: {codes[1]} was asked for, and the code of prompt 1 came: "{codes[0]}"')
    assert len(result.faults) == 8


def test_eight_of_nine_fail(served: Served) -> None:
    served.says = lambda prompt: "no" if len(served.asked) == 5 else endpoints.reads(prompt)
    result = recalled(served)
    assert not result.passed
    assert [fault.partition(":")[0] for fault in result.faults] == ["prompt 5"]


def test_judging_takes_whole_words() -> None:
    prompt = prompts(prose(), 5, 1)[0]
    assert judge(prompt, f"it's {prompt.code}!") is None
    assert judge(prompt, f"{prompt.code}-") is None
    assert judge(prompt, f"{prompt.code}0") is not None
    assert judge(prompt, prompt.code.lower()) is not None


@pytest.mark.parametrize("tokens", [300, 12_500])
def test_a_length_in_tokens_is_the_endpoints_own(served: Served, tokens: int) -> None:
    endpoint = connect(served.url)
    items = items_for(endpoint, prose(), "chat", tokens, 3)
    assert recall(endpoint, prose(), items=items, seed=1).passed
    counted = [len(body["messages"][0]["content"].split()) for body in served.asked[2:]]
    assert all(abs(count - tokens) <= 10 for count in counted)


def test_a_length_in_tokens_needs_a_count(served: Served) -> None:
    served.answers[CHAT] = endpoints.message(content="hi")
    with pytest.raises(WrongAnswer) as raised:
        items_for(connect(served.url), prose(), "chat", 300, 3)
    assert str(raised.value) == (
        "the answer does not say how many tokens its prompt has: no length in tokens can be set\n"
        f"  where: {served.url}{CHAT}\n  next:  give the length in items"
    )
    usage = {"prompt_tokens": 9}
    served.answers[CHAT] = endpoints.json_of({"choices": [{"message": {"content": "hi"}}], "usage": usage})
    with pytest.raises(WrongAnswer, match="a longer prompt has 9 tokens and a shorter one 9"):
        items_for(connect(served.url), prose(), "chat", 300, 3)


# Parity

TEXTS = ["one", "two", "three"]


def compared(one: Served, other: Served, **settings: Any) -> Result:
    return parity(connect(one.url), connect(other.url), TEXTS, **settings)


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("shift", [0.0, 0.00005])
def test_the_same_within_the_bound_passes(served: Served, other: Served, api: Any, shift: float) -> None:
    served.says = other.says = lambda prompt: "same"
    other.shift = shift
    result = compared(served, other, api=api)
    assert result.passed
    assert (result.numbers["prompts"], result.numbers["tokens"], result.examined) == (3, 12, 12)
    assert math.isclose(result.numbers["largest"]["difference"], shift, abs_tol=1e-9)
    assert result.numbers["endpoints"] == [served.url, other.url]
    sent = served.asked[0]
    assert (sent["logprobs"], sent.get("top_logprobs")) == ((True, 5) if api == "chat" else (5, None))


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_log_probabilities_that_are_off_are_caught(served: Served, other: Served, api: Any) -> None:
    served.says = other.says = lambda prompt: "same"
    other.shift = 0.001
    result = compared(served, other, api=api)
    assert not result.passed
    token = endpoints.steps("one", 2, 0)[1]["token"].partition(".")[0]
    assert re.fullmatch(
        rf"prompt 1: log-probabilities differ by 0\.001 at token 2 \('{token}\.\d'\); 0\.0001 is allowed",
        result.faults[0],
    )
    assert len(result.faults) == 3
    assert result.numbers["largest"]["token"] == 2
    assert compared(served, other, api=api, bound=0.01).passed


def answer(*tokens: str, logprobs: list[float] | None = None, top: dict[str, float] | None = None) -> Answer:
    values = logprobs or [-0.1] * len(tokens)
    steps = tuple(
        Step(token, value, top or {token: value, "z": -3.0}) for token, value in zip(tokens, values, strict=True)
    )
    return Answer("".join(tokens), "", (), steps, None, len(tokens))


def test_one_token_that_differs() -> None:
    found = compare(answer("a", "b", "c"), answer("a", "x", "c"), 1)
    assert found.compared == 1
    assert found.faults[-1] == "token 2 differs: 'b' (-0.1000) against 'x' (-0.1000)"


@pytest.mark.parametrize("at", [0, 3])
def test_an_endpoint_with_one_token_that_differs(served: Served, other: Served, at: int) -> None:
    served.says = other.says = lambda prompt: "same"

    def behave(handler: Any, body: Any) -> None:
        right = endpoints.chat(other, body)
        right["choices"][0]["logprobs"]["content"][at]["token"] = "x"
        endpoints.json_of(right)(handler, body)

    other.answers[CHAT] = behave
    result = compared(served, other)
    assert not result.passed
    assert (result.numbers["tokens"], len(result.faults)) == (3 * at, 3 + (at == 0))
    was = endpoints.steps("one", 4, 0)[at]
    place = f"({was['logprob']:.4f})"
    assert result.faults[0] == f"prompt 1: token {at + 1} differs: '{was['token']}' {place} against 'x' {place}"


def test_an_answer_that_is_shorter() -> None:
    found = compare(answer("a", "b"), answer("a", "b", "c"), 1)
    assert found.faults == ["token 3 differs: the answer's end against 'c' (-0.1000)"]


def test_the_same_tokens_with_another_text() -> None:
    found = compare(answer("a", "b"), answer("a", "b")._replace(text="ac"), 1)
    assert found.faults == ["the tokens are the same and the texts are not: 'ab' against 'ac'"]


def test_the_bound_is_the_bound() -> None:
    left = answer("a", logprobs=[-1.0])
    assert compare(left, answer("a", logprobs=[-1.25]), 1, 0.25).faults == []
    assert len(compare(left, answer("a", logprobs=[-1.25]), 1, 0.249).faults) == 1


def test_of_tokens_with_one_name_the_more_probable_counts(served: Served) -> None:
    top = [{"token": "\ufffd", "logprob": logprob, "bytes": code} for logprob, code in ((-1, [240]), (-2, [159]))]
    top += [{"token": " ", "logprob": logprob, "bytes": [32]} for logprob in (-3, -4)]
    content = [{**top[0], "top_logprobs": top}]
    served.answers[CHAT] = endpoints.json_of({"choices": [{"message": {}, "logprobs": {"content": content}}]})
    (step,) = ask(connect(served.url), "hi", "chat", tokens=1, logprobs=4).steps or ()
    assert step == Step("b'\\xf0'", -1, {"b'\\xf0'": -1, "b'\\x9f'": -2, " ": -3})


def test_a_check_of_nothing_does_not_pass() -> None:
    assert Result("x", 1, [], {}).passed
    assert not Result("x", 0, [], {}).passed
    assert not Result("x", 1, ["fault"], {}).passed


def test_a_token_that_one_side_lists_and_the_other_does_not() -> None:
    left = answer("a", top={"a": -0.1, "b": -2.0})
    assert compare(left, answer("a", top={"a": -0.1, "c": -2.00001}), 1).faults == []
    (fault,) = compare(left, answer("a", top={"a": -0.1, "c": -5.0}), 1).faults
    assert fault == "log-probabilities differ by 3 at token 1 ('b'); 0.0001 is allowed"


def with_logprobs(**changes: Any) -> Behaviour:
    """A completions answer of one token; `changes` are to its log-probabilities."""
    said = {"tokens": ["a"], "token_logprobs": [-0.1], "top_logprobs": [{"a": -0.1}], **changes}
    return endpoints.json_of({"choices": [{"text": "a", "logprobs": said}], "usage": {"completion_tokens": 1}})


UNUSABLE: dict[str, tuple[Behaviour, str]] = {
    "none": (endpoints.json_of({"choices": [{"text": "a"}]}), "the answer has no log-probabilities"),
    "of no token": (
        with_logprobs(tokens=[], token_logprobs=[], top_logprobs=[]),
        "the answer has no log-probabilities",
    ),
    "no list of others": (with_logprobs(top_logprobs=None), "token 1 has no list of the most probable tokens"),
    "not for every token": (
        endpoints.json_of(
            {
                "choices": [
                    {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [0], "top_logprobs": [{"a": 0}]}}
                ],
                "usage": {"completion_tokens": 16},
            }
        ),
        "the answer has 16 tokens, and log-probabilities for 1",
    ),
    "lists of two lengths": (
        with_logprobs(tokens=["a", "b"]),
        "the answer's log-probabilities do not match: 2 tokens, 1 log-probabilities, 1 lists of the most probable tokens",
    ),
    "no number": (
        with_logprobs(token_logprobs=[None]),
        "the answer has another shape: Expected `float`, got `null` - at `$.choices[0].logprobs.token_logprobs[0]`",
    ),
    "NaN": (
        endpoints.raw(b'{"choices": [{"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [NaN]}}]}', "x"),
        "the answer is no JSON (x): '{\"choices\": [{\"text\": \"a\", \"logprobs\": {\"tokens\": [\"a\"], \"token_logprobs\": [NaN]}}]}'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNUSABLE)
@pytest.mark.parametrize("both", [True, False])
def test_log_probabilities_that_are_missing_fail(served: Served, other: Served, what: str, both: bool) -> None:
    served.says = other.says = lambda prompt: "same"
    other.answers[COMPLETIONS], fault = UNUSABLE[what]
    if both:
        served.answers[COMPLETIONS] = other.answers[COMPLETIONS]
    result = compared(served, other, api="completions")
    assert not result.passed
    assert f"prompt 1: {(served if both else other).url}: {fault}" in result.faults
    assert result.faults[-1] == "no token was compared"
    assert result.examined == 0


def test_infinite_log_probabilities_are_none() -> None:
    from patchline.gates.checks.parity import _unusable

    assert _unusable(answer("a", logprobs=[math.nan])) == "token 1 has a log-probability that is no number"
    assert _unusable(answer("a", top={"a": -math.inf})) == "token 1 has a log-probability that is no number"


VALUES = [
    "null",
    "true",
    "-1",
    "1e400",
    "9" * 400,
    '""',
    '"\\ud800"',
    "[]",
    "{}",
    "[null]",
    '"QXKT4821"',
    "",
    "]",
    "[" * 2000,
]


def spoilt(value: Any, random: Random) -> bytes:
    """The JSON of `value` with one or two of its parts exchanged for others."""
    parts = re.split(rb'("(?:[^"\\\\]|\\\\.)*"|-?\d[\d.e-]*|[][{}:,])', json.dumps(value).encode())
    for _ in range(random.randint(1, 2)):
        parts[random.randrange(len(parts))] = random.choice(VALUES).encode()
    return b"".join(parts)


def test_no_answer_whatever_ends_unforeseen(monkeypatch: pytest.MonkeyPatch) -> None:
    random, wrong, passed = Random(11), 0, 0
    model = Served()
    model.says = lambda prompt: endpoints.reads(prompt) if "item" in prompt else "same"

    def answered(request: exchange.Request, limit: float) -> exchange.Reply:
        body = json.loads(request.body or b"null")
        right = endpoints.chat(model, body) if request.url.endswith(CHAT) else endpoints.completion(model, body)
        data = spoilt(right, random) if random.random() < 0.5 else json.dumps(right).encode()
        return exchange.Reply(200, "OK", "application/json", data)

    monkeypatch.setattr("patchline.gates.checks.endpoint.exchange", answered)
    monkeypatch.setattr("patchline.gates.checks.recall.say", lambda text: None)
    monkeypatch.setattr("patchline.gates.checks.parity.say", lambda text: None)
    one, two = connect("http://one", model="m"), connect("http://two", model="m")
    for number in range(60):
        api: Any = ("chat", "completions")[number % 2]
        results = [recall(one, prose(), items=5, seed=number, api=api), parity(one, two, TEXTS, api=api)]
        json.dumps([result.data() for result in results], allow_nan=False)
        wrong += sum(len(result.faults) for result in results)
        passed += sum(result.numbers.get("right", 0) for result in results)
    assert wrong > 200
    assert passed > 200


# gemma-4

WEATHER = '{"city": "Kuala Lumpur", "unit": "celsius"}'
THOUGHT = "The user wants the weather in Kuala Lumpur, so I call the tool."


def test_all_four_pass(served: Served) -> None:
    results = gemma4(connect(served.url), overlay=OVERLAY)
    assert [result.check for result in results] == [
        "gemma-4, tool call, thinking on",
        "gemma-4, tool call, thinking off",
        "gemma-4, JSON output",
        "gemma-4, build",
    ]
    assert all(result.passed for result in results)
    assert results[0].numbers["calls"] == 1
    assert results[0].numbers["reasoning_characters"] > 0
    assert results[3].numbers == {"overlay": OVERLAY}
    on, off, output = served.asked
    assert [body["chat_template_kwargs"]["enable_thinking"] for body in served.asked] == [True, False, False]
    assert on["tools"][0]["function"]["parameters"] == {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    }
    assert output["response_format"]["json_schema"]["schema"]["required"] == ["name", "age", "city"]
    assert off["tools"] == on["tools"]


TOOLS: dict[str, tuple[Behaviour, str]] = {
    "plain text": (
        endpoints.message(content="get_weather(city='Kuala Lumpur')"),
        "no tool call; the content is \"get_weather(city='Kuala Lumpur')\"",
    ),
    "a call that nobody parsed": (
        endpoints.message(content="<|tool_call>call:get_weather{city:1}<tool_call|>"),
        "no tool call; the content is '<|tool_call>call:get_weather{city:1}<tool_call|>'",
    ),
    "another name": (endpoints.call("weather", WEATHER), "the call is of 'weather', not of 'get_weather'"),
    "no JSON": (
        endpoints.call("get_weather", "city=KL"),
        "the call's arguments are not what the schema says: JSON is malformed: invalid character (byte 0): 'city=KL'",
    ),
    "another schema": (
        endpoints.call("get_weather", '{"city": "Kuala Lumpur"}'),
        "the call's arguments are not what the schema says: Object missing required field `unit`: '{\"city\": \"Kuala Lumpur\"}'",
    ),
    "another city": (
        endpoints.call("get_weather", '{"city": "Paris", "unit": "celsius"}'),
        "the call asks for something else than Kuala Lumpur in celsius: '{\"city\": \"Paris\", \"unit\": \"celsius\"}'",
    ),
    "markers in the content": (
        endpoints.call("get_weather", WEATHER, content="<|channel>thought\nhm<channel|>"),
        "the content has the marker '<|channel>': '<|channel>thought hm<channel|>'",
    ),
    "markers that were taken away": (
        endpoints.call("get_weather", WEATHER, content="thought\nThe user wants"),
        "the content has the marker 'thought': 'thought The user wants'",
    ),
    "reasoning in the content": (
        endpoints.call("get_weather", WEATHER, content=f"Well. {THOUGHT}", reasoning=THOUGHT),
        f"the content repeats the reasoning: 'Well. {THOUGHT}'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", TOOLS)
def test_a_wrong_tool_call_is_caught(served: Served, what: str) -> None:
    served.answers[CHAT], fault = TOOLS[what]
    on, off, *_ = gemma4(connect(served.url))
    for result in (on, off):
        assert not result.passed
        assert result.faults[0] == fault


def test_reasoning_with_thinking_off_is_caught(served: Served) -> None:
    served.answers[CHAT] = endpoints.call("get_weather", WEATHER, reasoning=THOUGHT)
    on, off, *_ = gemma4(connect(served.url))
    assert on.passed
    assert off.faults == [f"thinking is off, and the answer has reasoning: '{THOUGHT}'"]


OUTPUTS = {
    'Here it is: {"name": "Ada", "age": 36, "city": "London"}': "the answer is not JSON of the schema: JSON is malformed: invalid character (byte 0)",
    '{"name": "Ada", "age": 36, "city": "London"} Anything else?': "the answer is not JSON of the schema: JSON is malformed: trailing characters (byte 46)",
    '{"name": "Ada", "age": "36", "city": "London"}': "the answer is not JSON of the schema: Expected `int`, got `str` - at `$.age`",
    '{"name": "Ada", "age": 36, "city": "London", "x": 1}': "the answer is not JSON of the schema: Object contains unknown field `x`",
    '{"name": "Bob", "age": 36, "city": "London"}': "the JSON says something else than the question",
    "": "the answer is not JSON of the schema: Input data was truncated",
}  # fmt: skip


@pytest.mark.parametrize("content", OUTPUTS)
def test_wrong_json_output_is_caught(served: Served, content: str) -> None:
    served.answers[CHAT] = endpoints.message(content=content)
    result = gemma4(connect(served.url))[2]
    assert result.faults == [f"{OUTPUTS[content]}: {cut(content)!r}"]


OTHER = "sha256:" + "cd" * 32
BUILDS: list[tuple[Behaviour, str]] = [
    (endpoints.json_of({"overlay": OTHER}), f"the build is of overlay {OTHER}; {OVERLAY} is expected"),
    (
        endpoints.json_of({"overlay": OTHER, "series": [{"overlay": OTHER}]}),
        f"the build is of overlay {OTHER}; {OVERLAY} is expected",
    ),
    (endpoints.json_of({"overlay": OTHER, "series": [{"overlay": "x"}]}), "the build's overlay is no digest: 'x'"),
    (endpoints.json_of({"overlay": "latest"}), "the build's overlay is no digest: 'latest'"),
    (endpoints.json_of({"version": "1"}), "the answer has another shape: Object missing required field `overlay`"),
    (endpoints.raw(b"", "x", 404), "the endpoint answered 404 Not Found: an empty body"),
    (HTML, NO_ANSWERS[0][1]),
]


@pytest.mark.parametrize(("behaviour", "fault"), BUILDS)
def test_another_build_is_caught(served: Served, behaviour: Behaviour, fault: str) -> None:
    served.answers[BUILD] = behaviour
    *others, build = gemma4(connect(served.url), overlay=OVERLAY)
    assert all(result.passed for result in others)
    assert build.faults == [fault]


def test_a_build_of_several_series(served: Served) -> None:
    """A gate is of one series; the image may carry more."""
    served.answers[BUILD] = endpoints.json_of({"overlay": OTHER, "series": [{"overlay": OVERLAY}, {"overlay": OTHER}]})
    *_, build = gemma4(connect(served.url), overlay=OVERLAY)
    assert build.passed
    assert build.numbers == {"overlay": OTHER}


def test_one_that_does_not_answer_leaves_the_others(served: Served) -> None:
    served.answers[BUILD] = endpoints.raw(b"down", "x", 502)
    *others, build = gemma4(connect(served.url))
    assert all(result.passed for result in others)
    assert (build.passed, build.faults, build.examined) == (False, [], 0)
    assert build.unreachable is not None


# Logs


def plan(rank: int, ratio: int = 2, local: int = 4, remote: int = 2, worker: int | None = None) -> str:
    """A line as vLLM 0.31.0 writes it."""
    prefix = f"(Worker_TP{rank if worker is None else worker} pid={4000 + rank})"
    return (
        f"\x1b[0;36m{prefix}\x1b[0;0m \x1b[32mINFO\x1b[0m 11-29 20:00:00 [base_worker.py:2376] Transfer plan: "
        f"TransferTopology(tp_ratio={ratio}, num_kv_heads=8, local_tp={local}, remote_tp={remote}, remote_pp=0, "
        f"local_dcp=1, remote_dcp=1, local_rank={rank}, remote_block_len=16384)"
    )


def started(engine: str) -> str:
    return f"(Worker_TP0 pid=1) INFO 11-29 20:00:00 [base_worker.py:570] Initializing NIXL worker {engine}"


GOOD = "(EngineCore pid=9) INFO [metrics.py:103] KV Transfer metrics: Num successful transfers=36, Num failed transfers=0, Num KV expired reqs=0"


def pair(folder: Path, decode: list[str], prefill: list[str] | None = None) -> Path:
    (folder / "decode.log").write_text("\n".join([started("d-1"), *decode, GOOD]) + "\n")
    (folder / "prefill.log").write_text("\n".join([started("p-1"), *(prefill or []), GOOD]) + "\n")
    return folder


def read(folder: Path) -> Result:
    return logs([folder], decode=4, prefill=2)


RANKS = [plan(rank) for rank in range(4)]


def test_good_logs_pass(tmp_path: Path) -> None:
    result = read(pair(tmp_path, RANKS))
    assert result.faults == []
    assert result.passed
    assert result.numbers["expected"] == "TransferTopology(tp_ratio=2, local_tp=4, remote_tp=2)"
    assert (result.numbers["plans"], result.numbers["ranks"], result.numbers["engines"]) == (4, [0, 1, 2, 3], 2)
    assert set(result.numbers["failures"].values()) == {0}
    assert [file["lines"] for file in result.numbers["files"]] == [6, 2]
    assert all(re.fullmatch("[0-9a-f]{64}", file["sha256"]) for file in result.numbers["files"])
    files = logs([tmp_path / "decode.log", tmp_path / "prefill.log", tmp_path], decode=4, prefill=2)
    assert files.numbers == result.numbers


NIXL = "(Worker_TP2 pid=7) ERROR 11-29 20:00:00 [base_worker.py:1301] NIXL transfer failure: {} | Context: {{}}"
SPLIT = (
    "(Worker_TP1 pid=7) ERROR AssertionError: SPLIT region 5: remote P KV block_len 16384 must equal local 16384 * "
    "remote_heads 4 // local_heads 2 // block_size_ratio 1."
)
SHORT = "TransferTopology(tp_ratio=2, local_tp=4, remote_tp=2)"
BAD_LOGS: dict[str, tuple[list[str], list[str]]] = {
    "a failed rank": (
        [*RANKS, NIXL.format("handshake_failed")],
        [
            ("1 line of handshake failure, the first at NAME/decode.log:6: (Worker_TP2 pid=7) ERROR 11-29 20:00:00"
            " [base_worker.py:1301] NIXL transfer failure: handshake_failed | Context: {}")
        ],
    ),
    "a failed transfer": (
        [*RANKS, NIXL.format("transfer_failed"), NIXL.format("transfer_setup_failed")],
        [
            ("2 lines of failed transfer, the first at NAME/decode.log:6: (Worker_TP2 pid=7) ERROR 11-29 20:00:00"
            " [base_worker.py:1301] NIXL transfer failure: transfer_failed | Context: {}")
        ],
    ),
    "failed transfers in the metrics": (
        [*RANKS, "Num successful transfers=0, Num failed transfers=40, Num KV expired reqs=0"],
        [
            ("1 line of failed transfer, the first at NAME/decode.log:6: Num successful transfers=0,"
            " Num failed transfers=40, Num KV expired reqs=0")
        ],
    ),
    "a SPLIT region": ([*RANKS, SPLIT], [f"1 line of SPLIT region, the first at NAME/decode.log:6: {SPLIT}"]),
    "expired KV": (
        [*RANKS, "WARNING Releasing expired KV blocks for request r"],
        ["1 line of expired KV, the first at NAME/decode.log:6: WARNING Releasing expired KV blocks for request r"],
    ),
    "a rank missing": (RANKS[:3], ["rank 3 logs 0 transfer plans; 1 is expected"]),
    "all ranks missing": ([], [f"rank {rank} logs 0 transfer plans; 1 is expected" for rank in range(4)]),
    "a rank twice": ([*RANKS, RANKS[1]], ["rank 1 logs 2 transfer plans; 1 is expected"]),
    "a rank twice, once with another plan": (
        [*RANKS, plan(1, 1, 4, 4)],
        [f"rank 1 logs TransferTopology(tp_ratio=1, local_tp=4, remote_tp=4) at NAME/decode.log:6; {SHORT} is expected"],
    ),
    "another plan": (
        [*RANKS[:3], plan(3, 1, 4, 4)],
        [f"rank 3 logs TransferTopology(tp_ratio=1, local_tp=4, remote_tp=4) at NAME/decode.log:5; {SHORT} is expected"],
    ),
    "a rank too many": ([*RANKS, plan(4)], ["rank 4 logs 1 transfer plan, of TP 4"]),
    "a plan of nobody": (
        [*RANKS[:3], f"INFO {SHORT}"],
        ["rank 3 logs 0 transfer plans; 1 is expected", "an unknown rank logs 1 transfer plan, of TP 4"],
    ),
    "a plan cut off": (
        [*RANKS[:3], "(Worker_TP3 pid=1) TransferTopology(tp_ratio=2, num_kv"],
        [
            ("1 line of a transfer plan that cannot be read, the first at NAME/decode.log:5:"
            " (Worker_TP3 pid=1) TransferTopology(tp_ratio=2, num_kv"),
            "rank 3 logs 0 transfer plans; 1 is expected",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD_LOGS)
def test_bad_logs_are_caught(tmp_path: Path, what: str) -> None:
    decode, faults = BAD_LOGS[what]
    result = read(pair(tmp_path, decode))
    assert not result.passed
    assert result.faults == [fault.replace("NAME", tmp_path.name) for fault in faults]


def test_a_worker_that_logs_the_plan_of_another_rank(tmp_path: Path) -> None:
    result = read(pair(tmp_path, [*RANKS[:3], plan(3, worker=2)]))
    assert result.numbers["failures"]["a transfer plan that cannot be read"] == 1
    assert not result.passed


def test_the_prefill_engines_failures_count(tmp_path: Path) -> None:
    result = read(pair(tmp_path, RANKS, [NIXL.format("notification_failed")]))
    assert [fault.partition(",")[0] for fault in result.faults] == ["1 line of failed transfer"]


def test_the_rank_is_told_by_the_worker_where_the_plan_does_not(tmp_path: Path) -> None:
    lines = [f"(Worker_DP0_TP{rank}_EP{rank} pid=1) INFO {SHORT}" for rank in range(4)]
    assert read(pair(tmp_path, lines)).passed


def test_a_larger_prefill_tp_is_read_rank_by_rank(tmp_path: Path) -> None:
    lines = [plan(rank, -2, 2, 4) for rank in (0, 1, 0, 1)]
    assert logs([pair(tmp_path, lines)], decode=2, prefill=4).passed
    assert logs([pair(tmp_path, lines[:3])], decode=2, prefill=4).faults == [
        "rank 1 logs 1 transfer plan; 2 is expected"
    ]


def test_one_decode_worker_has_no_rank_in_its_prefix(tmp_path: Path) -> None:
    line = "(EngineCore pid=1) INFO TransferTopology(tp_ratio=1, local_tp=1, remote_tp=1)"
    assert logs([pair(tmp_path, [line])], decode=1, prefill=1).passed


def test_empty_and_missing_logs_fail(tmp_path: Path) -> None:
    pair(tmp_path, RANKS)
    (tmp_path / "prefill.log").write_text("")
    assert read(tmp_path).faults == [
        f"{tmp_path.name}/prefill.log is empty",
        "the logs of 1 engines are here, and a pair has 2",
    ]
    (tmp_path / "prefill.log").unlink()
    assert read(tmp_path).faults == ["the logs of 1 engines are here, and a pair has 2"]
    empty = tmp_path / "empty"
    empty.mkdir()
    for path in (empty, tmp_path / "none.log"):
        result = read(path)
        assert result.faults[0] == f"no log at {path}"
        assert not result.passed


def test_logs_of_any_bytes_end_in_a_result(tmp_path: Path) -> None:
    random = Random(4)
    words = [
        b"TransferTopology(",
        b"tp_ratio=",
        b"9" * 5000,
        b"=",
        b",",
        b")",
        b"\n",
        b"\xff",
        b"local_tp=4",
        b"\x1b[0m",
    ]
    for _ in range(200):
        (tmp_path / "a.log").write_bytes(b"".join(random.choices(words, k=30)))
        assert not read(tmp_path).passed


# The verb


def checked(*words: object, **environment: str) -> Ended:
    return patchline("check", *words, env={"PATCHLINE_API_KEY": "", **environment})


def test_every_check_at_once(served: Served, other: Served, tmp_path: Path) -> None:
    served.shift = 0.00001
    ended = checked(
        *(served.url, "--recall", "--parity", other.url, "--gemma4", "--expect-overlay", OVERLAY),
        *("--logs", pair(tmp_path, RANKS), "--decode-tp", 4, "--prefill-tp", 2, "--length", 12, "--seed", 5),
    )
    assert ended.out == (
        f"passed  logs: 4 transfer plans, {SHORT} expected\n"
        "passed  recall: 9 of 9, lists of 12 items, seed 5\n"
        "passed  parity: 36 tokens, largest difference 1e-05, 0.0001 allowed\n"
        "passed  gemma-4, tool call, thinking on\n"
        "passed  gemma-4, tool call, thinking off\n"
        "passed  gemma-4, JSON output\n"
        f"passed  gemma-4, build: overlay {OVERLAY}\n"
        "7 of 7 checks passed\n"
    )
    assert ended.exit == 0
    assert "recall 9 of 9: depth 100%, " in ended.err
    prompts_of = [body["messages"][0]["content"] for body in served.asked[:18]]
    assert len(set(prompts_of)) == 18  # what recall has asked, parity does not ask again


def test_json_holds_the_numbers(served: Served) -> None:
    ended = checked(served.url, "--recall", "--json", "--form", "list", "--tokens", 50)
    assert ended.exit == 0
    (record,) = ended.data["checks"]
    assert (record["check"], record["passed"], record["examined"]) == ("recall", True, 9)
    assert record["numbers"]["items"] == 24 or record["numbers"]["items"] == 25
    assert record["numbers"]["api"] == "completions"
    assert isinstance(record["numbers"]["seed"], int)


def test_a_failed_check_ends_with_6(served: Served) -> None:
    served.answers[CHAT] = HTML
    ended = checked(served.url, "--recall", "--seed", 1)
    assert ended.exit == Exit.PROOF_FAILED
    lines = ended.out.splitlines()
    assert lines[0] == "FAILED  recall: 0 of 9, lists of 32 items, seed 1"
    assert lines[1] == f"  FAULT: prompt 1: {NO_ANSWERS[0][1]}"
    assert lines[-1] == "0 of 1 checks passed"


def test_html_for_the_models_ends_with_6(served: Served) -> None:
    served.answers[MODELS] = HTML
    ended = checked(served.url, "--recall", "--gemma4")
    assert ended.exit == Exit.PROOF_FAILED
    assert ended.out == (
        f"FAILED  recall\n  FAULT: {NO_ANSWERS[0][1]}\nFAILED  gemma-4\n  FAULT: {NO_ANSWERS[0][1]}\n"
        "0 of 2 checks passed\n"
    )


def test_nobody_there_ends_with_7(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    ended = checked(url, "--recall", "--logs", pair(tmp_path, RANKS), "--decode-tp", 4, "--prefill-tp", 2)
    assert ended.exit == Exit.UNREACHABLE
    assert ended.out == (
        f"passed  logs: 4 transfer plans, {SHORT} expected\n"
        "NO ANSWER  recall\n  no answer: All connection attempts failed\n"
        f"    where: {url}/v1/models\n    next:  see that the server runs there, then run the same command again\n"
        "1 of 2 checks passed\n"
    )


def test_an_engine_that_fails_ends_with_7_and_the_logs_say_why(served: Served, tmp_path: Path) -> None:
    served.answers[CHAT] = endpoints.json_of({"error": {"message": "Internal server error"}}, 500)
    assert checked(served.url, "--recall").exit == Exit.UNREACHABLE
    words = ("--logs", pair(tmp_path, [*RANKS, SPLIT]), "--decode-tp", 4, "--prefill-tp", 2)
    ended = checked(served.url, "--recall", *words, "--json")
    assert ended.exit == Exit.PROOF_FAILED
    bad, silent = ended.data["checks"]
    assert "SPLIT region 5" in bad["faults"][0]
    assert silent["unreachable"]["what"] == "the endpoint answered 500 Internal Server Error: Internal server error"


def ended(text: str, top: dict[str, float], logprob: float = -0.001) -> Answer:
    """An answer of two tokens, the second of which ends it."""
    return answer("v1")._replace(steps=(*(answer("v1").steps or ()), Step(text, logprob, top)))


def test_a_special_token_may_be_written_as_nothing() -> None:
    plain = ended("<eos>", {"<eos>": -0.001, "v2": -7.0})
    assert compare(ended("", {"": -0.001, "v2": -7.0}), plain, 1).faults == []
    assert compare(plain, ended("", {"": -0.001, "v2": -7.0}), 1).faults == []
    assert compare(ended("", {"": -0.001, "v2": -7.0}), plain, 1).compared == 2
    assert compare(ended("", {"<eos>": -0.001, "v2": -7.0}), plain, 1).faults == []


@pytest.mark.parametrize(
    ("text", "top"),
    [
        ("", {"": -0.5, "v2": -7.0}),
        ("", {"": -0.001, "v3": -7.0}),
        ("v2", {"": -7.0, "v2": -0.001}),
        ("", {"": -0.001, "<eos>": -7.0}),
        ("", {"v2": -0.001, "<eos>": -7.0}),
        ("", {"v2": -0.001, "<eos>": -0.001}),
    ],
)
def test_a_token_without_a_text_is_not_any_token(text: str, top: dict[str, float]) -> None:
    assert compare(ended(text, top, top.get(text, -0.001)), ended("<eos>", {"<eos>": -0.001, "v2": -7.0}), 1).faults


def test_the_other_endpoint_of_parity_is_not_there(served: Served) -> None:
    ended = checked(served.url, "--parity", f"http://127.0.0.1:{closed_port()}")
    assert ended.exit == Exit.UNREACHABLE
    assert ended.out.startswith("NO ANSWER  parity\n")


USAGE: list[tuple[list[object], str]] = [
    (["http://h"], "no check is asked for"),
    ([], "no check is asked for"),
    (["--recall"], "the endpoint's URL is missing"),
    (["h", "--recall"], "h is not the URL of an HTTP server"),
    (["http://h", "--parity", "http://h/v1/"], "parity with itself shows nothing"),
    (["http://h", "--recall", "--expect-overlay", "sha256:1"], "--expect-overlay belongs to --gemma4"),
    (["http://h", "--logs", "x"], "--logs, --decode-tp and --prefill-tp belong together"),
    (["http://h", "--recall", "--decode-tp", "4"], "--logs, --decode-tp and --prefill-tp belong together"),
    (
        ["--logs", "x", "--decode-tp", "4", "--prefill-tp", "3"],
        "no pair has decode TP 4 and prefill TP 3: neither divides the other",
    ),
    (["http://h", "--recall", "--limit", "nan"], "argument --limit: nan is not a number above zero"),
    (["http://h", "--recall", "--length", "0"], "argument --length: 0 is not a number from 1 to 1000000000"),
    (["http://h", "--recall", "--length", "9", "--tokens", "9"], "argument --tokens: not allowed with argument --length"),
    (["http://h", "--recall", "--api-key-env", "NOT_THERE"], "the environment variable NOT_THERE is not set"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "what"), USAGE)
def test_wrong_words_are_refused_before_anything_is_asked(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import gc

    from patchline import cli

    monkeypatch.setattr(exchange, "exchange", None)
    assert cli.main(["check", *words]) == Exit.USAGE
    gc.enable()
    assert capsys.readouterr().err.startswith(f"patchline: {what}\n")


def test_ctrl_c_ends_it(served: Served) -> None:
    import os
    import signal
    import subprocess
    import sys

    served.answers[CHAT] = endpoints.dripping(served, b" ", 0.2)
    command = [sys.executable, "-m", "patchline", "check", served.url, "--recall"]
    process = subprocess.Popen(command, env=os.environ.copy(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until = time.monotonic() + 20
    while CHAT not in served.paths and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert err.decode().splitlines()[-1] == "patchline: stopped; run the same command again to go on"


def test_proof_failed_is_the_family_of_wrong_answers() -> None:
    assert issubclass(WrongAnswer, ProofFailed)
    assert WrongAnswer.exit is Exit.PROOF_FAILED
