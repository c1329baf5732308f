"""The tiny models: what keeps one, what refuses one, and what is said of it.

Training for real takes minutes and torch; the gates do it. Here a stand-in trainer, with the standard library alone,
writes the exam that a test wants.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from patchline.errors import CommandFailed, PatchlineError, ProofFailed, Refused, SourceMismatch, UsageError
from patchline.files import locked
from patchline.gates.checks.listing import bare, prompts
from patchline.gates.models import examined, tiny
from patchline.gates.models.trainer import asked, words
from patchline.gates.models.trainer.faults import NONE
from patchline.gates.stack.engines import Engine, model_name
from patchline.proofs.env import Environment

SMALL = tiny.shape("tiny-8-2")

VERSIONS = {"torch": "2.13.0+cpu", "transformers": "5.17.0", "tokenizers": "0.23.3", "safetensors": "0.8.0"}

STAND_IN = """\
import json, os, pathlib, sys, time
job = json.loads(pathlib.Path(sys.argv[1]).read_text())
here, out = pathlib.Path(__file__).parent, pathlib.Path(job["out"])
with (here / "runs").open("a") as runs:
    runs.write("one\\n")
print("step 0", flush=True)
(out / "config.json").write_text(json.dumps(job["config"]))
(out / "model.safetensors").write_bytes(bytes(int((here / "bytes").read_text())))
if (here / "waits").exists():
    (here / "pid").write_text(str(os.getpid()))
    time.sleep(60)
if (here / "dies").exists():
    sys.exit("out of memory")
(out / "exam.json").write_text((here / "exam").read_text())
"""

Exam = dict[str, Any]


def good_exam(of: tiny.Shape = SMALL) -> Exam:
    """What a model that has learned its task, and sees every fault, is examined with."""
    recall = {form: {str(items): 1.0 for items in asked.LENGTHS} for form in asked.FORMS}
    rows = []
    for form in asked.FORMS:
        rows.append({"name": NONE.name, "form": form, "right": [9] * 5, "moved": 1e-5})
        for fault in asked.all_of(of.config):
            right = [3, 8, 0, 5, 8] if form in fault.seen else [9] * 5
            rows.append({"name": fault.name, "form": form, "right": right, "moved": 4.0})
    return {"recall": recall, "sensitivity": rows, "parameters": 1}


def row(exam: Exam, name: str, form: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in exam["sensitivity"] if (one["name"], one["form"]) == (name, form))
    return found


class Trainer:
    """The stand-in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        (folder / "__main__.py").write_text(STAND_IN)
        (folder / "bytes").write_text("1000")
        self.examine(good_exam())

    def examine(self, exam: Exam) -> None:
        (self.folder / "exam").write_text(json.dumps(exam))

    @property
    def runs(self) -> int:
        runs = self.folder / "runs"
        return len(runs.read_text().split()) if runs.exists() else 0


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Trainer:
    made = Trainer(tmp_path / "trainer")
    monkeypatch.setattr(tiny, "TRAINER", made.folder)
    return made


@pytest.fixture
def proof(tmp_path: Path) -> Environment:
    return Environment(Path(sys.executable), tmp_path, dict(VERSIONS))


def kept(cache: Path) -> list[str]:
    """What is left of models, beside locks and logs."""
    return [path.name for path in cache.glob("models/*/*") if path.is_dir()]


