"""The frontend tells at GET /build what its image is made of, and only there, and only where a build file is."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from frontends import Answer, Frontend, command, forked, own_build, own_route

BUILD = {
    "line": "gemma4-hetero-tp",
    "version": "1.6.0",
    "created": "2026-11-29T12:00:00Z",
    "revision": "",
    "base": {"name": "vllm-runtime:1.6.0", "digest": f"sha256:{'1' * 64}"},
    "pins": ["dynamo==1.6.0", "vllm==0.31.0"],
    "overlay": f"sha256:{'2' * 64}",
    "series": [{"pin": "vllm==0.31.0", "overlay": f"sha256:{'3' * 64}", "patches": [{"name": "0001-ä.patch"}]}],
    "of other kinds": [None, True, 0, -1, 1.5, 2**53 + 1, {}],
}
IN_ONE_LINE = json.dumps(BUILD, ensure_ascii=False, separators=(",", ":")).encode()
IN_THE_IMAGE = "/etc/patchline/build.json"
NOT_FOUND = r"^AssertionError: GET /build answers 404: "
NOT_JSON = {
    "empty": b"",
    "cut short": json.dumps(BUILD).encode()[:100],
    "a list": b"[1]",
    "a text": b'"build"',
    "not UTF-8": b'{"line": "\xff"}',
    "too deep": b"[" * 100_000,
}


def build_file(folder: Path, data: bytes = json.dumps(BUILD, indent=1).encode()) -> Path:
    path = folder / "build.json"
    path.write_bytes(data)
    return path


def build_of(frontend: Frontend, status: int = 200) -> Answer:
    answer = frontend.get("/build")
    assert answer.status == status, f"GET /build answers {answer.status}: {answer.body!r}"
    assert answer.kind == "application/json"
    return answer


def assert_told(frontend: Frontend) -> None:
    """All values of the file, in its order."""
    assert build_of(frontend).body == IN_ONE_LINE


def assert_the_rest_works(frontend: Frontend) -> None:
    assert frontend.get("/health").json()["status"] == "healthy"
    assert frontend.get("/v1/models").json() == {"object": "list", "data": []}
    assert b"dynamo_frontend" in frontend.get("/metrics").body
    assert frontend.get("/nothing").status == 404


def assert_refused(frontend: Frontend, path: Path) -> None:
    """No identity is told: a status that is no success, with the reason, which is logged too."""
    said = build_of(frontend, 500).json()
    assert re.match(rf"Build file {path} cannot be served: .+", said["message"])
    assert {**said, "message": ""} == {"message": "", "type": "Internal Server Error", "code": 500}
    assert said["message"] in frontend.log()
    assert_the_rest_works(frontend)


@pytest.mark.holds(stock=NOT_FOUND)
def test_the_build_file_is_told(tmp_path):
    with forked(tmp_path, build_file(tmp_path)) as frontend:
        assert_told(frontend)
        assert_told(frontend)
        assert "ERROR" not in frontend.log()
        assert "WARN" not in frontend.log()


@pytest.mark.holds(stock=NOT_FOUND)
def test_the_image_s_own_build_file_is_told(tmp_path):
    with forked(tmp_path, build_file(tmp_path), instead=IN_THE_IMAGE) as frontend:
        assert_told(frontend)


@pytest.mark.holds(stock=NOT_FOUND)
@pytest.mark.wide
def test_the_command_tells_the_build_file(tmp_path):
    with command(tmp_path, build_file(tmp_path), own_route) as frontend:
        assert_told(frontend)
        assert frontend.get("/own").json() == {"own": True}
        assert_the_rest_works(frontend)


@pytest.mark.holds(stock=NOT_FOUND)
@pytest.mark.parametrize("then", [Path.unlink, lambda path: path.write_text('{"line": "another"}')])
def test_it_tells_what_the_process_was_started_from(tmp_path, then: Callable[[Path], Any]):
    path = build_file(tmp_path)
    with forked(tmp_path, path) as frontend:
        then(path)
        assert_told(frontend)


@pytest.mark.holds(stock=NOT_FOUND)
@pytest.mark.parametrize("data", NOT_JSON.values(), ids=NOT_JSON)
def test_a_damaged_build_file_is_told_as_such(tmp_path, data: bytes):
    path = build_file(tmp_path, data)
    with forked(tmp_path, path) as frontend:
        assert_refused(frontend, path)


@pytest.mark.holds(stock=NOT_FOUND)
def test_a_build_file_that_cannot_be_read_is_told_as_such(tmp_path):
    path = tmp_path / "build.json"
    path.mkdir()
    with forked(tmp_path, path) as frontend:
        assert_refused(frontend, path)


@pytest.mark.holds(stock=NOT_FOUND)
def test_extensions_are_beside_it(tmp_path):
    with forked(tmp_path, build_file(tmp_path), own_route) as frontend:
        assert frontend.get("/own").json() == {"own": True}
        assert_told(frontend)


@pytest.mark.holds(stock=r"^AssertionError: nothing is logged of a build file that is not served")
def test_it_is_logged_that_an_extension_has_its_path(tmp_path):
    path = build_file(tmp_path)
    with forked(tmp_path, path, own_build) as frontend:
        warned = f"Build file {path} is not served: an extension has /build" in frontend.log()
        assert warned, "nothing is logged of a build file that is not served"


@pytest.mark.unchanged
@pytest.mark.parametrize("data", [json.dumps(BUILD).encode(), b""], ids=["whole", "damaged"])
def test_an_extension_of_the_same_path_keeps_it(tmp_path, data: bytes):
    with forked(tmp_path, build_file(tmp_path, data), own_route, own_build) as frontend:
        assert build_of(frontend).json() == {"build": "the user's"}
        assert frontend.get("/own").json() == {"own": True}


@pytest.mark.unchanged
def test_without_a_build_file_there_is_no_route(tmp_path):
    with forked(tmp_path, tmp_path / "none.json", own_route) as frontend:
        assert frontend.get("/own").json() == {"own": True}
        assert "ERROR" not in frontend.log()
        assert "WARN" not in frontend.log()
        answer = build_of(frontend, 404)
        assert answer.json()["message"] == "Route not found: GET /build"
        assert_the_rest_works(frontend)


@pytest.mark.unchanged
def test_an_extension_of_the_same_path_is_nothing_to_log_without_a_build_file(tmp_path):
    with forked(tmp_path, tmp_path / "none.json", own_build) as frontend:
        assert build_of(frontend).json() == {"build": "the user's"}
        assert "WARN" not in frontend.log()


@pytest.mark.unchanged
def test_other_routes_with_a_build_file(tmp_path):
    with forked(tmp_path, build_file(tmp_path)) as frontend:
        assert_the_rest_works(frontend)
