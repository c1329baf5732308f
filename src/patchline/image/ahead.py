"""Reads a stream in a thread of its own, a little ahead of who uses it: the network and hashing beside unpacking."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Full, Queue

from patchline.image.digests import CHUNK

DEPTH = 8
"""Bundles of pieces that may wait; each has about a megabyte."""

_LOOK = 0.1  # seconds until the other side is looked after

_Bundle = list[bytes]


class _End:
    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def ahead(pieces: Iterator[bytes]) -> Iterator[Iterator[bytes]]:
    """The same pieces; an error of theirs comes where it would have come. After the block nobody reads any more."""
    waiting: Queue[_Bundle | _End] = Queue(DEPTH)
    over = threading.Event()
    thread = threading.Thread(target=_fill, args=(pieces, waiting, over), daemon=True)
    thread.start()
    try:
        yield _taken(waiting, over)
    finally:
        over.set()
        thread.join()


def _fill(pieces: Iterator[bytes], waiting: Queue[_Bundle | _End], over: threading.Event) -> None:
    try:
        for bundle in _bundles(pieces):
            if not _put(waiting, bundle, over):
                return
        end = _End()
    except BaseException as error:  # noqa: BLE001  it is raised where the pieces are used
        end = _End(error)
    _put(waiting, end, over)


def _put(waiting: Queue[_Bundle | _End], one: _Bundle | _End, over: threading.Event) -> bool:
    while not over.is_set():
        try:
            waiting.put(one, timeout=_LOOK)
        except Full:
            continue
        return True
    return False


def _taken(waiting: Queue[_Bundle | _End], over: threading.Event) -> Iterator[bytes]:
    while not over.is_set():
        try:
            one = waiting.get(timeout=_LOOK)
        except Empty:
            continue
        if isinstance(one, _End):
            if one.error is not None:
                raise one.error
            return
        yield from one


def _bundles(pieces: Iterator[bytes]) -> Iterator[_Bundle]:
    """Pieces of a connection are short, and handing each one over costs more than hashing it."""
    bundle, size = list[bytes](), 0
    for piece in pieces:
        bundle.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield bundle
            bundle, size = [], 0
    if bundle:
        yield bundle
