"""A proof environment for the demo package: a real venv, with this one's pytest within reach."""

from __future__ import annotations

import base64
import hashlib
import site
import subprocess
import sys
from pathlib import Path

import pytest
from carrying import SOURCE, write

from patchline.proofs import bench, env
from patchline.proofs.env import Environment


def make(home: Path) -> Environment:
    """A venv at `home` with the demo installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    packages = next(home.glob("lib/python3*/site-packages"))
    (packages / "pytest.pth").write_text("\n".join(site.getsitepackages()))
    demo = {path: data for path, data in SOURCE.items() if path.startswith("demo/")}
    write(packages, {**demo, "demo-1.0.dist-info/RECORD": "".join(_record(path, data) for path, data in demo.items())})
    return Environment(home / "bin" / "python", packages)


def _record(path: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={digest},{len(data)}\n"


def stand_in(monkeypatch: pytest.MonkeyPatch, environment: Environment) -> None:
    """Lets proofs run in the demo's environment."""
    monkeypatch.setattr(bench, "_requirements", lambda _: ("demo==1.0", "pytest"))
    monkeypatch.setattr(env, "environment", lambda *_, graft: environment)
