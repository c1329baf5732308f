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
import struct
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from loopback import (
    LAYERS,
    SITE,
    Limit,
    Ran,
    add,
    hashed,
    median,
    noise,
    peak,
    put,
    put_manifest,
    put_pieces,
    registry,
    run,
    told,
)

from patchline.audit import image
from patchline.download import cached, digest
from patchline.image import base, model
from patchline.image.reference import parse
from patchline.image.registry.client import Client
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.pins import ArchivePin, PinFile, Upstream, write
from patchline.project import Project

INFO = "vllm-0.31.0.dist-info"
FILES = 3200
"""Of the installed package, as many as vLLM has."""
MTIME = 1_700_000_000
TIMES = 2.0
"""Of the time of streaming and hashing."""
LARGE = 1024
"""MB of an image from which on the time is held to its limit: in a smaller one, starting Python is most of it."""
MEMORY = 300
"""MiB."""
FLAT = 1.15
"""Memory at the largest size against that at the smallest."""


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
            add(tar, f"vllm-0.31.0/{name}", data, MTIME)
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
            add(tar, f"{SITE}/{name}", data, MTIME)
            folder, _, module = name.rpartition("/")
            head = b"\xcb\x0d\r\n" + struct.pack("<3I", 0, MTIME, len(data))
            add(tar, f"{SITE}/{folder}/__pycache__/{module[:-3]}.cpython-312.pyc", head + data, MTIME)
        add(tar, f"{SITE}/{INFO}/RECORD", "".join([*rows, f"{INFO}/RECORD,,\n"]).encode(), MTIME)
    return file.getvalue()


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

    layers = [put_pieces(target, lambda seed=seed: pieces(seed), kind) for seed in range(LAYERS)]  # type: ignore[misc]
    ids = [_digest(noise(seed, size)) for seed in range(LAYERS)]
    made = put_manifest(target, [*layers, put(target, package(), model.LAYER)], ids)
    return f"{target.client.host}/{target.name}@{made}"


def _digest(pieces: Iterator[bytes]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return f"sha256:{total.hexdigest()}"


def step(name: str, reference: str, root: Path) -> None:
    """What a measured process does."""
    findings = 0
    if name == "audit":
        findings = len(image.audit(Project(root), reference, "", base.PLATFORM, stock=True).findings)
    else:
        found = parse(reference)
        with Client(found.host) as client:
            hashed(Remote(Repository(client, found.name), found))
    print(json.dumps({"memory": peak(), "findings": findings}))


def measure(host: str, root: Path, sizes: list[int], rounds: int, gzip: bool) -> list[tuple[int, Ran, Ran]]:
    """For each size the medians of streaming and hashing, and of the audit; they take turns."""
    figures = []
    for size in sizes:
        with Client(host) as client:
            reference = put_image(client, size, gzip)
        run(__file__, "audit", reference, str(root))  # the page cache is warm for both, and the pin checked out
        pairs = [
            (run(__file__, "hash", reference, str(root)), run(__file__, "audit", reference, str(root)))
            for _ in range(rounds)
        ]
        streamed, audited = (median(ran) for ran in zip(*pairs, strict=True))
        assert audited.said["findings"] == 0, "the image is right, and the audit found something"
        figures.append((size, streamed, audited))
    return figures


def shown(figures: list[tuple[int, Ran, Ran]]) -> bool:
    """Prints figures and limits; whether all of these held."""
    print("| MB | what | seconds | of a processor | MiB at most |\n|---|---|---|---|---|")
    for size, *both in figures:
        for what, ran in zip(("stream and hash", "audit"), both, strict=True):
            print(f"| {size} | {what} | {ran.seconds:.2f} | {ran.cpu:.2f} | {ran.said['memory']:.0f} |")
    large = [one for one in figures if one[0] >= LARGE]
    limits = [Limit(f"{size} MB: time against hashing", b.seconds / a.seconds, TIMES, "times") for size, a, b in large]
    peaks = [(size, ran.said["memory"]) for size, _, ran in figures]
    limits += [Limit(f"{size} MB: peak memory", most, MEMORY, "MiB") for size, most in peaks]
    if len(peaks) > 1:
        limits.append(Limit("memory, largest against smallest", peaks[-1][1] / peaks[0][1], FLAT, "times"))
    return told(limits)


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
    return 0 if shown(figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
