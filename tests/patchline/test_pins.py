"""The pins file: read strictly, written the same way each time, and never against its own hashes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from making import pin_of, sdist, wheel
from serving import Index, only_index, redirected, serving, status

from patchline import git, index, pip_settings
from patchline.download import cached, digest
from patchline.errors import PatchlineError, SourceMismatch, Unreachable, UsageError
from patchline.pins import GitPin, Upstream, load, name_of, select, write
from patchline.pins.pinning import pin_archive, pin_git
from patchline.project import Project

ROOT = Path(__file__).parents[2]
SHA = "a" * 64
GOOD = f"""\
[upstream.vllm]
carried = "0.31.0"

[[upstream.vllm.pins]]
kind = "sdist"
distribution = "vllm"
version = "0.31.0"
files = [{{ name = "vllm-0.31.0.tar.gz", sha256 = "{SHA}", size = 10 }}]

[[upstream.vllm.pins]]
kind = "sdist"
distribution = "vllm"
version = "0.32.0"
files = [{{ name = "vllm-0.32.0.tar.gz", sha256 = "{SHA}", size = 10 }}]

[upstream.dynamo]
carried = "1.6.0"

[[upstream.dynamo.pins]]
kind = "wheel"
distribution = "ai-dynamo"
version = "1.6.0"
files = [{{ name = "ai_dynamo-1.6.0-py3-none-any.whl", sha256 = "{SHA}", size = 10 }}]

[[upstream.dynamo.pins]]
kind = "wheel"
distribution = "ai-dynamo-runtime"
version = "1.6.0"
files = [{{ name = "ai_dynamo_runtime-1.6.0-x.whl", sha256 = "{SHA}", size = 10 }}]

[upstream.tool]
carried = "1.2.3"

