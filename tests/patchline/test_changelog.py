"""SCICOM_CHANGELOGS.md: every fact of every carried and dropped patch, the same bytes from the same files."""

from __future__ import annotations

import argparse
import os
import shutil
import time
from datetime import date
from pathlib import Path

import changelog_evidence as evidence
import pytest
from carrying import core, project
from repos import write

from patchline.changelog import entries, generate, news
from patchline.cli import Outcome
from patchline.commands import changelog
from patchline.errors import SourceMismatch, UsageError
from patchline.project import Project

ONE = ("[Demo] Three heads", core(l3="three"))
TWO = ("[Demo] Four heads", core(l3="three", l4="four", l5="five"))
PATCHES = ("0001-three-heads.patch", "0002-four-heads.patch")
TESTS = {name: [f"tests/patches/demo/test_{name[5:].partition('-')[0]}.py"] for name in PATCHES}


@pytest.fixture
def made(tmp_path: Path) -> Project:
    found = project(tmp_path / "p", ONE, TWO)
    for day, name in enumerate(PATCHES, 4):
        fields = {"Patch": f"demo/1.0/{name}"}
        news.write(found, "carried", name[5:-6], f"It has {name[5:-6]}.", fields=fields, day=date(2026, 3, day))
    return found


def text(made: Project) -> str:
    return generate.text(entries.known(made))


def verb(made: Project, monkeypatch: pytest.MonkeyPatch, *words: str) -> Outcome:
    monkeypatch.chdir(made.root)
    parser = argparse.ArgumentParser()
    changelog.configure(parser)
    return changelog.run(parser.parse_args(words))


def entry(made: Project, name: str) -> str:
    """The part of the changelog that is one patch's."""
    return text(made).split(f"### [Demo] {name}\n")[1].split("\n#")[0]


def test_a_carried_patch_has_everything(made: Project) -> None:
    assert entry(made, "Four heads") == (
        "\nIt has four-heads.\n\nWhy it is so.\n\n"
        "- It has been carried since 2026-03-05, as `patches/demo/1.0/0002-four-heads.patch`.\n"
        "- It changes 1 file (+2 -2 lines): `demo/core.py` (+2 -2).\n"
        "- It is not forwarded to upstream yet.\n"
        "- It is held by the tests in `tests/patches/demo/test_four.py`.\n"
        "- No gate is set up for it.\n"
        "- It is in no release yet.\n"
        "- It can be dropped when its tests pass on stock.\n"
    )


def test_newest_first(made: Project) -> None:
    whole = text(made)
    assert "2 patches in 1 file, +3 -3 lines, since 2026-03-04." in whole
    assert whole.index("[Demo] Four heads") < whole.index("[Demo] Three heads")
    assert whole.index("### 2026-03-05") < whole.index("### 2026-03-04")


def test_evidence_gives_numbers(made: Project) -> None:
    evidence.prove(made, TESTS)
    evidence.hunks(made, TESTS)
    assert (
        "- It is held by 2 tests that fail on stock and pass with it; 1 more shows what stays as it is (2026-03-06). "
        "They are in `tests/patches/demo/test_four.py`. Without any of its 2 changed parts a test fails, and of 1,200 small "
        "mistakes made in its lines 1,199 are noticed (2026-03-06).\n"
    ) in entry(made, "Four heads")


def test_evidence_of_other_tests_is_not_told(made: Project) -> None:
    evidence.prove(made, TESTS)
    evidence.hunks(made, TESTS)
    write(made.root, {"tests/patches/demo/test_four.py": "# another\n"})
    assert "fail on stock" not in text(made)
    assert "mistakes" not in text(made)


def test_edited_evidence_is_an_error(made: Project) -> None:
    path = evidence.hunks(made, TESTS)
    path.write_text(path.read_text().replace("survived", "failed"))
    with pytest.raises(SourceMismatch, match="was edited"):
        text(made)


def test_gates_by_fleet(made: Project) -> None:
    write(made.root, {"builds/fleets.toml": evidence.FLEETS})
    assert "- There is no record yet of the gates cpu and h20.\n" in text(made)
    evidence.gate(made)
    said = "- The gate cpu was passed on 2026-03-06, in 3 runs of real engines, with the overlay `aaaaaaaaaaaa`"
    assert f"{said}; no proof shows that these are today's patches. There is" in text(made)
    evidence.prove(made, TESTS)
    assert f"{said}. There is no record yet of the gate h20.\n" in text(made)
    evidence.gate(made, fault="it was wrong")
    assert "- The gate cpu was not passed (2026-03-06): tiny-8-2-tp1-tp1-alone-stock: it was wrong." in text(made)


