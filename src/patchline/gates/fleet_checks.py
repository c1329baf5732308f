"""What a fleet must be beyond its shape; each check yields a problem as one sentence."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from patchline.gates.fleet import HYBRID_OFF, Expected, Fleet, Layout, Model, Refuses
from patchline.nearest import hint

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_OWN_FLAGS = {
    "--model": "models say it",
    "--served-model-name": "models say it",
    "--tensor-parallel-size": "layouts say it",
    "-tp": "layouts say it",
    HYBRID_OFF: "a layout's hybrid_manager says it",
    "--no-disable-hybrid-kv-cache-manager": "a layout's hybrid_manager says it",
    "--kv-transfer-config": "the gate sets it, with kv_buffer_device",
    "--disaggregation-mode": "the gate sets it",
    "--host": "the gate sets it",
    "--port": "the gate sets it",
}
_OWN_VARIABLES = (
    *("CUDA_VISIBLE_DEVICES", "DYN_NAMESPACE", "ETCD_ENDPOINTS", "NATS_SERVER", "PYTHONPATH"),
    *("VLLM_NIXL_SIDE_CHANNEL_HOST", "VLLM_NIXL_SIDE_CHANNEL_PORT"),
)


def of_all(fleets: Mapping[str, Fleet]) -> Iterator[str]:
    """Every problem between fleets: gates must be passed in an order that has a beginning."""
    for fleet in fleets.values():
        if fleet.after and fleet.after not in fleets:
            yield f"fleet {fleet.name}: after '{fleet.after}': there is no such fleet: {hint(fleet.after, fleets)}"
        elif fleet.name in (way := _before(fleets, fleet.name)):
            yield f"fleet {fleet.name}: its gate waits for itself: {' after '.join([fleet.name, *way])}"


def _before(fleets: Mapping[str, Fleet], name: str) -> list[str]:
    """The fleets that must have passed before, the nearest first; ends at the first that comes twice."""
    way: list[str] = []
    while name in fleets and (name := fleets[name].after) and name not in way:
        way.append(name)
    return way


def of_fleet(fleet: Fleet) -> Iterator[str]:
    """Every problem of one fleet."""
    if not _NAME.fullmatch(fleet.name):
        yield f"'{fleet.name}' is not a name: lower-case letters, digits and hyphens"
    if fleet.nodes < 1:
        yield f"nodes is {fleet.nodes}: must be at least 1"
    if not 0 < fleet.ready_seconds < float("inf"):
        yield f"ready_seconds is {fleet.ready_seconds}: must be above 0"
    if not 0 < fleet.parity_bound < float("inf"):
        yield f"parity_bound is {fleet.parity_bound}: must be above 0"
    yield from _of_embedded(fleet) if fleet.embedded else _of_gpus(fleet)
    yield from _of_flags(fleet)
    yield from _of_variables(fleet)
    yield from _of_models(fleet)
    yield from _of_layouts(fleet)


def _of_embedded(fleet: Fleet) -> Iterator[str]:
    """A fleet without a GPU needs nothing but Debian and Python packages."""
    for key, value, wanted in (
        ("nodes", fleet.nodes, 1),
        ("gpus_per_node", fleet.gpus_per_node, 0),
        ("runner", fleet.runner, "local"),
        ("kv_buffer_device", fleet.kv_buffer_device, "cpu"),
    ):
        if value != wanted:
            yield f"{key} is {value!r}: without a gpu it must be {wanted!r}"
    for model in fleet.models:
        if model.setting:
            yield f"model {model.name} is given by {model.setting}: without a gpu the project's own models are used"


def _of_gpus(fleet: Fleet) -> Iterator[str]:
    if fleet.gpus_per_node < 1:
        yield f"gpus_per_node is {fleet.gpus_per_node}: must be at least 1 of {fleet.gpu}"
    if fleet.gpu != " ".join(fleet.gpu.split()):
        yield f"gpu '{fleet.gpu}' has blanks that no name has"


def _of_flags(fleet: Fleet) -> Iterator[str]:
    for flag in (*fleet.flags, *fleet.dynamo_flags):
        name = flag.split("=")[0].replace("_", "-") if flag.startswith("-") else flag
        if not flag or "\0" in flag:
            yield f"flag {flag!r} is no argument of a command"
        elif name in _OWN_FLAGS:
            yield f"flag {flag} does not belong here: {_OWN_FLAGS[name]}"


def _of_variables(fleet: Fleet) -> Iterator[str]:
    for name, value in fleet.env.items():
        if not _VARIABLE.fullmatch(name):
            yield f"env: '{name}' is not the name of an environment variable"
        elif name in _OWN_VARIABLES:
            yield f"env: {name} does not belong here: the gate sets it"
        if "\0" in value:
            yield f"env: {name} holds a NUL character"


def _of_models(fleet: Fleet) -> Iterator[str]:
    if not fleet.models:
        yield "it has no models"
    counts = Counter(model.name for model in fleet.models)
    yield from (f"model {name} is named twice" for name, count in counts.items() if count > 1)
    used = {layout.model for layout in fleet.layouts}
    for model in fleet.models:
        if not _MODEL.fullmatch(model.name):
            yield f"'{model.name}' is not the name of a model"
        if model.setting and not _VARIABLE.fullmatch(model.setting):
            yield f"model {model.name}: setting '{model.setting}' is not the name of an environment variable"
        if model.name not in used:
            yield f"model {model.name} has no layout"
        yield from (f"model {model.name}: {problem}" for problem in _of_model(fleet, model))


def _of_model(fleet: Fleet, model: Model) -> Iterator[str]:
    if model.tokens < 1:
        yield f"tokens is {model.tokens}: must be at least 1"
    if model.words < 0:
        yield f"words is {model.words}: must be 0 or more"
    if model.alone < 1:
        yield f"alone is TP{model.alone}: must be at least 1"
    elif fleet.gpu and model.alone > fleet.gpus_per_node:
        yield f"alone is TP{model.alone}: that does not fit on a node of {fleet.gpus_per_node} GPUs"
    if model.gemma4 and not any("dynamo" in layout.through for layout in fleet.layouts):
        yield "gemma4 needs a layout through dynamo: a plain engine parses no tool calls"


def _of_layouts(fleet: Fleet) -> Iterator[str]:
    if not any(layout.overlay == "serves" for layout in fleet.layouts):
        yield "it has no layout that the overlay serves: its gate would show nothing"
    counts = Counter(layout.name for layout in fleet.layouts)
    yield from (f"layout {name} is there twice" for name, count in counts.items() if count > 1)
    for layout in fleet.layouts:
        yield from (f"layout {layout.name}: {problem}" for problem in _of_layout(fleet, layout))


def _of_layout(fleet: Fleet, layout: Layout) -> Iterator[str]:
    names = [model.name for model in fleet.models]
    if layout.model not in names:
        yield f"there is no model '{layout.model}': {hint(layout.model, names)}"
    for side in ("prefill", "decode"):
        tp = getattr(layout, side)
        if tp < 1:
            yield f"{side} TP is {tp}: must be at least 1"
        elif fleet.gpu and tp > fleet.gpus_per_node:
            yield f"{side} TP{tp} does not fit on a node of {fleet.gpus_per_node} GPUs"
    wanted, there = layout.prefill + layout.decode, fleet.nodes * fleet.gpus_per_node
    if fleet.gpu and wanted > there:
        yield f"prefill and decode want {wanted} GPUs, the fleet has {there}"
    if not layout.through or len(set(layout.through)) < len(layout.through):
        yield "through must name engines, dynamo or both, each once"
    for stack, expected in (("stock", layout.stock), ("overlay", layout.overlay)):
        yield from (f"{stack}: {problem}" for problem in _of_expected(stack, expected))


def _of_expected(stack: str, expected: Expected) -> Iterator[str]:
    if expected == "unsafe" and stack == "overlay":
        yield "unsafe: the overlay serves a layout or refuses it"
    if not isinstance(expected, Refuses):
        return
    try:
        pattern = re.compile(expected.refuses)
    except re.error as wrong:
        yield f"refuses '{expected.refuses}' is not a regular expression: {wrong}"
        return
    if pattern.search(""):
        yield f"refuses '{expected.refuses}' matches any line"
