"""Speed, memory and bytes moved of `append`, on bases of random bytes in a loopback registry, in one run.

A cut is measured as a whole process, from the base's digest and its lock to the image under its digest in the registry.
The base lock is compared with a process that only streams and hashes the same layers; with `--docker` the cut with
`docker build` and `docker push` of the same files, by a daemon that has the base and by one that has to pull it.
Needs Debian's docker-registry, and for `--docker` docker.io and root.
Prints a table in Markdown and exits 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

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

from patchline.image import append, base, identity, lock, model
from patchline.image.reference import parse
from patchline.image.registry.client import Client
from patchline.image.registry.push import push
from patchline.image.registry.remote import Remote
from patchline.image.registry.repository import Repository
from patchline.overlay import Change, Overlay
from patchline.series.trees import Entry

FILES = 7000
"""Of the installed package: as many as vLLM has, so that its RECORD is as long."""
CHANGED = 6


def text(number: int, new: bool = False) -> bytes:
    """A module of 300 lines, as a file of the package."""
    lines = [f"value_{line} = {number * line}" for line in range(300)]
    return ("\n".join([*lines, "PATCHED = True"] if new else lines) + "\n").encode()


def path_of(number: int) -> str:
    return f"vllm/part_{number % 70}/module_{number}.py"


def overlay() -> Overlay:
    """Six changed files."""
    changes = (Change(path_of(n), Entry(0o100644, text(n)), Entry(0o100644, text(n, new=True))) for n in range(CHANGED))
    return Overlay("vllm==0.31.0", "b" * 40, "c" * 40, tuple(changes), ())


def who(made: Overlay, revision: str) -> identity.Identity:
    return identity.Identity(
        "bench", "1.6.0", (identity.series(made, [("0001-it.patch", "d" * 40)]),), revision=revision
    )


def package() -> bytes:
    """A layer with an installed package and its RECORD."""
    file, rows = io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w") as tar:
        for number in range(FILES):
            data = text(number)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{path_of(number)},sha256={digest},{len(data)}\n")
            add(tar, f"{SITE}/{path_of(number)}", data)
        add(tar, f"{SITE}/vllm-0.31.0.dist-info/RECORD", "".join(rows).encode())
    return file.getvalue()


def put_base(client: Client, gigabytes: int) -> str:
    """Makes a base of so many gigabytes in the registry and returns its digest."""
    target = Repository(client, f"base-{gigabytes}", push=True)
    length = gigabytes * 2**30 // LAYERS
    layers = [
        put_pieces(target, lambda seed=seed: noise(seed, length), model.LAYER)  # type: ignore[misc]
        for seed in range(LAYERS)
    ]
    return put_manifest(target, [*layers, put(target, package(), model.LAYER)])


def step(name: str, reference: str, at: Path, target: str) -> None:
    """What a measured process does."""
    found = parse(reference)
    with Client(found.host) as client:
        source = Remote(Repository(client, found.name), found)
        opened = base.find(source)
        said: dict[str, float] = {}
        if name == "hash":
            hashed(source)
        elif name == "lock":
            from patchline.image import locking  # a cut does without

            lock.write(at, locking.make(opened, [overlay()]))
        else:
            made, (into, _, revision) = overlay(), target.partition(":")
            image = append.cut(opened, lock.read(at), [made], who(made, revision))
            done = push(image, Repository(client, into, push=True, beside=[found.name]))
            said = {"layer": len(image.layer), "mounted": done.mounted, "copied": done.copied}
        print(json.dumps({**said, "moved": client.transport.sent + client.transport.received, "memory": peak()}))


def with_docker(host: str, at: Path, size: int, reference: str, rounds: int) -> tuple[Ran, Ran]:
    """`docker build` and `docker push` of the overlay's files: the base pulled first, and the base there."""
    from patchline.lines.docker.daemon import own

    pulled, there = [], []
    with own(at / "docker") as client:
        for number in range(rounds):
            for image in client.images.list():
                client.images.remove(str(image.id), force=True)
            pulled.append(_built(client, host, size, reference, f"pulled-{number}"))
            there.append(_built(client, host, size, reference, f"there-{number}"))
    return median(pulled), median(there)