def test_evidence_of_other_patches_is_not_told(made: Project) -> None:
    """Who edits a patch, or adds one, has proven and gated the series as it was."""
    write(made.root, {"builds/fleets.toml": evidence.FLEETS})
    evidence.prove(made, TESTS)
    evidence.gate(made)
    assert "It is held by 2 tests that fail on stock" in entry(made, "Three heads")
    path = made.series_dir("demo", "1.0") / PATCHES[1]
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"Why it is so.", b"Why it is not so."))
    assert "It is held by 2 tests that fail on stock" in entry(made, "Four heads")  # its words prove nothing
    path.write_bytes(whole.replace(b"+five", b"+six"))
    for name in ("Three heads", "Four heads"):
        assert "It is held by the tests in" in entry(made, name)
        assert "no proof shows that these are today's patches" in entry(made, name)


def test_a_record_that_todays_fleets_ask_more_of(made: Project) -> None:
    write(made.root, {"builds/fleets.toml": evidence.FLEETS})
    evidence.gate(made)
    more = evidence.FLEETS.replace("decode = 2, stock", "decode = 4, stock", 1)
    write(made.root, {"builds/fleets.toml": more})
    assert "The gate cpu was not passed (2026-03-06): tiny-8-2-tp1-tp4-engines-stock did not run" in text(made)


def test_the_first_release_that_has_it(made: Project) -> None:
    first, second = "v1.6.0-nightly-20260307-tiny.2", "v1.6.0-tiny.1"
    evidence.release(made, first.replace(".2", ".10"), "2026-03-07T01:00:00Z", PATCHES[0])
    evidence.release(made, second, "2026-03-09T00:00:00Z", *PATCHES)
    evidence.release(made, first, "2026-03-07T00:00:00Z", "0007-three-heads.patch")
    assert f"- The first release that has it is `{first}` (2026-03-07, image `ffffffffffff`)." in entry(
        made, "Three heads"
    )
    assert f"- The first release that has it is `{second}` (2026-03-09" in entry(made, "Four heads")
    assert text(made).index("### 2026-03-09") < text(made).index("### 2026-03-07")
    assert f"- **release** `{second}` is of the line tiny: image `sha256:ffff" in text(made)


def test_an_edited_release_record_is_an_error(made: Project) -> None:
    path = evidence.release(made, "v1.6.0-tiny.1", "2026-03-09T00:00:00Z", *PATCHES)
    path.write_text(path.read_text().replace("0002-four-heads", "0002-five-heads"))
    with pytest.raises(SourceMismatch, match="was edited"):
        text(made)


def test_a_dropped_patch(made: Project) -> None:
    fields = {"Patch": "demo/0.9/0001-two-heads.patch"}
    news.write(made, "carried", "two heads", "Two.", fields=fields, day=date(2026, 1, 2))
    fields |= {"Upstream": "demo==1.0"}
    news.write(made, "dropped", "two heads", "Upstream has two heads.", fields=fields, day=date(2026, 3, 1))
    part = text(made).split("## Dropped\n")[1].split("\n## ")[0]
    assert part == (
        "\n### demo: two-heads\n\nUpstream has two heads.\n\n"
        "- It was dropped on 2026-03-01, with demo 1.0.\n"
        "- It was carried from 2026-01-02 to 2026-03-01, as `patches/demo/0.9/0001-two-heads.patch`.\n"
    )


@pytest.mark.parametrize(
    ("trailer", "sentence"),
    [
        ("Forwarded: https://example.org/1", "It was forwarded to upstream: https://example.org/1."),
        ("Forwarded: not-needed", "It is not for upstream, so it is not forwarded."),
        ("Drop-When: upstream-version >= 2.0", "It can be dropped when upstream's version is 2.0 or later."),
        ("Drop-When: when heads are gone.", "It can be dropped when heads are gone."),
    ],
)
def test_trailers_in_words(made: Project, trailer: str, sentence: str) -> None:
    path = made.root / "patches" / "demo" / "1.0" / PATCHES[1]
    key = trailer.partition(":")[0]
    old = next(line for line in path.read_text().split("\n") if line.startswith(f"{key}:"))
    path.write_text(path.read_text().replace(old, trailer))
    assert f"- {sentence}\n" in entry(made, "Four heads")


