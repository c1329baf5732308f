"""The pods of a play, as pure functions of the play and the settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from patchline.errors import UsageError
from patchline.gates.plays import Play
from patchline.gates.runners.kubernetes.settings import Settings
from patchline.gates.runners.runner import engines
from patchline.gates.stack.engines import Engine, model_name

Object: TypeAlias = dict[str, Any]

PART = "patchline/part"
"""The label that says which process a pod is."""
SERVICES = ("etcd", "nats")
"""What must be ready before the others start: they end where it does not answer."""
PORTS: Mapping[str, int] = {"etcd": 2379, "nats": 4222, "frontend": 8000, "engine": 8000}
"""Of each part that others ask; each has a Service of its name."""
HUB = "/models"
"""Where the volume is seen that holds a hub's cache."""

_SYSTEM = 9090
_SIDE_CHANNEL = 5600  # NIXL's default; each engine has an address of its own
_USER: Object = {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 0}  # `dynamo` of Dynamo's images
_ADDRESS = {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}
_CACHE = "/cache"


def parts(play: Play) -> tuple[str, ...]:
    """The names of a play's processes.

    Raises:
        UsageError: this runner does not bring up plays of its form.
    """
    if play.form == "alone":
        return ("engine",)
    if play.form == "dynamo":
        return (*SERVICES, "frontend", "prefill", "decode")
    raise UsageError(
        f"the Kubernetes runner does not bring up {play.name}: what hands KV over between two plain engines is a part"
        " of this process, and their namespace lets nothing in",
        where=f"fleet {play.fleet.name}",
        next='have its layouts go through = ["dynamo"]',
    )


def door(play: Play) -> str:
    """The part that answers requests."""
    return "frontend" if play.form == "dynamo" else "engine"


def pod(part: str, play: Play, settings: Settings, namespace: str) -> Object:
    """The specification of one part's pod."""
    prefill, decode = engines(play)
    if part == "etcd":
        return _etcd(settings)
    if part == "nats":
        return _nats(settings)
    if part == "frontend":
        return _frontend(play, settings, namespace)
    if part == "test":
        return _test(play, settings)
    if part == "engine":
        return _server(prefill, play, settings)
    return _worker(part, prefill if part == "prefill" else decode, play, settings, namespace)


def gpus(count: int, settings: Settings) -> Object:
    """A pod that names the `count` GPUs of its node."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits"]
    container = _container("gpus", settings.stock, query, {}, resources=_resources({settings.gpu: count}, "1", "1Gi"))
    return {**_spec(container), **_place(settings), "affinity": _apart("gpus")}


def _etcd(settings: Settings) -> Object:
    own = f"http://etcd:{PORTS['etcd']}"
    command = ["etcd", "--name", "patchline", "--data-dir", "/data/etcd"]
    command += ["--listen-client-urls", f"http://0.0.0.0:{PORTS['etcd']}", "--advertise-client-urls", own]
    return _stored(_container("etcd", settings.etcd, command, {}, probe=_http("/health", PORTS["etcd"])))


def _nats(settings: Settings) -> Object:
    command = ["nats-server", "--addr", "0.0.0.0", "--port", str(PORTS["nats"]), "--http_port", "8222"]
    command += ["--jetstream", "--store_dir", "/data/nats"]
    return _stored(_container("nats", settings.nats, command, {}, probe=_http("/healthz", 8222)))


def _stored(container: Object) -> Object:
    """A service with a folder for its data, which goes with its pod."""
    container["securityContext"]["readOnlyRootFilesystem"] = True
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return {**_spec(container), "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "4Gi"}}]}


def _frontend(play: Play, settings: Settings, namespace: str) -> Object:
    port = PORTS["frontend"]
    command = ["python3", "-P", "-m", "dynamo.frontend", "--http-host", "0.0.0.0", "--http-port", str(port)]
    env = {**_common(play), **_dynamo(namespace)}
    image = image_of(play, settings)
    container = _container("frontend", image, command, env, probe=_http("/health", port), cpu="4", memory="8Gi")
    return {**_modelled(_spec(container), play, settings), **_place(settings)}


def _worker(mode: str, engine: Engine, play: Play, settings: Settings, namespace: str) -> Object:
    """Dynamo's vLLM worker; `mode` is `prefill` or `decode`."""
    command = ["python3", "-P", "-m", "dynamo.vllm", "--model", engine.model, "--disaggregation-mode", mode]
    kv = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": engine.buffer}
    command += [*_words(engine), "--kv-transfer-config", json.dumps(kv)]
    health = {  # without the last one `/health` never says that it is ready
        "DYN_SYSTEM_HOST": "0.0.0.0",
        "DYN_SYSTEM_PORT": str(_SYSTEM),
        "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
    }
    nixl = {"VLLM_NIXL_SIDE_CHANNEL_HOST": _ADDRESS, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(_SIDE_CHANNEL)}
    env = {**_common(play), **engine.env, **_dynamo(namespace), **health, **nixl}
    made = _engine(mode, command, env, engine, play, settings, _http("/health", _SYSTEM))
    return {**made, "affinity": _apart("prefill", "decode")}


def _server(engine: Engine, play: Play, settings: Settings) -> Object:
    """`vllm serve`, alone."""
    command = ["python3", "-P", "-m", "vllm.entrypoints.cli.main", "serve", engine.model]
    command += ["--host", "0.0.0.0", "--port", str(PORTS["engine"]), *_words(engine)]
    env = {**_common(play), **engine.env}
    return _engine("engine", command, env, engine, play, settings, _http("/health", PORTS["engine"]))