[[upstream.tool.pins]]
kind = "git"
version = "1.2.3"
url = "https://git.example/tool.git"
tag = "v1.2.3"
commit = "{"b" * 40}"
"""


@pytest.fixture
def pins(tmp_path: Path) -> Path:
    path = tmp_path / "builds" / "upstreams.toml"
    path.parent.mkdir()
    path.write_text(GOOD)
    return path


def wrong(path: Path) -> str:
    with pytest.raises(UsageError) as caught:
        load(path)
    assert int(caught.value.exit) == 2
    return str(caught.value)


def test_read_and_written_alike(pins: Path) -> None:
    upstreams = load(pins)
    assert list(upstreams) == ["vllm", "dynamo", "tool"]
    write(pins, upstreams)
    first = pins.read_bytes()
    assert b"nox -s pin" in first.splitlines()[1]
    assert load(pins) == upstreams
    write(pins, load(pins))
    assert pins.read_bytes() == first
    assert [path.name for path in pins.parent.iterdir()] == ["upstreams.toml"]


def test_the_project_has_its_pins_as_its_writer_writes_them(tmp_path: Path) -> None:
    upstreams = load(ROOT / "builds" / "upstreams.toml")
    assert {name: up.carried for name, up in upstreams.items()} == {"vllm": "0.31.0", "dynamo": "1.6.0"}
    write(tmp_path / "again.toml", upstreams)
    assert (tmp_path / "again.toml").read_bytes() == (ROOT / "builds" / "upstreams.toml").read_bytes()


CASES = {
    'carried = "0.31.0"|carryed = "0.31.0"': "upstream vllm: unknown key 'carryed': did you mean 'carried'?",
    "sha256|sha265": "files: unknown key 'sha265': did you mean 'sha256'?",
    'kind = "sdist"|kind = "sdits"': "upstream vllm, pin 1: kind 'sdits': did you mean 'sdist'?",
    "[upstream.tool]|[upstraem.tool]": "the file: unknown key 'upstraem': did you mean 'upstream'?",
    "size = 10|size = 0": "size 0 is not above zero",
    'size = 10|size = "10"': "Expected `int`, got `str`",
    f"{SHA}|{SHA[1:]}": "is not 64 lower-case hex digits",
    f"{SHA}|{SHA.upper()}": "is not 64 lower-case hex digits",
    f"{'b' * 40}|{'b' * 12}": "is not a full id (40 or 64 lower-case hex digits)",
    'version = "0.31.0"|version = "0.31-final"': "'0.31-final' is not a version (PEP 440)",
    'version = "0.31.0"|version = "v0.31.0"': "version 'v0.31.0' is written '0.31.0'",
    'carried = "0.31.0"|carried = "0.30.0"': "upstream vllm: carried 0.30.0 has no pin",
    "0.32.0|0.31.0": "upstream vllm: vllm 0.31.0 is pinned twice",
    "https://git.example/tool.git|ext::sh -c id": "is not an https, ssh, git or file url",
    "https://git.example/tool.git|ssh://-oProxyCommand=id/x": "is not an https, ssh, git or file url",
    "https://git.example|https://me:secret@git.example": "'https://***@git.example/tool.git' holds a name or",
    "https://git.example/tool.git|--upload-pack=id": "is not an https, ssh, git or file url",
    'tag = "v1.2.3"|tag = "../x"': "'../x' is not a tag name",
    "vllm-0.31.0.tar.gz|../x.tar.gz": "'../x.tar.gz' is not a plain file name",
    "vllm-0.31.0.tar.gz|vllm-0.31.0.zip": "does not end with .tar.gz",
    "[[upstream.vllm.pins]]|[[upstream.vllm.pin]]": "unknown key 'pin': did you mean 'pins'?",
}


@pytest.mark.parametrize("case", CASES)
def test_each_wrong_thing_is_named(pins: Path, case: str) -> None:
    old, _, new = case.partition("|")
    assert old in GOOD
    pins.write_text(GOOD.replace(old, new))
    text = wrong(pins)
    assert CASES[case] in text
    assert f"where: {pins}" in text
    assert "next:  restore the file" in text


def test_all_problems_in_one_run(pins: Path) -> None:
    text = GOOD.replace("size = 10", "size = 0").replace('tag = "v1.2.3"', 'tagg = "v1.2.3"')
    pins.write_text(text.replace('carried = "1.6.0"', 'carried = "1.7.0"'))
    lines = [line for line in wrong(pins).splitlines() if line.startswith("  - ")]
    assert len(lines) == 4 + 1 + 1


def test_no_file_and_no_toml(tmp_path: Path) -> None:
    text = wrong(tmp_path / "none.toml")
    assert text.startswith("the pins file is not there")
    assert "--init" in text
    (tmp_path / "empty.toml").write_text("")
    assert "names no upstream" in wrong(tmp_path / "empty.toml")
    (tmp_path / "bad.toml").write_text("a = = 1")
    assert "is not TOML" in wrong(tmp_path / "bad.toml")


def test_what_cannot_be_read_is_not_written(pins: Path) -> None:
    before = pins.read_bytes()
    with pytest.raises(UsageError, match="carried 9 has no pin"):
        write(pins, {"vllm": Upstream(name="vllm", carried="9", pins=load(pins)["vllm"].pins)})
    assert pins.read_bytes() == before


SPECS = {
    "vllm": ("vllm", "vllm", "0.31.0"),
    "vllm==0.32.0": ("vllm", "vllm", "0.32.0"),
    "dynamo": ("dynamo", "ai-dynamo", "1.6.0"),
    "dynamo==1.6.0": ("dynamo", "ai-dynamo", "1.6.0"),
    "AI_Dynamo==1.6.0": ("dynamo", "ai-dynamo", "1.6.0"),
    "ai-dynamo-runtime": ("dynamo", "ai-dynamo-runtime", "1.6.0"),
    "tool": ("tool", "tool", "1.2.3"),
}


@pytest.mark.parametrize("spec", SPECS)
def test_select(pins: Path, spec: str) -> None:
    upstream, pin = select(load(pins), spec)
    assert (upstream.name, name_of(upstream, pin), pin.version) == SPECS[spec]


WRONG_SPECS = {
    "vlm": "no upstream 'vlm'; did you mean 'vllm'?",
    "ai-dynamoo==1.6.0": "did you mean 'ai-dynamo'?",
    "vllm==0.31.1": "vllm 0.31.1 is not pinned; did you mean '0.31.0'?",
    "vllm>=0.31": "'vllm>=0.31' is not NAME or NAME==VERSION",
    "": "'' is not NAME or NAME==VERSION",
}


@pytest.mark.parametrize("spec", WRONG_SPECS)
def test_select_names_the_nearest(pins: Path, spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(load(pins), spec)
    assert WRONG_SPECS[spec] in str(caught.value)
    assert "next:" in str(caught.value)


def test_reading_pins_imports_nothing_heavy() -> None:
    heavy = "unearth packaging rich httpx2 git difflib"
    code = f"import sys, patchline.pins\nprint([m for m in {heavy.split()} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


# --- the writer


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """An index that is the only one pip knows, and an empty cache."""
    with only_index(monkeypatch, tmp_path / "cache") as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "project")


def test_pin_a_release(served: Index, project: Project) -> None:
    data = sdist()
    served.offer("demo-1.0.tar.gz", data)
    served.offer("demo-1.0-py3-none-any.whl", wheel({"x": b""}))
    pin = pin_archive(project, "demo==1.0", init=True)
    assert pin == pin_of(data)
    assert load(project.upstreams) == {"demo": Upstream(name="demo", carried="1.0", pins=(pin,))}
    assert cached("demo-1.0.tar.gz", digest(data)).read_bytes() == data
    written = project.upstreams.read_bytes()
    assert pin_archive(project, "demo==1.0") == pin
    assert project.upstreams.read_bytes() == written


def test_pin_the_wheels_of_a_release_without_sdist(served: Index, project: Project) -> None:
    served.offer("demo-1.0-cp310-abi3-manylinux_2_28_x86_64.whl", wheel({"x": b""}))
    served.offer("demo-1.0-cp310-abi3-manylinux_2_28_aarch64.whl", wheel({"y": b""}))
    served.offer("demo-2.0-py3-none-any.whl", wheel({"z": b""}))
    pin = pin_archive(project, "demo==1.0", upstream="shop", init=True)
    assert [file.name[-11:] for file in pin.files] == ["aarch64.whl", "_x86_64.whl"]
    assert pin_archive(project, "demo==2.0", carry=True).kind == "wheel"
    shop = load(project.upstreams)["shop"]
    assert (shop.carried, [p.version for p in shop.pins]) == ("2.0", ["1.0", "2.0"])


def failed(error: type[PatchlineError], project: Project, spec: str = "demo==1.0") -> str:
    before = project.upstreams.read_bytes() if project.upstreams.exists() else None
    with pytest.raises(error) as caught:
        pin_archive(project, spec, init=True)
    assert (project.upstreams.read_bytes() if project.upstreams.exists() else None) == before
    return str(caught.value)


def test_a_release_that_changed_is_refused(served: Index, project: Project) -> None:
    old, new = sdist(), sdist({"x": b"changed"})
    served.offer("demo-1.0.tar.gz", old)
    pin_archive(project, "demo==1.0", init=True)
    served.offer("demo-1.0.tar.gz", new)
    served.asked.clear()
    text = failed(SourceMismatch, project)
    assert served.asked == ["/simple/demo/"]  # what the index says is enough: nothing is downloaded
    assert digest(old) in text
    assert digest(new) in text
    served.hashes.clear()  # an index that says nothing: the bytes decide
    text = failed(SourceMismatch, project)
    assert digest(old) in text
    assert digest(new) in text


def test_an_index_that_contradicts_itself(served: Index, project: Project) -> None:
    served.offer("demo-1.0.tar.gz", sdist())
    served.hashes["demo-1.0.tar.gz"] = SHA
    text = failed(SourceMismatch, project)
    assert SHA in text
    assert digest(sdist()) in text


def test_two_indexes_with_two_files_of_one_name(
    served: Index, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.offer("demo-1.0.tar.gz", sdist())
    with serving() as second:
        second.offer("demo-1.0.tar.gz", sdist({"x": b"other"}))
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", second.url)
        index.forget()
        assert "two indexes offer different files called demo-1.0.tar.gz" in failed(SourceMismatch, project)


def test_no_such_release(served: Index, project: Project) -> None:
    served.offer("demo-1.0.tar.gz", sdist())
    assert "no index offers a file of demo 1.1; did you mean '1.0'?" in failed(UsageError, project, "demo==1.1")
    assert "'demo' names no version" in failed(UsageError, project, "demo")
    assert "version '1.0.RC1' is written '1.0rc1'" in failed(UsageError, project, "demo==1.0.RC1")
    served.page = status(404)
    assert "it knows nothing of that name" in failed(UsageError, project)


def test_an_index_that_is_not_there(served: Index, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    served.page = status(503)
    text = failed(Unreachable, project)
    assert "cannot look up demo" in text
    assert "503" in text
    assert f"where: {served.url}" in text
    monkeypatch.setenv("PIP_INDEX_URL", "http://me:secret@127.0.0.1:9/simple/")
    index.forget()
    text = failed(Unreachable, project)
    assert "cannot look up demo" in text
    assert "where: http://***@127.0.0.1:9/simple/" in text
    assert Unreachable.exit == 7


def test_an_index_that_moved(served: Index, project: Project) -> None:
    served.offer("demo-1.0.tar.gz", sdist())
    served.answer["demo-1.0.tar.gz"] = redirected("/elsewhere/demo.bin")
    served.files["demo.bin"] = sdist()
    assert pin_archive(project, "demo==1.0", init=True) == pin_of(sdist())


def test_find_links_without_an_index(
    served: Index, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "demo-1.0.tar.gz").write_bytes(sdist())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    index.forget()
    assert "nowhere to look" in failed(UsageError, project)
    monkeypatch.setenv("PIP_FIND_LINKS", f"/nowhere {tmp_path}")
    index.forget()
    assert pin_archive(project, "demo==1.0", init=True) == pin_of(sdist())
    assert served.asked == []


def test_pip_settings() -> None:
    listing = (
        ":env:.index-url='https://env.example/simple'\nglobal.index-url='https://file.example/simple'\n"
        "global.extra-index-url='https://a.example\\nhttps://b.example'\nglobal.cert='/c.pem'\n"
        "install.find-links='/only/for/install'\ndownload.timeout='7'\nglobal.timeout='60'\nglobal.no-index='false'\n"
    )
    found = pip_settings.parse(listing)
    assert found.index_url == "https://env.example/simple"
    assert found.extra_index_urls == ("https://a.example", "https://b.example")
    assert (found.cert, found.find_links, found.timeout, found.no_index) == ("/c.pem", (), 7.0, False)


# --- git pins


@pytest.fixture
def tagged(tmp_path: Path) -> tuple[Path, str]:
    repo = tmp_path / "upstream"
    repo.mkdir()
    git.git(repo, "init", "-q", "-b", "main")
    who = ("-c", "user.name=u", "-c", "user.email=u@localhost")
    git.git(repo, *who, "commit", "-q", "--allow-empty", "-m", "one")
    git.git(repo, *who, "tag", "-a", "v1", "-m", "v1")
    return repo, git.commit_of(repo, "HEAD")


def test_pin_a_tag(project: Project, tagged: tuple[Path, str]) -> None:
    repo, commit = tagged
    pin = pin_git(project, "tool", "1.0", str(repo), "v1", init=True)
    assert pin == GitPin(kind="git", version="1.0", url=str(repo), tag="v1", commit=commit)
    assert pin_git(project, "tool", "1.0", str(repo), "v1") == pin
    git.git(repo, "-c", "user.name=u", "-c", "user.email=u@l", "commit", "-q", "--allow-empty", "-m", "two")
    git.git(repo, "tag", "-f", "v1")
    with pytest.raises(SourceMismatch) as caught:
        pin_git(project, "tool", "1.0", str(repo), "v1")
    assert commit in str(caught.value)
    assert git.commit_of(repo, "HEAD") in str(caught.value)
    assert load(project.upstreams)["tool"].pins == (pin,)


def test_pin_no_tag_no_repository_no_command(project: Project, tagged: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no tag v9 at"):
        pin_git(project, "tool", "1.0", str(tagged[0]), "v9", init=True)
    with pytest.raises(Unreachable, match="the repository did not answer"):
        pin_git(project, "tool", "1.0", "http://127.0.0.1:9/x.git", "v1", init=True)
    with pytest.raises(UsageError, match="is not an https, ssh, git or file url"):
        pin_git(project, "tool", "1.0", f"ext::sh -c touch% {tmp_path}/ran", "v1", init=True)
    assert not (tmp_path / "ran").exists()
    assert not project.upstreams.exists()


def test_another_kind_of_pin_for_the_same_version(served: Index, project: Project, tagged: tuple[Path, str]) -> None:
    pin_git(project, "demo", "1.0", str(tagged[0]), "v1", init=True)
    served.offer("demo-1.0.tar.gz", sdist())
    assert "demo 1.0 is pinned already, as git, not sdist" in failed(UsageError, project)


@pytest.mark.network
def test_real_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHLINE_CACHE", str(tmp_path / "cache"))
    index.forget()
    [ours] = [offer for offer in index.offers("vllm") if offer.name == "vllm-0.31.0.tar.gz"]
    _, pin = select(load(ROOT / "builds" / "upstreams.toml"), "vllm==0.31.0")
    assert not isinstance(pin, GitPin)
    assert ours.sha256 == pin.files[0].sha256
