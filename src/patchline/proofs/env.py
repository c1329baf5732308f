"""Python environments for proofs: real vLLM on a CPU, real Dynamo, made once for each set of requirements."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackagePath, distributions
from pathlib import Path

from patchline import files
from patchline.errors import CommandFailed, SourceMismatch, UsageError
from patchline.progress import EVERY, say
from patchline.project import cache_dir
from patchline.proofs import grafts
from patchline.proofs.grafts import CPU_BUILD, Graft
from patchline.proofs.pip_said import explain
from patchline.run import run, run_to_log

RECIPE = 1
"""Part of every key: raise it when `_make` makes something else of the same requirements."""

PYTHON = (3, 11)
_NIXL = {"0.33.0": "1.5.0"}
"""NIXL by the version of vLLM that asks for another one than `_USUAL_NIXL`."""
_USUAL_NIXL = "1.4.1"
_FOR_TESTS = ("pytest", "hypothesis", "pytest-asyncio", "ray", "tblib")

# They come along, do not match vLLM's torch, and break `import vllm` by being there.
_UNWANTED = ("torchvision", "torchaudio", "torchcodec")

# What Dynamo's frontend and vLLM worker import of what `ai-dynamo` 1.6.0 asks for. The rest is left out: one of
# those, aisimulate, is a placeholder that downloads from elsewhere.
_FOR_DYNAMO = ("redis<9", "kubernetes<33", "zstandard<1", "blake3", "uvloop", "torchvision==0.28.0")

# What Dynamo's frontend imports of that where it serves no model itself, and what tests need. vLLM is not among it.
_FOR_FRONTEND = ("msgspec", "pydantic", "pyyaml", "uvloop", "pytest")

# Installed at the end, without what they ask for.
_ALONE = ("ai-dynamo", "ai-dynamo-runtime", "torchvision")

# Each would send what pip installs elsewhere, or the proofs' imports to another tree.
_DROPPED = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT")


@dataclass(frozen=True)
class Environment:
    """A complete environment."""

    python: Path
    site_packages: Path
    installed: dict[str, str] = field(default_factory=dict)
    """Version by the name of every distribution in it."""


def for_vllm(version: str, build: str = "") -> tuple[str, ...]:
    """What to ask of `environment` for vLLM `version`, NIXL, and what tests need: ours, and vLLM's.

    The CPU build is that of the version `build`, where it has none of its own (`grafts`).
    """
    return (f"{CPU_BUILD}=={build or version}", _nixl(version), *_FOR_TESTS)


def for_dynamo(version: str, vllm: str) -> tuple[str, ...]:
    """What to ask of `environment` for Dynamo `version` with its vLLM worker on vLLM `vllm`; it serves engines, too."""
    return (f"{CPU_BUILD}=={vllm}", _nixl(vllm), *_FOR_DYNAMO, *_dynamo(version))


def for_frontend(version: str) -> tuple[str, ...]:
    """What to ask of `environment` for the frontend of Dynamo `version`, and tests of it: no vLLM, made in seconds."""
    return (*_FOR_FRONTEND, *_dynamo(version))


def _nixl(vllm: str) -> str:
    return f"nixl=={_NIXL.get(vllm, _USUAL_NIXL)}"


def _dynamo(version: str) -> tuple[str, str]:
    return f"ai-dynamo=={version}", f"ai-dynamo-runtime=={version}"


def environment(*requirements: str, graft: Graft | None = None) -> Environment:
    """The environment that holds `requirements`, made with pip if it is not in the cache (minutes).

    With `graft` vLLM's Python tree is another version's.

    Raises:
        UsageError: there is no Python 3.11, or pip cannot find one of the requirements.
        Unreachable: no package index answered.
        Refused: another run makes the same environment.
    """
    parts = [*requirements, *([str(graft)] if graft else [])]
    home = cache_dir().absolute() / "environments" / _key(parts)
    if found := _complete(home):
        return found
    with files.locked(home.with_name(f"{home.name}.lock"), f"the environment {home}"):
        if found := _complete(home):
            return found
        home.mkdir(exist_ok=True)
        for left in home.glob("venv-*"):
            shutil.rmtree(left, ignore_errors=True)
        # Never renamed: a venv's scripts hold its path. The record, written last, makes it count.
        # A new name each time, since pip of a killed run may still write into the old one.
        venv = Path(tempfile.mkdtemp(prefix="venv-", dir=home))
        say(f"making the environment {venv} for {', '.join(parts)}: this takes minutes")
        installed = _make(venv, requirements, graft, venv / "pip.log")
        record = {"venv": venv.name, "requirements": parts, "installed": installed}
        files.write_whole(home / "complete.json", json.dumps(record, indent=1).encode())
    return _at(venv, installed)


def _key(requirements: Sequence[str]) -> str:
    parts = [RECIPE, *PYTHON, sys.platform, platform.machine(), *platform.libc_ver(), *requirements]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _complete(home: Path) -> Environment | None:
    try:
        record = json.loads((home / "complete.json").read_bytes())
    except FileNotFoundError:
        return None
    found = _at(home / record["venv"], record["installed"])
    # The cache may be deleted in part, and the Python that a venv links to can go away.
    if not found.python.exists() or not found.site_packages.is_dir():
        return None
    _check_whole(found)
    return found


def _check_whole(found: Environment) -> None:
    """Refuses an environment from which something was taken, or in which pip was used since.

    Raises:
        SourceMismatch: with what is missing, or is another version.
    """
    found_here = distributions(path=[str(found.site_packages)])
    here = {one.name.lower().replace("_", "-"): one for one in found_here if one.name}
    wrong = [
        f"  {name}: {version} was installed, {here[name].version if name in here else 'none'} is there"
        for name, version in found.installed.items()
        if name not in here or here[name].version != version
    ]
    wrong += [f"  {name} came later" for name in here.keys() - found.installed.keys()]
    wrong += [
        f"  {name}: {len(gone)} of its files are gone, {gone[0]} among them"
        for name, one in here.items()
        if (gone := [str(file) for file in one.files or () if not _there(found.site_packages, file)])
    ]
    if wrong:
        raise SourceMismatch(
            "the environment is not whole:\n" + "\n".join(sorted(wrong)),
            where=str(found.site_packages),
            next=f"rm -r {found.python.parents[2]}; it is made again",
        )


def _there(site_packages: Path, file: PackagePath) -> bool:
    """Byte-code and scripts may be gone: nothing imports them."""
    return file.suffix == ".pyc" or file.parts[0] == ".." or os.path.lexists(os.path.join(site_packages, file))


def _at(venv: Path, installed: dict[str, str] | None = None) -> Environment:
    name = f"python{PYTHON[0]}.{PYTHON[1]}"
    return Environment(venv / "bin" / "python", venv / "lib" / name / "site-packages", installed or {})


def _make(venv: Path, requirements: Sequence[str], graft: Graft | None, log: Path) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    made = _at(venv)
    run([_python(), "-m", "venv", venv], cwd=venv.parent, env=env)
    pip: list[str | Path] = [made.python, "-m", "pip", "--no-input"]
    alone = [one for one in requirements if _name(one) in _ALONE]
    _install(pip, [one for one in requirements if one not in alone], env, log)
    version = graft.version if graft else _cpu_version(requirements)
    if version:
        run([*pip, "uninstall", "--yes", *_UNWANTED], cwd=venv, env=env)
        _name_vllm(made.site_packages, version)
    if graft:
        grafts.lay(graft, made.site_packages)
    if alone:
        _install(pip, ["--no-deps", *alone], env, log)
    if "torchvision" in map(_name, alone):
        _stub_torchvision(made.site_packages)
    return _verified(made, requirements, version, env)


def _install(pip: Sequence[str | Path], what: Sequence[str], env: dict[str, str], log: Path) -> None:
    command = [*pip, "install", "--progress-bar=off", *what]
    try:
        run_to_log(command, cwd=log.parent, env=env, log=log, every=EVERY, tell=lambda line: say(f"pip: {line}"))
    except CommandFailed as failed:
        raise explain(log.read_text(errors="replace"), log) from failed


def _name(requirement: str) -> str:
    return re.split(r"[<>=!~]", requirement, maxsplit=1)[0]


def _python() -> str:
    """A Python of the version that vLLM's CPU build and its torch are made for."""
    if sys.version_info[:2] == PYTHON:
        return sys.executable
    name = f"python{PYTHON[0]}.{PYTHON[1]}"
    if found := shutil.which(name):
        return found
    raise UsageError(
        f"proofs run on {name}; this is {platform.python_version()}, and {name} is not on PATH",
        next=f"install {name}, or put it on PATH",
    )


