"""All objects of a play, as `kubectl` takes them; pure functions, and the same text for the same play.

Every pod is that of a Job: no pod is started again when it ends, and a Job's deadline counts from the Job's creation,
so that a pod which waits for a node is not left behind, either. It is the fleet's limit for becoming ready and an hour.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Sequence

from patchline.gates.fleet import Fleet
from patchline.gates.plays import Play
from patchline.gates.runners.kubernetes import pods
from patchline.gates.runners.kubernetes.pods import PART, PORTS, Object
from patchline.gates.runners.kubernetes.settings import Settings

WORK = 3600
"""Seconds that a play may take once it is ready; a gate that was killed leaves nothing running for longer."""

_PULL_SECRET = "pull"
_KEPT = 3600
"""Seconds that a Job that has ended is kept for whoever looks."""
_OURS = {"app.kubernetes.io/part-of": "patchline"}


def namespace_name(what: str) -> str:
    """A new namespace's name: `patchline-WHAT-` and eight random digits, in the form that Kubernetes wants."""
    slug = re.sub(r"[^a-z0-9]+", "-", what.lower()).strip("-")
    return f"patchline-{slug[:44].rstrip('-')}-{secrets.token_hex(4)}"


def manifests(play: Play, settings: Settings, namespace: str) -> list[Object]:
    """The objects of a play, in the order in which they can be made; the Job `test` is the last one.

    Raises:
        UsageError: this runner does not bring up plays of its form.
        OSError: the file of the pull secret is not there any more.
    """
    names = pods.parts(play)
    deadline = deadline_of(play.fleet)
    services = [_service(name, namespace) for name in names if name in PORTS]
    made = {name: pods.pod(name, play, settings, namespace) for name in (*names, "test")}
    jobs = [_job(name, spec, namespace, deadline, settings) for name, spec in made.items()]
    return [*ground(play.name, settings, namespace), *services, *jobs]


def looks(fleet: Fleet, settings: Settings, namespace: str) -> list[Object]:
    """The objects that show which GPUs a fleet's nodes have: a pod for each node."""
    job = _job("gpus", pods.gpus(fleet.gpus_per_node, settings), namespace, deadline_of(fleet), settings)
    job["spec"] |= {"completions": fleet.nodes, "parallelism": fleet.nodes}
    return [*ground(f"gpus-{fleet.name}", settings, namespace), job]


def ground(what: str, settings: Settings, namespace: str) -> list[Object]:
    """The namespace, its policy, and the secret for images where there is one."""
    made = [_namespace(what, namespace, settings), _policy(namespace)]
    return [*made, _secret(settings.pull_secret.read_bytes(), namespace)] if settings.pull_secret else made


def deadline_of(fleet: Fleet) -> int:
    """Seconds after which the cluster itself ends a pod."""
    return round(fleet.ready_seconds) + WORK


def text(objects: Sequence[Object]) -> str:
    """The objects as one JSON document."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}, indent=1, sort_keys=True)


def _namespace(what: str, name: str, settings: Settings) -> Object:
    """The namespace; what its pods may do is said, whatever the cluster's default is."""
    special = "hostPath" in settings.volume or bool(settings.rdma)
    labels = {**_OURS, "pod-security.kubernetes.io/enforce": "privileged" if special else "baseline"}
    about = {"patchline/play": what, "patchline/left-behind": "delete it, where no gate is running"}
    metadata = {"name": name, "labels": labels, "annotations": about}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def _policy(namespace: str) -> Object:
    """Nothing comes in or goes out but questions for names; RDMA goes past every such policy."""
    own: Object = {"podSelector": {}}
    system = {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}
    dns = {
        "to": [{"namespaceSelector": system}, {"ipBlock": {"cidr": "169.254.20.10/32"}}],  # the node's own cache
        "ports": [{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}],
    }
    spec = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [own]}],
        "egress": [{"to": [own]}, dns],
    }
    metadata = _metadata("closed", namespace)
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}


def _secret(docker: bytes, namespace: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(_PULL_SECRET, namespace),
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(docker).decode()},
    }


def _service(part: str, namespace: str) -> Object:
    port = PORTS[part]
    spec = {"selector": {PART: part}, "ports": [{"name": "main", "port": port, "targetPort": port}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(part, namespace), "spec": spec}


def _job(part: str, spec: Object, namespace: str, deadline: int, settings: Settings) -> Object:
    if settings.pull_secret:
        spec = {**spec, "imagePullSecrets": [{"name": _PULL_SECRET}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(part, namespace),
        "spec": {
            "activeDeadlineSeconds": deadline,
            "backoffLimit": 0,
            "ttlSecondsAfterFinished": _KEPT,
            "template": {"metadata": {"labels": {**_OURS, PART: part}}, "spec": spec},
        },
    }


def _metadata(name: str, namespace: str) -> Object:
    return {"name": name, "namespace": namespace, "labels": {**_OURS, PART: name}}
