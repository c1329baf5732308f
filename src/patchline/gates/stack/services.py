"""etcd and NATS, as Debian packages them, on ports and data folders of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from patchline.errors import UsageError
from patchline.gates.stack.node import HERE, Node
from patchline.gates.stack.ports import HOST, Ports
from patchline.gates.stack.probe import decoded, get, greets
from patchline.gates.stack.processes import Launch
from patchline.gates.stack.surroundings import scrubbed

PACKAGES: Mapping[str, str] = {"etcd": "etcd-server", "nats-server": "nats-server"}
"""Debian's package of each program."""


def programs() -> dict[str, str]:
    """Where the programs are, by name.

    Raises:
        UsageError: one is missing.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])  # where no user's PATH leads
    found = {name: shutil.which(name, path=path) for name in PACKAGES}
    missing = [name for name, place in found.items() if not place]
    if missing:
        packages = " ".join(PACKAGES[name] for name in missing)
        raise UsageError(
            f"the Dynamo stack needs {' and '.join(missing)}, and {'they are' if missing[1:] else 'it is'} not there",
            next=f"apt-get install --no-install-recommends {packages}",
        )
    return {name: place for name, place in found.items() if place}


class Services:
    """The two services of one stack, on one node; ports are those of the last start."""

    def __init__(self, ports: Ports, scratch: Path, node: Node = HERE) -> None:
        self.ports, self.scratch, self.node, self.programs = ports, scratch, node, programs()
        self.etcd_port = self.nats_port = 0

    def etcd(self) -> Launch:
        """One member, with a cluster of its own."""
        host = self.node.host
        port = self.etcd_port = self.ports.on(host)
        client, peer = f"http://{host}:{port}", f"http://{host}:{self.ports.on(host)}"
        name = f"patchline-{port}"
        command = [self.programs["etcd"], "--name", name, "--data-dir", str(self.scratch / f"etcd-{port}")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"{name}={peer}", "--initial-cluster-token", name]
        command += ["--logger", "zap", "--log-outputs", "stderr"]
        return self.node.launch(command, scrubbed(self.scratch, {}, host), lambda: _etcd_missing(port, host))

    def nats(self) -> Launch:
        """One server, with JetStream."""
        host = self.node.host
        port = self.nats_port = self.ports.on(host)
        command = [self.programs["nats-server"], "--addr", host, "--port", str(port)]
        command += ["--jetstream", "--store_dir", str(self.scratch / f"nats-{port}")]
        return self.node.launch(command, scrubbed(self.scratch, {}, host), lambda: greets(port, b"INFO {", host))

    def dynamo_env(self, host: str = HOST) -> dict[str, str]:
        """What leads a process of Dynamo on `host` to these two, and to nothing else."""
        return {
            "ETCD_ENDPOINTS": f"http://{self.node.host}:{self.etcd_port}",
            "NATS_SERVER": f"nats://{self.node.host}:{self.nats_port}",
            "DYN_EVENT_PLANE": "nats",
            "DYN_NAMESPACE": f"patchline-{self.etcd_port}",
            "DYN_TCP_RPC_HOST": host,
            "DYN_TCP_RESPONSE_STREAM_HOST": host,
            "DYN_SYSTEM_HOST": host,
        }


def _etcd_missing(port: int, host: str) -> str:
    answer = decoded(get(port, "/health", host))
    if isinstance(answer, dict) and answer.get("health") == "true":
        return ""
    return f"{host}:{port}/health does not say that it is healthy"
