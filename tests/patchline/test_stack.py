"""The isolated stack: real etcd, NATS and Dynamo frontend; fake engines, and faults of every kind.

A real pair takes minutes: the gate runs it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fake_stack import alive, engine, ground, members

from patchline.errors import UsageError
from patchline.gates.stack import bring_up, ports, services
from patchline.gates.stack.bring_up import bring_up as up
from patchline.gates.stack.frontend import Frontend
from patchline.gates.stack.ports import HOST, KNOWN, Ports
from patchline.gates.stack.probe import healthy
from patchline.gates.stack.processes import Launch, Processes, StackFailed
from patchline.gates.stack.services import Services
from patchline.gates.stack.stack import Served, aggregated, pair, stack
from patchline.proofs.env import environment


def ask(url: str, path: str, body: object = None, raw: bytes | None = None) -> tuple[int, Any]:
    """Status and JSON of an answer; its text where it is no JSON."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
    try:
        connection.request("POST" if data is not None else "GET", path, data)
        reply = connection.getresponse()
        text = reply.read().decode()
    finally:
        connection.close()
    try:
        return reply.status, json.loads(text)
    except ValueError:
        return reply.status, text


def wait_for(what: Callable[[], object], limit: float = 30.0) -> None:
    until = time.monotonic() + limit
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def gone(served: Served | Processes) -> bool:
    processes = served.processes if isinstance(served, Served) else served
    return not any(map(alive, processes.pids.values())) and not processes.scratch.exists()


# Ports


def test_a_held_port_is_for_those_who_are_told() -> None:
    with Ports() as held:
        port = held.take()
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind((HOST, port))
        with socket.create_server((HOST, port)) as server:  # says SO_REUSEADDR, as every server does
            socket.create_connection((HOST, port)).close()
            server.accept()[0].close()
    with socket.create_server((HOST, port)):
        pass


def test_many_ports_are_different_and_nobodys_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_outside_ephemeral", lambda: range(2379, 2479))
    with Ports() as one, Ports() as other:
        taken = [each.take() for each in (one, other) * 20]
    assert len(set(taken)) == 40
    assert not KNOWN & set(taken)


# What is left: nothing

PARENT = """
import os, sys, time, signal
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from fake_stack import *
from patchline.gates.stack.stack import aggregated
folder, end = Path(sys.argv[2]), sys.argv[3]
with aggregated(ground(folder), engine(folder, "family", FAMILY=str(folder / "family"))) as served:
    while len(members(folder / "family")) < MEMBERS:
        time.sleep(0.01)
    supervisor = served.processes._supervisor.pid
    inner = int(Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0])
    print(supervisor, inner, served.processes.pids["engine"], served.processes.scratch, flush=True)
    if end == "raise":
        raise ValueError("the check failed")
    while end != "return":
        time.sleep(0.1)
"""
ENDS = {
    "return": None,
    "raise": None,
    "interrupt": signal.SIGINT,
    "terminate": signal.SIGTERM,
    "kill": signal.SIGKILL,
    "kill-inner": signal.SIGKILL,
    "kill-outer": signal.SIGKILL,
}


@pytest.mark.parametrize("end", ENDS)
def test_nothing_outlives_the_stack(tmp_path: Path, end: str) -> None:
    family = tmp_path / "family"
    family.mkdir()
    words = [sys.executable, "-c", PARENT, str(Path(__file__).parent), str(tmp_path), end]
    parent = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0)
    with parent, contextlib.ExitStack() as always:
        always.callback(parent.kill)
        assert parent.stdout
        assert parent.stderr
        outer, inner, pid, scratch = parent.stdout.readline().split()
        everybody = [*members(family), int(outer), int(inner), int(pid)]
        if number := ENDS[end]:
            assert all(map(alive, everybody))
            target = {"kill-inner": int(inner), "kill-outer": int(outer)}.get(end)
            os.kill(target, number) if target else os.killpg(parent.pid, number)
        wait_for(lambda: not any(map(alive, everybody)))
        wait_for(lambda: not Path(os.fsdecode(scratch)).exists())
        if end.startswith("kill-"):
            os.killpg(parent.pid, signal.SIGINT)
        parent.wait(10)
        told = parent.stderr.read().decode()
    assert ("ValueError: the check failed" in told) == (end == "raise")


