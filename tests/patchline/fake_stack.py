"""Fakes for the processes of a stack: a package `vllm` that is a small HTTP server, and a family that will not die."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from patchline.gates.stack.engines import Engine, Ground

SERVER = r'''
"""A fake of `vllm serve`; FAKE says how it behaves."""
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

words = sys.argv
model, port = words[2], int(words[words.index("--port") + 1])
kv = json.loads(words[words.index("--kv-transfer-config") + 1]) if "--kv-transfer-config" in words else {}
role, fake = kv.get("kv_role", ""), os.environ.get("FAKE", "").split()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path == "/env":
            self.send(200, dict(os.environ))
        elif self.path == "/v1/models":
            self.send(200, {"data": [{"id": words[words.index("--served-model-name") + 1]}]})
        else:
            self.send(503 if "never" in fake else 200, {})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        print("asked", self.path, json.dumps(body, sort_keys=True), flush=True)
        while "floods" in fake:
            print("x" * 1000, flush=True)
        if "hang" in fake:
            time.sleep(600)
        if "fails" in fake:
            self.send(500, {"error": {"message": "SPLIT region 5"}})
        elif role == "kv_producer":
            self.send(200, {} if "forgets" in fake else {"kv_transfer_params": {"remote_engine_id": "e"}})
        elif body.get("stream"):
            self.stream()
        else:
            self.send(200, {"choices": [{"text": "ok"}], "heard": body})

    def stream(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(10**6 if "forever" in fake else 3):
            piece = b"data: %d\n\n" % number
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            time.sleep(0.1)
        self.wfile.write(b"0\r\n\r\n")

    def send(self, status, value):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


print("a fake engine starts", role, flush=True)
if "dies" in fake:
    sys.exit("RuntimeError: no memory for the KV cache")
if "family" in fake:
    import family
if "shares" in fake:  # as vLLM's ranks do on a CPU, which leave their memory behind
    from multiprocessing.shared_memory import SharedMemory
    memory = SharedMemory(create=True, size=4096)
    print("shared:", memory.name, flush=True)
    for place in (os.environ["TMPDIR"] + "/vllm_dist_{}", "/dev/shm/vllm_dist_{}-tp:0-[0-1]-cpushm_0"):
        open(place.format(os.getpid()), "w").close()
with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
    server.serve_forever()
'''

FAMILY = r'''
"""Processes that hold on: each ignores SIGTERM, leaves its session, and is nobody's child but its subreaper's."""
import os, signal, sys, time
from pathlib import Path


def member(depth, folder):
    """Double fork; the grandchild lives on in a session of its own and has two such grandchildren itself."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    (folder / str(os.getpid())).touch()
    if depth:
        member(depth - 1, folder)
        member(depth - 1, folder)
    while True:
        time.sleep(60)


member(2, Path(os.environ["FAMILY"]))
'''
MEMBERS = 7


def tree(folder: Path) -> Path:
    """A folder for PYTHONPATH, with the fake in the place of vLLM."""
    cli = folder / "vllm" / "entrypoints" / "cli"
    cli.mkdir(parents=True)
    for package in (cli, cli.parent, cli.parents[1]):
        (package / "__init__.py").touch()
    (cli / "main.py").write_text(SERVER)
    (folder / "family.py").write_text(FAMILY)
    return folder


def ground(tmp_path: Path, ready: float = 60.0, answer: float = 60.0) -> Ground:
    """A ground on which the fake runs; logs are in `tmp_path / logs`."""
    place = tmp_path / "tree"
    return Ground(Path(sys.executable), place if place.exists() else tree(place), tmp_path / "logs", ready, answer)


def engine(tmp_path: Path, fake: str = "", **env: str) -> Engine:
    """A fake engine that behaves as the words of `fake` say."""
    model = tmp_path / "tiny"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text("{}")
    return Engine(str(model), 1, env={"FAKE": fake, **env})


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def members(folder: Path) -> list[int]:
    """Those of the family that have come to life."""
    return [int(name) for name in os.listdir(folder)] if folder.exists() else []
