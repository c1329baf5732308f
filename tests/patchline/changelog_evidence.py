"""Evidence and a release record for a small project's changelog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from patchline.gates import fleets, records
from patchline.gates.outcomes import Outcome
from patchline.gates.plays import Play, plays
from patchline.gates.records import Junit
from patchline.project import Project
from patchline.proofs import evidence
from patchline.proofs import prove as proving
from patchline.proofs.suite import Run, Test
from patchline.release import record
from patchline.seal import sealed
from patchline.series.carried import carried

OF = "demo==1.0"
OVERLAY = f"sha256:{'a' * 64}"
MADE = "2026-03-06T07:08:09Z"

FLEETS = """
[fleet.cpu]
gpu = ""
nodes = 1
gpus_per_node = 0
runner = "local"
after = ""
ready_seconds = 600
parity_bound = 1e-4
kv_buffer_device = "cpu"
flags = []
models = [{ name = "tiny-8-2", words = 256, tokens = 450 }]
layouts = [{ model = "tiny-8-2", prefill = 1, decode = 2, stock = "serves", overlay = "serves" }]

[fleet.h20]
gpu = "NVIDIA H20"
nodes = 1
gpus_per_node = 8
runner = "slurm"
after = "cpu"
ready_seconds = 600
parity_bound = 0.25
kv_buffer_device = "cuda"
flags = []
models = [{ name = "big", setting = "PATCHLINE_BIG", tokens = 12500 }]
layouts = [{ model = "big", prefill = 1, decode = 2, stock = "serves", overlay = "serves" }]
"""


def keep(project: Project, kind: str, covers: dict[str, str], result: object) -> Path:
    """Evidence of a day that is not today."""
    made = evidence.Evidence(evidence.SCHEMA, kind, OF, covers, MADE, {}, msgspec.to_builtins(result), "")
    return evidence.keep(sealed(made), project)


def covers(project: Project, tests: dict[str, list[str]]) -> dict[str, str]:
    said = {f"{name}: tests": " ".join(paths) for name, paths in tests.items()}
    said |= {f"{name}: overlay": OVERLAY for name in tests}
    said |= proving.diffs(carried(OF.partition("==")[0], project))
    return said | evidence.tests(project.root, [path for paths in tests.values() for path in paths])


def prove(project: Project, tests: dict[str, list[str]]) -> Path:
    """Two tests of each patch fail on stock, one stays as it is."""
    ids = [f"{path}::test_{n}" for paths in tests.values() for path in paths for n in range(3)]
    stock = {id: _test(id, "failed" if n % 3 < 2 else "passed", n) for n, id in enumerate(ids)}
    overlaid = {id: _test(id, "passed", n) for n, id in enumerate(ids)}
    return keep(project, "prove", covers(project, tests), [Run(stock, [], [], 1.0), Run(overlaid, [], [], 1.0), {}])


def _test(id: str, outcome: str, number: int) -> Test:
    holds = "it is two" if number % 3 < 2 else None
    failures = [("it is two", "")] if outcome == "failed" else []
    return Test(id, holds, holds is None, "", outcome, "it is two" if failures else "", failures, 0.1, {}, False)


def hunks(project: Project, tests: dict[str, list[str]]) -> Path:
    """Two pieces, both held; 1,200 mistakes, all but one noticed."""
    tried = [["piece", 1, "failed", "t"]] * 2
    mistakes = [["mistake", 1, "failed", "t"]] * 1199 + [["mistake", 1, "survived", ""]]
    return keep(project, "hunks", covers(project, tests), {name: [tried, mistakes] for name in tests})


def gate(project: Project, fault: str = "") -> Path:
    """The gate `cpu`, passed on the overlay, or with one fault."""
    fleet = fleets.load(fleets.path_of(project))["cpu"]
    outcomes = [_played(play, [fault] if fault else []) for play in plays(fleet, {"tiny-8-2": ""})]
    junit = Junit(len(outcomes), 0, 0, 0)
    result = records.Record(MADE, MADE, "local", "", [], {}, {}, outcomes, junit)
    return keep(project, records.kind_of("cpu"), {"overlay": OVERLAY}, result)


def _played(play: Play, faults: list[str]) -> Outcome:
    names = [f"recall, {api}" for api in play.apis]
    names += [] if play.form == "alone" else ["logs", *(f"parity, {api}" for api in play.apis)]
    checks: list[dict[str, Any]] = [{"check": name, "passed": True, "numbers": {}} for name in names]
    return Outcome(play.name, "served", "", 1.0, 2.0, checks, [{"name": "engine", "sha256": "", "bytes": 1}], faults)


def release(project: Project, tag: str, made: str, *patches: str) -> Path:
    """The record of a release with those patches."""
    series = record.Series(
        pin=OF,
        package=OF,
        overlay=OVERLAY,
        base="b" * 40,
        head="c" * 40,
        patches=tuple(record.Patch(name, "d" * 40, "e" * 64) for name in patches),
    )
    base = record.Base(name="debian", digest=OVERLAY, config=OVERLAY, platform="linux/amd64", lock=OVERLAY)
    fields = dict.fromkeys(("config", "layer", "builder", "created", "revision", "overlay"), "")
    one = record.Record(
        schema=record.SCHEMA,
        tag=tag,
        line="tiny",
        dynamo="1.6.0",
        repositories=("host.example/tiny",),
        image=f"sha256:{'f' * 64}",
        base=base,
        pins={},
        series=(series,),
        referrers={},
        evidence={},
        nightly="",
        patchline="0",
        project="",
        made=made,
        **fields,
    )
    path = project.root / "changelog" / "releases" / f"{tag}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(record.text(one))
    return path