@pytest.mark.parametrize("kill", [False, True])
def test_no_shared_memory_is_left(tmp_path: Path, kill: bool) -> None:
    with aggregated(ground(tmp_path), engine(tmp_path, "shares")) as served:
        pid = served.processes.pids["engine"]
        name = served.logs["engine"].read_text().partition("shared: ")[2].split()[0]
        segments = [Path(f"/dev/shm/{one}") for one in (name, f"vllm_dist_{pid}-tp:0-[0-1]-cpushm_0")]
        assert all(map(Path.exists, segments))
        if kill:
            os.kill(served.processes._supervisor.pid, signal.SIGKILL)
            wait_for(lambda: not alive(pid))
    wait_for(lambda: not any(map(Path.exists, segments)))


def test_a_supervisor_that_is_killed_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(StackFailed) as caught, aggregated(ground(tmp_path), engine(tmp_path)) as served:
        served.processes._supervisor.kill()
        wait_for(served.processes.fault)
        served.check()
    assert "the supervisor of the stack was killed, and the stack went with it" in str(caught.value)
    wait_for(lambda: gone(served))


def test_the_callers_variables_do_not_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ETCD_ENDPOINTS", "NATS_SERVER", "DYN_NAMESPACE", "VLLM_PORT", "UCX_TLS", "HTTP_PROXY", "PYTHONPATH"):
        monkeypatch.setenv(name, "production")
    with aggregated(ground(tmp_path), engine(tmp_path, MINE="1")) as served:
        status, env = ask(served.url, "/env")
    assert status == 200
    assert "production" not in env.values()
    assert env["MINE"] == "1"
    assert env["PYTHONPATH"] == str(tmp_path / "tree")
    assert Path(env["TMPDIR"]) == served.processes.scratch


# A pair of fakes


def test_a_pair_hands_the_kv_over(tmp_path: Path) -> None:
    with pair(ground(tmp_path), engine(tmp_path), engine(tmp_path)) as served:
        asked = {"prompt": "a", "max_tokens": 9, "stream": False, "logprobs": 1}
        assert ask(served.url, "/v1/completions", asked) == (
            200,
            {"choices": [{"text": "ok"}], "heard": {**asked, "kv_transfer_params": {"remote_engine_id": "e"}}},
        )
        assert ask(served.url, "/v1/models") == (200, {"data": [{"id": "tiny"}]})
        status, text = ask(served.url, "/v1/chat/completions", {"messages": [], "stream": True, "tool_choice": "x"})
        assert (status, text) == (200, "data: 0\n\ndata: 1\n\ndata: 2\n\n")
        assert ask(served.url, "/v1/embeddings", {})[0] == 404
        assert ask(served.url, "/v1/completions", raw=b"{")[0] == 400
        assert ask(served.url, "/v1/completions", raw=b"[]")[0] == 400
    log = served.logs["prefill"].read_text()
    first = (
        '{"kv_transfer_params": {"do_remote_decode": true, "do_remote_prefill": false}, "logprobs": 1, "max_tokens": 1'
    )
    assert f'asked /v1/completions {first}, "prompt": "a"}}' in log
    assert '"tool_choice": "none"' in log
    assert served.logs["decode"] == tmp_path / "logs" / "decode" / "decode.log"
    assert gone(served)


@pytest.mark.parametrize(
    ("prefill", "decode", "status", "text"),
    [
        ("fails", "", 500, "SPLIT region 5"),
        ("", "fails", 500, "SPLIT region 5"),
        ("forgets", "", 502, "prefill answered without kv_transfer_params"),
        ("", "hang", 504, "decode gave no whole answer within 1 s"),
        ("hang", "", 504, "prefill gave no whole answer within 1 s"),
    ],
)
def test_a_pair_that_does_not_answer(tmp_path: Path, prefill: str, decode: str, status: int, text: str) -> None:
    with pair(ground(tmp_path, answer=1.0), engine(tmp_path, prefill), engine(tmp_path, decode)) as served:
        answer = ask(served.url, "/v1/completions", {"prompt": "a"})
        served.check()
    assert answer[0] == status
    assert text in json.dumps(answer[1])


def test_a_stream_without_end_is_broken_off(tmp_path: Path) -> None:
    with pair(ground(tmp_path, answer=1.0), engine(tmp_path), engine(tmp_path, "forever")) as served:
        with pytest.raises(http.client.IncompleteRead):
            ask(served.url, "/v1/completions", {"prompt": "a", "stream": True})
        served.check()


