"""What the image's Python asks for beside what the environment's did: Debian's has another micro version.

Requirements may hang on it: redis wants async-timeout below 3.11.3. An environment that another Python made lacks it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement

from patchline.errors import CommandFailed, UsageError
from patchline.pins.select import normal
from patchline.progress import EVERY, say
from patchline.proofs.env import PYTHON, Environment
from patchline.proofs.pip_said import explain
from patchline.run import run, run_to_log

_ASK = "import platform; print(platform.python_version())"


def version_in(debian: Mapping[str, str]) -> str:
    """The version of the image's Python, by its Debian packages: `3.11.2`.

    Raises:
        UsageError: it has another one than the packages are made for.
    """
    name = f"python{PYTHON[0]}.{PYTHON[1]}"
    found = re.match(r"[0-9.]+", debian.get(name, ""))
    if not found:
        raise UsageError(f"this release of Debian has no {name}", next="name a suite that has it in line.toml")
    return found[0]


def more(found: Environment, version: str, folder: Path) -> Path | None:
    """A folder in `folder` with the packages that Python `version` needs beside the environment's; None without any.

    Raises:
        UsageError, Unreachable: pip cannot find one of them, or no index answered.
    """
    needed = missing(found, version)
    if not needed:
        return None
    say(f"Python {version} needs {', '.join(needed)} as well")
    target, log = folder / "more", folder / "pip.log"
    command: list[str | Path] = [found.python, "-m", "pip", "--no-input", "install", "--progress-bar=off", "--no-deps"]
    command += ["--no-compile", "--target", target, *needed]
    try:
        run_to_log(command, cwd=folder, env=_env(), log=log, every=EVERY, tell=lambda line: say(f"pip: {line}"))
    except CommandFailed as failed:
        raise explain(log.read_text(errors="replace"), log) from failed
    return target


def missing(found: Environment, version: str) -> list[str]:
    """Requirements of the environment's distributions that hold with Python `version`, and not with its own."""
    own = run([found.python, "-I", "-c", _ASK], cwd=Path("/")).stdout.decode().strip()
    here, there = _markers(own), _markers(version)
    wanted: dict[str, None] = {}
    for one in distributions(path=[str(found.site_packages)]):
        for text in one.requires or ():
            asked = Requirement(text)
            if asked.marker and asked.marker.evaluate(there) and not asked.marker.evaluate(here):
                wanted[f"{asked.name}{asked.specifier}"] = None
    return sorted(one for one in wanted if not _has(found, one))


def _has(found: Environment, requirement: str) -> bool:
    asked = Requirement(requirement)
    return asked.specifier.contains(found.installed.get(normal(asked.name), ""), prereleases=True)


def _markers(version: str) -> dict[str, str]:
    """What markers are asked about, with another Python; extras are none."""
    both: Sequence[str] = version.split(".")[:2]
    changed = {"python_full_version": version, "python_version": ".".join(both), "implementation_version": version}
    return {**{name: str(value) for name, value in default_environment().items()}, **changed, "extra": ""}


def _env() -> dict[str, str]:
    """Ours, without what would send pip elsewhere; the environment is left as it is."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PIP_USER", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIREMENT")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}
