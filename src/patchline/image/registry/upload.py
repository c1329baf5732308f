"""One blob into a repository: mounted from another one, in one piece, or in pieces that go on after a break."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from patchline.errors import SourceMismatch
from patchline.image import digests
from patchline.image.model import Descriptor
from patchline.image.registry.client import Answer
from patchline.image.registry.patience import Broken, persist
from patchline.image.registry.repository import Repository
from patchline.urls import shown

PIECE = 8 * 2**20
"""Bytes of one request; a smaller blob goes in one."""

_MOST = 64 * 2**20  # of one request, whatever a registry asks for: it is held in memory

Open = Callable[[], Iterator[bytes]]
"""Begins to read the blob, from its start."""


def upload(repository: Repository, blob: Descriptor, content: Open, *, mount: str = "") -> bool:
    """Brings a blob that the repository lacks into it; true where it was mounted from the repository `mount`.

    Raises:
        Unreachable: the connection broke too often, or the registry has no room.
        SourceMismatch: `content` is not the blob, or the registry got something else.
    """
    number = 0
    while True:
        try:
            return _Upload(repository, blob).run(content, mount)
        except _Lost as lost:
            number += 1
            repository.client.patience.pause(
                number, Broken(lost.reason, lost.wait), f"{repository.where}, {blob.digest}"
            )


class _Lost(Exception):
    """The registry forgot an upload: it begins again. No `Broken`: asking for the same upload again is no use."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait = wait


class _Upload:
    def __init__(self, repository: Repository, blob: Descriptor) -> None:
        self.repository, self.client, self.blob = repository, repository.client, blob
        self.where = f"{repository.where}, {blob.digest}"
        self.url = ""
        self.piece = PIECE
        self.there = 0
        """Bytes that the registry has."""
        self.unsure = False

    def run(self, content: Open, mount: str) -> bool:
        """True where nothing had to be sent."""
        source = f"?mount={self.blob.digest}&from={mount}" if mount else ""
        path = self.repository.path(f"blobs/uploads/{source}")
        answer = self.client.ask("POST", path, self.repository.scopes, ok=(201, 202))
        if answer.status == 201:
            return True
        self._follow(answer)
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        self.piece = max(PIECE, min(_MOST, int(least) if least.isascii() and least.isdigit() else 0))
        if self.blob.size <= self.piece:
            self._finish(b"".join(self._checked(content)))
            return False
        start = 0
        for piece in _joined(self._checked(content), self.piece):
            self._send(piece, start)
            start += len(piece)
        self._finish(b"")
        return False

    def _checked(self, content: Open) -> Iterator[bytes]:
        return digests.checked(content(), self.blob.digest, self.blob.size, self.where)

    def _send(self, piece: bytes, start: int) -> None:
        """Sends the bytes from `start` on; after a break only those that the registry did not get."""

        def once() -> None:
            if self.unsure:
                self._ask_how_far()
            done = self.there - start
            if not 0 <= done <= len(piece):
                raise _Lost(f"it has {self.there} bytes, where it had {start}")
            rest = piece[done:]
            if rest:
                self.unsure = True
                span = f"{self.there}-{self.there + len(rest) - 1}"
                headers = {"Content-Type": "application/octet-stream", "Content-Range": span}
                answer = self._exchange("PATCH", self.url, headers, rest, (202, 204, 404, 416))
                if answer.status == 416:
                    raise Broken("it has other bytes of this blob than we thought")
                self._follow(answer)
            self.there, self.unsure = start + len(piece), False

        persist(self.client.patience, self.where, once)

    def _ask_how_far(self) -> None:
        answer = self._exchange("GET", self.url, {}, b"", (204, 202, 200, 404))
        self._follow(answer)
        last = answer.headers.get("Range", "0-0").removeprefix("bytes=").partition("-")[2]
        if not (last.isascii() and last.isdigit()):
            raise _Lost("it does not say how much it has")
        self.there = int(last) + 1 if int(last) > 0 else 0  # `0-0` is said of none, too

    def _finish(self, data: bytes) -> None:
        """Says what the blob is, with all of it or nothing more; the registry checks it."""
        joint = "&" if "?" in self.url else "?"
        headers = {"Content-Type": "application/octet-stream"}
        number = 0
        while True:
            try:
                url = f"{self.url}{joint}digest={self.blob.digest}"
                answer = self._exchange("PUT", url, headers, data, (201, 204, 404))
                break
            except Broken as broken:
                if self.repository.has(self.blob):
                    return  # only the answer was lost
                if data:
                    raise _Lost(broken.reason, broken.wait) from broken
                number += 1
                self.client.patience.pause(number, broken, self.where)
        stated = answer.headers.get("Docker-Content-Digest", self.blob.digest)
        if stated != self.blob.digest:
            raise SourceMismatch(
                f"the registry got something else\n  wanted: {self.blob.digest}\n  stated: {stated}", where=self.where
            )

    def _exchange(self, method: str, url: str, headers: dict[str, str], data: bytes, ok: tuple[int, ...]) -> Answer:
        answer = self.client.once(method, url, self.repository.scopes, ok=ok, headers=headers, content=data)
        if answer.status == 404:
            raise _Lost("it does not know this upload any more")
        return answer

    def _follow(self, answer: Answer) -> None:
        """Where the upload goes on; the registry may name another place each time."""
        location = answer.headers.get("Location")
        if location:
            self.url = str(self.client.resolve(answer.url, location))
        elif not self.url:
            raise SourceMismatch("the registry does not say where to send a blob", where=shown(answer.url))


def _joined(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The same bytes in pieces of `size`, but for the last one."""
    held = bytearray()
    for piece in pieces:
        held += piece
        while len(held) >= size:
            yield bytes(held[:size])
            del held[:size]
    if held:
        yield bytes(held)
