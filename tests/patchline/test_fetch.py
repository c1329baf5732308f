"""Pinned files from an index that misbehaves: the right bytes take the name, and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import serving as served
from making import pin_of, sdist, wheel
from serving import Answer, Index, only_index

from patchline import index
from patchline.download import cached, digest
from patchline.errors import PatchlineError, Refused, SourceMismatch, Unreachable
from patchline.files import locked
from patchline.pins import ArchivePin, load, select
from patchline.sources.fetch import fetch, read

NAME = "demo-1.0.tar.gz"
DATA = sdist({"big.bin": os.urandom(300_000)})
FILE = pin_of(DATA).files[0]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Index]:
    """An index with the pinned file, the only one pip knows, and an empty cache."""
    with only_index(monkeypatch, tmp_path / "cache") as running:
        running.offer(NAME, DATA)
        yield running


def kept(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob("*") if path.is_file() and not path.name.endswith(".lock")]


def failed(error: type[PatchlineError], tmp_path: Path) -> str:
    with pytest.raises(error) as caught:
        fetch("demo", FILE)
    assert kept(tmp_path / "cache") == []
    return str(caught.value)


def test_once_then_from_the_cache(shop: Index, capsys: pytest.CaptureFixture[str]) -> None:
    path = fetch("demo", FILE)
    assert path == cached(NAME, digest(DATA))
    assert path.read_bytes() == DATA
    assert capsys.readouterr().err == f"{NAME}: 0.3 MB\n"
    asked = list(shop.asked)
    assert fetch("demo", FILE) == path
    assert shop.asked == asked


BAD: dict[str, tuple[Answer, bytes]] = {
    "one byte changed": (served.flipped, bytes([DATA[0] ^ 1]) + DATA[1:]),
    "one byte missing": (served.shorter, DATA[:-1]),
    "cut off in the middle": (served.truncated, DATA[: len(DATA) // 2]),
    "redirect to another file": (served.redirected("/files/other.tar.gz"), b"another file"),
    "an empty body": (lambda handler, data: served.whole(handler, b""), b""),
}


@pytest.mark.parametrize("case", BAD)
def test_other_bytes_never_take_the_name(shop: Index, tmp_path: Path, case: str) -> None:
    shop.files["other.tar.gz"] = b"another file"
    shop.answer[NAME], came = BAD[case]
    text = failed(SourceMismatch, tmp_path)
    assert text.startswith(f"{NAME} is not the file that was pinned\n")
    assert f"wanted: sha256 {digest(DATA)}" in text
    assert f"found:  sha256 {digest(came)}" in text
    assert f"where: {shop.url.removesuffix('simple/')}files/{'other.tar.gz' if 'redirect' in case else NAME}" in text
    assert "next:  nothing was kept" in text
    if len(came) != len(DATA):
        assert f"{len(DATA)} wanted, {len(came)} found" in text
    assert int(SourceMismatch.exit) == 4
    shop.answer.clear()
    assert fetch("demo", FILE).read_bytes() == DATA


def test_more_bytes_than_pinned_are_not_waited_for(shop: Index, tmp_path: Path) -> None:
    shop.answer[NAME] = served.longer
    assert f"{len(DATA)} wanted" in failed(SourceMismatch, tmp_path)


def test_an_index_that_announces_other_bytes(shop: Index, tmp_path: Path) -> None:
    shop.hashes[NAME] = "c" * 64
    text = failed(SourceMismatch, tmp_path)
    assert digest(DATA) in text
    assert "c" * 64 in text
    assert "nothing was downloaded" in text
    assert not any(path.startswith("/files/") for path in shop.asked)


def test_an_index_that_announces_nothing(shop: Index) -> None:
    shop.hashes.clear()
    assert fetch("demo", FILE).read_bytes() == DATA


@pytest.mark.parametrize("answer", [served.reset, served.status(503), served.status(404)])
def test_a_network_that_fails(shop: Index, tmp_path: Path, answer: Answer) -> None:
    shop.answer[NAME] = answer
    text = failed(Unreachable, tmp_path)
    assert text.startswith("the download broke off or never began: ")
    assert "next:  run the same command again" in text
    assert int(Unreachable.exit) == 7
    shop.answer.clear()
    assert fetch("demo", FILE).read_bytes() == DATA


def test_a_file_that_is_gone(shop: Index, tmp_path: Path) -> None:
    del shop.files[NAME]
    assert f"no index offers {NAME} now" in failed(Unreachable, tmp_path)


def test_a_cached_file_that_rotted(shop: Index) -> None:
    path = fetch("demo", FILE)
    path.write_bytes(DATA[:-1] + b"?")
    for use in (lambda: fetch("demo", FILE), lambda: read(path, FILE)):
        with pytest.raises(SourceMismatch) as caught:
            use()
        assert digest(DATA) in str(caught.value)
        assert digest(path.read_bytes()) in str(caught.value)
        assert f"next:  rm {path}, then run again" in str(caught.value)
    path.unlink()
    assert fetch("demo", FILE).read_bytes() == DATA


def test_a_killed_download_leaves_nothing_for_good(shop: Index, tmp_path: Path) -> None:
    started = tmp_path / "started"

    def stall(handler: object, data: bytes) -> None:
        served.send(handler, data[:1000], len(data))  # type: ignore[arg-type]
        handler.wfile.flush()  # type: ignore[attr-defined]
        started.touch()
        while not killed.poll() and killed.returncode is None:
            pass

    shop.answer[NAME] = stall
    code = f"from patchline.sources.fetch import fetch\nfrom patchline.pins import PinFile\nfetch('demo', {FILE!r})"
    killed = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    while not started.exists():
        assert killed.poll() is None
    with pytest.raises(Refused, match="another run of patchline works on the download of demo"):
        fetch("demo", FILE)
    killed.kill()
    killed.wait()
    assert [name.startswith(".part-") for name in kept(tmp_path / "cache")] == [True]
    shop.answer.clear()
    fetch("demo", FILE)
    assert kept(tmp_path / "cache") == [NAME]


def test_two_files_at_once(shop: Index, tmp_path: Path) -> None:
    shop.offer("demo-1.0-py3-none-any.whl", data := wheel({"x": b""}))
    other = pin_of(data, "demo-1.0-py3-none-any.whl").files[0]
    with locked(tmp_path / "cache" / "downloads" / f".{NAME}.lock", "it"):
        assert fetch("demo", other).read_bytes() == data


@pytest.mark.network
def test_real_ai_dynamo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHLINE_CACHE", str(tmp_path / "cache"))
    index.forget()
    _, pin = select(load(Path(__file__).parents[2] / "builds" / "upstreams.toml"), "ai-dynamo==1.6.0")
    assert isinstance(pin, ArchivePin)
    assert fetch(pin.distribution, pin.files[0]).stat().st_size == pin.files[0].size
