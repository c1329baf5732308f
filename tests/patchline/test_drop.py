"""The verb `drop`: a patch goes from a version's series, the rest is proven again, and the changelog is told."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from carrying import SOURCE, core, write
from demo_env import stand_in
from rebasing import add_version, two_versions
from repos import files_of, git, head, repository

from patchline import cli
from patchline.changelog import entries, generate, news
from patchline.errors import Unreachable
from patchline.pins import GitPin, Upstream
from patchline.pins import load as load_pins
from patchline.pins import write as write_pins
from patchline.project import Project
from patchline.proofs import bench, env
from patchline.proofs.env import Environment
from patchline.rebase import onto, state
from patchline.rebase.drop import journal
from patchline.series import quilt
from patchline.series.carried import carried

HEADS = core()["demo/core.py"].replace("return total", "return max(1, total // tp)")
ONE = ("[Demo] Three heads", core(l3="# III"))
TWO = ("[Demo] Rank heads", {"demo/core.py": HEADS.replace("# line 3\n", "# III\n")})
TEST = (
    "import pytest\nfrom pathlib import Path\nimport demo.core\n\n"
    "@pytest.mark.holds(stock=r'it is not there')\ndef test_it():\n"
    "    assert {!r} in Path(demo.core.__file__).read_text(), 'it is not there'\n"
)
NEWS = "The heads are three.\n\nPatch: demo/1.0/{}\n"

Verb = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb in a project: exit code and both streams."""

    def call(made: Project, *words: str) -> tuple[int, str, str]:
        monkeypatch.chdir(made.root)
        capsys.readouterr()
        code = cli.main(words)
        return code, *capsys.readouterr()

    return call


def drop(name: str, *words: str, version: str = "2.0", reason: str = "upstream") -> list[str]:
    return ["drop", f"demo/{name}", "--in", version, "--reason", reason, *words]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment) -> Project:
    """Two patches on 1.0 and on 2.0. Version 2.0 is only another number: stock of both is the same package."""
    found = two_versions(tmp_path / "p", {"setup.py": "# another\n"}, ONE, TWO)
    settle(found, monkeypatch, environment)
    return found


def settle(found: Project, monkeypatch: pytest.MonkeyPatch, environment: Environment) -> None:
    """Gives the patches tests and news, rebases them onto 2.0, and lets their tests run in the demo's venv."""
    the_tests(found, three="# III", rank="max(1, total // tp)")
    files = [item.name for item in quilt.items(found.series_dir("demo", "1.0") / "series")]
    news = {f"changelog/2026-11-0{at}-{name[5:-6]}.carried.md": NEWS.format(name) for at, name in enumerate(files, 1)}
    write(found.root, news)
    onto.rebase(carried("demo==1.0", found), carried("demo==2.0", found))
    stand_in(monkeypatch, environment)


def the_tests(found: Project, **sought: str) -> None:
    for word, text in sought.items():
        write(found.root, {f"tests/patches/demo/test_{word}.py": TEST.format(text)})


def series(found: Project, version: str = "2.0") -> list[str]:
    return [item.name for item in quilt.items(found.series_dir("demo", version) / "series")]


def kept(found: Project) -> dict[str, object]:
    """All files of the project that a drop may change."""
    return {f"{room}/{name}": data for room in journal.ROOMS if (found.root / room).is_dir()
            for name, data in files_of(found.root / room).items() if not name.endswith(".pyc")}  # fmt: skip


# by a reason of one's own: the demo's two versions have the same package


