"""What a fleet is: where a gate runs, with which engines, and what is expected of each layout."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from msgspec import Struct, field

HYBRID_OFF = "--disable-hybrid-kv-cache-manager"

Runner: TypeAlias = Literal["local", "slurm", "kubernetes"]
Through: TypeAlias = Literal["engines", "dynamo"]


class Refuses(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The pair gives no token, and a line of an engine's log matches the regular expression `refuses`."""

    refuses: str


Expected: TypeAlias = Literal["serves", "unsafe"] | Refuses
"""`serves`: the answer is right. `unsafe`: it may be refused or wrong, and is not counted."""


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model that layouts are run with."""

    name: str
    setting: str = ""
    """Environment variable that gives its folder or hub name; empty: the project trains the model of that name."""
    tokens: int
    """How long a prompt of the recall check is, about."""
    words: int = 0
    """How many ids, and how many codes, its lists of bare words may have; 0: prompts are prose."""
    alone: int = 1
    """TP of the one engine whose answers those of the pairs are compared with."""
    gemma4: bool = False
    """Whether it is asked for tool calls, thinking and JSON, too, where Dynamo parses them."""


class Layout(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on a prefill and a decode engine, and what becomes of it on stock and on the overlay."""

    model: str
    prefill: int
    """TP of the prefill engine."""
    decode: int
    """TP of the decode engine."""
    stock: Expected
    overlay: Expected
    hybrid_manager: bool = False
    """Whether both engines run with the hybrid KV-cache manager on."""
    through: tuple[Through, ...] = ("engines",)
    """Two plain engines, or the whole Dynamo stack, or both."""

    @property
    def name(self) -> str:
        """`tiny-8-2-tp2-tp4`, with `-hybrid` where the manager is on: unique in a fleet."""
        return f"{self.model}-tp{self.prefill}-tp{self.decode}" + "-hybrid" * self.hybrid_manager


class Fleet(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Machines of one kind."""

    name: str
    gpu: str
    """The model that NVML has to name, see `is_gpu`; empty: no GPU is used."""
    nodes: int
    gpus_per_node: int
    """0 where no GPU is used: ranks are processes of one host."""
    runner: Runner
    after: str
    """The fleet whose gate must have passed before; empty for the first one."""
    ready_seconds: float
    """How long an engine may take until it is ready."""
    parity_bound: float
    """How far log-probabilities may lie from those of the one engine."""
    kv_buffer_device: Literal["cpu", "cuda"]
    """Where the connector keeps its buffers."""
    flags: tuple[str, ...]
    """Of every engine, on stock and on the overlay alike."""
    models: tuple[Model, ...]
    layouts: tuple[Layout, ...]
    env: dict[str, str] = field(default_factory=dict)
    """Of every engine."""
    dynamo_flags: tuple[str, ...] = ()
    """More flags, of an engine below Dynamo's frontend."""
    debian: tuple[str, ...] = ()
    """Debian packages that the gate needs, beside Python packages."""

    @property
    def embedded(self) -> bool:
        """Whether the gate runs on any Debian machine, with what Debian and the Python package index offer."""
        return not self.gpu


def engine_flags(fleet: Fleet, layout: Layout) -> list[str]:
    """The flags of both engines of a layout: the fleet's, and the hybrid manager's switch."""
    return [*fleet.flags, *([] if layout.hybrid_manager else [HYBRID_OFF])]


def is_gpu(seen: str, wanted: str) -> bool:
    """Whether a GPU that NVML calls `seen` is of the model `wanted`.

    The words of `wanted` must be the first words of `seen`, whatever their case; blanks and hyphens end a word. So
    `NVIDIA H20-3e` is an `NVIDIA H20`, and `NVIDIA H200` is none.
    """
    have, want = (re.split(r"[\s-]+", name.strip().casefold()) for name in (seen, wanted))
    return bool(wanted.strip()) and have[: len(want)] == want
