"""What a process imports before it forks, and what its forks import in place of a module's file.

It runs inside the proof's environment, beside `fork_runner`, and imports nothing of patchline.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any


class _Later(BaseException):
    """A module that only forks may import. No `except Exception` around an import may swallow it."""


class Guard(importlib.abc.MetaPathFinder):
    """Keeps the changed modules, and so what imports them, out of this process."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = frozenset(names)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> None:  # noqa: ARG002
        """Refuses the names; the other finders answer for the rest."""
        if name in self.names:
            raise _Later(name)


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads one module from other bytes than its file's; byte-code is neither read nor written."""

    def __init__(self, name: str, file: str, data: bytes) -> None:
        super().__init__(name, file)
        self.data = data

    def get_data(self, path: str) -> bytes:
        return self.data if os.fspath(path) == self.path else super().get_data(path)

    def path_stats(self, path: str) -> Any:
        raise OSError(path)


class Finder(importlib.abc.MetaPathFinder):
    """Finds the changed module."""

    def __init__(self, name: str, file: str, data: bytes) -> None:
        self.name, self.loader = name, _Changed(name, file, data)

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:  # noqa: ARG002
        """Answers for that one name."""
        if name != self.name:
            return None
        folder = [os.path.dirname(self.loader.path)] if self.loader.path.endswith("__init__.py") else None
        return importlib.util.spec_from_file_location(
            name, self.loader.path, loader=self.loader, submodule_search_locations=folder
        )


def preload(names: list[str], guard: Guard) -> int:
    """Imports what a run imports, as far as that goes without the guarded modules; returns how many came."""
    sys.meta_path.insert(0, guard)
    before = len(sys.modules)
    for name in names:
        if name not in sys.modules and not name.startswith(("_pytest", "__main__")):
            with suppress(Exception, _Later):  # a fork imports it, or fails to, by itself
                importlib.import_module(name)
    sys.meta_path.remove(guard)
    assert not guard.names & sys.modules.keys()
    return len(sys.modules) - before
