"""Free ports, on loopback and elsewhere, kept free for the process that is told to listen on them."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from patchline.errors import Refused

Address: TypeAlias = tuple[str, int]
"""Host and port."""

HOST = "127.0.0.1"
KNOWN = frozenset({2379, 2380, 4222, 5600, 6222, 8000, 8001, 8080, 8081, 8222, 9090})
"""Where etcd, NATS, NIXL, vLLM and Dynamo listen by default: a production's, never ours."""
_TRIES = 2000


class Ports:
    """Holds ports until it is closed.

    Each is bound and not listened on, with SO_REUSEADDR: Linux gives it to nobody who asks for any port, nor for an
    outgoing connection, and a server that says SO_REUSEADDR itself (all of ours do) can listen there.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []
        self._chosen: set[Address] = set()

    def take(self) -> int:
        """One more port of loopback.

        Raises:
            Refused: none is free.
        """
        return self._one(HOST)

    def on(self, host: str) -> int:
        """One more port of `host`; where that is another machine's it is only chosen, and may be somebody's.

        Raises:
            Refused: none is free.
        """
        return self.take() if host == HOST else self._one(host)

    def _one(self, host: str) -> int:
        choices = _outside_ephemeral()
        for _ in range(_TRIES):
            port = random.choice(choices)
            if port not in KNOWN and (host, port) not in self._chosen and self._hold(host, port):
                self._chosen.add((host, port))
                return port
        raise Refused(f"no port from {choices[0]} to {choices[-1]} is free on {host}", next="see who listens: ss -ltnp")

    def _hold(self, host: str, port: int) -> bool:
        """Binds the port; says no where somebody has it, and yes where it is not ours to bind."""
        held = socket.socket()
        try:
            held.bind((host, port))
        except OSError as failed:
            held.close()
            return failed.errno == errno.EADDRNOTAVAIL
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # only now: before, bind would share another's port
        self._held.append(held)
        return True

    def close(self) -> None:
        """Lets go of all."""
        for one in self._held:
            one.close()
        self._held.clear()

    def __enter__(self) -> Ports:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _outside_ephemeral() -> range:
    """Ports that the system gives to nobody by itself, where there are enough of them."""
    low = 32768
    with suppress(OSError, ValueError):  # the default of Linux, where nothing says
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    return range(15000, low) if low >= 20000 else range(20000, 60000)
