"""One fleet's plays, each a test: `pytest tests/gpu --fleet cpu`. `python -m patchline gate` does so, and keeps a record."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from patchline.errors import PatchlineError
from patchline.gates.outcomes import Outcome, References, play_out
from patchline.gates.plays import Play, chosen
from patchline.gates.setting import Setting, gate_of, prepare
from patchline.gates.suite import PARENT


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("patchline")
    group.addoption("--fleet", required=True, help="of builds/fleets.toml")
    group.addoption("--runner", default="", help="another one than the fleet's")
    group.addoption("--only", action="append", default=[], metavar="PART", help="plays with this in their names")
    group.addoption("--outcomes", type=Path, metavar="FOLDER", help="where each play's outcome is written")
    group.addoption("--logs", type=Path, metavar="FOLDER", help="where the engines' logs are kept")


_PDEATHSIG = 1  # PR_SET_PDEATHSIG of <sys/prctl.h>
_SETTING, _PLAYS = pytest.StashKey[Setting](), pytest.StashKey[list[Play]]()
_OVERLAY = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    _end_with_the_gate()
    try:
        gate = gate_of(config.option.fleet)
        setting = prepare(gate, config.option.runner)
        plays = chosen(setting.plays, config.option.only)
    except PatchlineError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_SETTING], config.stash[_PLAYS], config.stash[_OVERLAY] = setting, plays, gate.overlay.digest


def _end_with_the_gate() -> None:
    """SIGTERM ends the tests as Ctrl-C does, engines and all; the gate's own end, however it comes, sends it."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if parent := os.environ.get(PARENT):
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != int(parent):
            raise pytest.UsageError("the gate is gone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "play" in metafunc.fixturenames:
        plays = metafunc.config.stash[_PLAYS]
        metafunc.parametrize("play", plays, ids=[play.name for play in plays])


@pytest.fixture(scope="session")
def references() -> References:
    return {}


@pytest.fixture
def outcome_of(request: pytest.FixtureRequest, references: References, tmp_path: Path) -> Callable[[Play], Outcome]:
    """Plays a play out, and writes down what becomes of it."""
    option, setting = request.config.option, request.config.stash[_SETTING]
    overlay = request.config.stash[_OVERLAY]

    def played(play: Play) -> Outcome:
        outcome = play_out(setting.runner, play, (option.logs or tmp_path) / play.name, references, overlay)
        if option.outcomes:
            (option.outcomes / f"{play.name}.json").write_bytes(msgspec.json.encode(outcome))
        return outcome

    return played
