"""Drop a patch in one version: the verdict checked, the rest applied and proven again, the changelog told.

Nothing is written before all of that holds. --dry-run shows the plan and runs no proof. Reasons: upstream
and not-needed have to be borne out by the verdict; superseded, or a word of your own, needs --text. Where
the tests of the rest cannot run on this machine it refuses; with --unproven it drops and exits with 6.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from patchline.cli import Outcome
from patchline.errors import Exit
from patchline.proofs.prove import LIMIT

if TYPE_CHECKING:
    from patchline.project import Project
    from patchline.rebase.drop.wish import Already, Dropped


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("patch", help="vllm/NAME; NAME is the file's name, with or without number, or the number")
    parser.add_argument("--in", required=True, dest="version", metavar="VERSION", help="the pinned upstream version")
    parser.add_argument("--reason", required=True, help="upstream, not-needed, superseded, or your own word")
    parser.add_argument("--text", default="", help="what the changelog's readers should know")
    parser.add_argument("--run-tests", action="store_true", help="run its tests on stock also where text says enough")
    parser.add_argument("--unproven", action="store_true", help="drop it though the rest's tests cannot run here")
    parser.add_argument("--record", action="store_true", help="keep the proof of the rest in builds/evidence/")
    parser.add_argument("--dry-run", action="store_true", help="check, and show the plan; write nothing")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"for one run of tests (default: {LIMIT:.0f})"
    )


def run(args: argparse.Namespace) -> Outcome:
    """Drops; see `rebase.drop.dropping` for what is raised."""
    from patchline.project import find
    from patchline.rebase.drop import dropping
    from patchline.rebase.drop.wish import Already, Wish

    wish = Wish(
        args.patch, args.version, args.reason, args.text, args.run_tests, args.limit, args.unproven, args.record
    )
    act = dropping.plan if args.dry_run else dropping.drop
    done = act(find(), wish, _Changelog())
    if isinstance(done, Already):
        return Outcome({"done": False, **done._asdict()}, _already(done))
    exit = Exit.PROOF_FAILED if done.proof.state == "not proven" else Exit.DONE
    return Outcome(data(done, dry=args.dry_run), text(done, dry=args.dry_run), exit)


class _Changelog:
    """The room `changelog`, as `dropping` asks for it."""

    def tell(self, project: Project, found: Dropped) -> str:
        from patchline.changelog import dropped

        return dropped.tell(project, found)

    def told(self, project: Project, upstream: str, word: str, onto: str) -> str:
        from patchline.changelog import dropped

        return dropped.told(project, upstream, word, onto)

    def generate(self, project: Project) -> None:
        from patchline.changelog import generate

        generate.anew(project)


def _already(done: Already) -> str:
    return f"{done.name} is dropped in {done.onto} already: {done.news}"


def data(done: Dropped, *, dry: bool) -> dict[str, Any]:
    """The drop for machines."""
    return {
        "done": not dry,
        "patch": done.asked.name,
        "file": done.asked.path,
        "in": done.asked.here.name,
        "judged_from": done.asked.source.name,
        "reason": done.wish.reason,
        "verdict": done.judged.verdict.value,
        "evidence": list(done.judged.evidence),
        "behaviour": done.judged.behaviour.value if done.judged.behaviour else None,
        "left": done.left,
        "rewritten": done.rewritten,
        "tests": {"removed": done.tests.removed, "stay": done.tests.stay},
        "explanations": done.explained,
        "resolutions": done.resolutions,
        "proof": done.proof._asdict(),
        "news": done.news,
        "writes": {one.path: "removed" if one.data is None else "written" for one in done.writes},
    }


def text(done: Dropped, *, dry: bool) -> str:
    """The drop for people."""
    asked, would = done.asked, "would be " if dry else ""
    lines = [f"{asked.name} {would}dropped in {asked.here.name}: {done.wish.reason}"]
    lines += [f"  verdict, judged from {asked.source.name}: {done.judged.verdict.value}"]
    lines += [f"    {line}" for line in done.judged.evidence]
    if not asked.listed:
        lines.append("  its series lacks the patch already; this is the record of it")
    lines += [f"  left: {name}{', written anew' if name in done.rewritten else ''}" for name in done.left]
    lines += [f"  its tests stay, other patches name them: {path}" for path in done.tests.stay]
    lines += [f"  {would}removed: {one.path}" for one in done.writes if one.data is None]
    lines += [f"  {would}written: {one.path}" for one in done.writes if one.data is not None]
    return "\n".join([*lines, _proof(done), *_next(done, dry=dry)])


def _proof(done: Dropped) -> str:
    proof, version = done.proof, done.asked.here.name
    said = {
        "proven": f"{len(proof.patches)} of {len(proof.patches)} patches proven on {version} without it",
        "not run": f"a plan: nothing was proven; to be proven on {version}: {', '.join(proof.patches)}",
        "nothing left": f"no patch is left on {version}: nothing to prove",
        "not proven": f"NOT PROVEN on {version}, {len(done.left)} patches: {proof.why}",
    }[proof.state]
    return f"{said}\nWITHOUT ITS COMPILED CODE: {proof.why}" if proof.state == "proven" and proof.why else said


def _next(done: Dropped, *, dry: bool) -> list[str]:
    if dry:
        return []
    name = done.asked.here.name
    found = [f"next: python -m patchline apply {name}; hunks and gates of {name} have to run again"]
    return found if done.left and done.asked.listed else []
