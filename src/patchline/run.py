"""The one place that starts other programs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from patchline.errors import CommandFailed


def run(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,
    stdin: BinaryIO | None = None,
    ok: Sequence[int] = (0,),
) -> subprocess.CompletedProcess[bytes]:
    """Runs `command` in `cwd` and returns its status and both streams, as bytes.

    `env` is the whole environment of the program; without it the program inherits ours.

    Raises:
        CommandFailed: the program is not there, or its status is not in `ok`; the message
            holds the command line, the folder and both streams.
    """
    return start(command, cwd=cwd, env=env, stdin=stdin or subprocess.PIPE).end(input, ok=ok)


class Started:
    """A program that runs while we do something else."""

    def __init__(self, words: list[str], cwd: Path, process: subprocess.Popen[bytes]) -> None:
        self.words, self.cwd, self.process = words, cwd, process

    def end(self, input: bytes | None = None, *, ok: Sequence[int] = (0,)) -> subprocess.CompletedProcess[bytes]:
        """Waits for its end; raises as `run`."""
        with self.process as process:
            try:
                out, err = process.communicate(input)
            except BaseException:
                process.kill()
                raise
        done = subprocess.CompletedProcess(self.words, process.returncode, out, err)
        if done.returncode not in ok:
            raise CommandFailed(
                f"{self.words[0]} ended with status {done.returncode}: {_last_line(done.stderr)}",
                where=f"+ {_line(self.words)} (in {self.cwd})\n{_streams(done)}".rstrip(),
            )
        return done

    def stop(self) -> None:
        """Ends it where nobody wants its answer, and lets go of its streams, also where it has ended by itself."""
        with self.process as process:
            process.kill()


def start(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    stdin: BinaryIO | int = subprocess.DEVNULL,  # never ours: a question would wait for ever
) -> Started:
    """Starts `command` in `cwd`; its streams are kept for its end.

    Raises:
        CommandFailed: the program is not there.
    """
    words = [os.fspath(word) for word in command]
    try:
        process = subprocess.Popen(words, cwd=cwd, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError as missing:
        if not cwd.is_dir():
            raise CommandFailed(f"there is no folder {cwd}", where=f"+ {_line(words)}") from missing
        raise CommandFailed(
            f"cannot start {words[0]}: {missing.strerror}",
            where=f"+ {_line(words)} (in {cwd})",
            next=f"install {words[0]}, or put it on PATH",
        ) from missing
    return Started(words, cwd, process)


def run_to_log(
    command: Sequence[str | os.PathLike[str]],
    *,
    cwd: Path,
    env: Mapping[str, str],
    log: Path,
    every: float,
    tell: Callable[[str], None],
) -> None:
    """Runs a command that takes minutes; both streams go to the file `log`.

    `tell` gets the log's last line every `every` seconds.

    Raises:
        CommandFailed: the program is not there, or its status is not 0; `where` names the log.
    """
    words = [os.fspath(word) for word in command]
    echo = f"+ {_line(words)} (in {cwd}; log: {log})"
    with log.open("ab") as file:
        file.write(f"{echo}\n".encode())
        file.flush()
        try:
            started = subprocess.Popen(words, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        except OSError as missing:
            raise CommandFailed(f"cannot start {words[0]}: {missing.strerror}", where=echo) from missing
        with started:
            while True:
                try:
                    status = started.wait(every)
                    break
                except subprocess.TimeoutExpired:
                    tell(_last_line(log.read_bytes()[-4000:])[:160])
                except BaseException:
                    started.terminate()
                    raise
    if status != 0:
        raise CommandFailed(
            f"{words[0]} ended with status {status}: {_last_line(log.read_bytes()[-4000:])}",
            where=echo,
            next=f"less {log}",
        )


def _last_line(stream: bytes) -> str:
    lines = stream.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


def _streams(done: subprocess.CompletedProcess[bytes]) -> str:
    both = (("stdout", done.stdout), ("stderr", done.stderr))
    texts = ((name, stream.decode(errors="replace").strip()) for name, stream in both)
    return "\n".join(f"  {name}: {text[-4000:]}" for name, text in texts if text)


def _line(words: Sequence[str]) -> str:
    import shlex

    return shlex.join(words)
