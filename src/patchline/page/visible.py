"""Text that shows all that is in it: what no reader would see is written out, and nothing in it is HTML."""

from __future__ import annotations

import re

from markupsafe import Markup

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U000e0000-\U000e0fff]"
)
"""Control characters, all that turns the direction of text or takes no place, and halves of surrogates."""


def visible(text: str) -> str:
    """`text`, with hidden characters as `⟨U+202E⟩`; tabs and line ends stay."""
    return _HIDDEN.sub(_named, text)


def _named(match: re.Match[str]) -> str:
    return f"\N{MATHEMATICAL LEFT ANGLE BRACKET}U+{ord(match[0]):04X}\N{MATHEMATICAL RIGHT ANGLE BRACKET}"


def code(text: str) -> str:
    """`text` as HTML between two tags, hidden characters marked. In an attribute it would not do: quotes stay."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _HIDDEN.sub(lambda match: f"<i>{_named(match)}</i>", escaped)


def prose(text: str) -> Markup:
    """News as HTML: paragraphs, and `code` between backticks; other Markdown stays as it is written."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip()) if block.strip()]
    return Markup("\n".join(f"<p>{_inline(block)}</p>" for block in blocks))


def _inline(block: str) -> str:
    parts = re.split(r"`([^`\n]+)`", block)
    return "".join(f"<code>{code(part)}</code>" if at % 2 else code(part) for at, part in enumerate(parts))
