"""One pytest process on some of upstream's test files, watched line by line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import ProofFailed

NOT_RUN = "not run"
_ADDRESS = re.compile(r"\b0x[0-9a-f]+")
_BAD = ("failed", "error", NOT_RUN)
_PYTEST = ("-P", "-m", "pytest", "-p", "upstream_plugin", "-p", "no:cacheprovider", "--continue-on-collection-errors")

# Longer ones parse sources, which Python 3.11 cannot while another thread does too: a SystemError ends pytest.
_SHORT = ("-q", "--no-header", "--tb=line", "--show-capture=no")


class Outcome(NamedTuple):
    """What one test did."""

    outcome: str
    """`passed`, `failed`, `error` (set-up, tear-down), `skipped`, `deselected`, `xfailed`, `xpassed`, `not run`."""
    text: str
    """First line of the error, or the reason of a skip."""

    @property
    def bad(self) -> bool:
        """Whether upstream would call it broken."""
        return self.outcome in _BAD


class FileRun(NamedTuple):
    """What the tests of one file did."""

    seconds: float
    fault: str
    """Why the file as a whole did not run to its end; empty where it did."""
    tests: dict[str, Outcome]
    """By the test's name inside the file; `` is the whole file, where it skips itself."""


class Place(NamedTuple):
    """The tree that has to be tested, and everything that a process on it needs."""

    what: str
    """In words, for messages."""
    tree: Path
    """The package has to come from here."""
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    """Those that the series changes."""
    python: Path
    tests: Path
    """Holds upstream's `tests/` and its configuration of pytest; nothing else, above all no package."""
    configuration: Path
    scratch: Path
    env: Mapping[str, str]
    limit: float
    """Seconds for one file."""


