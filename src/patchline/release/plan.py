"""What a release takes, step by step, and which of it is done already."""

from __future__ import annotations

from typing import Any, NamedTuple


class Step(NamedTuple):
    """One thing that has to be so."""

    what: str
    """`push`, `sbom`, `tag` …"""
    of: str
    """What it is done with, or what it shows: a digest, a tag, a path."""
    done: bool

    def __str__(self) -> str:
        return f"{'done ' if self.done else 'to do'}  {self.what:12} {self.of}"


Plan = tuple[Step, ...]


def text(plan: Plan) -> str:
    """The plan for people, a line a step."""
    return "\n".join(str(step) for step in plan)


def data(plan: Plan) -> list[dict[str, Any]]:
    """The plan for machines."""
    return [step._asdict() for step in plan]


def is_done(plan: Plan) -> bool:
    """Whether nothing is left to do."""
    return all(step.done for step in plan)
