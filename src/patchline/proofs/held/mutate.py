"""Mutants: one small mistake in one patched line, of the kinds that people make in such code.

The kinds are those that mutation testing has found to stand for real faults (operator, constant and
statement mutations), with one of our own: what belongs to this side and to the other one, exchanged.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"),
    ast.Mult: ("*", "//"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SIDES = {"local": "remote", "remote": "local", "prefill": "decode", "decode": "prefill"}
_SIDE = re.compile("|".join(_SIDES))
_DROPPED = (ast.Raise, ast.AugAssign, ast.Continue, ast.Break)
_NOT_NUMBERS = (ast.List, ast.Set, ast.Tuple, ast.JoinedStr, ast.ListComp, ast.Dict)


class Mutant(NamedTuple):
    """One mistake: the bytes `start` to `end` of a file replaced."""

    path: str
    line: int
    start: int
    end: int
    before: str
    after: str
    text: str
    """Its line, without blanks around it."""
    function: str
    """The innermost function or class around it; empty at the top."""
    number: int
    """Which of those with the same text it is, from 1."""

    @property
    def name(self) -> str:
        """Stands for it in explanations, whatever its line."""
        again = f" (number {self.number})" if self.number > 1 else ""
        return f"{self.path}: {self.text}: {_one_line(self.before)} -> {_one_line(self.after)}{again}"

    def of(self, source: bytes) -> bytes:
        """The file with the mistake in it."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutants(path: str, source: bytes, lines: set[int]) -> list[Mutant]:
    """Every mistake that can be made in `lines` (from 1) of a Python file, in the order of the text.

    Messages, annotations and docstrings are left alone.

    Raises:
        SyntaxError: the file is no Python.
    """
    maker = _Maker(source)
    found: list[Mutant] = []
    seen: Counter[tuple[str, str, str]] = Counter()
    edits = {edit[:3]: edit for edit in maker.edits() if maker.line_of(edit[0]) in lines}
    for start, end, after, function in sorted(edits.values()):
        line = maker.line_of(start)
        before, text = source[start:end].decode(), maker.text(line)
        if before != after:
            seen[text, before, after] += 1
            number = seen[text, before, after]
            found.append(Mutant(path, line, start, end, before, after, text, function, number))
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())


_Edit = tuple[int, int, str, str]
"""Start, end, the new text, and the function around it."""


class _Scope(NamedTuple):
    """The innermost function or class."""

    name: str
    names: set[str]
    """That it binds: another side's name counts only where it exists."""


