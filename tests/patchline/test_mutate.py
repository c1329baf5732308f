"""Mutants: which mistakes are made in a line, and that each of them is Python."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from patchline.proofs.held import mutate
from patchline.proofs.held.mutate import mutants


def made(source: str, *lines: int) -> list[str]:
    data = source.encode()
    wanted = {*lines} or {*range(1, source.count("\n") + 2)}
    found = [mutant.of(data).decode() for mutant in mutants("a.py", data, wanted)]
    for text in found:
        ast.parse(text)
    return found


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("x = a == b", ["x = a != b"]),
        ("x = a < b", ["x = a <= b"]),
        ("x = a >= b", ["x = a > b"]),
        ("x = a is not b", ["x = a is b"]),
        ("x = a not in b", ["x = a in b"]),
        ("x = a // b", ["x = (a // b + 1)", "x = a % b"]),
        ("x = a - 1", ["x = (a - 1 + 1)", "x = a + 1", "x = a - 2"]),
        ("x = a * b // c", ["x = (a * b // c + 1)", "x = a // b // c", "x = a * b % c"]),
        ("x = (a) % (b)", ["x = ((a) % (b) + 1)", "x = (a) // (b)"]),
        ("x = a and b", ["x = ((a))", "x = ((a) or (b))", "x = ((b))"]),
        ("x = not a", ["x = (a)"]),
        ("x = True", ["x = False"]),
        ("x = 1 if a else b", ["x = (b if a else 1)", "x = 2 if a else b"]),
        ("x = min(a, b)", ["x = max(a, b)"]),
        ("x = all(a)", ["x = any(a)"]),
        ("x = [a for a in b if c < a]", ["x = [a for a in b if (not (c < a))]", "x = [a for a in b if c <= a]"]),
        ("f(a)", ["pass"]),
        ("a.b = c", ["pass"]),
        ("a += b", ["pass"]),
        ("raise E", ["pass"]),
        ("assert a", ["pass"]),
    ],
)
def test_mistakes(line: str, wanted: list[str]) -> None:
    assert sorted(made(line)) == sorted(wanted)


@pytest.mark.parametrize(
    "line",
    ["x = a", "x: int = a", "x = 'text'", "x = f'{1 + 1}'", "'''1'''", "import a", "x = [a] + b", "x = set(a) - b", "x = {1} - b".replace("1", "a"), "x = None", "def f(a: 'int | 1' = b): ..."],
)  # fmt: skip
def test_nothing_to_mistake(line: str) -> None:
    assert made(line) == []


def test_sides_are_exchanged_where_the_other_exists() -> None:
    source = "def f(local_len, remote_len):\n    return g(local_len, local_tp, self.remote_tp, self.local_tp)\n"
    assert made(source) == [
        source.replace("g(local_len", "g(remote_len"),
        source.replace("self.remote_tp", "self.local_tp"),
        source.replace("self.local_tp", "self.remote_tp"),
    ]


def test_conditions_are_negated() -> None:
    assert made("if a:\n    x = b\n") == ["if (not (a)):\n    x = b\n"]
    assert made("if a == b:\n    x = b\n") == ["if a != b:\n    x = b\n"]


def test_only_what_can_be_left_out() -> None:
    source = "def f(a):\n    x = a\n    if a:\n        x = b\n        return b\n    return x\n"
    assert made(source, 2, 4, 5, 6) == [
        source.replace("    x = a\n", "    pass\n"),
        source.replace("x = b", "pass"),
        source.replace("return b", "pass"),
    ]


def test_only_the_lines_asked_for_and_over_several() -> None:
    source = "x = a == b\ny = (\n    a\n    # why\n    == b\n    and c\n)\n"
    assert made(source, 1) == ["x = a != b\n" + source.partition("\n")[2]]
    assert len(made(source, 3)) == 3, "the operator beside a comment stays"


def test_names_tell_mutants_apart() -> None:
    found = mutants("a/b.py", b"def f():\n    x = 1 + 1\n", {2})
    names = [one.name for one in found]
    assert len({*names}) == len(names) == 4
    assert "a/b.py: x = 1 + 1: 1 -> 2" in names
    assert "a/b.py: x = 1 + 1: 1 -> 2 (number 2)" in names
    assert {one.function for one in found} == {"f"}


def test_all_of_a_real_module() -> None:
    """Bytes, not characters, are counted; every mutant is Python and differs."""
    path = Path(mutate.__file__)
    source = "ä = 'ö'; x = 1 + 2  # ü\n".encode() + path.read_bytes().replace(
        b"from __future__ import annotations\n", b""
    )
    found = mutants("m.py", source, {*range(1, source.count(b"\n"))})
    assert len(found) > 100
    texts = {one.of(source) for one in found}
    assert len(texts) == len(found)
    for text in texts:
        compile(text, "m", "exec")
