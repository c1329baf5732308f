"""A patch's header: mail form (git format-patch) or DEP-3 (Debian), read and written."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from patchline.series.refusals import BadPatch

FIRST_LINE = b"From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001\n"
"""What `git format-patch --zero-commit` begins with; the date is git's own constant."""

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?:[ \t](.*)|)$")
_TRAILER = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (.+)$")
_PERSON = re.compile(r"\s*(.*?)\s*<([^<>]*)>\s*$")
_PATCH_TAG = re.compile(r"^\[PATCH[^\]]*\]\s*")
_DATE = re.compile(r"(?:[A-Z][a-z]{2}, )?(\d{1,2}) ([A-Z][a-z]{2}) (\d{4})(?: (\d\d):(\d\d):(\d\d) ([+-]\d{4}))?$")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MAIL_FIELDS = {"from", "author", "date", "last-update", "subject", "description"}
_NOT_TRAILERS = {"from", "date", "subject", "mime-version", "content-type", "content-transfer-encoding", "message-id"}


class Header(NamedTuple):
    """Who, when and why. `seconds` is Unix time, `zone` is `+hhmm`; None and empty where not said."""

    name: str = ""
    email: str = ""
    seconds: int | None = None
    zone: str = "+0000"
    subject: str = ""
    body: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    """DEP-3 fields that stand above the message, by lower-case name, in order."""

    @property
    def message(self) -> str:
        """The commit message: subject, a blank line, body."""
        return f"{self.subject}\n\n{self.body}\n" if self.body else f"{self.subject}\n"

    @property
    def trailers(self) -> dict[str, list[str]]:
        """Trailers of the body's last paragraph, then DEP-3 fields, by lower-case name."""
        found: dict[str, list[str]] = {}
        for key, value in (*_trailers(self.body), *self.fields):
            found.setdefault(key.lower(), []).append(value)
        return found


def _trailers(body: str) -> list[tuple[str, str]]:
    last = body.strip().split("\n\n")[-1]
    joined = re.sub(r"\n[ \t]+", " ", last).splitlines()
    matches = [match for line in joined if (match := _TRAILER.match(line))]
    return [(match[1], match[2].strip()) for match in matches] if len(matches) == len(joined) else []


def read(lines: list[bytes]) -> tuple[Header, int]:
    """Reads the fields at the top of a patch: the header without its body, and where its body starts.

    Where no such fields are, the header is empty and the body starts at 0.

    Raises:
        BadPatch: a multipart mail, an encoding that does not decode.
    """
    start = 1 if lines and re.match(rb"From [0-9a-f]{40,64} ", lines[0]) else 0
    pairs, at = _fields(lines, start)
    names = {key.lower(): value for key, value in pairs}
    if not names.keys() & _MAIL_FIELDS:
        return Header(), start
    if "multipart" in names.get("content-type", ""):
        raise BadPatch("a multipart mail; save the patch itself, not the mail around it")
    subject, extra = _subject(names)
    name, email = person(names.get("from") or names.get("author") or "")
    seconds, zone = _when(names["date"]) if names.get("date") else _day(names.get("last-update", ""))
    rest = tuple((key.lower(), value) for key, value in pairs if key.lower() not in _NOT_TRAILERS)
    return Header(name, email, seconds, zone, subject, extra, rest), at


def _fields(lines: list[bytes], at: int) -> tuple[list[tuple[str, str]], int]:
    fields: list[tuple[str, list[str]]] = []
    end = at
    while at < len(lines) and lines[at].strip():
        line = _text(lines[at]).rstrip("\r\n")
        if line.startswith((" ", "\t")) and fields:
            key, values = fields[-1]
            values.append(line[1:] if key.lower() == "description" else line.strip())
        elif match := _FIELD.match(line):
            fields.append((match[1], [(match[2] or "").strip()]))
        else:
            break
        at += 1
        end = at
    else:
        end = at + 1
    return [(key, "\n".join(values)) for key, values in fields], end


def _subject(names: dict[str, str]) -> tuple[str, str]:
    """The subject without `[PATCH n/m]` (other tags stay), and what DEP-3's description adds to it."""
    if "subject" in names:
        return _PATCH_TAG.sub("", _decoded(names["subject"].replace("\n", " "))), ""
    first, _, rest = names.get("description", "").partition("\n")
    lines = ["" if line.strip() == "." else line for line in rest.splitlines()]
    return first.strip(), "\n".join(lines).strip("\n")


