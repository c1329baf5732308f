"""Who we are at a registry, by docker's own configuration and its credential helpers.

Nothing here prints or keeps a secret: what fails is named without its output.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from pathlib import Path

import msgspec

from patchline.errors import CommandFailed, UsageError
from patchline.run import run

_TOKEN = "<token>"
"""The user name by which helpers say that the secret is an identity token."""


class Credential(msgspec.Struct, frozen=True):
    """A name and a password, or an identity token."""

    user: str
    secret: str
    is_token: bool = False

    def __repr__(self) -> str:
        return "Credential(…)"

    def basic(self) -> str:
        """As the value of an Authorization header."""
        return f"Basic {base64.b64encode(f'{self.user}:{self.secret}'.encode()).decode()}"


class _Entry(msgspec.Struct):
    auth: str = ""
    username: str = ""
    password: str = ""
    identitytoken: str = ""


class _Config(msgspec.Struct, rename="camel"):
    auths: dict[str, _Entry] = {}
    creds_store: str = ""
    cred_helpers: dict[str, str] = {}


class _Answer(msgspec.Struct, rename="pascal"):
    username: str = ""
    secret: str = ""


def of(host: str) -> Credential | None:
    """The credential for a registry; None where docker's configuration has none.

    Raises:
        UsageError: the configuration cannot be read, or a helper is not there or failed.
    """
    path = _path()
    try:
        config = msgspec.json.decode(path.read_bytes(), type=_Config)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as bad:
        raise UsageError(f"docker's configuration cannot be read: {_kind(bad)}", where=str(path)) from None
    helper = config.cred_helpers.get(host) or config.creds_store
    entry = next((one for name, one in config.auths.items() if _host(name) == host), None)
    found = _ask(helper, host) if helper else None
    return found or (_credential(entry, host, path) if entry else None)


def _path() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"


def _kind(bad: Exception) -> str:
    """Without the text, which may quote what it read."""
    return bad.strerror or type(bad).__name__ if isinstance(bad, OSError) else type(bad).__name__


def _host(name: str) -> str:
    """`https://registry.example/v1/` is an old way to write `registry.example`."""
    return re.sub(r"^https?://", "", name).split("/", 1)[0]


def _credential(entry: _Entry, host: str, path: Path) -> Credential | None:
    if entry.identitytoken:
        return Credential(_TOKEN, entry.identitytoken, is_token=True)
    if entry.auth:
        try:
            user, colon, secret = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise UsageError(f"the entry of {host} is damaged", where=str(path), next=f"docker login {host}")
        return Credential(user, secret.rstrip("\0"))
    return Credential(entry.username, entry.password) if entry.username else None


def _ask(helper: str, host: str) -> Credential | None:
    """What a helper knows, by docker's protocol: `get`, the host on standard input, JSON on standard output."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", helper):
        raise UsageError(f"{helper!r} is no name of a credential helper", where=str(_path()))
    command = f"docker-credential-{helper}"
    try:
        done = run([command, "get"], cwd=Path.cwd(), input=host.encode(), ok=range(256))
    except CommandFailed as missing:
        raise UsageError(f"cannot run the credential helper {command}", next=f"install {command}") from missing
    if done.returncode != 0:
        if b"credentials not found" in done.stdout:
            return None
        raise UsageError(f"{command} ended with status {done.returncode} for {host}", next=f"docker login {host}")
    try:
        answer = msgspec.json.decode(done.stdout, type=_Answer)
    except msgspec.MsgspecError:
        raise UsageError(f"{command} did not answer in JSON for {host}") from None
    return Credential(answer.username, answer.secret, answer.username == _TOKEN) if answer.secret else None
