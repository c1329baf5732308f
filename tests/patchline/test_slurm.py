"""Gates in a real Slurm: jobs that are submitted, followed and cancelled, and plays of fakes as their steps."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_stack import alive
from slurm_cluster import Cluster, cluster
from slurm_gate import fleet

from patchline.errors import CommandFailed, UsageError
from patchline.gates.runners.runner import NotRun
from patchline.gates.runners.slurm import control, follow
from patchline.gates.runners.slurm.control import GONE, Seen
from patchline.gates.runners.slurm.follow import Follower, Job
from patchline.gates.runners.slurm.job import submit
from patchline.gates.runners.slurm.runner import Allocation, Slurm, allocation, inside
from patchline.gates.runners.slurm.settings import settings
from patchline.gates.stack.engines import Engine, Engines, Ground
from patchline.gates.stack.node import Node
from patchline.gates.stack.ports import Ports
from patchline.gates.stack.services import Services

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("slurm")) as own:
        yield own


@pytest.fixture
def slurm(running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A Slurm that is ours to ask, without jobs, and with its own settings alone."""
    for name in list(os.environ):
        if name.startswith(("SLURM_", "SBATCH_", "PATCHLINE_SLURM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", str(running.conf))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a gate that is killed leaves its empty folder there
    wait_for(lambda: not running.jobs())
    return running


def wait_for(what: Callable[[], object], limit: float = 60.0) -> None:
    until = time.monotonic() + limit
    while not what():
        assert time.monotonic() < until
        time.sleep(0.05)


def shell(tmp_path: Path, script: str, nodes: int = 2) -> int:
    """A job that runs a shell script."""
    return submit(fleet(nodes), ["sh", "-c", script], tmp_path, tmp_path / "out")


# A job


@pytest.mark.parametrize("status", [0, 5, 6, 137])
def test_the_status_of_the_job_is_ours(slurm: Cluster, tmp_path: Path, status: int) -> None:
    assert shell(tmp_path, f"exit {status}") == status


def test_what_the_job_prints_comes_here(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MINE", "it's mine")
    script = 'echo one >&2; until [ -e go ]; do sleep 0.1; done; pwd; echo "$MINE"; printf "no end of line"'
    words = [sys.executable, "-c", SUBMITTER, str(HERE), str(tmp_path), script]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as ours:
        assert ours.stderr
        told = ""
        while "one\n" not in told:
            line = ours.stderr.readline()
            assert line, told
            told += line
        (tmp_path / "go").touch()
        told += ours.stderr.read()
    assert ours.returncode == 0
    assert "+ sbatch --parsable --job-name=patchline-h20-" in told
    assert f"{tmp_path}\nit's mine\n" in told
    assert "\nno end of line\n" in told
    assert " ended after " in told
    assert not slurm.jobs()


def test_the_job_is_asked_for_as_the_settings_say(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PARTITION": "all", "ACCOUNT": "team", "CONSTRAINT": "h20", "GPU": "h20", "TIME": "30"}.items():
        monkeypatch.setenv(f"PATCHLINE_SLURM_{name}", value)
    assert shell(tmp_path, "scontrol --oneliner --details show job $SLURM_JOB_ID > job; ulimit -n > files") == 0
    job = (tmp_path / "job").read_text()
    for part in (
        *("NodeList=n[1-2]", "NumNodes=2", "OverSubscribe=NO", "TimeLimit=00:30:00", "Requeue=0", "Account=team"),
        *("Partition=all", "Features=h20", "JobName=patchline-h20-", "TresPerNode=gres:gpu:h20:8"),
    ):
        assert f" {part}" in job


def test_settings_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ["--nodes=2", "--ntasks-per-node=1", "--exclusive", "--mem=0", "--time=12:00:00"]
    assert settings().flags(fleet(2)) == [*whole, "--gres=gpu:8"]
    monkeypatch.setenv("PATCHLINE_SLURM_GPU", "none")
    assert settings().flags(fleet(2)) == whole
    monkeypatch.setenv("PATCHLINE_SLURM_PENDING_SECONDS", "soon")
    with pytest.raises(UsageError, match="PATCHLINE_SLURM_PENDING_SECONDS is 'soon': it must be a whole number"):
        settings()


@pytest.mark.parametrize(
    ("partition", "reason"),
    [("small", "PartitionNodeLimit"), ("away", "Nodes_required_for_job_are_DOWN"), ("all", "Resources")],
)
def test_a_job_that_never_starts(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partition: str, reason: str
) -> None:
    monkeypatch.setenv("PATCHLINE_SLURM_PARTITION", partition)
    monkeypatch.setenv("PATCHLINE_SLURM_PENDING_SECONDS", "2")
    monkeypatch.setenv("PATCHLINE_SLURM_GPU", "none" if partition == "away" else "h20")
    other = slurm.ask("sbatch", "--parsable", "--exclusive", "--output=/dev/null", "--wrap=exec sleep 60")
    try:
        wait_for(lambda: "RUNNING" in slurm.jobs())
        with pytest.raises(NotRun) as caught:
            shell(tmp_path, "echo never", 1 if partition == "away" else 2)
        assert slurm.jobs() == f"{other} RUNNING"
    finally:
        slurm.ask("scancel", other)
    assert int(caught.value.exit) == 5
    assert "not run: no NVIDIA H20 seen: job " in caught.value.what
    assert f" got no nodes within 2 s: PENDING ({reason}" in caught.value.what


@pytest.mark.parametrize(("name", "value"), [("CONSTRAINT", "b300"), ("PARTITION", "lost"), ("GPU", "b300")])
def test_a_job_that_slurm_refuses(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(f"PATCHLINE_SLURM_{name}", value)
    with pytest.raises(
        NotRun, match=r"no NVIDIA H20 seen: Slurm refuses the job: sbatch: error: .*([Ii]nvalid|not available)"
    ):
        shell(tmp_path, "echo never")
    assert not slurm.jobs()


SUBMITTER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from slurm_gate import fleet
from patchline.gates.runners.slurm.job import submit
folder = Path(sys.argv[2])
sys.exit(submit(fleet(2), ["sh", "-c", sys.argv[3]], folder, folder / "out"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_job_goes_with_who_waits_for_it(slurm: Cluster, tmp_path: Path, number: signal.Signals) -> None:
    script = "sleep 300 & echo $! > new; mv new pid; wait"
    words = [sys.executable, "-c", SUBMITTER, str(HERE), str(tmp_path), script]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as ours:
        wait_for((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
        ours.send_signal(number)
        told = ours.communicate(timeout=60)[1]
    assert "KeyboardInterrupt" in told
    assert "+ scancel --jobname=patchline-h20-" in told
    wait_for(lambda: not slurm.jobs())
    assert not alive(pid)


def test_a_job_that_is_killed_has_no_status(slurm: Cluster, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed) as caught:
        shell(tmp_path, "echo at work; exec scancel $SLURM_JOB_ID")
    assert " ended without a status: CANCELLED" in caught.value.what
    assert "\n  | at work" in caught.value.what


def test_a_folder_that_nodes_do_not_see(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_LAG", 0.5)
    with pytest.raises(
        CommandFailed, match=r"ended without a status: FAILED \(NonZeroExitCode\)\n.*(can't cd|No such)"
    ):
        submit(fleet(2), ["true"], tmp_path / "lost", tmp_path / "out")


def test_a_job_that_slurm_has_forgotten(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job("4711", tmp_path)
    assert control.seen(job.number) == Seen(GONE)
    job.status.write_text("6\n")
    assert Follower(job, 5.0).status() == 6
    job.status.unlink()
    monkeypatch.setattr(follow, "_LAG", 0.5)
    with pytest.raises(CommandFailed, match="job 4711 ended without a status: GONE"):
        Follower(job, 5.0).status()


def test_a_job_whose_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SIGTERM had the command end with is not its answer."""
    Job("7", tmp_path).status.write_text("130\n")
    monkeypatch.setattr(control, "seen", lambda _: Seen("TIMEOUT", "TimeLimit"))
    with pytest.raises(CommandFailed) as caught:
        Follower(Job("7", tmp_path), 5.0).status()
    assert "job 7 ended without a status: TIMEOUT (TimeLimit)" in str(caught.value)
    assert "next:  PATCHLINE_SLURM_TIME gives it more time" in str(caught.value)


def test_a_controller_that_is_silent_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = CommandFailed("no", where="stderr: connect failure")
    answers: Iterator[Seen | CommandFailed] = iter([silent, Seen("RUNNING"), Seen("COMPLETED")])

    def seen(_: str) -> Seen:
        answer = next(answers)
        if isinstance(answer, CommandFailed):
            raise answer
        return answer

    Job("7", tmp_path).status.write_text("0\n")
    monkeypatch.setattr(control, "seen", seen)
    assert Follower(Job("7", tmp_path), 5.0).status() == 0
    answers = iter([silent])
    monkeypatch.setattr(follow, "_SILENT", 0.0)
    with pytest.raises(CommandFailed, match="no"):
        Follower(Job("7", tmp_path), 5.0).status()


def test_no_slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotRun) as caught:
        shell(tmp_path, "true")
    assert caught.value.what == "not run: no NVIDIA H20 seen: there is no Slurm here (no sbatch)"


def test_a_controller_that_does_not_answer(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ports() as held:
        conf = slurm.conf.read_text().replace("SlurmctldPort=", f"SlurmctldPort={held.take()}\n#")
        (tmp_path / "slurm.conf").write_text(conf)
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        with pytest.raises(NotRun) as caught:
            shell(tmp_path, "true")
    assert caught.value.what == "not run: no NVIDIA H20 seen: Slurm's controller does not answer"
    assert " is DOWN" in caught.value.where


# Plays, from inside a job


def gate(tmp_path: Path, form: str, nodes: int = 2, fake: str = "", end: str = "") -> dict[str, Any]:
    """What a gate in a job sees of one play."""
    words = [sys.executable, str(HERE / "slurm_gate.py"), str(tmp_path), form, str(nodes), fake, end]
    assert submit(fleet(nodes), words, tmp_path, tmp_path / "out") == 0
    seen: dict[str, Any] = json.loads((tmp_path / "seen.json").read_text())
    assert seen["left"] == []
    return seen


def test_a_pair_on_two_nodes(slurm: Cluster, tmp_path: Path) -> None:
    seen = gate(tmp_path, "engines", end="gpus")
    assert seen["gpus"] == []
    assert [step for step in seen["steps"] if "play" in step] == ["patchline-play n1", "patchline-play n2"]
    assert seen["answer"]["heard"]["kv_transfer_params"] == {"remote_engine_id": "e"}
    assert seen["logs"] == ["decode", "prefill"]
    assert "a fake engine starts kv_consumer" in (tmp_path / "logs" / "decode" / "decode.log").read_text()
    assert not Path(seen["scratch"]).parent.exists()


def test_a_step_sees_the_variables_that_we_give_it(
    slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCD_ENDPOINTS", "production")
    env = gate(tmp_path, "alone")["env"]
    assert "production" not in env.values()
    assert not [name for name in env if name.startswith(("SLURM", "SRUN"))]
    assert env["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert env["PYTHONPATH"] == str(tmp_path / "tree")
    assert (env["VLLM_HOST_IP"], env["GLOO_SOCKET_IFNAME"]) == ("127.0.0.1", "lo")


def test_a_whole_stack_on_two_nodes(slurm: Cluster, tmp_path: Path) -> None:
    seen = gate(tmp_path, "dynamo")
    assert [step for step in seen["steps"] if "play" in step] == 4 * ["patchline-play n1"] + ["patchline-play n2"]
    assert seen["logs"] == ["decode", "etcd", "frontend", "nats", "prefill"]
    prefill, decode = (json.loads((tmp_path / "workers" / name).read_text()) for name in ("prefill", "backend"))
    assert prefill["ETCD_ENDPOINTS"] == decode["ETCD_ENDPOINTS"]
    assert (prefill["CUDA_VISIBLE_DEVICES"], decode["CUDA_VISIBLE_DEVICES"]) == ("0,1", "0,1,2,3")


def test_a_pair_on_one_node_has_gpus_of_its_own(slurm: Cluster, tmp_path: Path) -> None:
    seen = gate(tmp_path, "dynamo", nodes=1)
    assert {step for step in seen["steps"] if "play" in step} == {"patchline-play n1"}
    prefill, decode = (json.loads((tmp_path / "workers" / name).read_text()) for name in ("prefill", "backend"))
    assert (prefill["CUDA_VISIBLE_DEVICES"], decode["CUDA_VISIBLE_DEVICES"]) == ("0,1", "2,3,4,5")


def test_an_engine_that_dies(slurm: Cluster, tmp_path: Path) -> None:
    text = gate(tmp_path, "engines", fake="dies")["error"]
    assert text.startswith(("prefill ended with status 1\n", "decode ended with status 1\n"))
    assert "RuntimeError: no memory for the KV cache" in text


def test_steps_whose_srun_was_killed_are_ended(slurm: Cluster, tmp_path: Path) -> None:
    text = gate(tmp_path, "engines", end="lost").get("error", "")
    assert text in ("", "the supervisor of the stack was killed, and the stack went with it")


@pytest.mark.parametrize("by", ["kill", "scancel"])
def test_nothing_outlives_the_job(slurm: Cluster, tmp_path: Path, by: str) -> None:
    words = [sys.executable, str(HERE / "slurm_gate.py"), str(tmp_path), "engines", "2", "", "waits"]
    script = f"echo $$ > pid; exec {shlex.join(words)}"
    ours = [sys.executable, "-c", SUBMITTER, str(HERE), str(tmp_path), script]
    with subprocess.Popen(ours, stderr=subprocess.PIPE, text=True) as waiting:
        wait_for((tmp_path / "seen.json").exists)
        own = slurm.processes()
        gate_pid = int((tmp_path / "pid").read_text())
        engines = _named(str(tmp_path), "vllm.entrypoints.cli.main")
        assert len([pid for pid in engines if alive(pid)]) >= 2
        if by == "kill":
            os.kill(gate_pid, signal.SIGKILL)
        else:
            slurm.ask("scancel", slurm.jobs().split()[0])
        told = waiting.communicate(timeout=60)[1]
    assert waiting.returncode == (137 if by == "kill" else 1)
    assert ("with status 137" in told) == (by == "kill")
    wait_for(lambda: not slurm.jobs())
    wait_for(lambda: not any(map(alive, engines)))
    assert gate_pid in own


def _named(*parts: str) -> list[int]:
    """The processes with all of these in their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if all(part in line for part in parts):
            found.append(int(folder.name))
    return found


# Without a job


def test_outside_of_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert not inside()
    with pytest.raises(NotRun, match="there is no Slurm job around this process"):
        allocation()


def test_gpus_of_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    monkeypatch.setattr(control, "hosts", lambda _: ["n1", "n2"])
    told = [[["NVIDIA H20", "570.1", 9, name]] * 8 for name in ("n2", "n1")]
    asked: list[Sequence[str]] = []

    def ask(*words: str) -> str:
        asked.append(words)
        return "\n".join(map(json.dumps, told))

    monkeypatch.setattr(control, "ask", ask)
    seen = Slurm(None).gpus()  # type: ignore[arg-type]
    assert [gpu.node for gpu in seen] == ["n1"] * 8 + ["n2"] * 8
    assert "--nodelist=n1,n2" in asked[0]
    assert "--ntasks=2" in asked[0]


def test_an_engine_on_another_host(tmp_path: Path) -> None:
    """The words that start it there, and every address in them."""
    node = Allocation("7", ["n1", "n2"]).node("n2", "192.0.2.2")
    with Ports() as ports:
        engines = Engines(Ground(Path("/python"), None, tmp_path), ports, Path("/scratch"))
        launch = engines.server("decode", Engine("model", 4, node=node), "kv_consumer")
        services = Services(ports, Path("/scratch"), Node("192.0.2.1", ["srun"]))
        etcd, dynamo = services.etcd(), services.dynamo_env("192.0.2.2")
    port = str(engines.doors["decode"][1])
    words = list(launch.command)
    before, command = words[: words.index("/bin/sh")], words[words.index("/python") :]
    assert before[:5] == ["srun", "--jobid=7", "--job-name=patchline-play", "--nodelist=n2", "--nodes=1"]
    assert command[:9] == [
        *["/python", "-P", "-m", "vllm.entrypoints.cli.main", "serve", "model"],
        "--host",
        "192.0.2.2",
        "--port",
    ]
    assert command[9] == port
    assert {"VLLM_HOST_IP=192.0.2.2", "VLLM_NIXL_SIDE_CHANNEL_HOST=192.0.2.2", "TMPDIR=/scratch"} <= set(words)
    assert not [word for word in words if word.startswith(("GLOO_SOCKET_IFNAME", "SLURM"))]
    assert set(launch.env) <= {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH", "SLURM_CONF"}
    assert f"http://192.0.2.1:{services.etcd_port}" in etcd.command
    assert dynamo["ETCD_ENDPOINTS"] == f"http://192.0.2.1:{services.etcd_port}"
    assert dynamo["DYN_TCP_RPC_HOST"] == dynamo["DYN_SYSTEM_HOST"] == "192.0.2.2"
    assert not [word for word in (*words, *etcd.command) if "127.0.0.1" in word]


def test_ports_of_hosts_that_are_ours_and_not() -> None:
    with Ports() as held, socket.socket() as stranger:
        assert len({held.on("192.0.2.1") for _ in range(100)}) == 100
        with pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.2", held.on("127.0.0.2")))


def test_addresses_that_the_other_node_cannot_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"n1": "NodeAddr=127.0.1.1", "n2": "NodeAddr=192.0.2.2", "n3": "NodeAddr=no.such.host.invalid"}
    monkeypatch.setattr(control, "ask", lambda *words: told[words[-1]])
    assert control.addresses(["n2"]) == ["192.0.2.2"]
    with pytest.raises(
        UsageError, match=r"the node n1 is 127\.0\.1\.1 to itself, where the other node cannot reach it"
    ):
        control.addresses(["n1", "n2"])
    with pytest.raises(UsageError, match="the node n3 has no address"):
        control.addresses(["n3"])