def _cpu_version(requirements: Sequence[str]) -> str | None:
    found = (text.partition("==") for text in requirements)
    return next((version for name, _, version in found if name == CPU_BUILD), None)


def _name_vllm(site_packages: Path, version: str) -> None:
    """Says that `vllm` is installed; `vllm serve` and Dynamo ask for that name.

    Without `+cpu` vLLM takes another platform, and dies on a processor without AVX-512.
    """
    folder = site_packages / f"vllm-{version}+cpu.dist-info"
    folder.mkdir()
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n"
    (folder / "METADATA").write_text(metadata)
    (folder / "INSTALLER").write_text("patchline\n")
    names = ("METADATA", "INSTALLER", "RECORD")
    (folder / "RECORD").write_text("".join(f"{folder.name}/{name},,\n" for name in names))


def _stub_torchvision(site_packages: Path) -> None:
    """Keeps torchvision from registering operators that torch's CPU build lacks: importing it would fail."""
    name = "torchvision._meta_registrations"
    (site_packages / "patchline-torchvision.pth").write_text(
        f'import sys, types; sys.modules.setdefault("{name}", types.ModuleType("{name}"))\n'
    )


_ASK = """\
import importlib.metadata, json, sys
print(json.dumps({d.name.lower().replace("_", "-"): d.version for d in importlib.metadata.distributions()}))
"""


def _verified(made: Environment, requirements: Sequence[str], vllm: str | None, env: dict[str, str]) -> dict[str, str]:
    answer = run([made.python, "-I", "-c", _ASK], cwd=made.python.parent, env=env).stdout
    installed: dict[str, str] = json.loads(answer)
    wanted = {_name(text): text.partition("==")[2] for text in requirements}
    if vllm:
        wanted["vllm"] = f"{vllm}+cpu"
    wrong = [
        f"{name}: {version or 'any version'} wanted, {installed.get(name, 'none')} found"
        for name, version in wanted.items()
        if name not in installed or version not in ("", installed[name])
    ]
    wrong += [
        f"{name} is still there"
        for name in _UNWANTED
        if CPU_BUILD in wanted and name in installed.keys() - wanted.keys()
    ]
    if wrong:
        raise UsageError(f"pip made another environment than was asked for: {'; '.join(wrong)}", next="run again")
    return installed
