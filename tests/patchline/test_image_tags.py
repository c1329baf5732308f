"""Tags of releases: read, ordered, and the next free one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchline.errors import UsageError
from patchline.image.tags import Tag, first, next_free, ours, parse

NIGHTLY = "v1.6.0-nightly-20261016-gemma4-hetero-tp.1"
GOOD = {
    NIGHTLY: Tag("1.6.0", "20261016", "gemma4-hetero-tp", 1),
    "v1.6.0-gemma4-hetero-tp.12": Tag("1.6.0", "", "gemma4-hetero-tp", 12),
    "v1.7.0rc1-cpu-smoke.1": Tag("1.7.0rc1", "", "cpu-smoke", 1),
    "v1.6.0.post1-nightly-20280229-a.999999": Tag("1.6.0.post1", "20280229", "a", 999999),
}
BAD = {
    "latest": "another form",
    "1.6.0-a.1": "another form",
    "v1.6.0-a": "another form",
    "v1.6.0-a.0": "another form",
    "v1.6.0-a.01": "another form",
    "v1.6.0-a.1 ": "another form",
    "v1.6.0-a.1\n": "another form",
    "v1.6.0-A.1": "another form",
    "v1.6.0-a.٣": "another form",
    "v1.6.0-a.1000000": "another form",
    "v1.6.0-2a.1": "another form",
    "v1.6.0-a--b.1": "is no name of a line",
    "v1.6.0-a-.1": "is no name of a line",
    "v1.6.0-nightly-20261016.1": "is no name of a line",
    "v1.6.0-nightly-a.1": "is no name of a line",
    "v1.6.0-nightly-20261316-a.1": "is no date",
    "v1.6.0-nightly-20270229-a.1": "is no date",
    "v1.6.0-nightly-2026101-a.1": "is no name of a line",
    "v01.6-a.1": "is no version as it stands in a tag",
    "v1.6.0c1-a.1": "is no version as it stands in a tag",
    "v1.6.zz-a.1": "is no version",
    f"v1.6.0-{'a' * 130}.1": "registries would not take it",
}


@pytest.mark.parametrize("text", GOOD)
def test_read_and_written(text: str) -> None:
    assert parse(text) == GOOD[text]
    assert str(parse(text)) == text


@pytest.mark.parametrize("text", BAD)
def test_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert BAD[text] in str(caught.value)


def test_order() -> None:
    wanted = [
        "v1.6.0rc1-a.1",
        "v1.6.0-nightly-20261016-a.2",
        "v1.6.0-nightly-20261016-a.10",
        "v1.6.0-nightly-20261017-a.1",
        "v1.6.0-a.1",
        "v1.6.0-b.1",
        "v1.6.0.post1-a.1",
        "v1.10.0-a.1",
    ]
    mixed = [*wanted, "latest", "v1.6.0-a.0"]
    random.Random(1).shuffle(mixed)
    assert [str(tag) for tag in ours(mixed)] == wanted


def test_the_next_free_one() -> None:
    day = first("1.6.0", "a", "20261016")
    assert str(next_free(day, [])) == "v1.6.0-nightly-20261016-a.1"
    known = [
        "v1.6.0-nightly-20261016-a.1",
        "v1.6.0-nightly-20261016-a.3",
        "v1.6.0-nightly-20261016-b.7",
        "v1.6.0-nightly-20261015-a.8",
        "v1.6.0-a.9",
        "latest",
    ]
    assert str(next_free(day, known)) == "v1.6.0-nightly-20261016-a.4"
    assert str(next_free(first("1.6.0", "a"), known)) == "v1.6.0-a.10"
    assert str(next_free(first("1.6.1", "a"), known)) == "v1.6.1-a.1"


def test_numbers_end() -> None:
    with pytest.raises(UsageError, match="registries would not take it"):
        next_free(first("1.6.0", "a"), ["v1.6.0-a.999999"])


def test_what_cannot_stand_in_a_tag() -> None:
    for dynamo, line, date in (
        ("1.6.0+cu130", "a", ""),
        ("1!2", "a", ""),
        ("1", "nightly", ""),
        ("1", "a.b", ""),
        ("1", "a", "x"),
    ):
        with pytest.raises(UsageError):
            first(dynamo, line, date)


LINES = st.from_regex(r"[a-z][a-z0-9]{0,3}(-[a-z0-9]{1,3}){0,2}", fullmatch=True).filter(
    lambda line: not line.startswith("nightly")
)


@given(
    st.sampled_from(["1.6.0", "1.7.0rc1", "2"]), LINES, st.sampled_from(["", "20261016"]), st.lists(st.integers(1, 500))
)
def test_what_is_free_was_not_known(dynamo: str, line: str, date: str, numbers: list[int]) -> None:
    wanted = first(dynamo, line, date)
    known = [str(wanted._replace(number=number)) for number in numbers]
    free = next_free(wanted, known)
    assert parse(str(free)) == free
    assert str(free) not in known
    assert all(parse(one).key < free.key for one in known)
