"""Pins of a git repository: which upstream commit changed the lines, and which one is our patch."""

from __future__ import annotations

from pathlib import Path

import pytest
from rebasing import patches_on
from repos import commit, git, repository, write

from patchline.pins import GitPin, Upstream
from patchline.pins import write as write_pins
from patchline.project import Project, cache_dir
from patchline.rebase import hands, onto
from patchline.rebase.course import Progress
from patchline.series.carried import carried

LINES = [f"line {number}\n" for number in range(1, 40)]


def text(**changed: str) -> str:
    """The file with lines replaced: `text(l3="x")`."""
    return "".join(
        f"{changed[f'l{number}']}\n" if f"l{number}" in changed else line for number, line in enumerate(LINES, 1)
    )


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """Two tags with nine commits between: the third is our second patch, the sixth changes our first one's line."""
    repo = repository(tmp_path / "upstream", {"a.py": text(), "tests.py": ""})
    git(repo, "tag", "v1")
    now: dict[str, str] = {}
    steps = ["l1=one", "l2=two", "l25=ours", "l38=z", "l37=y", "l12=THEIRS", "l36=x", "l35=w", "l34=v"]
    for number, step in enumerate(steps, 1):
        key, _, value = step.partition("=")
        now[key] = value
        write(repo, {"a.py": text(**now), "tests.py": f"test {number}\n"})
        commit(repo, f"upstream change {number}")
    git(repo, "tag", "-a", "v2", "-m", "two")
    return repo


@pytest.fixture
def made(tmp_path: Path, upstream: Path) -> Project:
    """A project that carries two patches on v1."""
    project = Project(tmp_path / "p")
    pins = []
    for tag in ("v1", "v2"):
        found = git(upstream, "rev-parse", f"{tag}^{{commit}}").strip()
        pins.append(GitPin(kind="git", version=tag[1:], url=f"file://{upstream}", tag=tag, commit=found))
    write_pins(project.upstreams, {"demo": Upstream(name="demo", carried="1", pins=tuple(pins))})
    last = git(upstream, "rev-parse", "HEAD").strip()
    git(upstream, "checkout", "-q", "v1")
    patches = patches_on(upstream, [{"a.py": text(l12="ours")}, {"a.py": text(l12="ours", l25="ours")}])
    git(upstream, "checkout", "-q", last)
    folder = project.series_dir("demo", "1")
    write(folder, {**{one.name: one.raw for one in patches}, "series": "".join(f"{one.name}\n" for one in patches)})
    return project


def rebased(made: Project) -> Progress:
    return onto.rebase(carried("demo==1", made), carried("demo==2", made))


def test_a_conflict_names_the_commit_that_changed_the_lines(made: Project) -> None:
    done = rebased(made)
    assert [one.verdict.value for one in done.judged] == ["conflicts", "upstream"]
    assert done.judged[0].conflicts[0].commit.endswith(" upstream change 6")


def test_the_commit_that_is_our_patch_is_named_though_it_has_tests_too(made: Project) -> None:
    evidence = rebased(made).judged[1].evidence
    assert "upstream change 3 makes the same change" in evidence[-1]


def test_a_log_that_is_not_to_be_had_is_said_and_the_verdicts_stand(made: Project, upstream: Path) -> None:
    for version in ("1", "2"):
        carried(f"demo=={version}", made).base()
    upstream.rename(upstream.with_name("away"))
    done = rebased(made)
    assert [one.verdict.value for one in done.judged] == ["conflicts", "upstream"]
    assert done.judged[0].conflicts[0].commit == ""
    assert "upstream's log: the history of v1 is not to be had" in done.judged[0].evidence[0]


def test_the_history_is_fetched_once(made: Project, upstream: Path) -> None:
    rebased(made)
    upstream.rename(upstream.with_name("away"))
    hands.abort(made, "demo")
    assert rebased(made).judged[0].conflicts[0].commit.endswith(" upstream change 6")
    assert len([path for path in (cache_dir() / "histories").iterdir() if path.is_dir()]) == 1
