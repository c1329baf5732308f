"""Runs a verb as a user does: a process of its own, its exit code, both streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Ended(NamedTuple):
    """How a process ended."""

    exit: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """What `--json` printed."""
        return json.loads(self.out)


def patchline(*words: object, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Ended:
    """Runs `python -m patchline …`."""
    command = [sys.executable, "-m", "patchline", *map(str, words)]
    done = subprocess.run(command, cwd=cwd, env=os.environ | (env or {}), capture_output=True)
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