def _words(engine: Engine) -> list[str]:
    """What every engine is told, as on one host."""
    return ["--served-model-name", model_name(engine), "--tensor-parallel-size", str(engine.tp), *engine.flags]


def _engine(
    name: str, command: Sequence[str], env: Object, engine: Engine, play: Play, settings: Settings, probe: Object
) -> Object:
    devices = {settings.gpu: engine.tp, **settings.rdma} if play.fleet.gpu else {}
    resources = _resources(devices, str(2 * engine.tp), f"{16 * engine.tp}Gi")
    container = _container(name, image_of(play, settings), command, env, probe=probe, resources=resources)
    if settings.rdma:
        container["securityContext"]["capabilities"]["add"] = ["IPC_LOCK"]  # memory that is registered stays in place
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]
    spec = _modelled(_spec(container), play, settings)
    spec["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}})
    return {**spec, **_place(settings)}


def _test(play: Play, settings: Settings) -> Object:
    model, part = play.description, door(play)
    command = ["python", "-m", "patchline", "check", f"http://{part}:{PORTS[part]}", "--recall", "--json"]
    command += ["--tokens", str(model.tokens)]
    command += ["--form", "list", "--words", str(model.words)] if model.words else []
    return _spec(_container("test", settings.test, command, {"PYTHONUNBUFFERED": "1"}))


def image_of(play: Play, settings: Settings) -> str:
    """The image of a play's side; its frontend runs from it, too, as it would when it is released."""
    return settings.stock if play.side == "stock" else settings.overlay


def _common(play: Play) -> Object:
    """What every process of Dynamo or vLLM is told: nothing is fetched, nothing is reported, caches go with the pod."""
    return {
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": f"{_CACHE}/torchinductor",
        "TRITON_CACHE_DIR": f"{_CACHE}/triton",
        "VLLM_CACHE_ROOT": f"{_CACHE}/vllm",
        "VLLM_HOST_IP": _ADDRESS,
        "VLLM_NO_USAGE_STATS": "1",
        **({} if _is_folder(play.model) else {"HF_HOME": HUB}),
    }


def _dynamo(namespace: str) -> Object:
    """What leads Dynamo to the namespace's own services."""
    return {
        "DYN_DISCOVERY_BACKEND": "etcd",
        "DYN_EVENT_PLANE": "nats",
        "DYN_NAMESPACE": namespace,
        "DYN_TCP_RESPONSE_STREAM_HOST": _ADDRESS,
        "DYN_TCP_RPC_HOST": _ADDRESS,
        "ETCD_ENDPOINTS": f"http://etcd:{PORTS['etcd']}",
        "NATS_SERVER": f"nats://nats:{PORTS['nats']}",
    }


def _modelled(spec: Object, play: Play, settings: Settings) -> Object:
    """The pod with the model's volume, read-only, and a folder for caches."""
    mounts = [
        {"name": "cache", "mountPath": _CACHE},
        {"name": "model", "mountPath": play.model if _is_folder(play.model) else HUB, "readOnly": True},
    ]
    container = spec["containers"][0]
    container["volumeMounts"] = container.get("volumeMounts", []) + mounts
    return {**spec, "volumes": [{"name": "cache", "emptyDir": {}}, {"name": "model", **settings.volume}]}


def _is_folder(model: str) -> bool:
    """Whether a model is named by its folder in pods, or by its name on a hub."""
    return PurePosixPath(model).is_absolute()


def _container(
    name: str,
    image: str,
    command: Sequence[str],
    env: Object,
    *,
    probe: Object | None = None,
    resources: Object | None = None,
    cpu: str = "1",
    memory: str = "1Gi",
) -> Object:
    made: Object = {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [_variable(key, env[key]) for key in sorted(env)],
        "resources": resources or _resources({}, cpu, memory),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {**made, "readinessProbe": probe} if probe else made


def _variable(name: str, value: str | Object) -> Object:
    return {"name": name, **(value if isinstance(value, dict) else {"value": value})}


def _resources(devices: Mapping[str, int], cpu: str, memory: str) -> Object:
    counts = {name: str(count) for name, count in sorted(devices.items())}
    requests = {"cpu": cpu, "memory": memory, **counts}
    return {"requests": requests, "limits": counts} if counts else {"requests": requests}


def _http(path: str, port: int) -> Object:
    """A probe; a pod that does not answer is not ready, and is never restarted for it."""
    return {"httpGet": {"path": path, "port": port}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 3}


def _spec(container: Object) -> Object:
    return {
        "automountServiceAccountToken": False,
        "containers": [container],
        "enableServiceLinks": False,  # else each pod gets variables like NATS_PORT, by the names of services
        "restartPolicy": "Never",  # a process that ends is a fault to be seen
        "securityContext": {**_USER, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 30,
    }


def _place(settings: Settings) -> Object:
    """Where pods with a GPU may run; the frontend, too: the image is there."""
    placed: Object = {"nodeSelector": dict(sorted(settings.selector.items()))} if settings.selector else {}
    return {**placed, "tolerations": list(settings.tolerations)} if settings.tolerations else placed


def _apart(*names: str) -> Object:
    """No two pods of these parts are on one node."""
    selector = {"matchExpressions": [{"key": PART, "operator": "In", "values": list(names)}]}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
