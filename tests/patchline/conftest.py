"""What every test has: a cache and a configuration of its own, and no git of its user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import demo_env
import pytest
import registries

from patchline.proofs.env import Environment


@pytest.fixture(autouse=True)
def own_world(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that no other test sees; git in the environment is not the user's."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("PATCHLINE_CACHE", str(cache))
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.delenv(name, raising=False)
    return cache


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The demo's proof environment; whoever spoils it mends it."""
    return demo_env.make(tmp_path_factory.mktemp("env"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[registries.Registry]:
    """One registry, without authentication, for all tests of a module that use repositories of their own."""
    with registries.registry(tmp_path_factory.mktemp("registry")) as running:
        yield running
