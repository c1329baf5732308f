"""One repository of a registry: its manifests, blobs and tags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from patchline.errors import Refused, SourceMismatch
from patchline.image import digests, model
from patchline.image.model import Descriptor, Document
from patchline.image.reference import is_tag
from patchline.image.registry.auth import Scopes
from patchline.image.registry.client import Client

_ACCEPT = ", ".join((*model.MANIFESTS, *model.INDEXES))
_KEEPS = (400, 405, 501)
"""What registries that remove nothing answer."""


class Found(NamedTuple):
    """A manifest or an index, as it came."""

    descriptor: Descriptor
    document: Document


class Repository:
    """Reads, and with `push` writes; `beside` are repositories of the same registry that blobs may be taken from."""

    def __init__(self, client: Client, name: str, *, push: bool = False, beside: Sequence[str] = ()) -> None:
        self.client, self.name = client, name
        self.where = f"{client.host}/{name}"
        own = f"repository:{name}:{'pull,push' if push else 'pull'}"
        self.scopes: Scopes = (own, *(f"repository:{one}:pull" for one in beside if one != name))

    def manifest(self, reference: str) -> Found | None:
        """The manifest or index that a tag or a digest means; None where there is none.

        Raises:
            SourceMismatch: its bytes are not those of the digest that was asked for, or that the registry states.
        """
        answer = self.client.ask(
            "GET", self.path(f"manifests/{reference}"), self.scopes, ok=(200, 404), headers={"Accept": _ACCEPT}
        )
        if answer.status == 404:
            return None
        where = f"{self.where}, {reference}"
        digest = digests.of(answer.data)
        stated = answer.headers.get("Docker-Content-Digest", digest)
        wanted = reference if digests.is_digest(reference) else stated
        if digest != wanted or stated != digest:
            raise SourceMismatch(
                f"the registry sent wrong bytes\n  wanted: {wanted}\n  stated: {stated}\n  found:  {digest}",
                where=where,
            )
        kind = answer.headers.get("Content-Type", "").split(";")[0].strip()
        return Found(Descriptor(kind, digest, len(answer.data)), model.document(answer.data, where))

    def digest_of(self, tag: str) -> str | None:
        """What a tag means now; None where there is none."""
        answer = self.client.ask(
            "HEAD", self.path(f"manifests/{tag}"), self.scopes, ok=(200, 404), headers={"Accept": _ACCEPT}
        )
        stated = answer.headers.get("Docker-Content-Digest", "")
        if answer.status == 404 or digests.is_digest(stated):
            return None if answer.status == 404 else stated
        found = self.manifest(tag)
        return found.descriptor.digest if found else None

    def has(self, descriptor: Descriptor) -> bool:
        """Whether the repository has a blob.

        Raises:
            SourceMismatch: it has one of that digest, of another size.
        """
        path = self.path(f"blobs/{descriptor.digest}")
        answer = self.client.ask("HEAD", path, self.scopes, ok=(200, 404))
        if answer.status == 404:
            return False
        size = answer.headers.get("Content-Length", str(descriptor.size))
        stated = answer.headers.get("Docker-Content-Digest", descriptor.digest)
        if (stated, size) != (descriptor.digest, str(descriptor.size)):
            raise SourceMismatch(
                f"the registry has another blob\n  wanted: {descriptor.digest}, {descriptor.size} bytes"
                f"\n  stated: {stated}, {size} bytes",
                where=self.where,
            )
        return True

    def put(self, manifest: Document, reference: str = "") -> bool:
        """Puts a manifest under its digest, or under a tag; nothing is asked before.

        True where the registry says that it lists the manifest as a referrer of its subject (header `OCI-Subject`).

        Raises:
            SourceMismatch: the registry says that it holds something else now.
            Refused: it does not want it (a blob is missing).
        """
        kind = {"Content-Type": manifest.fields["mediaType"]}
        path = self.path(f"manifests/{reference or manifest.digest}")
        answer = self.client.ask("PUT", path, self.scopes, ok=(200, 201), headers=kind, content=manifest.data)
        stated = answer.headers.get("Docker-Content-Digest", manifest.digest)
        if stated != manifest.digest:
            raise SourceMismatch(
                f"the registry holds something else\n  wanted: {manifest.digest}\n  stated: {stated}", where=self.where
            )
        return "OCI-Subject" in answer.headers

    def remove(self, digest: str) -> bool:
        """Removes a manifest, and with it the tags that mean it; false where the registry removes nothing.

        Raises:
            Refused: we may not.
        """
        scopes = (f"repository:{self.name}:delete", *self.scopes)
        path = self.path(f"manifests/{digest}")
        return self.client.ask("DELETE", path, scopes, ok=(200, 202, 404, *_KEEPS)).status not in _KEEPS

    def tag(self, manifest: Document, tag: str) -> bool:
        """Lets `tag` mean a manifest that the repository has; false where it does already.

        A registry cannot be told to take a tag only if it is free. Of two that set it at one moment the later wins,
        and the other one is told by this: the tag is read again.

        Raises:
            Refused: the tag means something else; it is never moved.
        """
        if not is_tag(tag):
            raise Refused(f"{tag!r} is no tag", where=self.where)
        before = self.digest_of(tag)
        if before is None:
            self.put(manifest, tag)
        now = before or self.digest_of(tag)
        if now != manifest.digest:
            raise Refused(
                f"the tag {tag} means another image, and tags are never moved"
                f"\n  it means: {now}\n  wanted:   {manifest.digest}",
                where=self.where,
                next="take the next free tag",
            )
        return before is None

    def path(self, rest: str) -> str:
        """The path of something in this repository, at the registry."""
        return f"/v2/{self.name}/{rest}"
