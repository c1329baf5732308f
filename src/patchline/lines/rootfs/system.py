"""The system of a made base: Debian's smallest, and some packages, by mmdebstrap."""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import tempfile
from pathlib import Path

from patchline.errors import CommandFailed, PatchlineError, Unreachable, UsageError
from patchline.image.layer import EPOCH
from patchline.lines.line import Made
from patchline.lines.rootfs.layer import Layer, Making, layer
from patchline.progress import EVERY, say
from patchline.run import run, run_to_log

USER, UID, GID = "dynamo", 1000, 0
"""Who runs in the image: as in Dynamo's own, in the group of root."""
HOME = f"home/{USER}"

_PASSWD = f"{USER}:x:{UID}:{GID}::/{HOME}:/bin/bash"

# What a machine leaves of itself, and what containers get anyway: /dev/* cannot be unpacked without root.
_LEFT_OUT = re.compile(
    r"(dev|run|tmp|proc|sys|var/log|var/cache|var/lib/apt/lists)/.+"
    r"|etc/(hostname|resolv\.conf|machine-id|apt/sources\.list|apt/sources\.list\.d/.+)"
    r"|var/lib/dbus/machine-id|.*\.pyc|.*/__pycache__"
)
_SILENT = re.compile(
    r"Temporary failure|Could not (?:resolve|connect)|Unable to connect|Connection (?:failed|timed out)"
)


def system(made: Made, folder: Path) -> tuple[Layer, dict[str, str]]:
    """The lowest layer, in the layout at `folder`, and the versions of the packages in it, by name.

    Raises:
        UsageError: mmdebstrap is not there, or cannot work here.
        Unreachable: Debian's mirror did not answer.
    """
    with tempfile.TemporaryDirectory(prefix="patchline-", dir=folder.parent) as scratch:
        tar = _bootstrap(made, Path(scratch))
        by = f"mmdebstrap {made.suite}: {' '.join(made.packages)}"
        with layer(folder, by) as making, tarfile.open(tar) as all_of_it:
            status = _copy(all_of_it, making)
    if making.done is None or not status:
        raise UsageError("mmdebstrap made a system without packages", next="run it again")
    return making.done, _versions(status)


def _bootstrap(made: Made, scratch: Path) -> Path:
    if not shutil.which("mmdebstrap"):
        raise UsageError(
            "a base is made with mmdebstrap, and it is not there",
            next="apt-get install --no-install-recommends mmdebstrap",
        )
    tar, log = scratch / "system.tar", scratch.parent / "mmdebstrap.log"
    command = ["mmdebstrap", "--variant=minbase", "--format=tar"]
    command += [f"--include={','.join(sorted(made.packages))}"] if made.packages else []
    command += [f'--customize-hook=echo "{_PASSWD}" >> "$1/etc/passwd"', made.suite, str(tar), *_mirror(made.suite)]
    say(f"making Debian {made.suite} with {len(made.packages)} packages more: this takes a minute")
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8"}
    try:
        run_to_log(command, cwd=scratch, env=env, log=log, every=EVERY, tell=lambda line: say(f"mmdebstrap: {line}"))
    except CommandFailed as failed:
        raise _explained(log.read_text(errors="replace"), failed) from failed
    log.unlink()
    return tar


def _explained(log: str, failed: CommandFailed) -> PatchlineError:
    last = next((line for line in log.splitlines() if line.startswith("E: ")), failed.what)
    if silent := _SILENT.search(log):
        return Unreachable(
            f"Debian's mirror does not answer: {silent[0]}", where=last, next="see where apt looks: apt-get update"
        )
    return UsageError(
        f"mmdebstrap cannot make a system here: {last}",
        where=failed.where + "\n" + "\n".join(log.splitlines()[-20:]),
        next="run it as root, or where users may have namespaces of their own: mmdebstrap --help, --mode",
    )


def _mirror(suite: str) -> list[str]:
    """Where this machine's apt finds that release; nothing where it has another: then mmdebstrap's own choice counts.

    Of the release alone: its updates change from day to day, and the base with them.
    """
    ask = ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    try:
        said = run(ask, cwd=Path("/")).stdout.decode()
    except CommandFailed as none:
        say(f"apt does not say where it finds Debian: {none.what}")
        return []
    found = [line.split() for line in said.splitlines() if line.split()[1:] == [suite, "main"]]
    return [f"deb {found[0][0]} {suite} main"] if found else []


def _copy(tar: tarfile.TarFile, making: Making) -> bytes:
    """Copies the system, in mmdebstrap's order, which is by name; gives dpkg's status file."""
    status, kept = b"", set[str]()
    for one in tar:
        one.name = one.name.removeprefix("./")
        if one.name in ("", ".") or _LEFT_OUT.fullmatch(one.name):
            continue
        if one.islnk():
            one.linkname = one.linkname.removeprefix("./")
            if one.linkname not in kept:
                raise UsageError(f"the system has a hard link to a file that is left out: {one.linkname}")
        one.mtime, one.uname, one.gname = EPOCH, "", ""
        one.pax_headers = {key: value for key, value in one.pax_headers.items() if key.startswith("SCHILY.xattr.")}
        making.tar.addfile(one, tar.extractfile(one) if one.isreg() else None)
        kept.add(one.name)
        if one.name == "var/lib/dpkg/status":
            file = tar.extractfile(one)
            status = file.read() if file else b""
    making.folder(HOME, 0o775, UID, GID)
    return status


def _versions(status: bytes) -> dict[str, str]:
    """Version by package, of dpkg's status file."""
    pairs = re.findall(r"^Package: (\S+)$.*?^Version: (\S+)$", status.decode(), re.MULTILINE | re.DOTALL)
    return dict(sorted(pairs))
