"""Show what prefill and decode TP pairs mean for a model, and which of them vLLM serves, by rule.

For each pair: KV heads per GPU and kind of layer, bytes of a token and of a block, what a decode GPU must fetch, and
what stock vLLM 0.28, stock 0.31 and the overlay do with it. Nothing is run.
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import Any

from patchline.cli import Outcome
from patchline.errors import UsageError
from patchline.gates.layouts import TPS, Holding, Kind, Row, Share, kinds, rows
from patchline.gates.model_config import DTYPES, Model, read
from patchline.gates.stacks import HYBRID_BY_DEFAULT, OVERLAY, STACKS, STOCK_28, STOCK_31
from patchline.nearest import hint

BLOCK_SIZE = 64
DERIVED = "derived by rule from the config and from vLLM's sources, and not run"
_RULES = (
    "pull connector, equal block sizes, head-major cache layout on both sides, no pipeline stages, no context "
    "parallelism"
)
_LEGEND = """\
fetched: what each decode GPU must read of a token; slices: of a layer, in shares of what a prefill GPU holds
  (1/2: half of it, at an offset of its own; 2: from two prefill GPUs)
refuses: an error, and no token
wrong: HTTP 200 and wrong text; the handshake fails, or wrong bytes are read (with the hybrid KV-cache manager on,
  numbers in the handshake's text may be others: layers share pages)"""
_STOCKS = {"0.28": STOCK_28, "0.28.0": STOCK_28, "0.31": STOCK_31, "0.31.0": STOCK_31}


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("config", type=Path, metavar="CONFIG", help="a model's config.json, or its folder")
    parser.add_argument("--stock", metavar="VERSION", help="beside the overlay, only this stock vLLM: 0.28 or 0.31")
    parser.add_argument("--prefill", type=int, metavar="TP", help=f"only this TP (default: {TPS})")
    parser.add_argument("--decode", type=int, metavar="TP", help=f"only this TP (default: {TPS})")
    parser.add_argument(
        "--block-size", type=int, default=BLOCK_SIZE, metavar="TOKENS", help=f"on both sides (default: {BLOCK_SIZE})"
    )
    parser.add_argument("--dtype", default="", metavar="NAME", help="of the KV cache (default: the config's)")
    parser.add_argument(
        "--hybrid-manager",
        choices=("on", "off"),
        help="the hybrid KV-cache manager, on all stacks (default: on for stock 0.28, off for the others)",
    )


def run(args: argparse.Namespace) -> Outcome:
    """Derives; see `gates.model_config` for what is raised."""
    stacks = _stacks(args)
    for name in ("prefill", "decode", "block_size"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {value}: must be at least 1")
    if args.dtype and args.dtype not in DTYPES:
        raise UsageError(f"--dtype {args.dtype!r}: {hint(args.dtype, DTYPES)}")
    model = read(args.config, args.dtype)
    found = rows(
        model,
        stacks,
        block_size=args.block_size,
        prefill=[args.prefill] if args.prefill else TPS,
        decode=[args.decode] if args.decode else TPS,
    )
    return Outcome(_data(model, stacks, args.block_size, found), _text(model, stacks, args.block_size, found))


def _stacks(args: argparse.Namespace) -> dict[str, bool]:
    """The stacks that are asked about, with whether the hybrid manager is on."""
    if args.stock is not None and args.stock not in _STOCKS:
        raise UsageError(f"--stock {args.stock!r}: rules are known for 0.28 and 0.31: {hint(args.stock, _STOCKS)}")
    chosen = [_STOCKS[args.stock], OVERLAY] if args.stock else STACKS
    asked = {"on": True, "off": False}.get(args.hybrid_manager)
    return {stack: HYBRID_BY_DEFAULT[stack] if asked is None else asked for stack in chosen}


def _data(model: Model, stacks: dict[str, bool], block_size: int, found: list[Row]) -> dict[str, Any]:
    return {
        "model": {
            "type": model.type,
            "attention_heads": model.attention_heads,
            "layers": [_kind(kind) for kind in kinds(model)],
            "state_layers": model.state_layers,
            "dtype": model.dtype,
            "notes": list(model.notes),
        },
        "block_size": block_size,
        "hybrid_manager": stacks,
        "derived": f"{DERIVED}: {_RULES}",
        "rows": [_row(row) for row in found],
    }


def _kind(kind: Kind) -> dict[str, Any]:
    return {"kind": kind.name, "count": kind.number, "heads": kind.layer.heads, "head_size": kind.layer.head_size}


def _row(row: Row) -> dict[str, Any]:
    return {
        "prefill_tp": row.prefill_tp,
        "decode_tp": row.decode_tp,
        "prefill": _holding(row.prefill),
        "decode": _holding(row.decode),
        "slices": {share.kind.name: str(part) for share, part in _shares(row)},
        "fetched_bytes_per_token": row.fetched,
        "outcomes": {stack: {"outcome": str(done.outcome), "why": done.why} for stack, done in row.judgements.items()},
    }


def _shares(row: Row) -> list[tuple[Share, Fraction]]:
    return list(zip(row.decode.shares if row.decode else (), row.slices, strict=True)) if row.slices else []


def _holding(held: Holding | None) -> dict[str, Any] | None:
    """What a GPU holds; None where heads do not split over so many."""
    if held is None:
        return None
    return {
        "bytes_per_token": held.bytes_per_token,
        "heads": {share.kind.name: share.heads for share in held.shares},
        "block_bytes": {share.kind.name: share.block_bytes for share in held.shares},
    }


def _text(model: Model, stacks: dict[str, bool], block_size: int, found: list[Row]) -> str:
    layers = " and ".join(map(_said, kinds(model)))
    whys = list(dict.fromkeys(done.why for row in found for done in row.judgements.values() if done.why))
    managers = ", ".join(f"{'on' if on else 'off'} for {stack}" for stack, on in stacks.items())
    return "\n".join(
        [
            f"{model.type}: {layers}; {model.dtype}, blocks of {block_size} tokens",
            *(f"note: {note}" for note in model.notes),
            "",
            *_columns(_of_gpus(model, found)),
            "",
            *_columns(_of_pairs(model, stacks, found, whys)),
            "",
            *(f"[{number}] {why}" for number, why in enumerate(whys, 1)),
            _LEGEND,
            f"hybrid KV-cache manager: {managers}",
            f"outcomes are {DERIVED}",
            f"they are for: {_RULES}",
        ]
    )


def _said(kind: Kind) -> str:
    """`50 sliding layers (16 KV heads of 256)`."""
    heads, size = kind.layer.heads, kind.layer.head_size
    what = f"a latent vector of {size}" if kind.layer.kind == "mla" else f"{heads} KV head{'s' * (heads > 1)} of {size}"
    return f"{kind.number} {kind.name} layer{'s' * (kind.number > 1)} ({what})"


def _of_gpus(model: Model, found: list[Row]) -> list[list[str]]:
    """What one GPU holds, a line for each TP."""
    names = [kind.name for kind in kinds(model)]
    held = {tp: side for row in found for tp, side in ((row.prefill_tp, row.prefill), (row.decode_tp, row.decode))}
    heads = [f"{name} heads" for name in names]
    blocks = [f"{name} block" for name in names]
    lines = [["TP", *heads, "KV of a token", *blocks]]
    for tp, side in sorted(held.items()):
        if side is None:
            lines.append([str(tp), "do not split"])
            continue
        token = f"{side.bytes_per_token / 1024:g} KiB"
        lines.append(
            [
                str(tp),
                *(str(share.heads) for share in side.shares),
                token,
                *(f"{share.block_bytes:,}" for share in side.shares),
            ]
        )
    return lines


def _of_pairs(model: Model, stacks: dict[str, bool], found: list[Row], whys: list[str]) -> list[list[str]]:
    """What a decode GPU fetches and what becomes of it, a line for each pair."""
    lines = [["prefill", "decode", "fetched", *(f"{kind.name} slices" for kind in kinds(model)), *stacks]]
    for row in found:
        outcomes = [
            f"{done.outcome} [{whys.index(done.why) + 1}]" if done.why else str(done.outcome)
            for done in row.judgements.values()
        ]
        slices = [str(part) for part in row.slices] or ["-"] * len(kinds(model))
        fetched = f"{row.fetched / 1024:g} KiB" if row.decode else "-"
        lines.append([f"TP{row.prefill_tp}", f"TP{row.decode_tp}", fetched, *slices, *outcomes])
    return lines


def _columns(lines: list[list[str]]) -> list[str]:
    """The lines in columns; a line may be shorter than the first."""
    widths = [max(len(line[at]) for line in lines if at < len(line)) for at in range(len(lines[0]))]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths, strict=False)).rstrip() for line in lines]
