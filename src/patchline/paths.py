"""Which paths may be written below a folder: those that stay inside it, and that git would not obey."""

from __future__ import annotations

COMPONENT_BYTES = 255
"""Longest file name of every file system that we know of."""
PATH_BYTES = 4095
"""Longest path that Linux takes (PATH_MAX less its NUL)."""

# Code points that HFS+ ignores in a file name; git's own check of `.git` knows the same list.
_IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


def fault(path: str) -> str | None:
    """Why `path` may not be written, or None where it may."""
    if not path:
        return "it is empty"
    if "\0" in path:
        return "it holds a NUL byte"
    if path.startswith("/") or path[1:3] in (":/", ":\\"):
        return "it is absolute"
    if _size(path) > PATH_BYTES:
        return f"it is longer than {PATH_BYTES} bytes"
    parts = path.replace("\\", "/").split("/")
    return next((why for part in parts if (why := _part_fault(part))), None)


def _part_fault(part: str) -> str | None:
    if part in ("", ".", ".."):
        return f"it has the component {part!r}"
    if _size(part) > COMPONENT_BYTES:
        return f"a component is longer than {COMPONENT_BYTES} bytes"
    if _is_dot_git(part):
        return f"{part!r} is a spelling of .git"
    return None


def _size(name: str) -> int:
    """Bytes of `name` in UTF-8, whatever the locale: the same paths are refused on every machine."""
    return len(name.encode("utf-8", "surrogateescape"))


def _is_dot_git(part: str) -> bool:
    """Also what HFS+ and NTFS would take for `.git`: case, ignored characters, streams, short names."""
    if part.isascii() and "git" not in part.lower():
        return False  # nearly every name there is
    plain = part.translate(_IGNORED).split(":")[0].rstrip(". ").casefold()
    return plain in (".git", "git~1")


def ancestors(path: str) -> list[str]:
    """The folders above `path`, the outermost first: `a/b/c` gives `a`, `a/b`."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
