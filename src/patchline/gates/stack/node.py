"""Where a process of a stack runs: on this host, or on a node that other words lead to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from patchline.gates.stack.ports import HOST
from patchline.gates.stack.processes import Launch

_THERE = 'mkdir -p -m 700 "$0" && cd "$0" && exec /usr/bin/env -i "$@"'
"""The stack's scratch folder is this host's: another node does not have it yet."""


class Node(NamedTuple):
    """A host that processes run on."""

    host: str = HOST
    """The address that its servers listen on, and the only one that they are asked at."""
    before: Sequence[str] = ()
    """Words that start a command there; none where it is this host."""
    env: Mapping[str, str] = {}
    """What these words see themselves."""

    def launch(self, command: Sequence[str], env: Mapping[str, str], missing: Callable[[], str]) -> Launch:
        """A process there that sees the variables of `env` and no other, whatever the words before it add."""
        if not self.before:
            return Launch(command, env, missing)
        settings = [f"{name}={value}" for name, value in env.items()]
        return Launch([*self.before, "/bin/sh", "-c", _THERE, env["TMPDIR"], *settings, *command], self.env, missing)


HERE = Node()
