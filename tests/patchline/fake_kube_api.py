"""A fake of an API server, so that the real `kubectl` can look at objects: it offers kinds and their definitions alone.

The definitions are the published ones that the package `kubernetes-validate` brings, given out in the form in which
`kubectl` asks for them: the message `Document` of gnostic's `OpenAPIv2.proto`, as protocol buffers.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

KINDS: Mapping[str, Mapping[str, tuple[str, bool]]] = {
    "v1": {
        "Event": ("events", True),
        "Namespace": ("namespaces", False),
        "Pod": ("pods", True),
        "Secret": ("secrets", True),
        "Service": ("services", True),
    },
    "batch/v1": {"Job": ("jobs", True)},
    "networking.k8s.io/v1": {"NetworkPolicy": ("networkpolicies", True)},
}
"""Plural and whether it is in a namespace, by API and kind."""

DEFINITIONS: Mapping[str, str] = {
    "Namespace": "io.k8s.api.core.v1.Namespace",
    "Secret": "io.k8s.api.core.v1.Secret",
    "Service": "io.k8s.api.core.v1.Service",
    "Job": "io.k8s.api.batch.v1.Job",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
}
"""The name of each kind's definition."""


@lru_cache
def definitions(version: str) -> dict[str, Any]:
    """The published definitions of a version, as `v1.32.0`, those of whole kinds among them."""
    root = importlib.resources.files("kubernetes_validate") / "kubernetes-json-schema" / f"{version}-local"
    found: dict[str, Any] = json.loads((root / "_definitions.json").read_text())["$defs"]
    return found


def reachable(version: str) -> dict[str, Any]:
    """The definitions that the kinds here need."""
    all_, found, ask = definitions(version), {}, list(DEFINITIONS.values())
    while ask:
        name = ask.pop()
        if name not in found:
            found[name] = all_[name]
            ask += _references(all_[name])
    return found


def _references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [name for one in part for name in _references(one)]
    if not isinstance(part, dict):
        return []
    here = [part["$ref"].rpartition("/")[2]] if isinstance(part.get("$ref"), str) else []
    return here + [name for one in part.values() for name in _references(one)]


def _field(number: int, data: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(data)) + data


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    return bytes([*made, value])


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _named(name: str, value: bytes) -> bytes:
    return _text(1, name) + _field(2, value)


def _schema(part: Mapping[str, Any]) -> bytes:
    """One `Schema`: $ref 1, format 2, required 19, additional properties 21, type 22, items 23, properties 25."""
    if "$ref" in part:
        return _text(1, "#/definitions/" + part["$ref"].rpartition("/")[2])
    kinds = part.get("type", "string" if "oneOf" in part else [])  # quantities, and numbers or names of ports
    kinds = [kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"]
    made = b"".join(_text(19, name) for name in part.get("required", ()))
    made += _text(2, "int-or-string") if "oneOf" in part else b""
    if "additionalProperties" in part:
        made += _field(21, _field(1, _schema(part["additionalProperties"])))
    made += _field(22, b"".join(_text(1, kind) for kind in kinds)) if kinds else b""
    if "items" in part:
        made += _field(23, _field(1, _schema(part["items"])))
    if "properties" in part:
        made += _field(25, b"".join(_field(1, _named(key, _schema(one))) for key, one in part["properties"].items()))
    return made + _kinds(part)


def _kinds(part: Mapping[str, Any]) -> bytes:
    """What says which kind a definition is: the vendor extension, 31, whose value is YAML."""
    key = "x-kubernetes-group-version-kind"
    return _field(31, _named(key, _text(2, json.dumps(part[key])))) if key in part else b""


@lru_cache
def document(version: str) -> bytes:
    """The `Document`: swagger 1, info 2, paths 8, definitions 9."""
    made = b"".join(_field(1, _named(name, _schema(part))) for name, part in reachable(version).items())
    return _text(1, "2.0") + _field(2, _text(1, "fake") + _text(2, version)) + _field(8, b"") + _field(9, made)


def _answers(version: str) -> dict[str, Any]:
    number = version.removeprefix("v").split(".")
    groups = [group for group in KINDS if "/" in group]
    made: dict[str, Any] = {
        "/version": {"major": number[0], "minor": number[1], "gitVersion": version},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(one) for one in groups]},
    }
    for group, kinds in KINDS.items():
        made[f"/apis/{group}" if "/" in group else f"/api/{group}"] = {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": group,
            "resources": [
                {"name": plural, "singularName": "", "namespaced": inside, "kind": kind, "verbs": ["create", "get"]}
                for kind, (plural, inside) in kinds.items()
            ],
        }
    return made


_MISSING = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


def _group(group: str) -> dict[str, Any]:
    one = {"groupVersion": group, "version": group.partition("/")[2]}
    return {"name": group.partition("/")[0], "versions": [one], "preferredVersion": one}


def lists(namespace: str, objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a server answers who asks for all Jobs, pods or events of a namespace: there, objects do not say a kind."""
    made = {}
    for api, kind in (("batch/v1", "Job"), ("v1", "Pod"), ("v1", "Event")):
        place = f"/apis/{api}" if "/" in api else f"/api/{api}"
        items = [{key: one[key] for key in one if key != "kind"} for one in objects if one["kind"] == kind]
        path = f"{place}/namespaces/{namespace}/{KINDS[api][kind][0]}"
        made[path] = {"kind": f"{kind}List", "apiVersion": api, "metadata": {}, "items": items}
    return made


@contextmanager
def serving(folder: Path, version: str, more: Mapping[str, Any] | None = None) -> Iterator[Path]:
    """Serves until the block ends; gives a configuration of `kubectl`, in `folder`, with the context `fake`."""
    answers = {**_answers(version), **(more or {})}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/openapi/v2":
                self.give(200, document(version), "application/com.github.proto-openapi.spec.v2.v1.0+protobuf")
            else:
                found = answers.get(path)
                self.give(200 if found else 404, json.dumps(found or _MISSING).encode(), "application/json")

        def do_DELETE(self) -> None:
            self.give(404, json.dumps(_MISSING).encode(), "application/json")

        def give(self, status: int, data: bytes, kind: str) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield configuration(folder, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def configuration(folder: Path, url: str) -> Path:
    """A configuration of `kubectl` with one context, `fake`."""
    made = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": {}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
    }
    path = folder / "kubeconfig.json"
    path.write_text(json.dumps(made))
    return path
