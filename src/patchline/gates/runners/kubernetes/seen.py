"""What a cluster says about one part of a play: pure functions of its objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from patchline.gates.runners.kubernetes.pods import PART, Object

STUCK = (
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)
"""Reasons for which a container waits, and which do not go away by themselves."""


class Seen(NamedTuple):
    """One part, at one moment."""

    name: str
    pod: str = ""
    """Its pod, empty where there is none."""
    node: str = ""
    started: bool = False
    """Whether its process has been started, ended or not: it has a log."""
    ready: bool = False
    done: bool = False
    """Whether its process ended with status 0."""
    ended: str = ""
    """How it ended, in words; empty while it is there or is still to come."""
    stuck: str = ""
    """Why it will never start."""
    homeless: str = ""
    """Why it has no node or no pod yet: that may change."""
    waits: str = ""
    """What it is at, in words."""


def seen(name: str, items: Sequence[Object]) -> list[Seen]:
    """The pods of a part; one without a pod where there is none yet, or none any more."""
    job = next((one for one in _kind(items, "Job") if one["metadata"]["name"] == name), None)
    pods = [pod for pod in _kind(items, "Pod") if pod["metadata"].get("labels", {}).get(PART) == name]
    if pods:
        told = [_pod(name, pod, _events(pod["metadata"]["name"], items)) for pod in pods]
        return sorted(told, key=lambda one: one.pod)
    if job is None:
        return [Seen(name, ended="is gone: it has no Job any more")]
    if failed := _condition(job.get("status", {}), "Failed", "True"):
        return [Seen(name, ended=f"is gone: {_said(failed)}")]
    last = next(reversed(_events(name, items)), "nothing is said about it")
    return [Seen(name, homeless=f"its Job has no pod: {last}", waits="its Job has no pod")]


def _pod(name: str, pod: Object, events: Sequence[str]) -> Seen:
    status, metadata = pod.get("status", {}), pod["metadata"]
    containers = [*status.get("containerStatuses", []), {}]
    state = containers[0].get("state", {})
    phase = status.get("phase", "Pending")
    made = Seen(
        name,
        metadata["name"],
        pod.get("spec", {}).get("nodeName", ""),
        started=bool(state.keys() & {"running", "terminated"}),
        ready=bool(_condition(status, "Ready", "True")),
        done=phase == "Succeeded",
        ended=_ended(phase, status, state),
        waits=": ".join([_at(phase, state), *events[-1:]]),
    )
    waiting = state.get("waiting", {})
    if waiting.get("reason") in STUCK:
        return made._replace(stuck=_said(waiting))
    if phase == "Pending" and (unplaced := _condition(status, "PodScheduled", "False")):
        return made._replace(homeless=_said(unplaced))
    if metadata.get("deletionTimestamp") and not made.ended:
        return made._replace(ended="is being deleted")
    return made


def _ended(phase: str, status: Object, state: Object) -> str:
    if end := state.get("terminated"):
        reason = end.get("reason", "")
        told = f" ({reason})" if reason and reason not in ("Error", "Completed") else ""
        return f"ended with status {end.get('exitCode')}{told}"
    if phase in ("Failed", "Succeeded"):
        return f"ended: {_said(status)}"
    return ""


def _at(phase: str, state: Object) -> str:
    if waiting := state.get("waiting"):
        return _said(waiting)
    return "its process runs and is not ready" if "running" in state else phase


def _said(part: Object) -> str:
    """`Reason: message` of a condition or a state."""
    return ": ".join(filter(None, (part.get("reason"), part.get("message")))) or "no reason is given"


def _condition(status: Object, kind: str, value: str) -> Object | None:
    conditions: Iterable[Object] = status.get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind and one["status"] == value), None)


def _events(name: str, items: Sequence[Object]) -> list[str]:
    """What was told about an object, oldest first."""
    about = [event for event in _kind(items, "Event") if event.get("involvedObject", {}).get("name") == name]
    return [_said(event) for event in sorted(about, key=_when)]


def _when(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or "")


def _kind(items: Sequence[Object], kind: str) -> list[dict[str, Any]]:
    return [item for item in items if item["kind"] == kind]
