"""The runner `kubernetes`: a namespace for each play, deleted with all that is in it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from patchline.errors import UsageError
from patchline.gates.fleet import Fleet
from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play
from patchline.gates.runners.kubernetes import errand, forward, janitor, manifests, pods
from patchline.gates.runners.kubernetes.cluster import PATIENCE, Cluster, Patience, refuse, refuse_missing
from patchline.gates.runners.kubernetes.pods import SERVICES, Object
from patchline.gates.runners.kubernetes.settings import Settings, read
from patchline.gates.runners.kubernetes.watch import Watch
from patchline.gates.runners.runner import NotRun, engines
from patchline.gates.stack import logs as log_files
from patchline.gates.stack.engines import model_name
from patchline.gates.stack.ports import HOST
from patchline.gates.stack.processes import GRACE, Launch, Processes, StackFailed
from patchline.progress import say

_JANITOR = "janitor"


class Served(NamedTuple):
    """A play that is ready in its namespace; see `Stand`."""

    url: str
    model: str
    ready: float
    watch: Watch
    job: Object
    """That of the test."""
    root: Path
    """The folder of the logs."""

    @property
    def logs(self) -> dict[str, Path]:
        """The log file of each part, by its name."""
        return self.watch.logs

    def check(self) -> None:
        """Raises StackFailed where a pod is not there any more, or the way to it."""
        self.watch.look()
        forward.refuse_ended(self.watch.processes)

    def recall(self) -> dict[str, Any]:
        """Runs the recall check in a Job of the namespace, once: the forwarded port has no part in it.

        Gives what `python -m patchline check --json` printed; `exit` in it is its status. Its log is `test`.

        Raises:
            StackFailed: the Job did not run, or its log holds no result.
        """
        _create(self.watch.cluster, [self.job])
        said = errand.run(self.watch.cluster, "test", self.job["spec"]["activeDeadlineSeconds"])[0]
        log = log_files.new(self.root, "test")
        log.write_text(said.text)
        return _result(said, log)


class Kubernetes:
    """Plays of a fleet as pods of a cluster."""

    name = "kubernetes"

    def __init__(self, fleet: Fleet, settings: Settings | None = None, patience: Patience = PATIENCE) -> None:
        """`settings` are those of the environment where they are not given: they are read when they are needed."""
        self.fleet, self.patience = fleet, patience
        self._given = settings

    @property
    def image(self) -> str:
        """Digest of the image of the overlay's side."""
        return self.settings.overlay.rpartition("@")[2]

    @cached_property
    def settings(self) -> Settings:
        """Where and with what plays run.

        Raises:
            UsageError: as `settings.read`, or there is no `kubectl` that knows the context.
        """
        refuse_missing()
        settings = self._given or read(os.environ)
        refuse(settings.context)
        return settings

    def gpus(self) -> list[Gpu]:
        """What `nvidia-smi` sees in one pod on each of the fleet's nodes, which asks for all GPUs there."""
        try:
            with tempfile.TemporaryDirectory(prefix="patchline-") as scratch:
                return self._gpus(self.settings, Path(scratch))
        except (UsageError, StackFailed) as failed:
            why = f"not run: no {self.fleet.gpu} seen: {failed.what}"
            raise NotRun(why, where=failed.where, next=failed.next) from failed

    def _gpus(self, settings: Settings, logs: Path) -> list[Gpu]:
        namespace = manifests.namespace_name(f"gpus-{self.fleet.name}")
        objects = manifests.looks(self.fleet, settings, namespace)
        with _namespace(Cluster(settings.context, namespace, self.patience), logs) as watch:
            _create(watch.cluster, objects)
            said = errand.run(watch.cluster, "gpus", self.fleet.ready_seconds)
            return [gpu for one in said for gpu in _named(one)]

    @contextmanager
    def serve(self, play: Play, logs: Path) -> Iterator[Served]:
        """Brings up a play in a namespace of its own; see `Runner`."""
        names, settings, logs = pods.parts(play), self.settings, logs.absolute()
        namespace = manifests.namespace_name(play.name)
        objects = manifests.manifests(play, settings, namespace)
        model = model_name(engines(play)[0])
        with _namespace(Cluster(settings.context, namespace, self.patience), logs) as watch:
            say(f"{play.name} runs in namespace {namespace}, for {manifests.deadline_of(play.fleet)} s at most")
            _bring_up(watch, objects, names, play.fleet.ready_seconds)
            port = forward.forward(watch, play, model)
            served = Served(f"http://{HOST}:{port}", model, watch.seconds, watch, objects[-1], logs)
            try:
                yield served
            except Exception as failed:
                if not isinstance(failed, StackFailed):
                    _explain(served, failed)
                raise


@contextmanager
def _namespace(cluster: Cluster, logs: Path) -> Iterator[Watch]:
    """A namespace that is deleted when the block ends, and when this process does, however it does."""
    with Processes(logs) as processes:
        command = [sys.executable, "-I", janitor.__file__, *cluster.deletion(GRACE - 2)]
        processes.start(_JANITOR, Launch(command, cluster.env, str))
        try:
            yield Watch(cluster, processes)
        except BaseException:
            _delete_anyway(cluster)
            raise
        cluster.delete()


def _delete_anyway(cluster: Cluster) -> None:
    """Deletes the namespace; where that fails it is only said, as another error is on its way."""
    try:
        cluster.delete()
    except StackFailed as left:
        say(str(left))


def _create(cluster: Cluster, objects: Sequence[Object]) -> None:
    cluster.create(manifests.text(objects))


def _bring_up(watch: Watch, objects: Sequence[Object], names: Sequence[str], limit: float) -> None:
    """The services first, as others end where they do not answer; `limit` is in seconds, for all."""
    jobs = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Job"}
    _create(watch.cluster, [one for one in objects if one["kind"] != "Job"])
    first, then = ([name for name in names if (name in SERVICES) is early] for early in (True, False))
    for group in filter(None, (first, then)):
        _create(watch.cluster, [jobs[name] for name in group])
        watch.until_ready(group, limit)


def _explain(served: Served, failed: Exception) -> None:
    """Raises for a pod that ended in place of the error that it made in the block; a cluster learns of it late."""
    try:
        served.check()
        time.sleep(served.watch.cluster.patience.look)
        served.check()
    except StackFailed as fault:
        raise fault from failed


def _named(said: errand.Said) -> list[Gpu]:
    """The GPUs of one node, as `nvidia-smi` lists them: name, driver, MiB."""
    if not said.pod.done:
        raise StackFailed(f"nvidia-smi {said.pod.ended} on {said.pod.node}: {said.text.strip()[-400:]}")
    rows = [[cell.strip() for cell in line.split(",")] for line in said.text.splitlines() if line.strip()]
    if wrong := next((row for row in rows if len(row) != 3 or not row[2].isdecimal()), None):
        raise StackFailed(f"nvidia-smi names no GPU on {said.pod.node}: {', '.join(wrong)}")
    return [Gpu(name, driver, int(memory) * 2**20, said.pod.node) for name, driver, memory in rows]


def _result(said: errand.Said, log: Path) -> dict[str, Any]:
    """The JSON object at the end of what the check printed: its progress stands before it."""
    start = said.text.rfind("\n{\n") + 1
    try:
        found = json.loads(said.text[start:])
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise StackFailed(f"the test {said.pod.ended} and gave no result\n{log_files.shown(log)}", where=str(log))
    return found
