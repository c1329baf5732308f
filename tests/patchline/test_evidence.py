"""Evidence counts only while all that it covers is today's, and verdicts are drawn anew."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from carrying import core, project
from demo_env import stand_in

from patchline.commands import prove as prove_verb
from patchline.errors import SourceMismatch
from patchline.project import Project
from patchline.proofs import bench, evidence, suite
from patchline.proofs import prove as proving
from patchline.proofs.env import Environment
from patchline.seal import sealed
from patchline.series.carried import Carried, carried

COVERS = {"overlay": "sha256:1", "tests": "sha256:2"}


@pytest.fixture
def empty(tmp_path: Path) -> Project:
    """A project with nothing in it."""
    return Project(tmp_path)


def test_kept_and_found(empty: Project) -> None:
    made = evidence.new("prove", "demo==1.0", COVERS, {"tests": ["a"]}, {"pytest": "9"})
    evidence.keep(made)
    assert evidence.find(empty, "prove", "demo==1.0", COVERS) == made
    assert made.host["pytest"] == "9"


@pytest.mark.parametrize(
    ("kind", "of", "covers"),
    [
        ("hunks", "demo==1.0", COVERS),
        ("prove", "demo==1.1", COVERS),
        ("prove", "demo==1.0", {**COVERS, "tests": "sha256:3"}),
        ("prove", "demo==1.0", {"overlay": "sha256:1"}),
        ("prove", "demo==1.0", {**COVERS, "more": ""}),
    ],
)
@pytest.mark.parametrize("committed", [False, True])
def test_of_anything_else_it_is_none(
    empty: Project, kind: str, of: str, covers: dict[str, str], committed: bool
) -> None:
    evidence.keep(evidence.new("prove", "demo==1.0", COVERS, {}, {}), empty if committed else None)
    assert evidence.find(empty, kind, of, covers) is None


def test_the_projects_own_says_what_changed(empty: Project, capsys: pytest.CaptureFixture[str]) -> None:
    path = evidence.keep(evidence.new("prove", "demo==1.0", COVERS, {}, {}), empty)
    assert path == empty.root / "builds/evidence/demo-1.0/prove.json"
    evidence.find(empty, "prove", "demo==1.0", {**COVERS, "tests": "sha256:3"})
    assert "builds/evidence/demo-1.0/prove.json is of other inputs: tests\n" in capsys.readouterr().err


def test_a_cache_entry_under_anothers_name_is_none(empty: Project) -> None:
    path = evidence.keep(evidence.new("prove", "demo==1.0", COVERS, {}, {}))
    other = {**COVERS, "tests": "sha256:3"}
    path.rename(path.with_name(f"{evidence.digest_of('prove', 'demo==1.0', other)}.json"))
    assert evidence.find(empty, "prove", "demo==1.0", other) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schema": 2}', b'{"schema": "2"}'])
def test_damaged(empty: Project, data: bytes) -> None:
    path = evidence.keep(evidence.new("prove", "demo==1.0", COVERS, {}, {}), empty)
    path.write_bytes(data)
    with pytest.raises(SourceMismatch, match="this evidence is damaged"):
        evidence.find(empty, "prove", "demo==1.0", COVERS)


@pytest.mark.parametrize("part", ["made", "host", "result", "covers"])
def test_edited_by_hand(empty: Project, part: str) -> None:
    made = evidence.new("prove", "demo==1.0", COVERS, {"tests": ["failed"]}, {"pytest": "9"})
    path = evidence.keep(made, empty)
    data = json.loads(path.read_bytes())
    data[part] = "2026" if part == "made" else {**data[part], "pytest": "8"}
    path.write_text(json.dumps(data))
    with pytest.raises(SourceMismatch, match="this evidence was edited"):
        evidence.find(empty, "prove", "demo==1.0", COVERS)


def test_laid_out_otherwise_it_is_the_same(empty: Project) -> None:
    made = evidence.new("prove", "demo==1.0", COVERS, {"tests": ["failed"]}, {})
    path = evidence.keep(made, empty)
    path.write_text(json.dumps(json.loads(path.read_bytes())))
    assert evidence.find(empty, "prove", "demo==1.0", COVERS) == made


def test_of_another_schema_it_is_none(empty: Project) -> None:
    path = evidence.keep(evidence.new("prove", "demo==1.0", COVERS, {}, {}), empty)
    path.write_text('{"schema": 1, "kind": "prove"}')
    assert evidence.find(empty, "prove", "demo==1.0", COVERS) is None


def test_tests_cover_what_lies_beside_them(tmp_path: Path) -> None:
    for name in ("t/test_a.py", "t/pair.py", "t/data/one.json", "t/__pycache__/pair.pyc", "u/test_b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert list(evidence.tests(tmp_path, ["t/test_a.py"])) == ["t/data/one.json", "t/pair.py", "t/test_a.py"]


def test_tests_of_later_versions_cover_those_that_they_are_named_after(tmp_path: Path) -> None:
    names = ["p/one-since-2/test_b.py", "p/one/test_a.py", "p/one-since-22/test_c.py", "p/on/test_d.py"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert sorted(evidence.tests(tmp_path, [names[0]])) == names[:2]
    assert list(evidence.tests(tmp_path, [names[1]])) == [names[1]]


TEST = "import pytest\nfrom demo.core import heads\n\n@pytest.mark.holds(stock=r'heads were 16')\ndef test_heads(record_property):\n    record_property('heads', 16)\n    got = heads(16, 4)\n    assert got == 4, f'heads were {got}'\n"


@pytest.fixture
def series(tmp_path: Path, environment: Environment, monkeypatch: pytest.MonkeyPatch) -> Carried:
    """One proven patch."""
    fixed = core()["demo/core.py"].replace("return total", "return max(1, total // tp)")
    made = project(tmp_path / "p", ("[Demo] Three heads", {"demo/core.py": fixed}))
    (made.root / "tests/patches/demo/test_three.py").write_text(TEST)
    stand_in(monkeypatch, environment)
    return carried("demo", made)


def runs(series: Carried, monkeypatch: pytest.MonkeyPatch, *, fresh: bool = False) -> int:
    """How many times tests ran in a proof."""
    ran: list[str] = []
    real = suite.run

    def counted(*args, **named):  # type: ignore[no-untyped-def]
        ran.append("")
        return real(*args, **named)

    with monkeypatch.context() as patched:
        patched.setattr(suite, "run", counted)
        proving.prove(series, fresh=fresh)
    return len(ran)


def test_a_proof_runs_once(series: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [runs(series, monkeypatch), runs(series, monkeypatch), runs(series, monkeypatch, fresh=True)] == [2, 0, 2]


@pytest.mark.parametrize("what", ["test", "beside", "requirements", "code", "patch", "marks"])
def test_a_proof_runs_again_when_its_inputs_changed(
    series: Carried, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    assert runs(series, monkeypatch) == 2
    tests = series.project.root / "tests/patches/demo"
    if what == "test":
        (tests / "test_three.py").write_text(TEST + "\n")
    elif what == "beside":
        (tests / "data.json").write_text("{}")
    elif what == "requirements":
        monkeypatch.setattr(bench, "_requirements", lambda _: ("demo==1.0", "pytest==9"))
    elif what == "code":
        monkeypatch.setattr(evidence, "_CODE", evidence._CODE[1:])
    elif what == "patch":
        patch = series.folder / "0001-three-heads.patch"
        patch.write_text(patch.read_text().replace("max(1,", "max(2 - 1,"))
    else:
        (tests / "test_three.py").write_text(TEST.replace("@pytest.mark.holds(stock=r'heads were 16')", ""))
    assert runs(series, monkeypatch) == 2


def test_evidence_of_another_clone_counts(series: Carried) -> None:
    proving.prove(series)
    there = series.project.root.with_name("another")
    series.project.root.rename(there)
    done = proving.prove(carried("demo", Project(there)))
    assert done.verified
    assert done.stands, done.proofs


def test_what_does_not_stand_is_not_kept(series: Carried, monkeypatch: pytest.MonkeyPatch) -> None:
    (series.project.root / "tests/patches/demo/test_three.py").write_text(TEST.replace("got == 4", "got == 5"))
    assert [runs(series, monkeypatch), runs(series, monkeypatch)] == [2, 2]


def test_a_verdict_is_drawn_from_the_outcomes(series: Carried) -> None:
    """Whatever wrote the evidence: what it says of the tests has to prove the patch."""
    assert proving.prove(series, record=True).stands
    path = evidence.path_of(series.project, "prove", series.name)
    data = json.loads(path.read_bytes())
    assert "proven" not in path.read_text()
    (test,) = data["result"]["stock"][0].values() if isinstance(data["result"], dict) else data["result"][0][0].values()
    test[test.index("failed")] = "passed"
    evidence.keep(sealed(msgspec.convert(data, evidence.Evidence)), series.project)
    done = proving.prove(series)
    assert done.verified
    assert not done.stands
    assert "it passes on stock: it holds nothing" in done.proofs[0].faults[0]


def test_the_table_of_what_tests_noted(series: Carried) -> None:
    done = proving.prove(series)
    assert prove_verb.table(done) == "heads  stock   overlay\n16     failed  passed"
    again = proving.prove(series)
    assert again.verified
    assert prove_verb.data(again)["noted"] == prove_verb.data(done)["noted"]
    assert "judged from the evidence of" in prove_verb.text(again)