def test_a_message_makes_no_headings_and_no_html(made: Project) -> None:
    path = made.root / "patches" / "demo" / "1.0" / PATCHES[1]
    hostile = "# Dropped\n<script>x</script> 1 < 2\n===\nend"
    path.write_text(path.read_text().replace("Why it is so.", hostile))
    assert "\n\\# Dropped\n&lt;script>x&lt;/script> 1 < 2\n\\===\nend\n" in text(made)


def test_news_make_no_html(made: Project) -> None:
    said = "Answers <b>x</b> to `GET <url>`, see <https://example.org/>."
    news.write(made, "tooling", "x", said, day=date(2026, 3, 9))
    assert "- **tooling** Answers &lt;b>x&lt;/b> to `GET <url>`, see <https://example.org/>.\n" in text(made)


def test_a_renamed_patch_keeps_its_day_and_its_first_release(made: Project) -> None:
    evidence.release(made, "v1.6.0-tiny.1", "2026-03-09T00:00:00Z", *PATCHES)
    evidence.release(made, "v1.6.0-tiny.2", "2026-03-10T00:00:00Z", PATCHES[0], "0002-more-heads.patch")
    folder = made.root / "patches" / "demo" / "1.0"
    (folder / PATCHES[1]).rename(folder / "0002-more-heads.patch")
    (folder / "series").write_text(f"{PATCHES[0]}\n0002-more-heads.patch\n")
    path = next((made.root / "changelog").glob("*four-heads*"))
    fields = f"Patch: demo/1.0/0002-more-heads.patch\nWas: demo/1.0/{PATCHES[1]}"
    path.write_text(f"It has more.\n\n{fields}\n")
    told = entry(made, "Four heads")
    assert "- It has been carried since 2026-03-05, as `patches/demo/1.0/0002-more-heads.patch`.\n" in told
    assert "- The first release that has it is `v1.6.0-tiny.1` (2026-03-09" in told


def test_every_clone_makes_the_same_bytes(made: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another folder, other times of files, another zone and locale, no git at all."""
    evidence.prove(made, TESTS)
    evidence.release(made, "v1.6.0-tiny.1", "2026-03-09T00:00:00Z", *PATCHES)
    before = text(made)
    other = Project(tmp_path / "q" / "elsewhere")
    shutil.copytree(made.root, other.root)
    for path in other.root.rglob("*"):
        os.utime(path, (0, 0))
    monkeypatch.setenv("TZ", "Pacific/Kiritimati")
    monkeypatch.setenv("LC_ALL", "C")
    time.tzset()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert text(other) == before
    monkeypatch.undo()
    time.tzset()


def test_it_is_written_and_checked(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    path = made.root / generate.FILE
    gone = verb(made, monkeypatch, "--check")
    assert (gone.exit, path.exists()) == (8, False)
    assert "SCICOM_CHANGELOGS.md: not what would be generated; run: python -m patchline changelog" in gone.text
    done = verb(made, monkeypatch)
    assert (done.exit, done.data["written"]) == (0, True)
    assert path.read_text() == text(made)
    assert verb(made, monkeypatch, "--check").exit == 0
    assert verb(made, monkeypatch).data["written"] is False
    path.write_text(path.read_text().replace("three", "four"))
    assert verb(made, monkeypatch, "--check").exit == 8


def test_a_patch_without_news_is_a_finding(made: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    next((made.root / "changelog").glob("*four-heads*")).unlink()
    done = verb(made, monkeypatch)
    assert done.exit == 8
    assert "patches/demo/1.0/0002-four-heads.patch: no carried fragment" in done.text
    assert "It has been carried since 2026-03-04, as `patches/demo/1.0/0002" in text(made)  # the patch's own date


def test_no_series_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no series is carried"):
        entries.known(project(tmp_path / "p"))


def test_the_projects_own_changelog_can_be_made() -> None:
    found = entries.known(Project(Path(__file__).parents[2]))
    assert {one.upstream for one in found.entries} >= {"vllm"}
    assert all(one.news for one in found.entries)