def _decoded(value: str) -> str:
    if "=?" not in value:
        return value
    from email.errors import HeaderParseError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError) as bad:
        raise BadPatch(f"a header does not decode: {value!r}") from bad


def person(value: str) -> tuple[str, str]:
    """Name and mail address of `Name <address>`; either may be empty."""
    value = _decoded(value.replace("\n", " "))
    match = _PERSON.match(value)
    name, email = (match[1], match[2]) if match else (value.strip(), "")
    if name[:1] == name[-1:] == '"' and len(name) > 1:
        name = re.sub(r"\\(.)", r"\1", name[1:-1])
    return re.sub(r"[<>\n\0]", "", name), re.sub(r"[\n\0]", "", email.strip())


def _when(value: str) -> tuple[int, str]:
    """Unix time and zone of a date in git's own form, with or without its time, or in mail's many others."""
    match = _DATE.match(value)
    try:
        if not match:
            return _when_otherwise(value)
        day, month, year, hour, minute, second, zone = match.groups()
        date = int(year), _MONTHS.index(month) + 1, int(day)
        moment = datetime(*date, int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
        return int(moment.timestamp()) - _offset(zone or "+0000"), zone or "+0000"
    except (ValueError, TypeError, IndexError, OverflowError) as bad:
        raise BadPatch(f"not a date: {value!r}", next="write it as git does: Thu, 20 Sep 2018 17:45:32 -0700") from bad


def _when_otherwise(value: str) -> tuple[int, str]:
    from email.utils import parsedate_to_datetime

    moment = parsedate_to_datetime(value)
    zone = re.search(r"([+-]\d{4})\b", value)
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()), zone[1] if zone else "+0000"


def _day(value: str) -> tuple[int | None, str]:
    """Unix time of DEP-3's `YYYY-MM-DD`; whatever else stands there says nothing about when it was written."""
    try:
        return int(datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()), "+0000"
    except ValueError:
        return None, "+0000"


def decode_body(lines: list[bytes], at: int) -> list[bytes]:
    """`lines`, with what follows the fields decoded when the mail says that it is encoded.

    Raises:
        BadPatch: the body is not what the mail says it is.
    """
    coding = next((_coding(line) for line in lines[:at] if _coding(line)), "")
    if coding not in ("quoted-printable", "base64"):
        return lines
    import base64
    import binascii
    import quopri

    body = b"".join(lines[at:])
    try:
        plain = quopri.decodestring(body) if coding == "quoted-printable" else base64.b64decode(body)
    except binascii.Error as bad:
        raise BadPatch(f"the mail says {coding} and does not decode") from bad
    plain = plain.replace(b"\r\n", b"\n") if all(line.endswith(b"\r\n") for line in lines[:at]) else plain
    return [*lines[:at], *plain.splitlines(keepends=True)]


def _coding(line: bytes) -> str:
    match = re.match(rb"content-transfer-encoding:\s*(\S+)", line, re.IGNORECASE)
    return match[1].decode("ascii", "replace").lower() if match else ""


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


def body_text(lines: list[bytes]) -> str:
    """The text of a message's body, without blank lines around it."""
    return "".join(map(_text, lines)).strip("\n")


def written(header: Header) -> bytes:
    """The mail form of `header`, up to the line that ends it; the same bytes on every machine.

    Raises:
        BadPatch: its time cannot be said as a date.
    """
    seconds = header.seconds or 0
    try:
        moment = datetime.fromtimestamp(seconds + _offset(header.zone), UTC)
    except (ValueError, OverflowError, OSError) as bad:
        raise BadPatch(f"not a time that a patch can say: {seconds} {header.zone}", next="git rebase -i") from bad
    day, month = _DAYS[moment.weekday()], _MONTHS[moment.month - 1]
    date = f"{day}, {moment.day} {month} {moment.year} {moment:%H:%M:%S} {header.zone}"
    body = f"{header.body}\n" if header.body else ""
    text = f"From: {header.name} <{header.email}>\nDate: {date}\nSubject: {header.subject}\n\n{body}---\n\n"
    return FIRST_LINE + text.encode("utf-8", "surrogateescape")


def _offset(zone: str) -> int:
    """Seconds that `+hhmm` is ahead of UTC.

    Raises:
        ValueError: it is not of that form, or a day or more.
    """
    if not re.fullmatch(r"[+-]([01]\d|2[0-3])[0-5]\d", zone):
        raise ValueError(zone)
    seconds = int(zone[1:3]) * 3600 + int(zone[3:5]) * 60
    return -seconds if zone[0] == "-" else seconds
