"""Real registries on loopback: Debian's docker-registry, started by the test with a configuration of its own."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

USER, PASSWORD = "builder", "correct horse"


class Registry(NamedTuple):
    """One that runs."""

    host: str
    storage: Path
    log: Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def registry(at: Path, *, auth: dict[str, object] | None = None, most: int | None = None) -> Iterator[Registry]:
    """A registry below the folder `at`, plain HTTP, with `auth` as its configuration has it.

    With `most` the system lets it write no file beyond so many bytes, as a full disk would.
    """
    at.mkdir(parents=True, exist_ok=True)
    port, kept = free_port(), at / "storage"
    limited = [program("prlimit"), f"--fsize={most}"] if most else []
    config: dict[str, object] = {
        "version": "0.1",
        "log": {"level": "info"},
        "storage": {"filesystem": {"rootdirectory": str(kept)}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "of a test"},
    }
    if auth:
        config["auth"] = auth
    (at / "config.yml").write_text(json.dumps(config))  # JSON is YAML
    log = at / "log"
    environment = {"PATH": os.environ["PATH"], "OTEL_TRACES_EXPORTER": "none"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*limited, program("docker-registry"), "serve", str(at / "config.yml")],
            stdout=out,
            stderr=out,
            env=environment,
            cwd=at,
        )
    try:
        _wait(port, process, log)
        yield Registry(f"127.0.0.1:{port}", kept, log)
    finally:
        process.terminate()
        process.wait(10)


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        try:
            httpx2.get(f"http://127.0.0.1:{port}/v2/", trust_env=False)
        except httpx2.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"docker-registry did not start: {log.read_text()}")


def program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not there: apt-get install docker-registry skopeo umoci apache2-utils"
    return found


def htpasswd(at: Path) -> dict[str, object]:
    """Basic authentication for the one user."""
    words = [program("htpasswd"), "-nbB", USER, PASSWORD]
    at.write_bytes(subprocess.run(words, check=True, capture_output=True).stdout)
    return {"htpasswd": {"realm": "a test", "path": str(at)}}


def skopeo(*words: str, cwd: Path) -> str:
    """Runs it without TLS, which it does not ask for on its own."""
    done = subprocess.run([program("skopeo"), "--insecure-policy", *words], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
