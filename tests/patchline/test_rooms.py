"""The map of the house is true: who imports whom, one exit code a kind of error, one module a verb."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from patchline import cli, errors

PACKAGE = Path(errors.__file__).parent
ROOMS = [
    "tools",
    "pins",
    "sources",
    "series",
    "overlay",
    "proofs",
    "gates",
    "image",
    "lines",
    "release",
    "rebase",
    "audit",
    "changelog",
    "page",
    "cli",
    "commands",
]
"""Left to right; `tools` are the modules that every room may use, `cli` is known to its verbs."""
NOT_TOOLS = {"overlay", "cli", "__main__"}


def room(module: str) -> str:
    """The room of a module, by its dotted name without `patchline.`."""
    first = module.split(".", maxsplit=1)[0]
    return first if first in ROOMS else "tools"


def imports(path: Path) -> set[str]:
    """The modules of ours that a file imports, without `patchline.`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "patchline":
            base = node.module.removeprefix("patchline").lstrip(".")
            names = {f"{base}.{alias.name}".lstrip(".") for alias in node.names}
            found |= {
                name if (PACKAGE / name.replace(".", "/")).with_suffix(".py").exists() else base or name
                for name in names
            }
        elif isinstance(node, ast.Import):
            found |= {
                alias.name.removeprefix("patchline.") for alias in node.names if alias.name.startswith("patchline.")
            }
    return found


def modules() -> list[tuple[str, Path]]:
    paths = sorted(path for path in PACKAGE.rglob("*.py") if path.name not in ("__main__.py", "report_plugin.py"))
    return [(path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", "."), path) for path in paths]


def test_a_room_imports_only_rooms_before_it() -> None:
    checked, wrong = 0, []
    for name, path in modules():
        for other in imports(path):
            checked += 1
            if ROOMS.index(room(other)) > ROOMS.index(room(name)):
                wrong.append(f"{name} imports {other}")
    assert wrong == []
    assert checked > 100


def test_no_module_of_ours_imports_nox() -> None:
    assert [name for name, path in modules() if "import nox" in path.read_text()] == []


def test_one_exit_code_a_kind() -> None:
    kinds = errors.PatchlineError.__subclasses__()
    codes = [kind.exit for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert {int(code) for code in errors.Exit} == set(range(9))
    assert set(codes) | {errors.Exit.DONE, errors.Exit.FINDINGS} == set(errors.Exit)  # findings are an outcome


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_has_its_module(verb: str) -> None:
    assert (PACKAGE / "commands" / f"{verb.replace('-', '_')}.py").is_file()


def test_every_module_of_commands_is_a_verb() -> None:
    names = {path.stem for path in (PACKAGE / "commands").glob("*.py")} - {"__init__"}
    assert names == {verb.replace("-", "_") for verb in cli.VERBS}


def test_the_architecture_names_every_room() -> None:
    text = (PACKAGE.parents[1] / "ARCHITECTURE.md").read_text()
    assert [name for name in ROOMS if name != "tools" and name not in text] == []