class _Maker:
    """Finds the edits of one source."""

    def __init__(self, source: bytes) -> None:
        self.source, self.tree = source, ast.parse(source)
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.attributes = {node.attr for node in ast.walk(self.tree) if isinstance(node, ast.Attribute)}

    def line_of(self, offset: int) -> int:
        return bisect_right(self.starts, offset)

    def text(self, line: int) -> str:
        return self.source[self.starts[line - 1] : self.starts[line]].decode().strip()

    def edits(self) -> Iterator[_Edit]:
        yield from self._walk(self.tree, _Scope("", set()), nested=False)

    def _walk(self, node: ast.AST, scope: _Scope, *, nested: bool) -> Iterator[_Edit]:
        if isinstance(node, ast.Assert) and not _is_check(node):
            return
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            scope = _Scope(node.name, _bound(node))
        for edit in self._of(node, scope, nested):
            yield (*edit, scope.name)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_text(child):
                    yield from self._walk(child, scope, nested=isinstance(node, ast.BinOp))

    def _of(self, node: ast.AST, scope: _Scope, nested: bool) -> Iterator[tuple[int, int, str]]:
        match node:
            case ast.Compare():
                yield from self._compare(node)
            case ast.BinOp():
                yield from self._arithmetic(node, nested)
            case ast.BoolOp():
                yield from self._logic(node)
            case ast.UnaryOp(op=ast.Not()):
                yield (*self._span(node), f"({self._code(node.operand)})")
            case ast.Constant():
                yield from self._constant(node)
            case ast.Name() | ast.Attribute():
                yield from self._side(node, scope)
            case ast.Call(func=ast.Name(id=name)) if name in _CALLS:
                yield (*self._span(node.func), _CALLS[name])
            case ast.IfExp():
                parts = [self._code(part) for part in (node.orelse, node.test, node.body)]
                yield (*self._span(node), f"({parts[0]} if {parts[1]} else {parts[2]})")
            case _:
                yield from self._statement(node)

    def _statement(self, node: ast.AST) -> Iterator[tuple[int, int, str]]:
        if isinstance(node, ast.If | ast.While) and not _negated_elsewhere(node.test):
            yield (*self._span(node.test), f"(not ({self._code(node.test)}))")
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield (*self._span(test), f"(not ({self._code(test)}))")
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in _early(node):
                yield (*self._span(statement), "pass")
        if isinstance(node, _DROPPED) or _is_call(node) or _is_check(node) or _sets_a_part(node):
            yield (*self._span(node), "pass")

    def _compare(self, node: ast.Compare) -> Iterator[tuple[int, int, str]]:
        sides = [node.left, *node.comparators]
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            old, new = _COMPARISONS[type(op)]
            yield from self._between(left, right, old, new)

    def _arithmetic(self, node: ast.BinOp, nested: bool) -> Iterator[tuple[int, int, str]]:
        if type(node.op) not in _ARITHMETIC or any(_no_number(side) for side in (node.left, node.right)):
            return
        yield from self._between(node.left, node.right, *_ARITHMETIC[type(node.op)])
        if not nested:
            yield (*self._span(node), f"({self._code(node)} + 1)")

    def _logic(self, node: ast.BoolOp) -> Iterator[tuple[int, int, str]]:
        parts = [f"({self._code(value)})" for value in node.values]
        here, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        yield (*self._span(node), f"({f' {other} '.join(parts)})")
        for dropped in range(len(parts)):
            rest = f" {here} ".join(parts[:dropped] + parts[dropped + 1 :])
            yield (*self._span(node), f"({rest})")

    def _constant(self, node: ast.Constant) -> Iterator[tuple[int, int, str]]:
        if isinstance(node.value, bool):
            yield (*self._span(node), str(not node.value))
        elif isinstance(node.value, int):
            yield (*self._span(node), str(node.value + 1))

    def _side(self, node: ast.Name | ast.Attribute, scope: _Scope) -> Iterator[tuple[int, int, str]]:
        name, there = (node.id, scope.names) if isinstance(node, ast.Name) else (node.attr, self.attributes)
        other = _SIDE.sub(lambda found: _SIDES[found[0]], name)
        if other != name and other in there and isinstance(node.ctx, ast.Load):
            _, end = self._span(node)
            yield (end - len(name.encode()), end, other)

    def _between(self, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[tuple[int, int, str]]:
        """The operator between two operands; nothing where a comment stands there too."""
        start, end = self._span(left)[1], self._span(right)[0]
        gap = self.source[start:end].decode()
        if gap.strip(" \n\t()\\") == old:
            at = start + gap.index(old)
            yield (at, at + len(old), new)

    def _code(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end].decode()

    def _span(self, node: ast.AST) -> tuple[int, int]:
        line, column, last, stop = (
            getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")
        )
        return self.starts[line - 1] + column, self.starts[last - 1] + stop


def _negated_elsewhere(test: ast.expr) -> bool:
    """Whether a mutant of its own operator says the opposite already."""
    if isinstance(test, ast.Compare):
        return len(test.ops) == 1 and not isinstance(test.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
    return isinstance(test, ast.UnaryOp)


def _bound(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    return names | {one.arg for one in ast.walk(node) if isinstance(one, ast.arg)}


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _no_number(node: ast.expr) -> bool:
    is_set = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "set"
    return isinstance(node, _NOT_NUMBERS) or is_set or _is_text(node)


def _is_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_check(node: ast.AST) -> bool:
    """An assertion, but for those that tell a type checker what it cannot see: `is not None`, `isinstance`."""
    match node:
        case ast.Assert(test=ast.Compare(ops=[ast.IsNot()])):
            return False
        case ast.Assert(test=ast.Call(func=ast.Name(id="isinstance"))):
            return False
    return isinstance(node, ast.Assert)


def _sets_a_part(node: ast.AST) -> bool:
    """An assignment without which a name still exists: to an attribute, or to an item."""
    return isinstance(node, ast.Assign) and all(isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets)


def _early(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.stmt]:
    """Returns before a function's end, and assignments to a name that it assigns elsewhere too."""
    own = [one for one in ast.walk(node) if isinstance(one, ast.stmt)]
    counts = Counter(name for one in own for name in _assigned(one))
    for one in own:
        returns = isinstance(one, ast.Return) and one is not node.body[-1]
        if returns or ((names := _assigned(one)) and all(counts[name] > 1 for name in names)):
            yield one


def _assigned(node: ast.stmt) -> list[str]:
    if not isinstance(node, ast.Assign):
        return []
    found = [one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)]
    return found if all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets) else []
