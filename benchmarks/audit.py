"""Speed and memory of the audit of an image in a loopback registry, against streaming and hashing the same bytes.

The image holds random bytes, as CUDA's libraries nearly are, and an installed package of as many modules as vLLM has,
byte-code included. All runs are processes of their own, and take turns. Needs Debian's docker-registry. Prints a table
in Markdown and exits 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import os
import random
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx2

from patchline.audit import image
from patchline.download import cached, digest
from patchline.image import base, model
from patchline.image.reference import parse
from patchline.image.registry.client import Client
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.image.registry.upload import upload
from patchline.pins import ArchivePin, PinFile, Upstream, write
from patchline.project import Project

SITE = "opt/venv/lib/python3.12/site-packages"
INFO = "vllm-0.31.0.dist-info"
FILES = 3200
"""Of the installed package, as many as vLLM has."""
MTIME = 1_700_000_000
PART = 2**20
LAYERS = 4
TIMES = 2.0
"""Of the time of streaming and hashing."""
LARGE = 1024
"""MB of an image from which on the time is held to its limit: in a smaller one, starting Python is most of it."""
MEMORY = 300
"""MiB."""
FLAT = 1.15
"""Memory at the largest size against that at the smallest."""


class Ran(NamedTuple):
    """One process: wall and processor time in seconds, its peak memory in MiB, and findings."""

    seconds: float
    cpu: float
    memory: float
    findings: int


def modules() -> dict[str, bytes]:
    """The sources, of about 12 KB each."""
    return {
        f"vllm/part_{number % 70}/module_{number}.py": "".join(
            f"value_{line} = {number * line}\n" for line in range(600)
        ).encode()
        for number in range(FILES)
    } | {"vllm/__init__.py": b""}


def project(root: Path) -> Project:
    """One that pins the package's sdist, which is in its cache, and carries a series on it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as tar:
        for name, data in {**modules(), "vllm.egg-info/top_level.txt": b"vllm\n"}.items():
            _add(tar, f"vllm-0.31.0/{name}", data)
    pinned = PinFile(name="vllm-0.31.0.tar.gz", sha256=digest(file.getvalue()), size=len(file.getvalue()))
    at = cached(pinned.name, pinned.sha256)
    at.parent.mkdir(parents=True)
    at.write_bytes(file.getvalue())
    made = Project(root)
    pin = ArchivePin(kind="sdist", distribution="vllm", version="0.31.0", files=(pinned,))
    write(made.upstreams, {"vllm": Upstream(name="vllm", carried="0.31.0", pins=(pin,))})
    made.series_dir("vllm", "0.31.0").mkdir(parents=True)
    return made


def package() -> bytes:
    """A layer with the installed package, its byte-code and its RECORD."""
    file, rows = io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, data in modules().items():
            value = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={value},{len(data)}\n")
            _add(tar, f"{SITE}/{name}", data)
            folder, _, module = name.rpartition("/")
            head = b"\xcb\x0d\r\n" + struct.pack("<3I", 0, MTIME, len(data))
            _add(tar, f"{SITE}/{folder}/__pycache__/{module[:-3]}.cpython-312.pyc", head + data)
        _add(tar, f"{SITE}/{INFO}/RECORD", "".join([*rows, f"{INFO}/RECORD,,\n"]).encode())
    return file.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = len(data), MTIME
    tar.addfile(info, io.BytesIO(data))


