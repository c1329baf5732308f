"""Lines of code as HTML, coloured by pygments with a few short classes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_for_filename
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

from patchline.page.visible import code

_CLASSES = (
    (Comment, "c"),
    (String, "s"),
    (Number, "m"),
    (Keyword, "k"),
    (Operator.Word, "k"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Builtin, "b"),
    (Name.Exception, "b"),
)
"""What is coloured; the rest is plain."""

MOST = 200_000
"""Characters of one hunk that are coloured; more are shown plain."""
LONGEST = 4_000
"""Characters of one line, likewise: what is longer was not written by hand."""


def highlighted(path: str, lines: list[str]) -> list[str]:
    """Each of the lines (without line ends) as HTML, read as code of a file of that name."""
    lexer = _lexer(path.rpartition("/")[2].rpartition(".")[2] or path)
    if lexer is None or sum(map(len, lines)) > MOST or any(len(line) > LONGEST for line in lines):
        return [code(line) for line in lines]
    made: list[list[str]] = [[]]
    for name, text in _runs(lexer, "\n".join(lines)):
        first, *rest = text.split("\n")
        made[-1].append(_span(name, first))
        made.extend([_span(name, line)] for line in rest)
    return ["".join(parts) for parts in made]


def _runs(lexer: Lexer, text: str) -> Iterator[tuple[str, str]]:
    """The text in runs of one class. Blanks have none of their own: they go with what stands before them."""
    name, run = "", ""
    for _, kind, token in lexer.get_tokens_unprocessed(text):  # the other way changes carriage returns
        new = name if token.isspace() and "\n" not in token else _class(kind)
        if new != name and run:
            yield name, run
            run = ""
        name, run = new, run + token
    yield name, run


@cache
def _lexer(ending: str) -> Lexer | None:
    try:
        found: Lexer = get_lexer_for_filename(f"file.{ending}")
    except ClassNotFound:
        return None
    return found


def _span(name: str, text: str) -> str:
    return f"<span class={name}>{code(text)}</span>" if name and text else code(text)


@cache
def _class(kind: _TokenType) -> str:
    ours = (name for parent, name in _CLASSES if kind[: len(parent)] == parent)
    return next(ours, "")
