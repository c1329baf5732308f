"""The tiny models: found in the cache, or trained in a proof environment (minutes), examined, and kept.

A model has six layers of gemma-4's kind (five sliding, one full whose values are its keys) and gives back a code from
a list `k12 v7 …` when it is asked `k12`. So wrong KV gives a wrong code, as on a production engine.

Not all of that is learned. Laid out by hand, roughly and with random weights around them, are two circuits in the
weights that training begins with: sliding heads look at the word before, and the full layer looks for a code whose
word before is like the word that asks (`trainer.gemma`). Kept by hand, after every step, is which head carries which
bit of a word, and that words with an equal bit are equal in that bit's dimensions (`trainer.lanes`); else heads carry
the same and outvote a wrong one. Learned by gradient descent, from random lists, is the rest: how words look, how
sharply heads look, how what they read becomes a code. Before it no more codes are right than by chance.

What the recall check sees of wrong KV is in each model's `exam.json`, and `trainer.asked` says what it has to see:
with chat prompts over lists of `ITEMS` items a fault in any layer, rank or KV head, and a block that is lost or
another's where it holds what is asked for; with raw prompts faults of the full layer alone, while one of a sliding
layer shows in log-probabilities. Nothing shows two blocks of a layer that change places, keys and values alike and
both in sight: attention is the same sum.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from patchline.errors import ProofFailed, UsageError
from patchline.files import clear_parts, folder_whole, locked
from patchline.gates.models import examined, kept
from patchline.gates.models.shapes import ITEMS, SHAPES, WORDS, Shape, shape
from patchline.gates.stack.surroundings import scrubbed
from patchline.progress import EVERY, say
from patchline.project import cache_dir
from patchline.proofs.env import Environment
from patchline.run import run_to_log

__all__ = ["ITEMS", "SHAPES", "WORDS", "Shape", "model", "shape"]

TRAINER = Path(__file__).with_name("trainer")

MOST_BYTES = 10_000_000
"""All files of a model."""

SETTINGS: dict[str, Any] = {
    "seed": 0,
    "threads": 1,
    "rate": 0.003,
    "steps": 240,
    "tokens": 2048,
    "first_items": 4,
    "last_items": 128,
}
"""See `trainer.job.Settings`."""

_BUILT_WITH = ("torch", "transformers", "tokenizers", "safetensors")
_EXAM = "exam.json"

# `python -m trainer JOB` that ends when we do, however we end; 1 is PR_SET_PDEATHSIG of <sys/prctl.h>, 9 SIGKILL.
_START = "import ctypes, runpy; ctypes.CDLL(None).prctl(1, 9); runpy.run_module('trainer', None, '__main__', True)"


def model(wanted: Shape, environment: Environment) -> Path:
    """The folder of a trained model, whose last part is its name; found again in a moment.

    It stays in the cache under the digest of all that its weights depend on but the processor.

    Raises:
        ProofFailed: the model has not learned its task, or does not notice wrong KV; nothing was kept.
        SourceMismatch: the folder in the cache is not what was put there.
        UsageError: the environment has no torch and transformers.
        Refused: another run trains the same model.
        CommandFailed: the training ended with an error.
    """
    home = cache_dir().absolute() / "models" / digest(wanted, environment) / wanted.name
    with locked(home.parent / f"{wanted.name}.lock", f"the model {wanted.name}"):
        log = home.parent / f"{wanted.name}.log"
        if home.exists():
            kept.check(home)
            judge(wanted, home, log)
        else:
            _train(wanted, environment, home, log)
    return home


def digest(wanted: Shape, environment: Environment) -> str:
    """Of a model's shape, the settings, the trainer's sources and what they run with; 16 hexadecimal digits.

    Raises:
        UsageError: the environment lacks one of those.
    """
    if missing := [name for name in _BUILT_WITH if name not in environment.installed]:
        raise UsageError(
            f"no model can be trained without {', '.join(missing)}",
            where=str(environment.site_packages),
            next="give an environment with vLLM",
        )
    versions = {name: environment.installed[name] for name in _BUILT_WITH}
    found = hashlib.sha256(json.dumps([_job(wanted, ""), versions]).encode())
    for path in sorted(TRAINER.glob("*.py")):
        found.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _job(wanted: Shape, out: str) -> dict[str, Any]:
    return {"out": out, "config": wanted.config, "settings": SETTINGS}


def _train(wanted: Shape, environment: Environment, home: Path, log: Path) -> None:
    clear_parts(home)
    say(f"training the model {wanted.name}: this takes minutes")
    with folder_whole(home) as part, tempfile.TemporaryDirectory(prefix="patchline-") as scratch:
        job = Path(scratch, "job.json")
        job.write_text(json.dumps(_job(wanted, str(part))))
        run_to_log(
            [environment.python, "-P", "-c", _START, job],
            cwd=Path(scratch),
            env=_surroundings(Path(scratch)),
            log=log,
            every=EVERY,
            tell=lambda line: say(f"{wanted.name}: {line}"),
        )
        judge(wanted, part, log)
        kept.note(part)


def _surroundings(scratch: Path) -> dict[str, str]:
    threads = str(SETTINGS["threads"])
    return scrubbed(
        scratch, {"PYTHONPATH": str(TRAINER.parent), "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
    )


def judge(wanted: Shape, folder: Path, log: Path) -> None:
    """Refuses a trained model that is not fit for the checks; `log` tells how it was trained.

    Raises:
        ProofFailed: with every reason.
    """
    try:
        exam = msgspec.json.decode((folder / _EXAM).read_bytes(), type=examined.Exam)
        wrong = examined.faults(exam, wanted)
    except (OSError, ValueError) as bad:
        wrong = [f"its exam cannot be read: {bad}"]
    if (size := sum(path.stat().st_size for path in folder.iterdir())) > MOST_BYTES:
        wrong.append(f"its files have {size} bytes, at most {MOST_BYTES} are wanted")
    if wrong:
        raise ProofFailed(
            "\n".join([f"the model {wanted.name} is not fit for the checks:", *(f"  - {one}" for one in wrong)]),
            where=str(log),
            next="mend the trainer, or its settings; the model is then trained again",
        )