def test_a_patch_goes_and_the_rest_is_proven_and_told(made: Project, run: Verb) -> None:
    (made.root / "SCICOM_CHANGELOGS.md").write_text("old\n")
    folder = made.series_dir("demo", "2.0")
    text = '# all of them\n\n[[survivor]]\npatch = "{}"\nmutant = "a"\nreason = "b"\n'
    explained = text.format("0001-three-heads.patch") + text.format("0002-rank-heads.patch").partition("\n\n")[2]
    (folder / "explained.toml").write_text(explained)
    words = ["--text", "The new scheduler does it", "--json"]
    code, out, err = run(made, *drop("three-heads", *words, reason="superseded"))
    assert code == 0, (out, err)
    found = json.loads(out)
    assert (found["verdict"], found["left"], found["rewritten"]) == ("applies", ["0002-rank-heads.patch"], [])
    assert found["proof"] == {"state": "proven", "why": "", "patches": ["0002-rank-heads.patch"]}
    assert (series(made), series(made, "1.0")[0]) == (["0002-rank-heads.patch"], "0001-three-heads.patch")
    assert not (folder / "0001-three-heads.patch").exists()
    assert (folder / "explained.toml").read_text() == text.format("0002-rank-heads.patch")
    assert found["tests"]["removed"] == []  # 1.0 still carries the patch
    shown = (made.root / "SCICOM_CHANGELOGS.md").read_text()
    assert "It is superseded" not in shown
    assert "`three-heads` is dropped: it is superseded in demo 2.0. " in shown
    assert "The new scheduler does it. 1 test file stays for other patches." in shown
    assert "The 1 patch left on demo 2.0 is proven without it." in shown
    assert (
        f"- It was carried from 2026-11-01 to {news.read(made)[0].day}, as `patches/demo/2.0/0001-three-heads.patch`."
        in shown
    )
    assert not journal.path_of(made).exists()
    assert not generate.differs(made)
    assert run(made, "lint")[0] == 0
    assert run(made, "prove", "demo==2.0")[0] == 0
    before = kept(made)
    code, out, _ = run(made, *drop("three-heads", "--text", "again", reason="superseded"))
    assert (code, "is dropped in demo==2.0 already: changelog/" in out) == (0, True)
    assert kept(made) == before


def test_a_plan_writes_nothing_and_proves_nothing(made: Project, run: Verb) -> None:
    before = kept(made)
    code, out, _ = run(made, *drop("1", "--dry-run", "--text", "x", reason="superseded"))
    assert (code, "a plan: nothing was proven; to be proven on demo==2.0: 0002-rank-heads.patch" in out) == (0, True)
    assert "would be removed: patches/demo/2.0/0001-three-heads.patch" in out
    assert kept(made) == before


def test_tests_that_only_it_names_go_with_the_last_version_that_has_it(made: Project, run: Verb) -> None:
    words = ["--text", "x", "--json"]
    assert run(made, *drop("three-heads", *words, reason="superseded"))[0] == 0
    code, out, err = run(made, *drop("three-heads", *words, version="1.0", reason="superseded"))
    assert code == 0, err
    assert json.loads(out)["tests"] == {"removed": ["tests/patches/demo/test_three.py"], "stay": {}}
    assert [path.name for path in (made.root / "tests/patches/demo").glob("*.py")] == ["test_rank.py"]
    assert run(made, "lint")[0] == 0
    assert not entries.known(made).entries[1:]


def test_the_last_patch_takes_its_series_with_it(made: Project, run: Verb) -> None:
    for name in ("three-heads", "rank-heads"):
        code, out, err = run(made, *drop(name, "--text", "x", reason="superseded"))
        assert code == 0, err
    assert "no patch is left on demo==2.0: nothing to prove" in out
    assert not made.series_dir("demo", "2.0").exists()


def test_the_last_patch_of_the_carried_version_waits_for_the_others(made: Project, run: Verb) -> None:
    assert run(made, *drop("1", "--text", "x", version="1.0", reason="superseded"))[0] == 0
    before = kept(made)
    code, _, err = run(made, *drop("2", "--text", "x", version="1.0", reason="superseded"))
    assert (code, "the version that is carried, and there are series on 2.0" in err) == (5, True)
    assert kept(made) == before


# the verdict


def test_upstream_has_to_have_it(made: Project, run: Verb) -> None:
    before = kept(made)
    code, _, err = run(made, *drop("three-heads"))
    assert (code, "demo/three-heads: upstream does not hold in demo==2.0, where its verdict is applies" in err) == (
        5,
        True,
    )
    assert "not there: demo/core.py, hunk 1: applies" in err
    code, _, err = run(made, *drop("three-heads", reason="not-needed"))
    assert (code, "behaviour: its tests on stock: fails" in err) == (5, True)
    assert kept(made) == before


def test_its_tests_have_to_pass_on_stock_where_it_is_not_needed(made: Project, run: Verb) -> None:
    the_tests(made, three="return total")
    code, out, err = run(made, *drop("three-heads", "--json", "--record", reason="not-needed"))
    assert code == 0, err
    (record,) = (made.root / "builds" / "evidence" / "demo-2.0").iterdir()
    assert (record.name, json.loads(out)["writes"]["builds/evidence/demo-2.0/prove.json"]) == ("prove.json", "written")
    assert "judged from the evidence of" in run(made, "prove", "demo==2.0")[1]
    assert (json.loads(out)["verdict"], json.loads(out)["behaviour"]) == ("not-needed", "passes")