@pytest.mark.parametrize("victim", ["prefill", "decode"])
def test_an_engine_killed_during_a_transfer(tmp_path: Path, victim: str) -> None:
    """Decode is at work; it may wait for a prefill that is gone, too."""
    with pytest.raises(StackFailed) as caught, pair(ground(tmp_path), engine(tmp_path), engine(tmp_path, "hang")) as it:
        served = it
        began = time.monotonic()
        with subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -9 {served.processes.pids[victim]}"]):
            status, answer = ask(served.url, "/v1/completions", {"prompt": "a"})
        assert time.monotonic() - began < 20
        assert status == 502
        assert answer["error"]["message"] == f"{victim} was killed by SIGKILL"
        raise ValueError("the check of the answer failed")
    assert str(caught.value).startswith(f"{victim} was killed by SIGKILL\n  | a fake engine starts")
    assert isinstance(caught.value.__cause__, ValueError)
    assert gone(served)


# Stacks that do not come up


def not_up(tmp_path: Path, prefill: str = "", decode: str = "", ready: float = 60.0) -> str:
    """What the error says, of a pair that does not come up."""
    with (
        pytest.raises(StackFailed) as caught,
        pair(ground(tmp_path, ready), engine(tmp_path, prefill), engine(tmp_path, decode)),
    ):
        pass
    assert int(caught.value.exit) == 7
    return str(caught.value)


def test_an_engine_that_never_becomes_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bring_up, "EVERY", 0.5)
    text = not_up(tmp_path, decode="never", ready=2.0)
    assert text.startswith(
        "decode was not ready within 2 s: /health answers 503\n  | a fake engine starts kv_consumer\n"
    )
    assert f"where: {tmp_path}/logs/decode/decode.log" in text
    told = capfd.readouterr().err
    assert "prefill is ready after" in told
    assert "of 2 s: /health answers 503; it says: a fake engine starts kv_consumer" in told


def test_an_engine_that_dies_is_told_at_once(tmp_path: Path) -> None:
    began = time.monotonic()
    text = not_up(tmp_path, prefill="dies", decode="never")
    assert time.monotonic() - began < 20
    assert text.startswith("prefill ended with status 1\n")
    assert "  | RuntimeError: no memory for the KV cache\n" in text


def test_no_model(tmp_path: Path) -> None:
    lost = engine(tmp_path)._replace(model=str(tmp_path / "lost"))
    with pytest.raises(UsageError) as caught, aggregated(ground(tmp_path), lost):
        pass
    assert f"there is no model: its folder has no config.json\n  where: {tmp_path}/lost" in str(caught.value)


