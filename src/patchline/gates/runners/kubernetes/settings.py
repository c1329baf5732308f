"""What a cluster needs to be told, from environment variables `PATCHLINE_KUBERNETES_*`, read at the door."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from patchline.errors import UsageError
from patchline.nearest import hint

_T = TypeVar("_T")

PREFIX = "PATCHLINE_KUBERNETES_"
REQUIRED: Mapping[str, str] = {
    "CONTEXT": "a context of kubectl's configuration; the current one is never taken by itself",
    "STOCK_IMAGE": "image of the side stock, NAME@sha256:…",
    "OVERLAY_IMAGE": "image of the side overlay, NAME@sha256:…",
    "ETCD_IMAGE": "an image with `etcd` on its PATH, NAME@sha256:…",
    "NATS_IMAGE": "an image with `nats-server` on its PATH, NAME@sha256:…",
    "TEST_IMAGE": "an image whose `python` has patchline, NAME@sha256:…",
    "MODEL_VOLUME": 'the volume with the model, as in a pod: {"nfs": {"server": …, "path": …}}',
}
"""What has to be given, by the end of its name."""

OPTIONAL: Mapping[str, str] = {
    "NODE_SELECTOR": "labels of the GPU nodes: KEY=VALUE,KEY=VALUE",
    "TOLERATIONS": "taints of the GPU nodes, as `kubectl taint` writes them: KEY=VALUE:EFFECT,KEY:EFFECT",
    "GPU_RESOURCE": "what the device plugin calls a GPU (default: nvidia.com/gpu)",
    "RDMA_RESOURCE": "what each engine gets of the RDMA device plugin: NAME or NAME=COUNT",
    "PULL_SECRET_FILE": "a file as docker's config.json, with what the images' registry asks for",
}

VOLUMES = ("csi", "ephemeral", "hostPath", "nfs")
"""Kinds of volumes that a new namespace can mount."""

_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE = re.compile(rf"(?:{_PART}(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*@sha256:[0-9a-f]{{64}}")
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PREFIXED = rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_NAME}"
_LABEL = re.compile(rf"({_PREFIXED})=({_NAME}|)")
_TAINT = re.compile(rf"({_PREFIXED})(?:=({_NAME}|))?:(NoSchedule|PreferNoSchedule|NoExecute)")
_RESOURCE = re.compile(rf"([a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/{_NAME})")
_COUNTED = re.compile(rf"{_RESOURCE.pattern}(?:=([1-9][0-9]{{0,3}}))?")
"""The forms of images, labels, taints and resources in Kubernetes' own rules."""


class Settings(NamedTuple):
    """Where and with what a play runs."""

    context: str
    stock: str
    """Images are by digest: NAME@sha256:…"""
    overlay: str
    etcd: str
    nats: str
    test: str
    volume: dict[str, Any]
    """The source of the volume with the model, as in a pod."""
    selector: dict[str, str]
    """Labels of the nodes of engines."""
    tolerations: list[dict[str, str]]
    gpu: str
    rdma: dict[str, int]
    """How many of which device each engine gets; empty: none."""
    pull_secret: Path | None
    """A file as docker's config.json."""


class _Docker(msgspec.Struct):
    auths: dict[str, Any]


def read(environment: Mapping[str, str]) -> Settings:
    """The settings that an environment holds.

    Raises:
        UsageError: one is missing, wrong or unknown; every problem is named.
    """
    given = {name.removeprefix(PREFIX): text.strip() for name, text in environment.items() if name.startswith(PREFIX)}
    given = {name: text for name, text in given.items() if text}
    problems = _unknown(given)
    problems += [f"{PREFIX}{name} is missing: {what}" for name, what in REQUIRED.items() if name not in given]
    settings = _read(given, problems)
    if not problems and settings.stock == settings.overlay:
        problems.append(f"{PREFIX}STOCK_IMAGE and {PREFIX}OVERLAY_IMAGE are the same image")
    if problems:
        raise UsageError(
            "\n".join(["the settings of the Kubernetes runner are wrong:", *(f"  - {line}" for line in problems)]),
            where="the environment",
            next="set them as environment variables",
        )
    return settings