@pytest.mark.parametrize(
    "text",
    ["", "import pytest\nimport demo.core\n@pytest.mark.holds(stock='x y z')\ndef test_it():\n    pytest.skip('no')\n",
     "import pytest\nimport demo.core\n@pytest.mark.unchanged\ndef test_it():\n    pass\n"],
)  # fmt: skip
def test_tests_that_show_nothing_are_no_reason(made: Project, run: Verb, text: str) -> None:
    write(made.root, {"tests/patches/demo/test_three.py": text})
    code, _, err = run(made, *drop("three-heads", reason="not-needed"))
    assert (code, "behaviour: its tests on stock: collects nothing" in err) == (5, True)


def test_what_a_rebase_left_out_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, run: Verb
) -> None:
    found = two_versions(tmp_path / "p", core(l3="# III"), ONE, TWO)
    settle(found, monkeypatch, environment)
    assert series(found) == ["0002-rank-heads.patch"]
    monkeypatch.setattr("patchline.proofs.tree.check", lambda *_: None)
    before = kept(found)
    code, out, err = run(found, *drop("three-heads", "--dry-run", "--json"))
    assert code == 0, err
    assert (json.loads(out)["verdict"], json.loads(out)["judged_from"]) == ("upstream", "demo==1.0")
    assert [*json.loads(out)["writes"].values()] == ["written"]
    assert kept(found) == before
    # The demo's venv holds version 1.0 and not 2.0, so the proof is of another package, and says so.
    code, _, err = run(found, *drop("three-heads"))
    assert (code, kept(found) == before) == (4, True), err
    monkeypatch.setattr(bench, "environment", unreachable)
    code, out, _ = run(found, *drop("three-heads", "--unproven"))
    (news,) = [one for one in entries.known(found).news if one.kind == "dropped"]
    assert (code, news.upstream, news.patches[0].version) == (6, "demo==2.0", "1.0")
    assert "1 of 1 hunks stand in demo==2.0" in news.text
    assert "its series lacks the patch already; this is the record of it" in out
    assert run(found, *drop("three-heads"))[0] == 0


def unreachable(*_: object, **__: object) -> Environment:
    raise Unreachable("no index has demo 2.0")


def test_upstream_by_text_with_tests_that_fail_on_stock_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, run: Verb
) -> None:
    found = two_versions(tmp_path / "p", core(l3="# III"), ONE, TWO)
    settle(found, monkeypatch, environment)
    code, _, err = run(found, *drop("three-heads", "--run-tests", "--dry-run"))
    assert (code, "its text is there, and its tests fail on stock" in err) == (5, True)


# the rest


def test_a_later_patch_that_does_not_apply_without_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, run: Verb
) -> None:
    more = ("[Demo] Three more", core(l3="# four", l9="# IX"))
    last = ("[Demo] Last of them", core(l3="# four", l9="# IX", l25="# XXV"))
    again = ("[Demo] Again the last", core(l3="# four", l9="# IX", l25="# 25"))  # it leans on another one
    found = two_versions(
        tmp_path / "p", {"setup.py": "#\n"}, ("[Demo] Rank heads", core(l3="# III")), more, last, again
    )
    the_tests(found, rank="# III", three="# IX", last="# XXV")
    onto.rebase(carried("demo==1.0", found), carried("demo==2.0", found))
    before = kept(found)
    code, _, err = run(found, *drop("rank-heads", "--text", "x", reason="superseded"))
    assert (code, "1 later patch leans on it and does not apply without it" in err) == (3, True)
    assert "  0002-three-more.patch: demo/core.py" in err
    assert "0003" not in err
    assert "0004" not in err
    assert kept(found) == before


def test_a_later_patch_whose_tests_fail_without_it_is_named(made: Project, run: Verb) -> None:
    write(made.root, {"tests/patches/demo/test_rank.py": TEST.format("# III") + TEST.format("max(1").rpartition("\n\n")[2].replace("test_it", "test_rank")})  # fmt: skip
    before = kept(made)
    code, _, err = run(made, *drop("three-heads", "--text", "x", reason="superseded"))
    assert (code, "0002-rank-heads.patch leaned on it:" in err, kept(made) == before) == (6, True, True), err


