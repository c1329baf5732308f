"""Real Dynamo frontends on loopback, without etcd, NATS or a model.

`forked` runs one in a fork of this process: it starts in a tenth of a second, and runs the modules that this process
would import, also where a trial has changed one. `command` runs the command that people run.
"""

import builtins
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from dynamo.frontend import main
from dynamo.llm import FrontendRoute

BUILD_FILE_ENV = "DYN_BUILD_FILE"
SECONDS = 30
"""For a start, which takes less than one."""


class Answer(NamedTuple):
    """What came back."""

    status: int
    kind: str
    """Its content type."""
    body: bytes

    def json(self) -> Any:
        """The body's value."""
        return json.loads(self.body)


class Frontend(NamedTuple):
    """One that runs."""

    port: int
    logged: Path

    def get(self, path: str) -> Answer:
        """Asks it."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=SECONDS) as answer:
                return Answer(answer.status, answer.headers.get_content_type(), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers.get_content_type(), error.read())

    def log(self) -> str:
        """What it has logged so far."""
        return self.logged.read_text(errors="replace")


def own_route() -> FrontendRoute:
    """A user's extension."""
    return FrontendRoute("GET", "/own", lambda _: {"own": True})


def own_build() -> FrontendRoute:
    """A user's extension that has the same path as ours."""
    return FrontendRoute("GET", "/build", lambda _: {"build": "the user's"})


@contextmanager
def forked(
    folder: Path, build: Path | None, *extensions: Callable[[], FrontendRoute], instead: str = ""
) -> Iterator[Frontend]:
    """A frontend that is told `build` as its build file, with `extensions` of this module.

    With `instead` it is told nothing, and finds `build` where it opens the path `instead`: only root can write there.
    """
    with _port() as port:
        frontend = Frontend(port, folder / "frontend.log")
        pid = os.fork()
        if not pid:
            _run(frontend, build, extensions, instead)
        try:
            # Its end is seen here and taken below: until then its number is nobody else's.
            _wait_for(frontend, lambda: not os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
            yield frontend
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _run(frontend: Frontend, build: Path | None, extensions: Sequence[Callable[[], Any]], instead: str) -> None:
    """The fork; never returns."""
    try:
        log = os.open(frontend.logged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.pop(BUILD_FILE_ENV, None)
        if instead:
            real = builtins.open
            builtins.open = lambda path, *rest, **named: real(build if path == instead else path, *rest, **named)
        elif build:
            os.environ[BUILD_FILE_ENV] = str(build)
        names = [f"{__name__}:{extension.__name__}" for extension in extensions]
        sys.argv = ["dynamo.frontend", *_arguments(frontend.port, names)]
        main.main()
    except BaseException:  # noqa: BLE001 - a fork must never go on as its parent
        os.write(2, traceback.format_exc().encode())
        os._exit(1)
    os._exit(0)


@contextmanager
def command(folder: Path, build: Path, *extensions: Callable[[], FrontendRoute]) -> Iterator[Frontend]:
    """The same by its command, a process of its own."""
    with _port() as port, (folder / "frontend.log").open("wb") as log:
        frontend = Frontend(port, folder / "frontend.log")
        names = [f"{__name__}:{extension.__name__}" for extension in extensions]
        path = os.pathsep.join([*os.environ.get("PYTHONPATH", "").split(os.pathsep), str(Path(__file__).parent)])
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "dynamo.frontend", *_arguments(port, names)],
            env={**os.environ, BUILD_FILE_ENV: str(build), "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for(frontend, lambda: process.poll() is None)
            yield frontend
        finally:
            process.kill()
            process.wait()


def _arguments(port: int, extensions: Sequence[str]) -> list[str]:
    alone = ["--discovery-backend", "mem", "--event-plane", "zmq"]
    own = [word for name in extensions for word in ("--frontend-route-extension", name)]
    return ["--http-host", "127.0.0.1", "--http-port", str(port), *alone, *own]


@contextmanager
def _port() -> Iterator[int]:
    """A free port, held: bound and not listened on, so that only who names it can have it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        yield held.getsockname()[1]


def _wait_for(frontend: Frontend, alive: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while True:
        assert alive(), f"the frontend ended: {frontend.log()}"
        try:
            assert frontend.get("/health").status == 200
            return
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < until, f"the frontend did not come up: {frontend.log()}"
            time.sleep(0.02)