class Process:
    """Runs the files of `targets` (test files, or tests in them) one after the other."""

    def __init__(self, place: Place, targets: Sequence[str], number: int) -> None:
        self.place, self.targets = place, list(targets)
        self.files = list(dict.fromkeys(target.partition("::")[0] for target in targets))
        self.now, self.since = "", time.monotonic()
        self.fault, self.status = "", -1
        self._lines: list[dict[str, Any]] = []
        self._read = 0
        self._report, self.log = (place.scratch / f"{number}.{kind}" for kind in ("jsonl", "log"))
        self._popen = self._start(number)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        place = self.place
        command = [str(place.python), *_PYTEST, "-c", str(place.configuration), "--rootdir", str(place.tests)]
        command += ["--confcutdir", str(place.tests), "--basetemp", str(place.scratch / f"{number}.tmp")]
        names = {"PATCHLINE_REPORT": str(self._report), "PATCHLINE_MODULES": " ".join(_names(place))}
        self._report.touch()
        with self.log.open("wb") as out:
            return subprocess.Popen(
                [*command, *_SHORT, *self.targets],
                cwd=place.tests,
                env={**place.env, **names},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def ended(self) -> bool:
        """Looks what is new; ends a process whose file takes too long."""
        # Its end is seen without taking it: until it is taken, the number of the group is nobody else's.
        gone = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        self._look()
        late = time.monotonic() - self.since > self.place.limit
        if not gone and not late:
            return False
        if late and not gone:
            self.fault = f"it did not end within {self.place.limit:.0f} s"
        self.stop()
        self._look()
        return True

    def stop(self) -> None:
        """Ends it, and what its tests started."""
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, 9)
        self.status = self._popen.wait()

    def _look(self) -> None:
        """Reads the whole lines that have been added to the report."""
        with self._report.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in map(json.loads, whole.splitlines()):
            self._lines.append(line)
            name = line.get("file") or line.get("begun", "").partition("::")[0]
            if name and name != self.now:
                self.now, self.since = name, time.monotonic()

    @property
    def count(self) -> int:
        """Tests that have ended so far."""
        return sum("test" in line for line in self._lines)

    def results(self) -> dict[str, FileRun]:
        """What every file did that has run to its end, and the one that the process died or hung in.

        Raises:
            ProofFailed: nothing says in which file it ended, pytest's status is not what the tests
                say, or the package came from another tree.
        """
        ends = [line for line in self._lines if "end" in line]
        found = {file: self._file(file) for file in self.files}
        left = [file for file, one in found.items() if not one.fault and not _whole(one)]
        if not self.fault and ends and not left:
            self._check_status(found, ends[-1]["end"])
        elif self.now not in found:
            raise ProofFailed(f"{self.place.what}: pytest ended with status {self.status}\n{self._tail()}")
        else:
            fault = self.fault or f"pytest ended in it, with status {self.status}"
            found[self.now] = found[self.now]._replace(fault=fault)
        for line in self._lines:
            self._check_imports(line.get("imported", {}))
        return {file: one for file, one in found.items() if one.fault or file not in left}

    def _file(self, file: str) -> FileRun:
        tests: dict[str, Outcome] = {}
        seconds, fault, seen = 0.0, "", False
        for line in self._lines:
            if line.get("refused", "").partition("::")[0] == file:
                fault = f"it cannot be collected: {self._plain(line['text'])}"
            for name in line.get("collected", ()):
                if name.partition("::")[0] == file:
                    tests.setdefault(name.partition("::")[2], Outcome(NOT_RUN, ""))
            seen |= "collected" in line
            if "test" in line and line["test"].partition("::")[0] == file:
                tests[line["test"].partition("::")[2]] = Outcome(line["outcome"], self._plain(line["text"]))
                seconds += line["seconds"]
        if seen and not tests and not fault:
            fault = "it holds no test"
        return FileRun(round(seconds, 1), fault, tests)

    def _plain(self, text: str) -> str:
        """Without what differs from machine to machine and from run to run."""
        place = self.place
        for folder, word in (
            (place.tree, "TREE"),
            (place.scratch, "SCRATCH"),
            (place.python.parents[1], "ENVIRONMENT"),
        ):
            text = text.replace(str(folder), word)
        return _ADDRESS.sub("0x…", text)

    def _check_status(self, found: Mapping[str, FileRun], said: int) -> None:
        """Whether pytest's own verdict is that of the tests: see pytest's exit codes."""
        outcomes = [outcome for one in found.values() for name, outcome in one.tests.items() if name]
        refused = any("refused" in line for line in self._lines)
        broken = refused or any(outcome.bad for outcome in outcomes)
        ran = any(outcome.outcome != "deselected" for outcome in outcomes)
        wanted = 1 if broken else 0 if ran else 5
        if not said == self.status == wanted:
            raise ProofFailed(
                f"{self.place.what}: pytest ended with status {self.status}, and what its tests did "
                f"means {wanted}: nothing was proven\n{self._tail()}"
            )

    def _check_imports(self, imported: Mapping[str, list[str]]) -> None:
        wrong = [
            f"{name} from {file}"
            for name, files in imported.items()
            for file in files
            if not Path(file).resolve().is_relative_to(self.place.tree)
        ]
        if wrong:
            raise ProofFailed(
                f"{self.place.what}: the tests imported {', '.join(wrong)}, not from {self.place.tree}: "
                "nothing was proven"
            )

    def imported(self) -> set[str]:
        """The modules of interest that were imported."""
        known = [line["imported"] for line in self._lines if "imported" in line]
        return {name for modules in known for name, files in modules.items() if files}

    def _tail(self, lines: int = 20) -> str:
        return "\n".join(f"  {line}" for line in self.log.read_text(errors="replace").splitlines()[-lines:])


def _names(place: Place) -> list[str]:
    return sorted({*place.packages, *place.modules})


def _whole(one: FileRun) -> bool:
    return bool(one.tests) and all(outcome.outcome != NOT_RUN for outcome in one.tests.values())