def _unknown(given: Mapping[str, str]) -> list[str]:
    known = (*REQUIRED, *OPTIONAL)
    return [f"there is no setting {PREFIX}{name}: {hint(name, known)}" for name in given if name not in known]


def _read(given: Mapping[str, str], problems: list[str]) -> Settings:
    """What is wrong is added to `problems`; it has an empty place in what is given back."""

    def one(name: str, parse: Callable[[str], _T], otherwise: _T) -> _T:
        try:
            return parse(given[name]) if name in given else otherwise
        except ValueError as wrong:
            problems.append(f"{PREFIX}{name}: {wrong}")
            return otherwise

    return Settings(
        context=given.get("CONTEXT", ""),
        stock=one("STOCK_IMAGE", _image, ""),
        overlay=one("OVERLAY_IMAGE", _image, ""),
        etcd=one("ETCD_IMAGE", _image, ""),
        nats=one("NATS_IMAGE", _image, ""),
        test=one("TEST_IMAGE", _image, ""),
        volume=one("MODEL_VOLUME", _volume, {}),
        selector=one("NODE_SELECTOR", _labels, {}),
        tolerations=one("TOLERATIONS", _tolerations, []),
        gpu=one("GPU_RESOURCE", _resource, "nvidia.com/gpu"),
        rdma=one("RDMA_RESOURCE", _counted, {}),
        pull_secret=one("PULL_SECRET_FILE", _docker, None),
    )


def _image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise ValueError(f"an image is named by its digest, NAME@sha256:…, without a tag; not {text!r}")
    return text


def _volume(text: str) -> dict[str, Any]:
    try:
        source = json.loads(text)
    except ValueError as wrong:
        raise ValueError(f"it is not JSON: {wrong}") from wrong
    if isinstance(source, dict) and "persistentVolumeClaim" in source:
        raise ValueError("a claim belongs to its namespace, and a play has a new one: name the volume behind it")
    if not (isinstance(source, dict) and len(source) == 1 and isinstance(next(iter(source.values())), dict)):
        raise ValueError('one source of a pod\'s volume is wanted, as {"nfs": {"server": …, "path": …}}')
    if (kind := next(iter(source))) not in VOLUMES:
        raise ValueError(f"no volume of kind {kind!r} can be mounted here: {hint(kind, VOLUMES)}")
    return source


def _labels(text: str) -> dict[str, str]:
    found = [_match(_LABEL, part, "KEY=VALUE") for part in text.split(",")]
    return {match[1]: match[2] for match in found}


def _tolerations(text: str) -> list[dict[str, str]]:
    found = [_match(_TAINT, part, "KEY=VALUE:EFFECT or KEY:EFFECT") for part in text.split(",")]
    return [_toleration(*match.groups()) for match in found]


def _toleration(key: str, value: str | None, effect: str) -> dict[str, str]:
    if value is None:
        return {"key": key, "operator": "Exists", "effect": effect}
    return {"key": key, "operator": "Equal", "value": value, "effect": effect}


def _resource(text: str) -> str:
    return _match(_RESOURCE, text, "a resource's name, as nvidia.com/gpu")[0]


def _counted(text: str) -> dict[str, int]:
    match = _match(_COUNTED, text, "NAME or NAME=COUNT")
    return {match[1]: int(match[2] or 1)}


def _match(pattern: re.Pattern[str], text: str, wanted: str) -> re.Match[str]:
    if not (match := pattern.fullmatch(text.strip())):
        raise ValueError(f"{wanted} is wanted; not {text!r}")
    return match


def _docker(text: str) -> Path:
    path = Path(text).absolute()
    try:
        msgspec.json.decode(path.read_bytes(), type=_Docker)
    except OSError as failed:
        raise ValueError(f"{path} cannot be read: {failed.strerror}") from failed
    except msgspec.DecodeError as wrong:  # its text is not shown: it may hold what is secret
        raise ValueError(f"{path} is not as docker's config.json, with a table `auths`") from wrong
    return path