def noise(seed: int, size: int) -> Iterator[bytes]:
    """A layer of one file of random bytes, made again each time it is asked for."""
    info = tarfile.TarInfo(f"data/{seed}")
    info.size = size
    yield info.tobuf()
    numbers = random.Random(seed)
    for _ in range(size // PART):
        yield numbers.randbytes(PART)
    yield bytes(1024)


def packed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same as gzip."""
    packer = zlib.compressobj(1, wbits=31)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()


def put_image(client: Client, megabytes: int, gzip: bool) -> str:
    """Makes an image of so many megabytes in the registry and returns its digest."""
    target = Repository(client, f"image-{megabytes}-{'gzip' if gzip else 'tar'}", push=True)
    kind = f"{model.LAYER}+gzip" if gzip else model.LAYER
    size = megabytes * 2**20 // LAYERS

    def pieces(seed: int) -> Iterator[bytes]:
        return packed(noise(seed, size)) if gzip else noise(seed, size)

    layers = []
    for seed in range(LAYERS):
        total, length = hashlib.sha256(), 0
        for piece in pieces(seed):
            total.update(piece)
            length += len(piece)
        blob = model.Descriptor(kind, f"sha256:{total.hexdigest()}", length)
        upload(target, blob, lambda seed=seed: pieces(seed))  # type: ignore[misc]
        layers.append(blob)
    layers.append(_put(target, package(), model.LAYER))
    ids = [one.digest for one in layers]  # nobody unpacks them, so nobody compares them
    config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": ids}}
    parts = [
        {"mediaType": one.media_type, "digest": one.digest, "size": one.size}
        for one in (_put(target, model.made(config).data, model.CONFIG), *layers)
    ]
    manifest = model.made({"schemaVersion": 2, "mediaType": model.MANIFEST, "config": parts[0], "layers": parts[1:]})
    target.put(manifest)
    return f"{target.client.host}/{target.name}@{manifest.digest}"


def _put(target: Repository, data: bytes, kind: str) -> model.Descriptor:
    blob = model.Descriptor(kind, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
    upload(target, blob, lambda: iter([data]))
    return blob


def step(name: str, reference: str, root: Path) -> None:
    """What a measured process does."""
    findings = 0
    if name == "audit":
        findings = len(image.audit(Project(root), reference, "", base.PLATFORM, stock=True).findings)
    else:
        found = parse(reference)
        with Client(found.host) as client:
            source = Remote(Repository(client, found.name), found)
            for layer in base.find(source).layers:
                for _ in source.chunks(layer):
                    pass
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024
    print(json.dumps({"memory": peak, "findings": findings}))


def run(name: str, reference: str, root: Path) -> Ran:
    """Runs one step as a process of its own."""
    began = time.perf_counter()
    words = [sys.executable, __file__, "--step", name, reference, str(root)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{name} ended with {process.returncode}"
    return Ran(seconds, usage.ru_utime + usage.ru_stime, **json.loads(said))


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
        for _ in range(200):
            try:
                httpx2.get(f"http://{host}/v2/", trust_env=False)
                break
            except httpx2.HTTPError:
                time.sleep(0.05)
        yield host
    finally:
        process.terminate()
        process.wait()


def measure(host: str, root: Path, sizes: list[int], rounds: int, gzip: bool) -> list[tuple[int, Ran, Ran]]:
    """For each size the medians of streaming and hashing, and of the audit; they take turns."""
    figures = []
    for size in sizes:
        with Client(host) as client:
            reference = put_image(client, size, gzip)
        run("audit", reference, root)  # the page cache is warm for both, and the pin checked out
        pairs = [(run("hash", reference, root), run("audit", reference, root)) for _ in range(rounds)]
        hashed, audited = (sorted(ran)[len(ran) // 2] for ran in zip(*pairs, strict=True))
        assert audited.findings == 0, "the image is right, and the audit found something"
        figures.append((size, hashed, audited))
    return figures


def told(figures: list[tuple[int, Ran, Ran]]) -> bool:
    """Prints figures and limits; whether all of these held."""
    print("| MB | what | seconds | of a processor | MiB at most |\n|---|---|---|---|---|")
    for size, *both in figures:
        for what, ran in zip(("stream and hash", "audit"), both, strict=True):
            print(f"| {size} | {what} | {ran.seconds:.2f} | {ran.cpu:.2f} | {ran.memory:.0f} |")
    large = [one for one in figures if one[0] >= LARGE]
    limits = [(f"{size} MB: time against hashing", one.seconds / other.seconds, TIMES) for size, other, one in large]
    limits += [(f"{size} MB: memory, MiB", one.memory, MEMORY) for size, _, one in figures]
    if len(figures) > 1:
        limits.append(("memory, largest against smallest", figures[-1][2].memory / figures[0][2].memory, FLAT))
    print("\n| limit | measured | at most | |\n|---|---|---|---|")
    for what, value, most in limits:
        print(f"| {what} | {value:.3g} | {most:g} | {'held' if value <= most else 'MISSED'} |")
    return all(value <= most for _, value, most in limits)


def main() -> int:
    """Measures and prints; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 4096], help="megabytes of the images")
    parser.add_argument("--gzip", action="store_true", help="with packed layers, which are inflated on the way")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        step(chosen.step[0], chosen.step[1], Path(chosen.step[2]))
        return 0
    with tempfile.TemporaryDirectory(prefix="patchline-bench-") as folder, registry(Path(folder)) as host:
        os.environ["PATCHLINE_CACHE"] = f"{folder}/cache"
        project(Path(folder, "project"))
        figures = measure(host, Path(folder, "project"), chosen.sizes, chosen.rounds, chosen.gzip)
    return 0 if told(figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
