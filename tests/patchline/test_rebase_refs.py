"""A series on a git pin, taken to a tag, a branch or a commit that no pin names; and who changed its lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rebasing import patches_on
from repos import commit, files_of, git, repository, write

from patchline import cli
from patchline.pins import GitPin, Upstream
from patchline.pins import write as write_pins
from patchline.project import Project, cache_dir
from patchline.rebase import onto, state
from patchline.rebase.targets import target
from patchline.rebase.words import Judged
from patchline.series.carried import carried

LINES = [f"line {number}\n" for number in range(1, 40)]

Verb = Callable[..., tuple[int, str, str]]


def text(**changed: str) -> str:
    return "".join(
        f"{changed[f'l{number}']}\n" if f"l{number}" in changed else line for number, line in enumerate(LINES, 1)
    )


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    """A pinned tag; after it the branch `main` moved the lines, and the branch `topic` changed one of ours."""
    repo = repository(tmp_path / "upstream", {"a.py": text(), "b.py": text(), "gone.py": text(l5="five")})
    git(repo, "branch", "-M", "main")
    git(repo, "tag", "v1")
    write(repo, {"a.py": "# top\n" + text()})
    commit(repo, "a line at the top")
    git(repo, "checkout", "-q", "-b", "topic")
    write(repo, {"a.py": "# top\n" + text(l12="THEIRS")})
    commit(repo, "theirs")
    git(repo, "tag", "-a", "v2-rc", "-m", "candidate")
    git(repo, "checkout", "-q", "main")
    return repo


def project(tmp_path: Path, upstream: Path, *changes: dict[str, str]) -> Project:
    """Carries one patch a change on the tag `v1`."""
    made = Project(tmp_path / "p")
    found = git(upstream, "rev-parse", "v1^{commit}").strip()
    pin = GitPin(kind="git", version="1", url=f"file://{upstream}", tag="v1", commit=found)
    write_pins(made.upstreams, {"demo": Upstream(name="demo", carried="1", pins=(pin,))})
    git(upstream, "checkout", "-q", "v1")
    patches = patches_on(upstream, changes)
    git(upstream, "checkout", "-q", "main")
    names = {"series": "".join(f"{one.name}\n" for one in patches)}
    write(made.series_dir("demo", "1"), {**{one.name: one.raw for one in patches}, **names})
    return made


@pytest.fixture
def made(tmp_path: Path, upstream: Path) -> Project:
    return project(tmp_path, upstream, {"a.py": text(l12="ours")})


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    def call(made: Project, *words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(made.root)
        capsys.readouterr()
        code = cli.main(["rebase", "demo", *words])
        return code, *capsys.readouterr()

    return call


def version(upstream: Path, ref: str, name: str) -> str:
    return f"{name}-{git(upstream, 'rev-parse', f'{ref}^{{commit}}')[:12]}"


# a ref is what it means now


@pytest.mark.parametrize("ref", ["main", "refs/heads/main", "HEAD"])
def test_a_branch(made: Project, upstream: Path, run: Verb, ref: str) -> None:
    before = files_of(upstream), git(upstream, "for-each-ref")
    code, out, _ = run(made, "--onto", ref, "--json")
    name = version(upstream, ref, {"refs/heads/main": "main"}.get(ref, ref))
    (found,) = json.loads(out)["versions"]
    assert (code, found["onto"], found["patches"][0]["verdict"]) == (0, f"demo=={name}", "moved")
    assert found["folder"] == str(made.series_dir("demo", name))
    assert (files_of(upstream), git(upstream, "for-each-ref")) == before


def test_a_tag_and_a_full_commit_id(made: Project, upstream: Path, run: Verb) -> None:
    full = git(upstream, "rev-parse", "v2-rc^{commit}").strip()
    for ref, name in (("v2-rc", f"v2-rc-{full[:12]}"), (full, full[:12])):
        code, out, _ = run(made, "--onto", ref, "--dry-run")
        assert (code, f"demo==1 on demo=={name}\n" in out) == (3, True)
        assert "changed by " in out
        assert " theirs\n" in out


def test_a_branch_that_moves_is_another_version(made: Project, upstream: Path, run: Verb) -> None:
    first = version(upstream, "main", "main")
    run(made, "--onto", "main")
    write(upstream, {"a.py": "# top\n# more\n" + text()})
    commit(upstream, "more")
    code, out, _ = run(made, "--onto", "main")
    assert (code, version(upstream, "main", "main") in out) == (0, True)
    assert sorted(path.name for path in (made.root / "patches/demo").iterdir()) == sorted(
        ["1", first, version(upstream, "main", "main")]
    )
    repo = next(path for path in (cache_dir() / "histories").iterdir() if path.is_dir())
    assert git(repo, "rev-parse", f"refs/patchline/at/{first}").startswith(first[-12:])


def test_a_rebase_onto_a_branch_waits_and_goes_on_though_the_branch_moved(
    made: Project, upstream: Path, run: Verb
) -> None:
    name = version(upstream, "topic", "topic")
    assert run(made, "--onto", "topic")[0] == 3
    git(upstream, "branch", "-D", "topic")
    file = state.tree(state.room(made, f"demo=={name}")) / "a.py"
    head, rest = file.read_text().split("<<<<<<<")
    file.write_text(head + "ours too\n" + rest.split(">>>>>>> ")[1].split("\n", 1)[1])
    assert run(made, "--status")[0] == 3
    code, _, err = run(made, "--continue")
    assert code == 0, err
    assert (made.series_dir("demo", name) / "0001-change.patch").is_file()


def test_without_the_cache_it_cannot_go_on_and_says_so(made: Project, run: Verb) -> None:
    run(made, "--onto", "topic")
    (cache_dir() / "histories").rename(cache_dir() / "away")
    code, _, err = run(made, "--continue")
    assert (code, "not in the cache either" in err, "--abort" in err) == (2, True, True)
    assert run(made, "--abort")[0] == 0


@pytest.mark.parametrize(
    ("ref", "said"),
    [
        ("9.9", "no version 9.9 is pinned, and there is no such ref"),
        ("v1", "is the commit that demo==1 is on already"),
        ("--upload-pack=x", "expected one argument"),
        ("a..b", "is no name of a git ref"),
        ("1", "is what the series is on already"),
        ("other==1", "no upstream 'other'"),
    ],
)
def test_what_is_no_ref_is_refused(made: Project, run: Verb, ref: str, said: str) -> None:
    code, _, err = run(made, "--onto", ref)
    assert (code, said in err) == (2, True), err


def test_a_tag_and_a_branch_of_one_name_have_to_be_told_apart(made: Project, upstream: Path, run: Verb) -> None:
    git(upstream, "tag", "topic", "v1")
    code, _, err = run(made, "--onto", "topic")
    assert (code, "topic is a tag and a branch" in err, "--onto refs/tags/topic" in err) == (2, True, True)
    assert run(made, "--onto", "refs/heads/topic", "--dry-run")[0] == 3


def test_a_tag_of_no_commit(made: Project, upstream: Path, run: Verb) -> None:
    git(upstream, "tag", "blob", "HEAD:a.py")
    code, _, err = run(made, "--onto", "blob")
    assert (code, "blob is no commit" in err) == (2, True)


def test_a_repository_that_is_away(made: Project, upstream: Path, run: Verb) -> None:
    carried("demo==1", made).base()
    upstream.rename(upstream.with_name("away"))
    assert run(made, "--onto", "main")[0] == 7


# which commit changed the lines


def judged(made: Project, ref: str = "main") -> list[Judged]:
    old = carried("demo==1", made)
    return [one.judged for one in onto.verdicts(onto.judge_of(old), old, target(old, ref))]


@pytest.mark.parametrize("into", ["main", "topic"])
def test_of_a_merged_branch_the_commit_is_named_and_not_the_merge(made: Project, upstream: Path, into: str) -> None:
    for number in range(8):  # on main, meanwhile: nothing of ours, so that our lines stand there
        write(upstream, {"a.py": "# top\n" + text(**{f"l{28 + number}": "x"})})
        commit(upstream, f"main {number}")
    git(upstream, "checkout", "-q", into)
    git(upstream, "merge", "-q", "--no-ff", "-m", "merge", "topic" if into == "main" else "main")
    write(upstream, {"a.py": (upstream / "a.py").read_text() + "# end\n"})
    commit(upstream, "after the merge")
    assert judged(made, into)[0].conflicts[0].commit.endswith(" theirs")


def test_a_merge_that_changed_the_lines_itself_is_named(made: Project, upstream: Path) -> None:
    git(upstream, "checkout", "-q", "-b", "quiet")
    write(upstream, {"a.py": "# top\n" + text(l38="quiet")})
    commit(upstream, "quiet")
    git(upstream, "checkout", "-q", "main")
    git(upstream, "merge", "-q", "--no-ff", "--no-commit", "quiet")
    write(upstream, {"a.py": "# top\n" + text(l38="quiet", l12="in the merge")})
    commit(upstream, "evil merge")
    assert judged(made)[0].conflicts[0].commit.endswith(" evil merge")


@pytest.mark.parametrize("after", [True, False])
def test_through_a_rename_of_the_file(made: Project, upstream: Path, after: bool) -> None:
    if after:
        git(upstream, "mv", "a.py", "moved.py")
        commit(upstream, "rename")
    write(upstream, {"moved.py" if after else "a.py": "# top\n" + text(l12="THEIRS")})
    commit(upstream, "the change")
    if not after:
        git(upstream, "mv", "a.py", "moved.py")
        commit(upstream, "rename")
    write(upstream, {"moved.py": "# top\n" + text(l12="THEIRS", l30="x")})
    commit(upstream, "another")
    (found,) = judged(made)[0].conflicts
    assert (found.path, found.commit.endswith(" the change")) == ("moved.py", True)


def test_where_an_earlier_patch_of_ours_changed_the_lines_too(tmp_path: Path, upstream: Path) -> None:
    made = project(tmp_path, upstream, {"a.py": text(l12="ours")}, {"a.py": text(l12="ours", l13="more")})
    write(upstream, {"a.py": "# top\n" + text(l13="THIRTEEN")})
    commit(upstream, "thirteen")
    assert [one.conflicts[0].commit.split(" ", 1)[1] for one in judged(made) if one.conflicts][-1] == "thirteen"


def test_a_removed_file_and_a_file_that_both_made(tmp_path: Path, upstream: Path) -> None:
    made = project(tmp_path, upstream, {"gone.py": text(l5="five", l12="ours"), "new.py": "ours = 1\n"})
    git(upstream, "rm", "-q", "gone.py")
    commit(upstream, "remove it")
    write(upstream, {"new.py": "theirs = 2\nand = 3\n"})
    commit(upstream, "make it")
    assert {one.path: one.commit.split(" ", 1)[1] for one in judged(made)[0].conflicts} == {
        "gone.py": "remove it",
        "new.py": "make it",
    }
