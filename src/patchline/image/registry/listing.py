"""The tags of a repository, page by page."""

from __future__ import annotations

import msgspec

from patchline.errors import SourceMismatch
from patchline.image.registry.repository import Repository

_PAGE = 1000  # tags


class _Tags(msgspec.Struct):
    tags: list[str] | None = None


def tags(repository: Repository) -> list[str]:
    """All tags; none where the registry does not know the repository yet.

    Raises:
        SourceMismatch: what came is no list of tags.
    """
    client, found, seen = repository.client, list[str](), set[str]()
    path = repository.path(f"tags/list?n={_PAGE}")
    while path not in seen:
        seen.add(path)
        answer = client.ask("GET", path, repository.scopes, ok=(200, 404))
        if answer.status == 404:
            return found
        try:
            found += msgspec.json.decode(answer.data, type=_Tags).tags or []
        except msgspec.MsgspecError as bad:
            raise SourceMismatch(f"this is no list of tags: {bad}", where=repository.where) from bad
        following = next_link(answer.headers.get("Link", ""))
        if not following:
            return found
        path = client.resolve(answer.url, following).target
    raise SourceMismatch("the registry's list of tags has no end", where=repository.where)


def next_link(header: str) -> str:
    """The target of `<…>; rel="next"` (RFC 8288), or nothing."""
    for part in header.split(","):
        target, _, rest = part.strip().partition(">")
        if target.startswith("<") and 'rel="next"' in rest.replace(" ", ""):
            return target[1:]
    return ""
