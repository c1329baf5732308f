"""Every layout of a fleet, on stock and on the overlay: served with the right answer, or refused in clear words."""

from __future__ import annotations

from collections.abc import Callable

from patchline.gates.outcomes import Outcome
from patchline.gates.plays import Play


def test_layout(play: Play, outcome_of: Callable[[Play], Outcome]) -> None:
    outcome = outcome_of(play)
    assert not outcome.faults, "; ".join(outcome.faults)
