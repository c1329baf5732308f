"""One namespace of a cluster, through `kubectl`; a command that does not answer is ended."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from threading import Event, Timer
from typing import Any, NamedTuple

from patchline.errors import CommandFailed, UsageError
from patchline.gates.stack.processes import StackFailed
from patchline.progress import say
from patchline.run import start

DEBIAN = "kubernetes-client"
"""Debian's package of `kubectl`."""


class Patience(NamedTuple):
    """Limits in seconds, beside the fleet's own for becoming ready."""

    call: float = 45.0
    """For one short command."""
    silence: float = 120.0
    """For a cluster that does not answer, or not well, while it is looked at."""
    placing: float = 120.0
    """For a pod that finds no node, or a Job that gets no pod: what ended a moment ago may still hold the GPUs."""
    deletion: float = 300.0
    """For a namespace to be gone."""
    words: float = 10.0
    """For the last words of a pod that ended."""
    look: float = 2.0
    """Between two looks."""


PATIENCE = Patience()


class Cluster:
    """A namespace, there or not, in the cluster of a context."""

    def __init__(self, context: str, namespace: str, patience: Patience) -> None:
        self.namespace, self.patience = namespace, patience
        self.context, self.env = context, _environment()
        self._head = ["kubectl", "--context", context, "--namespace", namespace]

    def command(self, *words: str) -> list[str]:
        """The words of a command that takes long."""
        return [*self._head, *words]

    def short(self, *words: str, within: float | None = None) -> list[str]:
        """The words of a command that asks the cluster once; `within` is in seconds."""
        return [*self._head, f"--request-timeout={max(1, round((within or self.patience.call) * 2 / 3))}s", *words]

    def call(self, *words: str, input: bytes | None = None) -> bytes:
        """What a short command prints.

        Raises:
            StackFailed: it failed, or did not answer.
        """
        return self._run(self.short(*words), self.patience.call, input)

    def _run(self, words: Sequence[str], limit: float, input: bytes | None = None) -> bytes:
        started, silent = start(words, cwd=Path("/"), env=self.env, stdin=PIPE), Event()

        def give_up() -> None:
            silent.set()
            started.process.kill()

        timer = Timer(limit, give_up)
        timer.start()
        try:
            return started.end(input).stdout
        except CommandFailed as failed:
            what = f"kubectl gave no answer within {limit:g} s" if silent.is_set() else failed.what
            raise StackFailed(what, where=failed.where, next=self.hint) from failed
        finally:
            timer.cancel()

    @property
    def hint(self) -> str:
        """The command that shows a person what is there."""
        return f"kubectl --context {self.context} --namespace {self.namespace} get jobs,pods,events"

    def create(self, document: str) -> None:
        """Makes objects; the cluster refuses fields that it does not know, and objects that are there already."""
        self.call("create", "--validate=true", "-f", "-", input=document.encode())

    def items(self) -> list[dict[str, Any]]:
        """The Jobs, pods and events of the namespace, as they are now.

        Raises:
            StackFailed: the cluster gave no good answer for as long as patience lasts.
        """
        until = time.monotonic() + self.patience.silence
        while True:
            try:
                found: list[dict[str, Any]] = json.loads(self.call("get", "jobs,pods,events", "-o", "json"))["items"]
                return found
            except StackFailed as failed:
                if time.monotonic() > until:
                    raise
                say(f"the cluster is asked again: {failed.what}")
            time.sleep(self.patience.look)

    def deletion(self, within: float) -> list[str]:
        """The command that has the namespace deleted, and does not wait for it."""
        return self.short("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false", within=within)

    def delete(self) -> None:
        """Has the namespace deleted, and waits until it is gone.

        Raises:
            StackFailed: it is still there.
        """
        until = time.monotonic() + self.patience.deletion
        try:
            self._run(self.deletion(self.patience.call), self.patience.call)
            while self.call("get", "namespace", self.namespace, "--ignore-not-found", "-o", "name").strip():
                if time.monotonic() > until:
                    raise StackFailed(f"it is not gone after {self.patience.deletion:g} s")
                time.sleep(self.patience.look)
        except StackFailed as failed:
            raise StackFailed(
                f"the namespace {self.namespace} may still be there: {failed.what}",
                where=failed.where,
                next=f"kubectl --context {self.context} delete namespace {self.namespace}",
            ) from failed


def refuse_missing() -> None:
    """Raises UsageError where there is no `kubectl`."""
    if not shutil.which("kubectl"):
        raise UsageError("there is no kubectl here", next=f"apt-get install --no-install-recommends {DEBIAN}")


def refuse(context: str) -> None:
    """Sees whether `kubectl` knows the context; no cluster is asked.

    Raises:
        UsageError: it does not.
    """
    words = ["kubectl", "config", "get-contexts", "-o", "name"]
    try:
        known = start(words, cwd=Path("/"), env=_environment()).end().stdout.decode().split()
    except CommandFailed as failed:
        raise UsageError(f"kubectl's configuration cannot be read: {failed.what}", where=failed.where) from failed
    if context not in known:
        raise UsageError(f"kubectl knows no context {context}", next="kubectl config get-contexts")


def _environment() -> dict[str, str]:
    """Ours, as its configuration and its helpers for logging in may be named in it; commands run in another folder."""
    given = os.environ.get("KUBECONFIG", "")
    files = [str(Path(file).absolute()) for file in given.split(os.pathsep) if file]
    return {**os.environ, **({"KUBECONFIG": os.pathsep.join(files)} if files else {})}
