"""What the benchmarks of images share: a registry on loopback, images of random bytes in it, steps as processes."""

from __future__ import annotations

import atexit
import hashlib
import io
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from patchline.image import base, model
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import upload

SITE = "opt/venv/lib/python3.12/site-packages"
LAYERS = 4
"""Of random bytes, in every image."""
_PART = 2**20
_PATIENCE = 10.0
"""Seconds until a registry has to answer."""


class Limit(NamedTuple):
    """One claim: `value` may be at most `most`."""

    what: str
    value: float
    most: float
    unit: str = ""


class Ran(NamedTuple):
    """One process: wall and processor time in seconds, and what it printed."""

    seconds: float
    cpu: float
    said: dict[str, float]


def add(tar: tarfile.TarFile, name: str, data: bytes, mtime: int = 0) -> None:
    """Adds one file."""
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), mtime
    tar.addfile(info, io.BytesIO(data))


def noise(seed: int, size: int) -> Iterator[bytes]:
    """A layer of one file of random bytes, made again each time it is asked for; `size` bytes, in whole MiB."""
    info = tarfile.TarInfo(f"data/{seed}")
    info.size = size // _PART * _PART
    yield info.tobuf()
    part = random.Random(seed).randbytes(_PART - 8)
    for number in range(size // _PART):
        yield number.to_bytes(8, "big") + part  # no packer looks back so far that it would see the part again
    yield bytes(1024)


def put(target: Repository, data: bytes, kind: str) -> model.Descriptor:
    """Puts one blob from memory."""
    return put_pieces(target, lambda: iter([data]), kind)


def put_pieces(target: Repository, pieces: Callable[[], Iterable[bytes]], kind: str) -> model.Descriptor:
    """Puts one blob that is made twice: to know its digest, and to send it."""
    total, size = hashlib.sha256(), 0
    for piece in pieces():
        total.update(piece)
        size += len(piece)
    blob = model.Descriptor(kind, f"sha256:{total.hexdigest()}", size)
    if not target.has(blob):
        upload(target, blob, lambda: iter(pieces()))
    return blob


def put_manifest(target: Repository, layers: Sequence[model.Descriptor], ids: Sequence[str] = ()) -> str:
    """Puts an image of these layers and gives its digest; `ids` are the digests of the first ones unpacked."""
    whole = [*ids, *(one.digest for one in layers[len(ids) :])]
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": whole}}
    parts = [
        {"mediaType": one.media_type, "digest": one.digest, "size": one.size}
        for one in (put(target, model.made(config).data, model.CONFIG), *layers)
    ]
    manifest = model.made({"schemaVersion": 2, "mediaType": model.MANIFEST, "config": parts[0], "layers": parts[1:]})
    target.put(manifest)
    return manifest.digest


def hashed(source: Remote) -> None:
    """Streams and hashes every layer, and does nothing else."""
    for layer in base.find(source).layers:
        for _ in source.chunks(layer):
            pass


def peak() -> float:
    """Peak memory of this process in MiB; `ru_maxrss` of a child counts what its parent had when it began."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


def run(script: str, *words: str) -> Ran:
    """Runs one step of a benchmark, `script --step words`, as a process of its own that prints JSON.

    It may keep byte-code, as an installed tool does, whatever this shell says.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env |= {"PYTHONPATH": str(Path(script).parent), "PYTHONPYCACHEPREFIX": _byte_code()}
    began = time.perf_counter()
    command = [sys.executable, "-m", Path(script).stem, "--step", *words]  # a script's own is never kept
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{words[0]} ended with {process.returncode}"
    return Ran(seconds, usage.ru_utime + usage.ru_stime, json.loads(said))


@cache
def _byte_code() -> str:
    """A folder for this run's byte-code."""
    folder = tempfile.mkdtemp(prefix="patchline-bench-")
    atexit.register(shutil.rmtree, folder)
    return folder


def median(runs: Iterable[Ran]) -> Ran:
    """The run in the middle, by wall time."""
    ordered = sorted(runs, key=lambda ran: ran.seconds)
    return ordered[len(ordered) // 2]


def told(limits: Iterable[Limit]) -> bool:
    """Prints a table of limits; whether all held."""
    print("\n| limit | measured | at most | |\n|---|---|---|---|")
    missed = 0
    for limit in limits:
        held = limit.value <= limit.most
        missed += not held
        most = f"{limit.most:.3g} {limit.unit}".strip()
        print(f"| {limit.what} | {limit.value:.3g} | {most} | {'held' if held else 'MISSED'} |")
    return not missed


@contextmanager
def registry(at: Path) -> Iterator[str]:
    """Debian's docker-registry on loopback; gives its host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    storage = {"filesystem": {"rootdirectory": str(at / "storage")}}
    http = {"addr": host, "secret": "of a bench"}
    config = {"version": "0.1", "log": {"level": "error"}, "storage": storage, "http": http}
    (at / "config.yml").write_text(json.dumps(config))
    with (at / "log").open("wb") as out:
        process = subprocess.Popen(["docker-registry", "serve", str(at / "config.yml")], stdout=out, stderr=out)
    try:
        _await(host)
        yield host
    finally:
        process.terminate()
        process.wait()


def _await(host: str) -> None:
    import httpx2  # not in a step: importing it takes as long as a cut

    until = time.monotonic() + _PATIENCE
    while True:
        try:
            httpx2.get(f"http://{host}/v2/", trust_env=False)
            return
        except httpx2.HTTPError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
