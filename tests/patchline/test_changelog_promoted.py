"""A promotion writes its own news: once, by its tag, with what differs from the line's last release."""

from __future__ import annotations

from pathlib import Path

import changelog_evidence as evidence
import msgspec
import pytest
from carrying import core, project

from patchline.changelog import entries, generate, missing, news, promoted
from patchline.errors import UsageError
from patchline.project import Project
from patchline.release import record

NIGHTLY = "v1.6.0-nightly-20260307-tiny.1"
FIRST, SECOND = "v1.6.0-tiny.1", "v1.6.0-tiny.2"
DIGEST = f"sha256:{'f' * 64}"


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """One patch in a nightly and in a release of it."""
    found = project(tmp_path / "p", ("[Demo] Three heads", core(l3="three")))
    news.write(found, "carried", "three", "Three.", fields={"Patch": "demo/1.0/0001-three-heads.patch"})
    evidence.release(found, NIGHTLY, "2026-03-07T00:00:00Z", "0001-three-heads.patch")
    release(found, FIRST, "2026-03-09T23:59:59Z", "0001-three-heads.patch")
    return found


def release(
    found: Project, tag: str, day: str, *patches: str, pin: str = "demo==1.0", line: str = "tiny", **fields: object
) -> None:
    """A promoted release; `fields` are those of its patches."""
    path = evidence.release(found, tag, day, *patches)
    one = record.read(path)
    [series] = one.series
    changed = tuple(msgspec.structs.replace(patch, **fields) for patch in series.patches)
    series = msgspec.structs.replace(series, pin=pin, patches=changed)
    path.write_bytes(record.text(msgspec.structs.replace(one, nightly=NIGHTLY, line=line, series=(series,))))


def told(found: Project, tag: str) -> str:
    path = promoted.tell(found, tag)
    return next(one.text for one in news.read(found) if one.path == found.root / path)


def test_a_first_release(made: Project) -> None:
    generate.path_of(made).touch()
    path = promoted.tell(made, FIRST)
    assert path == "changelog/2026-03-09-v1-6-0-tiny-1.image.md"
    said = f"`{FIRST}` is of the line tiny, promoted from `{NIGHTLY}`: image `{DIGEST}`, with 1 patch on demo 1.0."
    assert (made.root / path).read_text() == f"{said}\n\nRelease: {FIRST}\n"
    assert not generate.differs(made)
    text = generate.path_of(made).read_text()
    assert f"- **image** {said}\n" in text
    assert f"**release** `{FIRST}`" not in text  # told once
    assert f"- **release** `{NIGHTLY}`" in text


def test_it_is_told_once(made: Project) -> None:
    assert promoted.tell(made, FIRST)
    assert promoted.tell(made, FIRST) == ""
    assert len([one for one in news.read(made) if one.release]) == 1


def test_what_differs_from_the_last_release(made: Project) -> None:
    release(made, "v1.6.0-small.1", "2026-03-09T23:59:59Z", "0001-x.patch", line="small")
    release(made, SECOND, "2026-03-09T23:59:59Z", "0001-three-heads.patch", "0002-four-heads.patch")
    assert told(made, SECOND).endswith(f" Since `{FIRST}`: new `four-heads` on demo 1.0; 1 patch as before.")


@pytest.mark.parametrize(
    ("names", "fields", "said"),
    [
        (["0007-three-heads.patch"], {}, "1 patch as before"),
        (["0001-three-heads.patch"], {"file": "0" * 64}, "changed `three-heads`"),
        (["0001-three-heads.patch"], {"pin": "demo==2.0"}, "rebased `three-heads` to demo 2.0"),
        (["0001-x.patch"], {}, "new `x` on demo 1.0; gone `three-heads` on demo 1.0"),
    ],
)
def test_each_difference(made: Project, names: list[str], fields: dict[str, str], said: str) -> None:
    release(made, SECOND, "2026-03-11T00:00:00Z", *names, **fields)
    assert told(made, SECOND).endswith(f" Since `{FIRST}`: {said}.")


def test_another_dynamo_and_another_base_are_told(made: Project) -> None:
    release(made, SECOND, "2026-03-11T00:00:00Z", "0001-three-heads.patch")
    path = made.root / "changelog" / "releases" / f"{SECOND}.json"
    one = record.read(path)
    base = msgspec.structs.replace(one.base, digest=f"sha256:{'b' * 64}")
    path.write_bytes(record.text(msgspec.structs.replace(one, dynamo="1.7.0", base=base)))
    said = f"another base, `{'b' * 12}` and no longer `{'a' * 12}`; 1 patch as before."
    assert told(made, SECOND).endswith(f" Since `{FIRST}`: Dynamo 1.7.0 and no longer 1.6.0; {said}")


def test_a_release_without_news_and_news_without_a_release(made: Project) -> None:
    assert [(one.where, one.what) for one in missing.untold(made)] == [
        (f"changelog/releases/{FIRST}.json", f"no image fragment in changelog/ has a field Release: {FIRST}")
    ]
    promoted.tell(made, FIRST)
    assert missing.untold(made) == []
    path = news.write(made, "image", "x", "It is out.", fields={"Release": SECOND})
    assert [(one.where, one.what) for one in missing.untold(made)] == [
        (f"changelog/{path.name}", f"there is no record of the release {SECOND}")
    ]


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"Release": "1.6.0"}, "Release: '1.6.0' is no tag of ours"),
        ({"Release": [FIRST, SECOND]}, "Release: is there twice"),
    ],
)
def test_what_is_no_release(made: Project, fields: dict[str, str | list[str]], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        news.write(made, "image", "x", "It is out.", fields=fields)


def test_every_clone_makes_the_same(made: Project) -> None:
    """The day is the record's, and not today."""
    promoted.tell(made, FIRST)
    assert [one.day for one in entries.known(made).news if one.release] == ["2026-03-09"]
