"""The command runner: checked, echoed in its failures, both streams kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchline.errors import CommandFailed
from patchline.run import Started, run, start


def test_a_failure_holds_command_folder_and_streams(tmp_path: Path) -> None:
    script = "import sys; print('out'); print('reason', file=sys.stderr); sys.exit(3)"
    with pytest.raises(CommandFailed) as caught:
        run([sys.executable, "-c", script], cwd=tmp_path)
    text = str(caught.value)
    for part in ("ended with status 3: reason", f"(in {tmp_path})", "stdout: out", "stderr: reason"):
        assert part in text
    assert run([sys.executable, "-c", script], cwd=tmp_path, ok=(0, 3)).returncode == 3


def test_a_program_or_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match="cannot start no-such-program"):
        run(["no-such-program"], cwd=tmp_path)
    with pytest.raises(CommandFailed, match="there is no folder"):
        run(["true"], cwd=tmp_path / "gone")


def test_standard_input_is_never_ours(tmp_path: Path) -> None:
    assert run([sys.executable, "-c", "print(len(input()))"], cwd=tmp_path, input=b"abc\n").stdout == b"3\n"
    assert run([sys.executable, "-c", "import sys; print(sys.stdin.read())"], cwd=tmp_path).stdout == b"\n"


def closed(started: Started) -> list[bool]:
    return [stream.closed for stream in (started.process.stdout, started.process.stderr) if stream]


def test_what_was_started_and_is_not_wanted_is_stopped(tmp_path: Path) -> None:
    started = start([sys.executable, "-c", "import time; time.sleep(60)"], cwd=tmp_path)
    started.stop()
    assert started.process.returncode == -9
    assert closed(started) == [True, True]


def test_what_ended_by_itself_is_let_go_of_as_well(tmp_path: Path) -> None:
    started = start([sys.executable, "-c", "print('unwanted')"], cwd=tmp_path)
    assert started.process.wait() == 0
    assert started.process.poll() == 0
    started.stop()
    assert closed(started) == [True, True]
