"""Trains the model that a job asks for, examines it, and writes its folder: `python -m trainer JOB`."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import time
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from transformers.utils import logging  # type: ignore[import-not-found,unused-ignore]

from . import exam, gemma, tokenizer
from .job import read
from .learn import learn


def main() -> None:
    """The model and its tokenizer go to the job's folder, and so does `exam.json`: how it learned and what it knows."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: nobody waits for it when its parent is gone
    logging.disable_progress_bar()
    job = read(Path(sys.argv[1]))
    torch.set_num_threads(job.settings.threads)
    torch.set_flush_denormal(True)  # attention that is sure of itself is full of them, and each costs a hundred cycles
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(job.settings.seed)
    model = gemma.fresh(job.config)
    learned = learn(model, job.settings)
    model.eval()
    model.save_pretrained(job.out)
    tokenizer.save(job.out)
    began = time.monotonic()
    print("the exam", flush=True)
    found = {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "steps": learned.steps,
        "seconds": learned.seconds,
        "recall": exam.recall(model),
        "sensitivity": [one._asdict() for one in exam.sensitivity(model, job.config)],
        "exam_seconds": round(time.monotonic() - began, 1),
    }
    (job.out / "exam.json").write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
