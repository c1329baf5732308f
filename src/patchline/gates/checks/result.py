"""What a check found: faults, and numbers that gate evidence can hold."""

from __future__ import annotations

from typing import Any, NamedTuple

from patchline.errors import Unreachable


class Result(NamedTuple):
    """One check that ran, or that found nobody to ask."""

    check: str
    """`recall`, `parity`, `tool call, thinking on`, …"""
    examined: int
    """How many answers, tokens or lines were looked at: a check of nothing does not pass."""
    faults: list[str]
    numbers: dict[str, Any]
    """What was measured, as JSON holds it."""
    unreachable: Unreachable | None = None

    @property
    def passed(self) -> bool:
        """Whether it ran and everything that it looked at is right."""
        return self.examined > 0 and not self.faults and self.unreachable is None

    def data(self) -> dict[str, Any]:
        """The record, for `--json` and for evidence."""
        error = self.unreachable
        silent = {"what": error.what, "where": error.where, "next": error.next} if error else None
        return {
            "check": self.check,
            "passed": self.passed,
            "examined": self.examined,
            "faults": self.faults,
            "unreachable": silent,
            "numbers": self.numbers,
        }


def silent(check: str, error: Unreachable) -> Result:
    """The result of a check that got no answer."""
    return Result(check, 0, [], {}, error)


def cut(text: str, length: int = 120) -> str:
    """`text` on one line, at most `length` characters of it, as messages show what somebody else wrote."""
    line = " ".join(text[: 4 * length].split())
    line = "".join(char if char.isprintable() else "?" for char in line)
    return line if len(line) <= length and len(text) <= 4 * length else f"{line[:length]} …"