def test_a_rest_that_cannot_be_proven_here_is_refused_and_never_called_proven(
    made: Project, run: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(env, "environment", unreachable)
    before = kept(made)
    words = drop("three-heads", "--text", "x", reason="superseded")
    code, _, err = run(made, *words)
    assert (code, "cannot be proven here: no index has demo 2.0" in err, kept(made) == before) == (5, True, True)
    code, out, _ = run(made, *words, "--unproven", "--json")
    found = json.loads(out)
    assert (code, found["done"], found["ok"], found["proof"]["state"]) == (6, True, False, "not proven")
    assert "is not proven without it: no index has demo 2.0." in (made.root / found["news"]).read_text()
    assert series(made) == ["0002-rank-heads.patch"]


def test_lines_that_stand_elsewhere_without_it_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: Environment, run: Verb
) -> None:
    top = "# top\n# top\n" + core()["demo/core.py"]
    both = top.replace("# line 20\n", "# XX\n")
    found = two_versions(tmp_path / "p", {"setup.py": "#\n"}, ("[Demo] Three heads", {"demo/core.py": top}), ("[Demo] Rank heads", {"demo/core.py": both}))  # fmt: skip
    the_tests(found, three="# top", rank="# XX")
    onto.rebase(carried("demo==1.0", found), carried("demo==2.0", found))
    stand_in(monkeypatch, environment)
    code, out, err = run(found, *drop("three-heads", "--text", "x", "--json", reason="superseded"))
    assert (code, json.loads(out or "{}").get("rewritten")) == (0, ["0002-rank-heads.patch"]), err
    assert run(found, "apply", "demo==2.0")[0] == 0
    code, out, _ = run(found, "export", "demo==2.0", "--check")
    assert code == 0, out


# what is asked for


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (drop("tree-heads", "--text", "x", reason="superseded"), 2, "did you mean 'three-heads'?"),
        (drop("three-heads", reason="upsteam"), 2, "did you mean 'upstream'?"),
        (drop("three-heads", reason="obsolete"), 2, "no verdict can bear out the reason 'obsolete'"),
        (drop("three-heads", version="9.0"), 2, "demo 9.0 is not pinned"),
        (drop("three-heads", version="3.0"), 5, "rebase demo==1.0 --onto 3.0"),
    ],
)
def test_what_is_refused_at_once(made: Project, run: Verb, words: list[str], code: int, said: str) -> None:
    add_version(made, "3.0", {})
    before = kept(made)
    got, _, err = run(made, *words)
    assert (got, said in err, kept(made) == before) == (code, True, True), err


@pytest.mark.parametrize("word", ["1", "0001", "three-heads", "0001-three-heads.patch"])
def test_a_patch_is_named_as_people_do(made: Project, run: Verb, word: str) -> None:
    code, out, err = run(made, *drop(word, "--dry-run", "--text", "x", "--json", reason="superseded"))
    assert (code, json.loads(out or "{}").get("patch")) == (0, "demo/three-heads"), err


# stopped halfway


