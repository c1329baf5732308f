"""Show that every carried line is held: some test fails without it, and with each small mistake in it."""

from __future__ import annotations

import argparse
from typing import Any

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.proofs.held.hunks import LIMIT, Held, Result
from patchline.proofs.held.pieces import Piece


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="?", default="vllm", help="vllm, dynamo, or NAME==VERSION (default: vllm)")
    parser.add_argument(
        "--limit",
        type=float,
        default=LIMIT,
        metavar="SECONDS",
        help=f"for one run of a patch's tests without any change (default: {LIMIT:.0f})",
    )
    parser.add_argument("--fresh", action="store_true", help="try everything, whatever evidence there is")
    parser.add_argument("--record", action="store_true", help="keep the evidence in builds/evidence/")


def run(args: argparse.Namespace) -> Outcome:
    """Tries; see `held.hunks` for what is raised."""
    from patchline.proofs.held.hunks import hunks
    from patchline.series.carried import carried

    done = hunks(carried(args.upstream), limit=args.limit, fresh=args.fresh, record=args.record)
    return Outcome(data(done), text(done), Exit.DONE if done.stands else Exit.PROOF_FAILED)


def data(done: Result) -> dict[str, Any]:
    """The result for machines."""
    return {
        "name": done.name,
        "overlay": done.overlay.digest,
        "held": done.stands,
        "verified": done.verified,
        "patches": [
            {
                "patch": one.patch,
                "pieces": [
                    {**_said(piece), "how": tried.how, "by": tried.by, "reason": one.reasons.get(piece.name, "")}
                    for piece, tried in zip(one.pieces, one.dropped, strict=True)
                ],
                "mutants": len(one.mutants),
                "noticed": len(one.mutants) - len(one.survivors),
                "score": round(one.score, 4),
                "survivors": [
                    {**tried._asdict(), "reason": one.reasons.get(tried.name, "")} for tried in one.survivors
                ],
                "faults": one.faults,
            }
            for one in done.patches
        ],
    }


def _said(piece: Piece) -> dict[str, Any]:
    return {name: value for name, value in piece._asdict().items() if name != "without"}


def text(done: Result) -> str:
    """The result for people: a table of pieces, the score, the survivors."""
    lines = [line for held in done.patches for line in _of(held)]
    if done.verified:
        lines.append(
            f"judged from the evidence of {done.verified}, which covers exactly these inputs; --fresh tries again"
        )
    tried = sum(len(held.mutants) for held in done.patches)
    noticed = tried - sum(len(held.survivors) for held in done.patches)
    count = sum(len(held.pieces) for held in done.patches)
    lines.append(
        f"{'every carried line is held' if done.stands else 'NOT HELD'}: {done.name}, {len(done.patches)} patches, "
        f"{count} pieces, {noticed} of {tried} mistakes noticed, overlay {done.overlay.digest}"
    )
    return "\n".join(lines)


def _of(held: Held) -> list[str]:
    lines = [f"{'NOT HELD' if held.faults else 'held'}  {held.patch}"]
    for piece, tried in zip(held.pieces, held.dropped, strict=True):
        size = f"+{piece.added} -{piece.removed}"
        what = f"{piece.path.rpartition('/')[2]}:{piece.line}"
        by = _short(tried.by) if tried.by else tried.how
        lines.append(f"  hunk {piece.hunk:<3} {what:24} {size:8} {_cut(piece.text, 48):48}  {by}")
    lines.append(
        f"  {len(held.mutants) - len(held.survivors)} of {len(held.mutants)} mistakes noticed ({held.score:.1%})"
    )
    lines += [
        f"  survived, line {one.line}: {one.name}\n    {held.reasons.get(one.name, 'not explained')}"
        for one in held.survivors
    ]
    return [*lines, *(f"  FAULT: {fault}" for fault in held.faults)]


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 2]} …"


def _short(name: str) -> str:
    path, _, test = name.partition("::")
    return f"{path.rpartition('/')[2]}::{test}" if test else path
