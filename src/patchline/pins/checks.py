"""What a pin must be beyond its shape; each check yields a problem as one sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from patchline.pins.model import ArchivePin, GitPin, Pin, PinFile, Upstream, name_of
from patchline.urls import shown

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PLAIN_VERSION = re.compile(r"(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))*")

# Anything else can make git start a program of the url's choosing (`ext::`, `-u…`, `fd::`).
_GIT_URL = re.compile(r"(?:https?|ssh|git|file)://[^-\s][^\s]*|/[^\s]*|[\w.-]+@[\w.-]+:[^-\s:][^\s:]*")
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]*")


def of_upstream(upstream: Upstream) -> Iterator[str]:
    """Every problem of one upstream and its pins."""
    if not _NAME.fullmatch(upstream.name):
        yield f"'{upstream.name}' is not a name"
    if not any(pin.version == upstream.carried for pin in upstream.pins):
        yield f"carried {upstream.carried} has no pin"
    counts = Counter((name_of(upstream, pin), pin.version) for pin in upstream.pins)
    yield from (f"{name} {version} is pinned twice" for (name, version), count in counts.items() if count > 1)


def of_pin(pin: Pin) -> Iterator[str]:
    """Every problem of one pin."""
    yield from of_version(pin.version)
    if isinstance(pin, GitPin):
        yield from _of_git(pin)
    else:
        yield from _of_archive(pin)


def of_version(version: str) -> Iterator[str]:
    """Nothing for a version in the one spelling that PEP 440 calls normal."""
    if _PLAIN_VERSION.fullmatch(version):
        return
    from packaging.version import InvalidVersion, Version

    try:
        normal = str(Version(version))
    except InvalidVersion:
        yield f"'{version}' is not a version (PEP 440)"
        return
    if normal != version:
        yield f"version '{version}' is written '{normal}'"


def of_git_url(url: str) -> Iterator[str]:
    """Nothing for a url that makes git open a connection or a folder, and do nothing else."""
    if not _GIT_URL.fullmatch(url):
        yield f"'{url}' is not an https, ssh, git or file url, nor an absolute path"
    elif re.match(r"https?://[^/]*@", url):
        yield f"'{shown(url)}' holds a name or a password, which a pin would make public"


def of_tag(tag: str) -> Iterator[str]:
    """Nothing for a plain tag name."""
    if not _TAG.fullmatch(tag) or ".." in tag or tag.endswith((".lock", "/", ".")):
        yield f"'{tag}' is not a tag name"


def _of_git(pin: GitPin) -> Iterator[str]:
    yield from of_git_url(pin.url)
    yield from of_tag(pin.tag)
    if not _COMMIT.fullmatch(pin.commit):
        yield f"commit '{pin.commit}' is not a full id (40 or 64 lower-case hex digits)"


def _of_archive(pin: ArchivePin) -> Iterator[str]:
    if not _NAME.fullmatch(pin.distribution):
        yield f"'{pin.distribution}' is not the name of a distribution"
    if not pin.files:
        yield "it has no files"
    if pin.kind == "sdist" and len(pin.files) > 1:
        yield "an sdist pin has one file"
    counts = Counter(file.name for file in pin.files)
    yield from (f"file {name} is named twice" for name, count in counts.items() if count > 1)
    for file in pin.files:
        yield from _of_file(file, (".tar.gz",) if pin.kind == "sdist" else (".whl",))


def _of_file(file: PinFile, endings: tuple[str, ...]) -> Iterator[str]:
    if not _FILE.fullmatch(file.name):
        yield f"'{file.name}' is not a plain file name"
    elif not file.name.endswith(endings):
        yield f"{file.name} does not end with {' or '.join(endings)}"
    if not _SHA256.fullmatch(file.sha256):
        yield f"{file.name}: sha256 '{file.sha256}' is not 64 lower-case hex digits"
    if file.size <= 0:
        yield f"{file.name}: size {file.size} is not above zero"
