"""Containers of one image, started and watched as a stack's processes are, on this host's network.

They end with us, however we end: each one's first process waits for the end of its standard input, which the daemon
closes when our connection breaks.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from docker import DockerClient
from docker.errors import APIError, NotFound
from docker.types import Mount
from docker.utils.socket import frames_iter
from requests.exceptions import RequestException

from patchline.gates.stack import logs
from patchline.gates.stack.processes import Launch, StackFailed
from patchline.progress import say

LABEL = "patchline.containers"
"""Of every container of ours. One that has ended and is still there was left by a run that was killed."""

RANKS = "4g"
"""Most memory that the ranks of an engine share with each other; docker's own 64 MB are too few."""

SHARED = "/run/patchline"
"""A folder in memory, seen by all containers of a run: what one has made, the others need not make again."""

_IN_MEMORY = {"type": "tmpfs", "device": "tmpfs", "o": "mode=1777,size=4g"}

_WATCH = """\
exec 3<&0 2>&1
"$@" </dev/null 3<&- &
main=$!
{ cat <&3 >/dev/null; kill -9 -1; } &
wait $main"""
"""Ends all processes of the container when standard input ends; its status is that of the command.

Both streams are one: docker would mix their lines in another order."""


class Containers:
    """What `Processes` is for processes: starts containers of `image`, keeps their logs, and ends all of them."""

    def __init__(self, client: DockerClient, image: str, root: Path, seen: Mapping[Path, str]) -> None:
        """`seen` are folders of this host, and where each one is seen, read-only, in all of them."""
        self.logs: dict[str, Path] = {}
        self._api: Any = client.api  # some of its methods have no types
        self._image, self._root = image, root
        self._mounts = [Mount(inside, str(path), type="bind", read_only=True) for path, inside in seen.items()]
        self._volume = ""
        self._ids: dict[str, str] = {}
        self._ended: dict[str, StackFailed] = {}
        self._threads: list[threading.Thread] = []
        self._closing = False
        self._sweep()
        made = self._api.create_volume(driver="local", driver_opts=_IN_MEMORY, labels={LABEL: ""})
        self._volume = str(made["Name"])
        self._mounts.append(Mount(SHARED, self._volume))

    def _sweep(self) -> None:
        """Removes what runs that were killed have left; who has a volume keeps it."""
        for left in self._api.containers(all=True, filters={"label": LABEL, "status": "exited"}):
            self._remove(left["Id"])
        for left in self._api.volumes(filters={"label": LABEL, "dangling": True})["Volumes"] or []:
            self._forget(left["Name"])

    def start(self, name: str, launch: Launch) -> None:
        """Starts a container, or another one in the place of one that has ended.

        Raises:
            UsageError: its log cannot be written.
            StackFailed: it cannot be started.
        """
        if name in self._ids:
            self._remove(self._ids.pop(name))
        self._ended.pop(name, None)
        log = self.logs[name] if name in self.logs else logs.new(self._root, name)
        self.logs[name] = log
        try:
            made = self._ids[name] = self._create(launch)
            attached = self._api.attach_socket(made, {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            thread = threading.Thread(target=self._follow, args=(name, made, attached, log), daemon=True)
            self._threads.append(thread)
            thread.start()
            self._api.start(made)
        except APIError as refused:
            raise StackFailed(f"{name} cannot be started: {refused.explanation}", where=self._image) from refused

    def _create(self, launch: Launch) -> str:
        made = self._api.create_container(
            self._image,
            entrypoint=["/bin/sh", "-c", _WATCH, "watch"],
            command=list(launch.command),
            environment=dict(launch.env),
            labels={LABEL: ""},
            stdin_open=True,
            stop_signal="SIGKILL",  # a first process does not hear others unless it asks to
            host_config=self._api.create_host_config(network_mode="host", mounts=self._mounts, shm_size=RANKS),
        )
        return str(made["Id"])

    def _follow(self, name: str, id: str, attached: Any, log: Path) -> None:
        """Keeps what a container says, until it has ended."""
        why = "ended"
        try:
            with log.open("ab", buffering=0) as file:
                for _, data in frames_iter(attached, tty=False):  # type: ignore[no-untyped-call]
                    file.write(data)
            why = f"ended with status {self._api.wait(id)['StatusCode']}"
        except OSError as lost:  # the daemon's own errors are such, too
            why = f"was lost: {lost}"
        finally:
            _hang_up(attached)
        if not self._closing and self._ids.get(name) == id:
            text = f"{name} {why}\n{logs.shown(log)}"
            self._ended.setdefault(name, StackFailed(text, where=str(log), next=f"less {log}"))

    def ended(self, name: str) -> bool:
        """Whether it ended."""
        return name in self._ended

    def check(self) -> None:
        """Raises StackFailed where a container is not there any more."""
        for fault in list(self._ended.values()):
            raise fault

    def close(self) -> None:
        """Ends everything; returns when nothing is left."""
        self._closing = True
        for id in reversed(self._ids.values()):
            self._remove(id)
        for thread in self._threads:
            thread.join()
        self._forget(self._volume)

    def _forget(self, volume: str) -> None:
        try:
            self._api.remove_volume(volume)
        except RequestException as used:  # the daemon's own errors are such, too
            say(f"the volume {volume[:12]} is still there: {used}")

    def _remove(self, id: str) -> None:
        try:
            self._api.remove_container(id, force=True, v=True)
        except NotFound:
            return
        except RequestException as failed:
            say(f"the container {id[:12]} is still there: {failed}")

    def __enter__(self) -> Containers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _hang_up(attached: Any) -> None:
    """Closes what `attach_socket` gave, which keeps its response open as well."""
    attached._response.close()
    attached.close()