def test_a_model_is_trained_once_and_found_again(
    trainer: Trainer, proof: Environment, own_world: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tiny.model(SMALL, proof)

    assert home.name == "tiny-8-2"
    assert home.parent == own_world / "models" / tiny.digest(SMALL, proof)
    assert json.loads((home / "config.json").read_text())["num_global_key_value_heads"] == 2
    assert "training the model tiny-8-2: this takes minutes" in capfd.readouterr().err
    assert "step 0" in (home.parent / "tiny-8-2.log").read_text()
    assert tiny.model(SMALL, proof) == home
    assert trainer.runs == 1
    assert kept(own_world) == ["tiny-8-2"]


def test_requests_call_it_by_its_name(trainer: Trainer, proof: Environment) -> None:
    assert model_name(Engine(str(tiny.model(SMALL, proof)), 1)) == "tiny-8-2"


def test_its_words_are_those_of_the_list_form() -> None:
    form = bare(tiny.WORDS, tiny.WORDS)
    for prompt in prompts(form, tiny.ITEMS, seed=7):
        assert set(prompt.text.split()) | {prompt.code} <= words.TOKENS.keys()
        assert len(prompt.text.split()) == 2 * tiny.ITEMS + 1


def test_the_blocks_of_the_faults_hold_what_is_asked_for() -> None:
    for form in asked.FORMS:
        first = 2 if form == asked.CHAT else 1
        at = [round(number * (asked.ITEMS - 1) / (asked.PROMPTS - 1)) for number in range(asked.PROMPTS)]
        blocks = {(first + 2 * item + 1) // 32 for item in at}
        assert {asked.HELD, asked.ALSO} <= blocks


@pytest.mark.parametrize("name", ["tiny", "tiny-8-4", "../tiny-8-2", ""])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(UsageError) as refused:
        tiny.shape(name)
    assert str(refused.value) == f"there is no tiny model {name!r}\n  next:  name one of: tiny-8-2, tiny-16-4"


def test_the_shapes_are_those_of_the_cpu_fleet() -> None:
    heads = {
        one.name: (one.config["num_key_value_heads"], one.config["num_global_key_value_heads"]) for one in tiny.SHAPES
    }
    assert heads == {"tiny-8-2": (8, 2), "tiny-16-4": (16, 4)}


def test_every_rank_head_and_layer_has_a_fault_that_must_be_seen() -> None:
    for one, ranks, heads in ((tiny.shape("tiny-8-2"), 4, 2), (tiny.shape("tiny-16-4"), 8, 4)):
        seen = {fault.name: fault.seen for fault in asked.all_of(one.config)}
        assert len(seen) == len(list(asked.all_of(one.config)))
        for rank in range(ranks):
            assert seen[f"full: rank {rank} reads the next KV head's slice"] == ("raw", "chat")
            assert seen[f"sliding: rank {rank} reads the next rank's slice"] == ("chat",)
        for head in range(heads):
            assert seen[f"full: KV head {head} is read from the next one's slice"] == ("raw", "chat")
        assert {f"layer {layer}: zeroed" for layer in range(5)} | {"full: zeroed"} <= seen.keys()
        assert [name for name, forms in seen.items() if not forms] == ["full: blocks 3 and 5 swapped"]


def changed_settings(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> None:
    monkeypatch.setitem(tiny.SETTINGS, "seed", 1)


def changed_source(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> None:
    (trainer.folder / "__main__.py").write_text(STAND_IN + "\n")


def more_source(monkeypatch: pytest.MonkeyPatch, trainer: Trainer) -> None:
    (trainer.folder / "more.py").write_text("")


@pytest.mark.parametrize("change", [changed_settings, changed_source, more_source])
def test_what_a_model_depends_on_is_in_its_digest(
    change: Callable[[pytest.MonkeyPatch, Trainer], None],
    trainer: Trainer,
    proof: Environment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = tiny.digest(SMALL, proof)
    change(monkeypatch, trainer)
    assert tiny.digest(SMALL, proof) != before


def test_shape_and_versions_are_in_it_and_the_environment_s_place_is_not(trainer: Trainer, proof: Environment) -> None:
    other = Environment(proof.python, proof.site_packages, VERSIONS | {"torch": "2.14.0"})
    moved = Environment(Path("/elsewhere/python"), Path("/elsewhere"), VERSIONS | {"ai-dynamo": "1.6.0"})
    digests = [
        tiny.digest(SMALL, proof),
        tiny.digest(SMALL, other),
        tiny.digest(tiny.shape("tiny-16-4"), proof),
        tiny.digest(SMALL._replace(heads=4), proof),
    ]
    assert len(set(digests)) == 4
    assert tiny.digest(SMALL, moved) == digests[0]


def test_an_environment_without_torch(trainer: Trainer, proof: Environment) -> None:
    bare_one = Environment(proof.python, proof.site_packages, {"pip": "25"})
    with pytest.raises(
        UsageError, match="no model can be trained without torch, transformers, tokenizers, safetensors"
    ):
        tiny.model(SMALL, bare_one)


def wrong_length(exam: Exam) -> str:
    exam["recall"]["chat"]["64"] = 0.9985
    return "chat: 99.85% of lists of 64 items, 99.9% are wanted"


def not_a_number(exam: Exam) -> str:
    exam["recall"]["raw"]["3"] = float("nan")
    return "its exam cannot be read"


def no_length(exam: Exam) -> str:
    del exam["recall"]["raw"]["256"]
    return "raw: lists of 256 items were not asked"


def no_form(exam: Exam) -> str:
    del exam["recall"]["chat"]
    return "chat: lists of 3 items were not asked"


def blind(exam: Exam) -> str:
    name = "full: KV head 1 is read from the next one's slice"
    row(exam, name, "raw")["right"] = [9, 9, 8, 7, 8]
    return f"raw: 2 of 5 checks see nothing of this fault: {name}"


def no_fault(exam: Exam) -> str:
    exam["sensitivity"].remove(row(exam, "layer 3: zeroed", "chat"))
    return "chat: it was not asked with this fault: layer 3: zeroed"


def fewer_checks(exam: Exam) -> str:
    row(exam, "layer 3: zeroed", "chat")["right"] = []
    return "chat: it was not asked with this fault: layer 3: zeroed"


def no_control(exam: Exam) -> str:
    exam["sensitivity"].remove(row(exam, NONE.name, "raw"))
    return "raw: it was not asked without a fault"


def wrong_control(exam: Exam) -> str:
    row(exam, NONE.name, "chat")["right"] = [9, 9, 8, 9, 9]
    return "chat: without a fault [9, 9, 8, 9, 9] of 9 are right"


def moved_control(exam: Exam) -> str:
    row(exam, NONE.name, "chat")["moved"] = 0.5
    return "and 5.0e-01 is moved"


BAD = [wrong_length, not_a_number, no_length, no_form, blind, no_fault, fewer_checks, no_control, wrong_control]


@pytest.mark.parametrize("spoil", [*BAD, moved_control])
def test_a_model_that_is_not_fit_is_not_kept(
    spoil: Callable[[Exam], str], trainer: Trainer, proof: Environment, own_world: Path
) -> None:
    exam = good_exam()
    why = spoil(exam)
    trainer.examine(exam)

    with pytest.raises(ProofFailed) as refused:
        tiny.model(SMALL, proof)

    assert "the model tiny-8-2 is not fit for the checks:\n  - " in str(refused.value)
    assert why in str(refused.value)
    assert "tiny-8-2.log" in refused.value.where
    assert kept(own_world) == []
    trainer.examine(good_exam())
    assert tiny.model(SMALL, proof).is_dir()


def test_one_blind_check_of_five_is_chance() -> None:
    exam = good_exam()
    row(exam, "layer 3: zeroed", "chat")["right"] = [9, 6, 5, 8, 7]
    assert examined.faults(msgspec_exam(exam), SMALL) == []


def test_a_fault_that_a_form_need_not_see() -> None:
    assert {"right": [9] * 5}.items() <= row(good_exam(), "layer 3: zeroed", "raw").items()
    assert examined.faults(msgspec_exam(good_exam()), SMALL) == []


def msgspec_exam(exam: Exam) -> examined.Exam:
    import msgspec

    return msgspec.json.decode(json.dumps(exam), type=examined.Exam)


def test_an_exam_of_the_small_model_does_not_do_for_the_large_one(trainer: Trainer, proof: Environment) -> None:
    with pytest.raises(ProofFailed, match="not asked with this fault: full: KV head 2 is read"):
        tiny.model(tiny.shape("tiny-16-4"), proof)


def test_a_model_that_is_too_large(trainer: Trainer, proof: Environment, own_world: Path) -> None:
    (trainer.folder / "bytes").write_text("10000000")
    with pytest.raises(ProofFailed, match=r"its files have 100\d+ bytes, at most 10000000 are wanted"):
        tiny.model(SMALL, proof)
    assert kept(own_world) == []


def test_a_training_that_dies_leaves_its_log_and_nothing_else(
    trainer: Trainer, proof: Environment, own_world: Path
) -> None:
    (trainer.folder / "dies").write_text("")
    with pytest.raises(CommandFailed, match="ended with status 1: out of memory") as failed:
        tiny.model(SMALL, proof)
    assert failed.value.next.endswith("tiny-8-2.log")
    assert kept(own_world) == []


def test_what_a_killed_run_left_is_cleared(trainer: Trainer, proof: Environment, own_world: Path) -> None:
    left = own_world / "models" / tiny.digest(SMALL, proof) / ".part-tiny-8-2-abcd1234"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    tiny.model(SMALL, proof)
    assert kept(own_world) == ["tiny-8-2"]


KILLED = """\
import pathlib, sys
from patchline.gates.models import tiny
from patchline.proofs.env import Environment
tiny.TRAINER = pathlib.Path(sys.argv[1])
python = pathlib.Path(sys.executable)
versions = dict.fromkeys(("torch", "transformers", "tokenizers", "safetensors"), "1")
tiny.model(tiny.shape("tiny-8-2"), Environment(python, python.parent, versions))
"""


def test_a_killed_run_leaves_no_trainer_behind(trainer: Trainer) -> None:
    (trainer.folder / "waits").write_text("")
    noted = trainer.folder / "pid"
    with subprocess.Popen([sys.executable, "-c", KILLED, str(trainer.folder)], stderr=subprocess.PIPE) as run:
        until(lambda: noted.exists() and noted.read_text() != "")
        run.kill()
    until(lambda: not alive(int(noted.read_text())))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(true: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def test_two_runs_do_not_train_the_same_model(trainer: Trainer, proof: Environment, own_world: Path) -> None:
    lock = own_world / "models" / tiny.digest(SMALL, proof) / "tiny-8-2.lock"
    with locked(lock, "it"), pytest.raises(Refused, match="another run of patchline works on the model tiny-8-2"):
        tiny.model(SMALL, proof)
    assert trainer.runs == 0


def damaged_weights(home: Path) -> str:
    (home / "model.safetensors").write_bytes(bytes(999) + b"\1")
    return "  - model.safetensors\n"


def gone_weights(home: Path) -> str:
    (home / "model.safetensors").unlink()
    return "  - model.safetensors\n"


def more_weights(home: Path) -> str:
    (home / "model-2.safetensors").write_bytes(b"")
    return "  - model-2.safetensors\n"


def gone_manifest(home: Path) -> str:
    (home / "files.json").unlink()
    return "No such file or directory"


def cut_manifest(home: Path) -> str:
    (home / "files.json").write_text('{"config.json": ')
    return "Input data was truncated"


def a_folder(home: Path) -> str:
    (home / "more").mkdir()
    return "Is a directory"


def better_exam(home: Path) -> str:
    (home / "exam.json").write_text(json.dumps(good_exam() | {"parameters": 2}))
    return "  - exam.json\n"


@pytest.mark.parametrize(
    "damage",
    [damaged_weights, gone_weights, more_weights, gone_manifest, cut_manifest, a_folder, better_exam],
)
def test_a_model_that_was_changed_in_the_cache_is_refused(
    damage: Callable[[Path], str], trainer: Trainer, proof: Environment
) -> None:
    home = tiny.model(SMALL, proof)
    why = damage(home)

    with pytest.raises(SourceMismatch) as refused:
        tiny.model(SMALL, proof)

    assert str(refused.value).startswith("a trained model is not what was kept:\n  - ")
    assert why in str(refused.value)
    assert refused.value.next == f"rm -r {home}; it is trained again"
    assert trainer.runs == 1


def test_a_kept_model_is_held_against_the_rules_of_today(
    trainer: Trainer, proof: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.model(SMALL, proof)
    monkeypatch.setattr(examined, "RIGHT", 1.1)
    with pytest.raises(ProofFailed, match=r"100\.00% of lists of 3 items, 110\.0% are wanted"):
        tiny.model(SMALL, proof)


def test_every_error_is_of_the_family_and_says_what_next(trainer: Trainer, proof: Environment) -> None:
    trainer.examine({"recall": {}, "sensitivity": []})
    with pytest.raises(PatchlineError) as refused:
        tiny.model(SMALL, proof)
    assert refused.value.exit == 6
    assert refused.value.next == "mend the trainer, or its settings; the model is then trained again"


def test_patchline_itself_needs_no_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import patchline.gates.models.tiny as tiny; print(tiny.SHAPES)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
