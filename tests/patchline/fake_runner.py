"""A fake runner: engines are the test endpoints, and their logs are written by hand. It plays faults real ones had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from endpoints import CHAT, COMPLETIONS, Served, endpoint, json_of

from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play
from patchline.gates.stack.processes import StackFailed

REFUSALS = {
    "no line": "AssertionError: something else",
    "the frontend's line": "AssertionError: something else",
    "a long line": "x" * 1000 + " SPLIT  region 5 SPLIT region 5" + "x" * 1000,
}


class Stand(NamedTuple):
    """What the fake brought up."""

    url: str
    model: str
    logs: Mapping[str, Path]
    ready: float = 1.5
    fault: str = ""

    def check(self) -> None:
        if self.fault:
            raise StackFailed(self.fault)


class FakeRunner:
    """`spoils` get the endpoint, or a name of a fault: `unready`, `ended`, `no plans`, `no line` …, by parts of names."""

    name = "fake"
    image = ""

    def __init__(self, gpus: list[Gpu] | None = None) -> None:
        self.seen = gpus or []
        self.spoils: dict[str, Callable[[Served], None] | str] = {}
        self.served: list[str] = []

    def gpus(self) -> list[Gpu]:
        return self.seen

    @contextmanager
    def serve(self, play: Play, logs: Path) -> Iterator[Stand]:
        self.served.append(play.name)
        spoil = next((spoil for part, spoil in self.spoils.items() if part in play.name), "")
        if spoil == "unready":
            raise StackFailed("decode was not ready within 600 s")
        with endpoint(play.layout.model) as served:
            paths = {name: _write(logs, name, play, spoil) for name in ("prefill", "decode")}
            if spoil == "the frontend's line":
                (logs / "frontend.log").write_text("SPLIT region 5")
            if not isinstance(play.expected, str) and spoil != "answers, and ends":
                failing = json_of({"error": {"message": "the handshake failed"}}, 500)
                served.answers |= {COMPLETIONS: failing, CHAT: failing}
            if callable(spoil):
                spoil(served)
            yield Stand(served.url, play.layout.model, paths, fault="decode ended" if "end" in str(spoil) else "")


def _write(logs: Path, name: str, play: Play, spoil: object) -> Path:
    path = logs / name / f"{name}.log"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(_lines(name, play, spoil)) + "\n")
    return path


def _lines(name: str, play: Play, spoil: object) -> Iterator[str]:
    yield f"(Worker_TP0 pid=1) INFO [base_worker.py:570] Initializing NIXL worker {name}"
    decode, prefill = play.layout.decode, play.layout.prefill
    if not isinstance(play.expected, str):
        yield REFUSALS.get(str(spoil), "AssertionError: SPLIT region 5: remote P KV")
    elif name == "decode" and spoil != "no plans":
        numbers = f"tp_ratio={decode // prefill}, num_kv_heads=8, local_tp={decode}, remote_tp={prefill}"
        yield from (f"(Worker_TP{rank} pid=1) INFO TransferTopology({numbers})" for rank in range(decode))
