"""One fleet's plays, each a test: `pytest tests/gpu --fleet cpu`. `python -m patchline gate` does so, and keeps a record."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from patchline.errors import PatchlineError
from patchline.gates.outcomes import Outcome, References, play_out
from patchline.gates.plays import Play, chosen
from patchline.gates.setting import Setting, gate_of, prepare


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("patchline")
    group.addoption("--fleet", required=True, help="of builds/fleets.toml")
    group.addoption("--runner", default="", help="another one than the fleet's")
    group.addoption("--only", action="append", default=[], metavar="PART", help="plays with this in their names")
    group.addoption("--outcomes", type=Path, metavar="FOLDER", help="where each play's outcome is written")
    group.addoption("--logs", type=Path, metavar="FOLDER", help="where the engines' logs are kept")


def pytest_configure(config: pytest.Config) -> None:
    try:
        setting = prepare(gate_of(config.option.fleet), config.option.runner)
        plays = chosen(setting.plays, config.option.only)
    except PatchlineError as error:
        raise pytest.UsageError(str(error)) from error
    config.stash[_SETTING], config.stash[_PLAYS] = setting, plays


_SETTING, _PLAYS = pytest.StashKey[Setting](), pytest.StashKey[list[Play]]()


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

    def played(play: Play) -> Outcome:
        outcome = play_out(setting.runner, play, (option.logs or tmp_path) / play.name, references)
        if option.outcomes:
            (option.outcomes / f"{play.name}.json").write_bytes(msgspec.json.encode(outcome))
        return outcome

    return played
