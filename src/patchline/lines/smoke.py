"""The smoke test of a line's image: its own containers serve a pair, and the gate's checks ask it.

What it finds is evidence of kind `smoke`, of the line, bound to the image's digest.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from patchline.errors import ProofFailed, Unreachable, UsageError
from patchline.gates import fleets
from patchline.gates.checks.endpoint import Endpoint, connect
from patchline.gates.checks.gemma4 import build
from patchline.gates.checks.length import items_for
from patchline.gates.checks.listing import bare, prose
from patchline.gates.checks.logs import logs as read_logs
from patchline.gates.checks.recall import recall
from patchline.gates.checks.result import Result, silent
from patchline.gates.models import tiny
from patchline.gates.outcomes import BUILD
from patchline.gates.plays import Play
from patchline.gates.runners.runner import ANSWER
from patchline.http import is_loopback
from patchline.lines.build import Built, building, requirements
from patchline.lines.docker.daemon import daemon
from patchline.lines.docker.images import keep_only, load, load_base
from patchline.lines.smoke_stack import Up, serving
from patchline.progress import say
from patchline.project import Project
from patchline.proofs import env, evidence

KIND = "smoke"
"""Of the evidence."""

FLEET = "cpu"
"""Whose flags, model and layout through Dynamo are taken."""

SEED = 40
"""Of the lists; recall and lengths take numbers of their own, and no gate's play was asked them."""

CHECKS = ("recall, chat", BUILD, "logs")
"""What has to pass."""

_LINES = Path(__file__).parent
_CODE = ("smoke.py", "smoke_stack.py", "docker/containers.py", "docker/images.py")


class Record(NamedTuple):
    """What a smoke test found: the result of its evidence."""

    began: str
    """As ISO 8601 in UTC, like `ended`."""
    ended: str
    docker: str
    """The daemon's version."""
    play: str
    ready: float
    """Seconds until all containers were ready."""
    checks: list[dict[str, Any]]
    """Each check with its numbers, as `check --json` gives it."""
    logs: dict[str, str]
    """Digest of each container's log, by its name."""


class Done(NamedTuple):
    """A smoke test's record and verdict."""

    line: str
    image: str
    """Digest of the manifest."""
    record: Record
    faults: list[str]
    verified: str
    """When the evidence was made that was judged; empty where the test ran now."""

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.faults


def smoke(project: Project, name: str, *, fresh: bool = False, record: bool = False, ready: float = 0.0) -> Done:
    """Serves with the image of the line `name` and asks it, or judges the evidence of the same image again.

    What is passed is kept in the cache, and with `record` in the project. With `ready` the containers have so many
    seconds to become ready, instead of the fleet's.

    Raises:
        UsageError: the line is not one that is tried so.
        Unreachable: there is no docker daemon; a container ended, or was not ready in time.
        As `build.building`.
    """
    with building(project, name) as built:
        if not built.line.smoke or built.line.base.made is None:
            raise UsageError(
                f"the line {name} has no smoke test: its image needs other machines", where=str(built.line.folder)
            )
        play, model = _play(project, built, ready)
        covers = coverage(built, play, model)
        found = None if fresh else evidence.find(project, KIND, name, covers)
        done = _judged(built, msgspec.convert(found.result, Record), found.made) if found else None
        if not done:
            logs = project.root / "build" / KIND / name / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            done = _judged(built, _run(built, play, model, logs), "")
            say(f"the logs are in {logs.relative_to(project.root)}")
        if done.passed and (not found or record):
            made = found or evidence.new(KIND, name, covers, msgspec.to_builtins(done.record), {})
            evidence.keep(made, project if record else None)
        return done


def _play(project: Project, built: Built, ready: float) -> tuple[Play, Path]:
    """The layout that goes through Dynamo, and the folder of its model, which is trained where it is not there."""
    fleet = fleets.select(fleets.load(fleets.path_of(project)), FLEET)
    layouts = [one for one in fleet.layouts if "dynamo" in one.through and one.overlay == "serves"]
    if len(layouts) != 1:
        raise UsageError(f"the fleet {FLEET} has {len(layouts)} layouts through Dynamo that serve, and not one")
    if ready:
        fleet = msgspec.structs.replace(fleet, ready_seconds=ready)
    model = tiny.model(tiny.shape(layouts[0].model), env.environment(*requirements(built.who, built.carried)))
    return Play(fleet, layouts[0], "overlay", "dynamo", str(model)), model


