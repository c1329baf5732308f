"""Files and folders that appear whole or not at all."""

from __future__ import annotations

import errno
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from repos import mail, series, write
from verbs import patchline

from patchline.errors import Refused, UsageError
from patchline.files import clear_parts, folder_replaced, folder_whole, locked, write_whole
from patchline.series import folder


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "f"
    write_whole(path, b"one")
    write_whole(path, b"two", 0o600)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["f"]


def test_a_folder_appears_only_when_all_went_well(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no"), folder_whole(tmp_path / "out") as part:
        (part / "f").touch()
        raise ValueError("no")
    assert list(tmp_path.iterdir()) == []
    with folder_whole(tmp_path / "out") as part:
        (part / "f").touch()
    with pytest.raises(Refused, match="is there already"), folder_whole(tmp_path / "out"):
        pass


def test_a_folder_is_replaced_in_one_step(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for text in ("one", "two"):
        with folder_replaced(home) as part:
            (part / text).touch()
        assert [path.name for path in home.iterdir()] == [text]
    with pytest.raises(ValueError, match="no"), folder_replaced(home) as part:
        raise ValueError("no")
    assert [path.name for path in home.iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def killed(path: Path, aside: Path) -> Path:
    """What a run that was killed in `folder_whole` leaves."""
    with pytest.raises(OSError, match="killed"), folder_whole(path) as part:
        (part / "f").touch()
        part.rename(aside)
        raise OSError("killed")
    return aside.rename(part)


def test_only_the_parts_of_exactly_one_name_are_cleared(tmp_path: Path) -> None:
    names = ["build", "build-2", "build-abcdefgh", "[b]*", "x\ny"]
    parts = [killed(tmp_path / name, tmp_path / "aside") for name in names]
    for name, part in zip(names, parts, strict=True):
        before = set(tmp_path.iterdir())
        clear_parts(tmp_path / name)
        assert before - set(tmp_path.iterdir()) == {part}
    clear_parts(tmp_path / "no" / "such")


def test_a_copy_leaves_the_half_made_one_of_another_name(tmp_path: Path) -> None:
    write(tmp_path / "source", {"f": "one\n"})
    file = series(tmp_path / "s", {"p.patch": mail("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+two\n")})
    mine, other = (killed(tmp_path / "out" / name, tmp_path / "aside") for name in ("build", "build-2"))
    ended = patchline("apply", "--source", tmp_path / "source", "--series", file, "--out", tmp_path / "out" / "build")
    assert ended.exit == 0, ended.err
    assert (mine.exists(), other.exists()) == (False, True)


def test_a_full_disk_is_no_fault_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copytree(number: int) -> Callable[..., None]:
        def fail(*_: object, **__: object) -> None:
            raise shutil.Error([("a", "b", str(OSError(errno.EACCES, "no"))), ("c", "d", str(OSError(number, "why")))])

        return fail

    write(tmp_path / "source", {"f": "one\n"})
    monkeypatch.setattr(shutil, "copytree", copytree(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left on device"):
        folder.write(tmp_path / "source", tmp_path / "out", {})
    monkeypatch.setattr(shutil, "copytree", copytree(errno.EIO))
    with pytest.raises(UsageError, match="cannot be copied whole"):
        folder.write(tmp_path / "source", tmp_path / "out", {})
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_clearing_waits_for_a_program_that_still_writes(tmp_path: Path) -> None:
    part = killed(tmp_path / "repo", tmp_path / "aside")
    script = (
        "import os, sys, time\nfor _ in range(100): os.makedirs(sys.argv[1] + '/sub', exist_ok=True); time.sleep(0.003)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(part)]):
        clear_parts(tmp_path / "repo", patience=0.01)
    clear_parts(tmp_path / "repo", patience=5)
    assert list(tmp_path.iterdir()) == []


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", "it"),
        pytest.raises(Refused, match="another run of patchline works on it"),
        locked(tmp_path / "lock", "it"),
    ):
        pass
    with locked(tmp_path / "lock", "it"):
        pass