def _built(client: Any, host: str, size: int, reference: str, tag: str) -> Ran:
    from patchline.lines.docker.daemon import followed

    file, files = io.BytesIO(), io.BytesIO()
    with tarfile.open(fileobj=files, mode="w") as tar:
        for change in overlay().changes:
            assert change.new is not None
            add(tar, f"{SITE}/{change.path}", change.new.data + f"# {tag}\n".encode())
    with tarfile.open(fileobj=file, mode="w") as tar:
        add(tar, "Dockerfile", f"FROM {reference}\nADD files.tar /\n".encode())
        add(tar, "files.tar", files.getvalue())
    name = f"{host}/docker-{size}"
    began = time.perf_counter()
    steps = client.api.build(
        fileobj=io.BytesIO(file.getvalue()), custom_context=True, tag=f"{name}:{tag}", nocache=True, decode=True
    )
    for _ in followed(steps, "build"):
        pass
    for _ in followed(client.api.push(name, tag=tag, stream=True, decode=True), "push"):
        pass
    return Ran(time.perf_counter() - began, float("nan"), {"memory": float("nan"), "moved": float("nan")})


def _ran(name: str, reference: str, at: Path, target: str = "") -> Ran:
    return run(__file__, name, reference, str(at), target)


def measure(
    host: str, at: Path, sizes: list[int], rounds: int, docker: bool
) -> tuple[list[tuple[str, Ran]], list[Limit]]:
    """All processes, the median of some rounds each, and the limits that they are held to."""
    figures, limits, cuts = [], [], {}
    for size in sizes:
        with Client(host) as client:
            reference = f"{host}/base-{size}@{put_base(client, size)}"
        kept = at / f"lock-{size}"
        _ran("hash", reference, kept)  # the page cache is warm for both
        streamed = median([_ran("hash", reference, kept) for _ in range(rounds)])
        locked = median([_ran("lock", reference, kept) for _ in range(rounds)])
        fresh = median([_ran("cut", reference, kept, f"fresh-{size}-{n}") for n in range(rounds)])
        next_one = median([_ran("cut", reference, kept, f"fresh-{size}-0:{n}") for n in range(1, rounds + 1)])
        same = median([_ran("cut", reference, kept, f"fresh-{size}-{n}") for n in range(rounds)])
        cuts[size] = fresh
        figures += [
            (f"{size} GB: stream and hash the layers", streamed),
            (f"{size} GB: base lock", locked),
            (f"{size} GB: cut and push to a repository without the base", fresh),
            (f"{size} GB: cut and push of the next one to the same repository", next_one),
            (f"{size} GB: the same again, nothing to do", same),
        ]
        limits += [
            Limit(
                f"{size} GB: base lock against streaming and hashing",
                locked.seconds / streamed.seconds,
                1.5,
                "times its time",
            ),
            Limit(f"{size} GB: bytes moved by a cut", fresh.said["moved"] / fresh.said["layer"], 2, "layers"),
            Limit(f"{size} GB: peak memory of a cut", fresh.said["memory"], 200, "MiB"),
            Limit(f"{size} GB: peak memory of the lock", locked.said["memory"], 200, "MiB"),
            Limit(f"{size} GB: layers copied", fresh.said["copied"], 0, ""),
        ]
        if docker:
            pulled, there = with_docker(host, at, size, reference, rounds)
            figures += [
                (f"{size} GB: docker build and push, the base pulled first", pulled),
                (f"{size} GB: docker build and push, the base is there", there),
            ]
            against = fresh.seconds / pulled.seconds, next_one.seconds / there.seconds
            limits += [
                Limit(f"{size} GB: cut against docker that pulls", against[0], 1 / 30, "times its time"),
                Limit(f"{size} GB: the next cut against docker that has the base", against[1], 1, "times its time"),
            ]
    if len(sizes) > 1:
        ratio = cuts[sizes[-1]].seconds / cuts[sizes[0]].seconds
        limits.append(Limit(f"cut on {sizes[-1]} GB against {sizes[0]} GB", ratio, 1.3, "times its time"))
    return figures, limits


def main() -> int:
    """Measures and prints; 1 where a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each, of which the median counts")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[2], help="gigabytes of the bases; 2 8 needs 10 GB of disk"
    )
    parser.add_argument("--docker", action="store_true", help="compare with docker, too")
    parser.add_argument("--step", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.step:
        step(chosen.step[0], chosen.step[1], Path(chosen.step[2]), chosen.step[3])
        return 0
    with tempfile.TemporaryDirectory(prefix="patchline-bench-") as folder, registry(Path(folder)) as host:
        figures, limits = measure(host, Path(folder), chosen.sizes, chosen.rounds, chosen.docker)
    print("| what | seconds | of a processor | MiB at most | KB moved |\n|---|---|---|---|---|")
    for what, ran in figures:
        cells = f"{ran.seconds:.3f} | {ran.cpu:.3f} | {ran.said['memory']:.0f} | {ran.said['moved'] / 1e3:,.0f}"
        print(f"| {what} | {cells} |")
    return 0 if told(limits) else 1


if __name__ == "__main__":
    raise SystemExit(main())
