"""A fake `kubectl`: a program that keeps one cluster in a folder, and plays faults. No cluster is anywhere near it.

The folder holds `faults.json` (what becomes of a part: a word of `_state`, or of `verbs`), `said-PART` (what a process
prints), `calls` (each command line, in JSON), `made.json` (all that was ever made), and a folder for each namespace that
is there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

PROGRAM = r'''
import json, os, sys, time  # not pathlib: it takes longer than all the rest

ROOT = @ROOT@
words = sys.argv[1:]


def there(name):
    return os.path.exists(f"{ROOT}/{name}")


def read(path):
    with open(path) as file:
        return file.read()


with open(f"{ROOT}/calls", "a") as file:
    file.write(json.dumps(words) + "\n")
faults = json.loads(read(f"{ROOT}/faults.json"))
options = {}
while words[0].startswith("--"):
    name, _, value = words.pop(0).partition("=")
    options[name] = value or words.pop(0)
verb, space = words[0], "namespaces/" + options.get("--namespace", "none")


def fail(text):
    sys.exit(f"error: {text}")


def objects():
    """What is in the namespace; a Job's pods are made as they are asked for."""
    names = sorted(os.listdir(f"{ROOT}/{space}")) if there(space) else []
    return [one for name in names for one in json.loads(read(f"{ROOT}/{space}/{name}"))]


def pods(job):
    part = job["metadata"]["name"]
    for number in range(job["spec"].get("parallelism", 1)):
        name = f"{part}-abc{number}"
        labels = job["spec"]["template"]["metadata"]["labels"]
        pod = {"kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": {"nodeName": f"node-{part}-{number}"}}
        pod["status"], events = state(part, name)
        yield from [pod, *events]


def event(name, reason, message):
    return {"kind": "Event", "metadata": {}, "involvedObject": {"name": name}, "reason": reason, "message": message}


def state(part, name):
    fault = faults.get(part, "")
    if ended(part):
        code = {"ends": 0, "OOMKilled": 137, "wrong": 6, "broken": 127}.get(fault, 0)
        reason = "OOMKilled" if code == 137 else "Error" if code else "Completed"
        told = {"state": {"terminated": {"exitCode": code, "reason": reason}}}
        return {"phase": "Failed" if code else "Succeeded", "containerStatuses": [told]}, []
    if fault == "homeless":
        why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why}
        return {"phase": "Pending", "conditions": [condition]}, [event(name, "FailedScheduling", why)]
    if fault in ("ImagePullBackOff", "InvalidImageName", "pulls"):
        reason = "ContainerCreating" if fault == "pulls" else fault
        waiting = {"reason": reason, **({} if fault == "pulls" else {"message": "Back-off pulling image"})}
        return {"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}, [
            event(name, "Pulling", 'Pulling image "registry.invalid/vllm"')
        ]
    ready = "False" if fault == "never" else "True"
    conditions = [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]
    return {"phase": "Running", "conditions": conditions, "containerStatuses": [{"state": {"running": {}}}]}, []


def ended(part):
    fault = faults.get(part, "")
    if part in ("test", "gpus"):
        return fault not in ("homeless", "ImagePullBackOff", "runs")
    return fault in ("ends", "OOMKilled") and (there(f"end-{part}") or not faults.get("later"))


def get():
    found = objects()
    items = []
    for one in found:
        if one["kind"] != "Job":
            continue
        part = one["metadata"]["name"]
        fault = faults.get(part)
        if fault == "removed" and there(f"end-{part}"):
            continue
        if fault == "deadline":
            failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded", "message": "Job was active too long"}
            one["status"] = {"conditions": [failed]}
        items.append(one)
        if fault == "quota":
            items.append(event(part, "FailedCreate", "exceeded quota: gpus"))
        elif fault != "deadline":
            items += pods(one)
    print(json.dumps({"kind": "List", "items": items}))