def test_an_overlay_that_is_not_one(tmp_path: Path) -> None:
    ours = ground(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no vLLM in this environment"):
        aggregated(ours._replace(tree=tmp_path / "empty"), engine(tmp_path)).__enter__()


def test_no_folder_for_logs(tmp_path: Path) -> None:
    (tmp_path / "logs").touch()
    with pytest.raises(UsageError, match="logs cannot be kept: Not a directory"):
        aggregated(ground(tmp_path), engine(tmp_path)).__enter__()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[None]:
    """A small disk for logs."""
    if os.geteuid():
        pytest.skip("only root mounts a small disk")
    logs = tmp_path / "logs"
    logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", logs], check=True)
    yield
    subprocess.run(["umount", logs], check=True)


@pytest.mark.usefixtures("full")
def test_the_disk_for_logs_is_full(tmp_path: Path) -> None:
    with (
        pytest.raises(StackFailed) as caught,
        pair(ground(tmp_path), engine(tmp_path), engine(tmp_path, "floods")) as it,
    ):
        served = it
        assert ask(served.url, "/v1/completions", {})[0] == 502
        served.check()
    text = str(caught.value)
    assert "the log of decode cannot be kept: No space left on device; the stack was ended" in text
    assert "next:  make room there, or give another folder for logs" in text
    assert gone(served)


# etcd, NATS and Dynamo, as they are


class FirstTaken(Ports):
    """The first port that it gives, somebody listens on."""

    def __init__(self, taken: int) -> None:
        super().__init__()
        self.first = [taken]

    def take(self) -> int:
        return self.first.pop() if self.first else super().take()


@pytest.mark.parametrize("name", ["etcd", "nats"])
def test_a_service_whose_port_is_taken_gets_another(
    tmp_path: Path, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with (
        socket.create_server((HOST, 0)) as foreign,
        FirstTaken(foreign.getsockname()[1]) as ours,
        Processes(tmp_path / "logs") as processes,
    ):
        up(processes, {name: getattr(Services(ours, processes.scratch), name)}, 60.0)
        processes.check()
    assert f"another process has a port of {name}: it is started again with others" in capfd.readouterr().err
    assert gone(processes)


def test_a_port_that_is_always_taken(tmp_path: Path) -> None:
    def launch() -> Launch:
        return Launch(["sh", "-c", "echo bind: address already in use; exit 1"], dict(os.environ), lambda: "not yet")

    with pytest.raises(StackFailed) as caught, Processes(tmp_path / "logs") as processes:
        up(processes, {"nats": launch}, 60.0)
    assert str(caught.value).startswith("nats ended with status 1\n  | bind: address already in use\n  | bind: ")


def test_services_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "PACKAGES", {"etcd-x": "etcd-server", "nats-x": "nats-server"})
    with pytest.raises(UsageError) as caught, stack(ground(tmp_path), engine(tmp_path), engine(tmp_path)):
        pass
    assert str(caught.value) == (
        "the Dynamo stack needs etcd-x and nats-x, and they are not there\n"
        "  next:  apt-get install --no-install-recommends etcd-server nats-server"
    )


FRONTEND = ("pydantic", "uvloop", "msgspec", "packaging", "pyyaml", "ai-dynamo==1.6.0", "ai-dynamo-runtime==1.6.0")
"""What the frontend imports where it serves no model yet."""


class Production(NamedTuple):
    """Another etcd and another NATS; the third port is that of the second's own counts."""

    processes: Processes
    etcd: int
    nats: int
    counts: int


@pytest.fixture
def production(tmp_path: Path) -> Iterator[Production]:
    """Where a production has them: on the default ports, but where somebody else has those."""
    programs = services.programs()
    with Processes(tmp_path / "production") as processes, Ports() as held:
        etcd, peer, nats, counts = (port if free(port) else held.take() for port in (2379, 2380, 4222, 8222))
        words = [programs["etcd"], "--data-dir", str(processes.scratch / "etcd"), "--log-outputs", "stderr"]
        for what in ("--listen-client-urls", "--advertise-client-urls"):
            words += [what, f"http://{HOST}:{etcd}"]
        words += ["--listen-peer-urls", f"http://{HOST}:{peer}"]
        other = [programs["nats-server"], "-a", HOST, "-p", str(nats), "-m", str(counts), "-DV"]
        makers = {
            "etcd": lambda: Launch(words, dict(os.environ), lambda: healthy(etcd)),
            "nats": lambda: Launch(other, dict(os.environ), lambda: healthy(counts, "/varz")),
        }
        up(processes, makers, 60.0)
        yield Production(processes, etcd, nats, counts)


def free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def everything(etcd: int) -> tuple[list[str], int]:
    """All keys of an etcd (base64), and its revision, which every write raises."""
    whole = json.dumps({"key": "AA==", "range_end": "AA=="}).encode()
    status, answer = ask(f"http://{HOST}:{etcd}", "/v3/kv/range", raw=whole)
    assert status == 200
    return [one["key"] for one in answer.get("kvs", [])], int(answer["header"]["revision"])


def connections(port: int) -> list[str]:
    """States of the connections to a port, also of those that have ended within a minute (see /proc/net/tcp)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [state for _, _, there, state, *_ in rows if there.endswith(f":{port:04X}")]


def established(port: int) -> int:
    """How many connections to a port there are; etcd has some to itself."""
    return connections(port).count("01")


@pytest.mark.network
def test_dynamos_own_frontend_beside_a_production(
    tmp_path: Path, production: Production, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = environment(*FRONTEND).python
    monkeypatch.setenv("ETCD_ENDPOINTS", f"http://{HOST}:{production.etcd}")
    monkeypatch.setenv("NATS_SERVER", f"nats://{HOST}:{production.nats}")
    monkeypatch.setenv("DYN_NAMESPACE", "production")
    before, idle = everything(production.etcd), established(production.etcd)
    with Ports() as held, Processes(tmp_path / "logs") as processes:
        ours = Services(held, processes.scratch)
        up(processes, {"etcd": ours.etcd, "nats": ours.nats}, 60.0)
        alone = [established(port) for port in (ours.etcd_port, ours.nats_port)]
        front = Frontend(python, held, processes.scratch)
        up(processes, {"frontend": lambda: front.launch(ours.dynamo_env())}, 60.0)
        assert ask(f"http://{HOST}:{front.port}", "/v1/models") == (200, {"object": "list", "data": []})
        assert established(ours.etcd_port) > alone[0]
        assert established(ours.nats_port) > alone[1]
        assert established(production.etcd) == idle
        processes.send("frontend", signal.SIGKILL)
        wait_for(processes.fault)
        assert "frontend was killed by SIGKILL" in str(processes.fault())
    assert gone(processes)
    assert everything(production.etcd) == before == ([], 1)
    assert connections(production.nats) == []
    assert ask(f"http://{HOST}:{production.counts}", "/varz")[1]["total_connections"] == 0
    production.processes.check()