def coverage(built: Built, play: Play, model: Path) -> dict[str, str]:
    """Everything that the outcome depends on, but for the machine."""
    settings = msgspec.json.encode([play.layout, play.flags, play.fleet.env, play.fleet.kv_buffer_device])
    gates = _LINES.parent / "gates"
    return {
        "image": built.image.digest,
        "overlay": built.who.overlay,
        "play": _sha(settings),
        "model": _sha((model / "config.json").read_bytes()),
        "patchline's gates": _code([*(gates / "checks").glob("*.py"), *(gates / "stack").glob("*.py")]),
        "patchline's smoke": _code([_LINES / one for one in _CODE]),
    }


def _code(paths: list[Path]) -> str:
    total = b"".join(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest() for path in sorted(paths))
    return _sha(total)


def _sha(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _judged(built: Built, record: Record, verified: str) -> Done:
    return Done(built.line.name, built.image.digest, record, verdict(record), verified)


def verdict(record: Record) -> list[str]:
    """Why a record does not show that the image serves; empty where it does."""
    passed = {one["check"] for one in record.checks if one["passed"] is True}
    faults = [f"{one['check']}: {fault}" for one in record.checks for fault in _faults(one)]
    faults += [f"{name} did not run" for name in CHECKS if name not in {one["check"] for one in record.checks}]
    faults += [f"{name} did not pass" for name in CHECKS if name not in passed and not faults]
    missing = {"etcd", "nats", "frontend", "prefill", "decode"} - record.logs.keys()
    return faults + [f"there is no log of {name}" for name in sorted(missing)]


def _faults(check: dict[str, Any]) -> list[str]:
    return [check["unreachable"]["what"]] if check["unreachable"] else list(check["faults"])


def _run(built: Built, play: Play, model: Path, logs: Path) -> Record:
    began = _now()
    _refuse_remote()
    with daemon() as client:
        keep_only(client, [load_base(client, built.image.base)])
        image = load(client, built.image)
        say(f"the image {built.image.digest[:19]} serves {play.layout.name} through Dynamo: this takes minutes")
        with serving(client, image, play, model, logs) as up:
            say(f"all containers are ready after {up.ready:.0f} s")
            checks = list(_checks(up, play, built.who.overlay))
        version = str(client.version()["Version"])
    kept = {path.stem: _sha(path.read_bytes()) for path in sorted(logs.rglob("*.log"))}
    data = [one.data() for one in checks]
    return Record(began, _now(), version, play.name, round(up.ready, 1), data, kept)


def _refuse_remote() -> None:
    """The containers are on their host's network, and asked at this host's loopback address."""
    named = urlsplit(os.environ.get("DOCKER_HOST", ""))
    if named.scheme not in ("", "unix") and not is_loopback(named.hostname or ""):
        raise UsageError(
            "the smoke test needs a docker daemon of this machine",
            where=f"DOCKER_HOST names {named.hostname}",
            next="run it where that daemon is",
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _checks(up: Up, play: Play, overlay: str) -> Iterator[Result]:
    endpoint = connect(up.url, model=up.model, limit=ANSWER)
    yield _told("recall, chat", lambda: _recall(endpoint, play))
    yield _told(BUILD, lambda: _build(endpoint, overlay))
    engines = [up.logs["prefill"], up.logs["decode"]]
    yield read_logs(engines, decode=play.layout.decode, prefill=play.layout.prefill)


def _recall(endpoint: Endpoint, play: Play) -> Result:
    model = play.description
    form = bare(model.words, model.words) if model.words else prose()
    items = items_for(endpoint, form, "chat", model.tokens, SEED + 1)
    return recall(endpoint, form, items=items, seed=SEED, api="chat")


def _build(endpoint: Endpoint, overlay: str) -> Result:
    found = build(endpoint, overlay)
    return Result(BUILD, 1, found.faults, found.numbers)


def _told(name: str, check: Callable[[], Result]) -> Result:
    """What a check found under its name, also where it got no answer or a wrong one."""
    try:
        found = check()._replace(check=name)
    except Unreachable as error:
        found = silent(name, error)
    except ProofFailed as wrong:
        found = Result(name, 1, [wrong.what], {})
    say(f"{name}: {'right' if found.passed else (found.faults or ['no answer'])[0]}")
    return found