def create():
    made = json.loads(sys.stdin.read())["items"]
    all_ = json.loads(read(f"{ROOT}/made.json")) + made
    with open(f"{ROOT}/made.json", "w") as file:
        json.dump(all_, file)
    if "refuses" in faults.get("create", ""):
        fail('ValidationError(Job.spec): unknown field "x"')
    os.makedirs(f"{ROOT}/{space}", exist_ok=True)
    with open(f"{ROOT}/{space}/{time.monotonic_ns()}.json", "w") as file:
        json.dump(made, file)


def logs():
    pod = words[-1].removeprefix("pod/")
    part = pod.partition("-")[0]
    print(read(f"{ROOT}/said-{part}") if there(f"said-{part}") else f"{part} says hello", flush=True)
    while "--follow" in words and there(space) and not ended(part):
        time.sleep(0.03)
        if faults.get("logs") == part and there(f"end-{part}"):
            fail("unexpected EOF")


def forward():
    if faults.get("port-forward") == "fails":
        fail("error upgrading connection")
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer  # here: it takes long

    class Door(BaseHTTPRequestHandler):
        def do_GET(self):
            known = [] if faults.get("door") == "empty" else ["prefill", "backend"]
            answers = {
                "/v1/models": {"data": [{"id": "gemma-4-31B"}]},
                "/health": {"instances": [{"endpoint": "generate", "component": name} for name in known]},
            }
            data = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Door)
    print(f"Forwarding from 127.0.0.1:{server.server_port} -> 8000", flush=True)
    server.timeout = 0.05
    while not (faults.get("port-forward") == "ends" and there("end-port-forward")):
        server.handle_request()
    fail("lost connection to pod")


def namespace():
    name = f"namespaces/{words[2]}"
    if verb == "delete" and there(name) and faults.get("delete") != "stays":
        os.rename(f"{ROOT}/{name}", f"{ROOT}/gone-{words[2]}")
    elif verb == "get" and there(name):
        print(f"namespace/{words[2]}")


if faults.get(verb) == "hangs":
    time.sleep(600)
if there(f"hiccup-{verb}"):
    os.unlink(f"{ROOT}/hiccup-{verb}")
    fail("the server is currently unable to handle the request")
if verb == "config":
    print("fake")
elif words[1:2] == ["namespace"]:
    namespace()
else:
    {"create": create, "get": get, "logs": logs, "port-forward": forward}[verb]()
'''


class Fake:
    """The fake and the cluster that it plays, in `root`; `root / "bin"` belongs on PATH."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("bin", "namespaces"):
            (root / folder).mkdir(parents=True)
        program = root / "bin" / "kubectl"
        program.write_text(f"#!{sys.executable} -IS\n" + PROGRAM.replace("@ROOT@", repr(str(root))))
        program.chmod(0o755)
        (root / "made.json").write_text("[]")
        self.plays()

    def plays(self, **faults: str) -> None:
        """What becomes of which part, or verb; `_` stands for `-`."""
        text = json.dumps({name.replace("_", "-"): fault for name, fault in faults.items()})
        (self.root / "faults.json").write_text(text)

    def says(self, part: str, text: str) -> None:
        """What a part's process prints."""
        (self.root / f"said-{part}").write_text(text)

    def ends(self, part: str) -> None:
        """Lets a part that is told to end `later` do so now."""
        (self.root / f"end-{part}").touch()

    def hiccups(self, verb: str) -> None:
        """Has the next command of this verb fail."""
        (self.root / f"hiccup-{verb}").touch()

    @property
    def namespaces(self) -> list[str]:
        """Those that are there."""
        return [path.name for path in (self.root / "namespaces").iterdir()]

    @property
    def calls(self) -> list[list[str]]:
        """Every command line."""
        return [json.loads(line) for line in (self.root / "calls").read_text().splitlines()]

    @property
    def made(self) -> list[dict[str, Any]]:
        """Every object that was made."""
        found: list[dict[str, Any]] = json.loads((self.root / "made.json").read_text())
        return found
