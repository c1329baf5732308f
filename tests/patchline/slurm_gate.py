"""What jobs of the tests run in place of a gate: one play of fakes, looked at from inside the job.

`python slurm_gate.py FOLDER FORM NODES FAKE END`: FAKE is how the engines behave, END what happens once they are ready.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import fake_stack

from patchline.errors import PatchlineError
from patchline.gates.fleet import Fleet, Layout, Model
from patchline.gates.plays import Form, Play
from patchline.gates.runners.runner import Kit
from patchline.gates.runners.slurm import control
from patchline.gates.runners.slurm.runner import Slurm
from patchline.gates.stack.stack import Served

DYNAMO = r'''
"""A fake of `dynamo.frontend` and `dynamo.vllm`: workers make a file, and the frontend lists those."""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

words, folder = sys.argv, Path(os.environ["FAKE_FOLDER"])
if "--disaggregation-mode" in words:
    mode = words[words.index("--disaggregation-mode") + 1]
    (folder / ("backend" if mode == "decode" else mode)).write_text(json.dumps(dict(os.environ)))
    time.sleep(600)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        here = [{"component": path.name, "endpoint": "generate"} for path in folder.iterdir()]
        data = json.dumps({"instances": here, "data": [{"id": "tiny"}], "env": dict(os.environ)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


host, port = (words[words.index(flag) + 1] for flag in ("--http-host", "--http-port"))
ThreadingHTTPServer((host, int(port)), Handler).serve_forever()
'''


def fleet(nodes: int, fake: str = "") -> Fleet:
    """Nodes of the tests' cluster, TP2 to TP4."""
    model = Model(name="tiny", setting="TINY", tokens=100)
    layout = Layout(model="tiny", prefill=2, decode=4, stock="serves", overlay="serves")
    return Fleet(
        name="h20",
        gpu="NVIDIA H20",
        nodes=nodes,
        gpus_per_node=8,
        runner="slurm",
        after="",
        ready_seconds=120.0,
        parity_bound=0.1,
        kv_buffer_device="cuda",
        flags=(),
        models=(model,),
        layouts=(layout,),
        env={"FAKE": fake},
    )


def play(folder: Path, form: Form, nodes: int, fake: str) -> tuple[Kit, Play]:
    """A play of fakes, and what they run on; all of it lies in `folder`."""
    own = fleet(nodes, fake)
    tree = fake_stack.tree(folder / "tree")
    (tree / "dynamo").mkdir()
    (tree / "dynamo" / "__init__.py").touch()
    for name in ("frontend", "vllm"):
        (tree / "dynamo" / f"{name}.py").write_text(DYNAMO)
    for name in ("workers", "tiny"):
        (folder / name).mkdir()
    (folder / "tiny" / "config.json").write_text("{}")
    python = folder / "python"  # the frontend sees no overlay: an environment has its Dynamo
    python.write_text(f'#!/bin/sh\nFAKE_FOLDER={folder}/workers PYTHONPATH={tree} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return Kit(python, tree), Play(own, own.layouts[0], "overlay", form, str(folder / "tiny"))


def get(address: str, path: str, body: object = None) -> Any:
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=20)
    connection.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    return json.loads(connection.getresponse().read())


def look(served: Served, form: str) -> dict[str, Any]:
    """What a test wants to know of a play that is up."""
    number = os.environ["SLURM_JOB_ID"]
    where = control.ask("squeue", "--noheader", "--steps", f"--jobs={number}", "--format=%j %N")
    steps = sorted(line.strip() for line in where.splitlines())
    seen: dict[str, Any] = {"steps": steps, "logs": sorted(served.logs), "url": served.url}
    if form == "engines":
        seen["answer"] = get(served.url, "/v1/completions", {"prompt": "a"})
    if form == "alone":
        seen["env"] = get(served.url, "/env")
    return seen


def main(folder: Path, form: Form, nodes: int, fake: str, end: str) -> None:
    kit, own = play(folder, form, nodes, fake)
    runner, found = Slurm(kit), folder / "seen.json"
    seen: dict[str, Any] = {"gpus": runner.gpus() if end == "gpus" else None}
    try:
        with runner.serve(own, folder / "logs") as served:
            seen |= look(served, form) | {"scratch": str(served.processes.scratch)}
            found.with_suffix(".new").write_text(json.dumps(seen))
            found.with_suffix(".new").rename(found)
            if end == "lost":
                os.kill(served.processes._supervisor.pid, signal.SIGKILL)
            while end == "waits":
                time.sleep(1)
    except PatchlineError as failed:
        seen["error"] = str(failed)
    seen["left"] = control.steps(os.environ["SLURM_JOB_ID"], "patchline-play")
    found.write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4], sys.argv[5])  # type: ignore[arg-type]
