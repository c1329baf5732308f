"""A real docker daemon for tests, and bases small enough to be taken in at once: programs of this host."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import image_bases as bases
from docker import DockerClient
from image_bases import Made, folder, member, symbolic

from patchline.lines.docker import daemon as docker_daemon

PROGRAMS = ("sh", "cat", "env", "find", "id", "rm", "sha256sum", "sleep", "xargs")

# One line for every path: kind, mode, owner, group, and a file's digest.
LISTING = r"""
find / -xdev -path /proc -prune -o -path /sys -prune -o -path /dev -prune -o -printf '%y %m %U %G %l %p\n'
find / -xdev -path /proc -prune -o -path /sys -prune -o -path /dev -prune -o -type f -exec sha256sum {} +
"""
GIVEN = (
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/.dockerenv",
    "/etc/mtab",
    "/dev",
    "/proc",
    "/sys",
    "/etc",
    "/",
)
"""What docker itself lays into a container, or the time of which it changes."""


@contextmanager
def daemon(at: Path) -> Iterator[DockerClient]:
    """One of our own, with its images below `at`; without root or docker.io the test fails."""
    assert shutil.which("dockerd"), "dockerd is not there: apt-get install docker.io"
    with docker_daemon.own(at) as client:
        yield client


def small(*, labels: dict[str, str] | None = None, user: str = "1000:0") -> Made:
    """A base with the programs of `PROGRAMS`, and the package of `image_bases`."""
    layers = [bases.pack(one, "gzip") for one in (programs(), *bases.plain())]
    config: dict[str, Any] = {"Env": ["PATH=/bin"], "User": user, "Labels": labels or {"maintainer": "somebody"}}
    return bases.image(layers, more={"config": config})


def programs() -> list[bytes]:
    """A layer with programs, and the libraries that they want, where they want them."""
    files: dict[str, Path] = {}
    for name in PROGRAMS:
        path = shutil.which(name)
        assert path, name
        files[f"bin/{name}"] = Path(path).resolve()
        files |= {at.lstrip("/"): Path(at).resolve() for at in _libraries(path)}
    folders = {"/".join(at.split("/")[:count]) for at in files for count in range(1, at.count("/") + 1)} | {"tmp"}
    made = [folder(one, 0o1777 if one == "tmp" else 0o755) for one in sorted(folders)]
    made += [member(at, path.read_bytes(), mode=0o755) for at, path in sorted(files.items())]
    return [*made, symbolic("bin/also-sh", "sh")]


def _libraries(path: str) -> list[str]:
    said = subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout
    words = [word for line in said.splitlines() for word in line.split()]
    return [word for word in words if word.startswith("/")]


def listing(client: DockerClient, image: str) -> Sequence[str]:
    """Every path in a running container of `image`, but for what docker gives it."""
    said = client.containers.run(
        image, ["-c", LISTING], entrypoint="/bin/sh", user="0:0", network_mode="none", remove=True
    )
    return sorted(line for line in said.decode().splitlines() if line.rpartition(" ")[2] not in GIVEN)
