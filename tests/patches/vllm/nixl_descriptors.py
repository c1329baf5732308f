"""The descriptors that stock prepares and posts, as they are kept in stock_descriptors.json.

To write that file anew, run this module as a script on stock: in a proof's environment,
with this folder and one that holds `patchline` on PYTHONPATH.
"""

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
from nixl_agents import OWN_MEMORY
from nixl_engine import Engine, Rank
from nixl_models import MLA, SMALL, UNIFORM
from nixl_pair import decode, pair, prefill, transfer
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlAgentMetadata

FILE = Path(__file__).with_name("stock_descriptors.json")
HYBRID = {"hybrid": True, "num_blocks": 16}
PERMUTED = {"layout": "LBNHC", "enable_permute_local_kv": True}

CASES: dict[str, dict[str, Any]] = {
    "8 TP1 TP2": {"layers": UNIFORM, "tps": (1, 2)},
    "8 TP2 TP8": {"layers": UNIFORM, "tps": (2, 8)},
    "8 TP4 TP2": {"layers": UNIFORM, "tps": (4, 2)},
    "8 TP2 TP2": {"layers": UNIFORM, "tps": (2, 2)},
    "8 TP2 TP2 token-major": {"layers": UNIFORM, "tps": (2, 2), "both": {"layout": "LBNHC"}},
    "8/2 TP1 TP1": {"layers": SMALL, "tps": (1, 1)},
    "8/2 TP4 TP4": {"layers": SMALL, "tps": (4, 4)},
    "8/2 TP1 TP2": {"layers": SMALL, "tps": (1, 2)},
    "8/2 TP2 TP2 hybrid": {"layers": SMALL, "tps": (2, 2), "both": HYBRID, "blocks": 6},
    "8/2 TP2 TP2 PP2": {"layers": SMALL, "tps": (2, 2), "prefill": {"pp": 2}, "modes": ("push",)},
    "8/2/MLA TP1 TP2": {"layers": (*SMALL, MLA), "tps": (1, 2)},
    "MLA TP1 TP2": {"layers": (MLA, MLA), "tps": (1, 2)},
    "MLA TP2 TP1": {"layers": (MLA, MLA), "tps": (2, 1)},
    "8 TP8 TP16": {"layers": UNIFORM, "tps": (8, 16), "modes": ("pull",)},
    "8 TP2 TP2 permuted": {"layers": UNIFORM, "tps": (2, 2), "decode": PERMUTED, "modes": ("pull",)},
    "8 TP1 TP2 larger decode blocks": {
        "layers": UNIFORM, "tps": (1, 2), "decode": {"block_size": 64}, "modes": ("pull",),
        "ids": (([1, 3, 2, 0],), ([2, 1],)),
    },
}  # fmt: skip
NAMES = [
    f"{name} {mode}"
    for name, mode in itertools.product(CASES, ("pull", "push"))
    if mode in CASES[name].get("modes", ("pull", "push"))
]


def observed(name: str) -> dict[str, Any]:
    """What a case's ranks prepare and post: counts, a digest, and a few rows to read."""
    case, push = CASES[name.rsplit(" ", 1)[0]], name.endswith("push")
    (prefill_tp, decode_tp), both = case["tps"], case.get("both", {})
    p = prefill(case["layers"], prefill_tp, push=push, **both, **case.get("prefill", {}))
    d = decode(case["layers"], decode_tp, push=push, **both, **case.get("decode", {}))
    with pair(p, d):
        transfer(p, d, *case.get("ids", _blocks(p, both)))
    return _summary([row for engine, other in ((p, d), (d, p)) for row in _rows(engine, other)])


def write() -> None:
    """Write the file.

    Raises:
        RuntimeError: this is no stock vLLM.
    """
    if hasattr(NixlAgentMetadata, "region_kv_heads"):
        raise RuntimeError("these would be the overlay's descriptors: run this on stock")
    FILE.write_text(json.dumps({name: observed(name) for name in NAMES}, indent=1) + "\n")


def _blocks(engine: Engine, both: dict[str, Any]) -> Any:
    """One block for each group where groups share pages, else two."""
    if both is not HYBRID:
        return ([1, 3],), ([2, 1],)
    groups = range(max(engine.group_of.values()) + 1)
    return tuple([1 + group] for group in groups), tuple([8 + group] for group in groups)


def _rows(engine: Engine, other: Engine) -> list[tuple[str, np.ndarray]]:
    """Every list of descriptors of an engine's ranks, in order, each with what it is."""
    owners = {agent.name: (side, rank) for side in (engine, other) for rank, agent in side.agents.items()}
    found = []
    for rank, agent in engine.agents.items():
        where = f"{engine.role} {rank.stage}.{rank.tp}"
        for memory, rows in agent.prepared:
            side, owner = (engine, rank) if memory == OWN_MEMORY else owners[memory]
            found.append((f"{where} prepares {side.role} {owner.stage}.{owner.tp}", _relative(side, owner, rows)))
        for operation, memory, own, theirs in agent.posted:
            side, owner = owners[memory]
            found.append((f"{where} {operation}", _relative(engine, rank, own)))
            found.append((f"{where} {operation} {side.role} {owner.stage}.{owner.tp}", _relative(side, owner, theirs)))
    return found


def _relative(engine: Engine, rank: Rank, rows: np.ndarray) -> np.ndarray:
    """Descriptors with addresses counted from the start of the rank's memory."""
    return rows.astype(np.int64) - [engine.memory[rank].ctypes.data, 0, 0]


def _summary(found: list[tuple[str, np.ndarray]]) -> dict[str, Any]:
    digest = hashlib.sha256()
    for what, rows in found:
        digest.update(what.encode() + rows.tobytes())
    posted = [(what, rows) for what, rows in found if " prepares " not in what]
    return {
        "lists": len(found),
        "descriptors": sum(len(rows) for _, rows in found),
        "sha256": digest.hexdigest(),
        "first posted": {what: _readable(rows[:4]) for what, rows in posted[:2]},
    }


def _readable(rows: np.ndarray) -> str:
    """Descriptors as `offset+bytes`."""
    return ", ".join(f"{offset}+{size}" for offset, size, _ in rows.tolist())


if __name__ == "__main__":
    write()