@pytest.mark.parametrize("at", range(4))
def test_a_drop_that_was_stopped_is_finished(
    made: Project, run: Verb, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    words = drop("three-heads", "--text", "x", version="1.0", reason="superseded")
    run(made, *drop("three-heads", "--text", "x", reason="superseded"))
    spots = ["_check", "_series", "_write", "path_of"][at]
    real, calls = getattr(journal, spots), []

    def stopped(*args: object) -> object:
        calls.append(args)
        if len(calls) > (1 if at in (2, 3) else 0):
            raise KeyboardInterrupt
        return real(*args)

    before = kept(made)
    with monkeypatch.context() as patched:
        patched.setattr(journal, spots, stopped)
        code, _, err = run(made, *words)
    assert (code, bool(calls)) == (130, True), err
    if not journal.path_of(made).exists():
        assert kept(made) == before
    code, _, err = run(made, *words)
    assert code == 0, err
    assert series(made, "1.0") == ["0002-rank-heads.patch"]
    assert not (made.root / "tests/patches/demo/test_three.py").exists()
    assert len([one for one in entries.known(made).news if one.kind == "dropped"]) == 2
    assert not journal.path_of(made).exists()


def test_a_stopped_drop_goes_on_only_with_the_files_that_it_knew(
    made: Project, run: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = drop("three-heads", "--text", "x", reason="superseded")
    with monkeypatch.context() as patched:
        patched.setattr(journal, "_check", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run(made, *words)[0] == 130
    code, _, err = run(made, *words, "--dry-run")
    assert (code, "was stopped halfway" in err) == (5, True)
    path = made.series_dir("demo", "2.0") / "0001-three-heads.patch"
    path.write_bytes(path.read_bytes() + b"\n")
    before = kept(made)
    code, _, err = run(made, *words)
    assert (code, "changed while the drop of demo/three-heads" in err, kept(made) == before) == (5, True, True)


def test_a_killed_drop_is_finished_by_the_next_process(made: Project) -> None:
    """A real process, killed by itself right after the journal is written."""
    program = (
        "import os, sys\nfrom patchline.rebase.drop import journal\nfrom patchline import cli\n"
        "journal.finish = lambda *_: os.kill(os.getpid(), 9)\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    words = drop("2", "--text", "x", reason="superseded")
    run_ = [sys.executable, "-c", program, *drop("three-heads", "--text", "x", "--unproven", reason="superseded")]
    done = subprocess.run(run_, cwd=made.root, capture_output=True)
    assert done.returncode == -9, done.stderr
    assert (journal.path_of(made).exists(), len(series(made))) == (True, 2)
    done = subprocess.run([sys.executable, "-m", "patchline", *words], cwd=made.root, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert not made.series_dir("demo", "2.0").exists()


# rebase with behaviour


def test_a_rebase_runs_the_tests_on_stock(made: Project, run: Verb) -> None:
    the_tests(made, three="return total")
    code, out, err = run(made, "rebase", "demo==1.0", "--onto", "2.0", "--dry-run", "--run-tests", "--json")
    assert code == 0, err
    patches = json.loads(out)["versions"][0]["patches"]
    assert [(one["verdict"], one["behaviour"]) for one in patches] == [("not-needed", "passes"), ("applies", "fails")]
    code, out, err = run(made, "rebase", "demo==1.0", "--all", "--run-tests")
    assert (code, "behaviour: its tests on stock: passes" in out) == (0, True), err


def test_a_rebase_that_waited_for_hands_runs_the_tests_that_are_left(made: Project, run: Verb) -> None:
    add_version(made, "3.0", core(l3="# line III"))
    the_tests(made, rank="return total")
    assert run(made, "rebase", "demo==1.0", "--onto", "3.0")[0] == 3
    write(state.tree(state.room(made, "demo==3.0")), core(l3="# III"))
    assert run(made, "rebase", "demo==1.0", "--status", "--run-tests")[0] == 2
    code, out, err = run(made, "rebase", "demo==1.0", "--continue", "--run-tests", "--json")
    assert code == 0, err
    patches = json.loads(out)["versions"][0]["patches"]
    assert [(one["verdict"], one["behaviour"]) for one in patches] == [("not-needed", "passes")]
    assert series(made, "3.0") == ["0001-three-heads.patch"]


def test_stock_is_what_is_installed(made: Project, environment: Environment) -> None:
    assert (environment.site_packages / "demo" / "core.py").read_bytes() == SOURCE["demo/core.py"]


def test_a_git_pin_is_proven_in_a_copy_of_its_checkout(
    made: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Verb
) -> None:
    """The upstream's repository is gone: nothing is fetched a second time. The work tree's own state stays."""
    upstream = repository(tmp_path / "upstream", SOURCE)
    git(upstream, "tag", "v2")
    pin = GitPin(kind="git", version="2.0", url=f"file://{upstream}", tag="v2", commit=head(upstream))
    old = load_pins(made.upstreams)["demo"]
    pins = (*(one for one in old.pins if one.version == "1.0"), pin)
    write_pins(made.upstreams, {"demo": Upstream(name="demo", carried="1.0", pins=pins)})
    here = carried("demo==2.0", made)
    shutil.rmtree(here.repo)  # that of the archive
    assert run(made, "apply", "demo==2.0")[0] == 0
    was = head(here.repo)
    shutil.rmtree(upstream)
    write(here.repo, {"demo/core.py": "not committed\n"})
    code, _, err = run(made, *drop("three-heads", "--text", "x", reason="superseded"))
    assert code == 0, err
    assert (head(here.repo), (here.repo / "demo/core.py").read_text()) == (was, "not committed\n")
    assert series(made) == ["0002-rank-heads.patch"]
