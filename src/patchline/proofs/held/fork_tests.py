"""Which tests a fork runs, in which order, and what became of them.

It runs inside the proof's environment, beside `fork_runner`, and imports nothing of patchline.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any


class Order:
    """A pytest plugin: only wide tests, or only the others; those that are likeliest to fail come first.

    With `only`, none but those.
    """

    def __init__(self, order: list[str], wide: bool, only: set[str] | None, imported: Path) -> None:
        self.ranks, self.wide, self.only = {name: rank for rank, name in enumerate(order)}, wide, only
        self.imported = imported

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Chooses and sorts; pytest calls it after the reporter has seen all."""
        self.imported.write_text(json.dumps(list(sys.modules)))
        left_out = {item for item in items if not self._wants(item)}
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
        items.sort(key=lambda item: self.ranks.get(item.nodeid, len(self.ranks)))

    def _wants(self, item: Any) -> bool:
        of_this_round = bool(item.get_closest_marker("wide")) == self.wide
        return of_this_round and (self.only is None or item.nodeid in self.only)


def verdict(report: dict[str, Any] | None, status: int) -> tuple[str, str]:
    """What became of a trial, and the first test that failed."""
    if status == -1:
        return "too slow", ""
    if report is None:
        return ("broken" if os.WIFEXITED(status) else "died"), ""
    if report["errors"]:
        return "failed", report["errors"][0].partition(":")[0]
    done = ran(report)
    for name, one in done.items():
        if one["outcome"] in ("failed", "error"):
            return "failed", name
    passed = all(one["outcome"] == "passed" for one in done.values())
    return ("survived" if done and passed and status == 0 else "broken"), ""


def spread(seconds: dict[str, float], most: int = sys.maxsize) -> list[str]:
    """The quickest case of every test, then the next one, and so on to `most`: cases of one notice the same."""
    cases: Counter[str] = Counter()
    ranks: dict[str, tuple[int, float]] = {}
    for name in sorted(seconds, key=lambda name: seconds[name]):
        function = name.partition("[")[0]
        ranks[name] = cases[function], seconds[name]
        cases[function] += 1
    return sorted((name for name in ranks if ranks[name][0] < most), key=lambda name: ranks[name])


def ran(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tests that were asked for."""
    left_out = {*report["deselected"]}
    return {name: one for name, one in report["tests"].items() if name not in left_out}
