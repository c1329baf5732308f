"""What registries say when they refuse: the error documents of the distribution specification."""

from __future__ import annotations

import msgspec

MOST = 300
"""Characters of a message that are shown."""


class _Fault(msgspec.Struct):
    code: str = ""
    message: str = ""


class _Faults(msgspec.Struct):
    errors: list[_Fault] = []


def said(status: int, reason: str, data: bytes) -> str:
    """An answer in one line: the status, and the codes and messages in its body, if they are such."""
    try:
        errors = msgspec.json.decode(data, type=_Faults).errors
    except msgspec.MsgspecError:
        errors = []
    told = "; ".join(f"{one.code} {one.message}".strip() for one in errors)
    text = f"{status} {reason}".strip() + (f": {told}" if told else "")
    return "".join(letter if letter.isprintable() else " " for letter in text)[:MOST]
