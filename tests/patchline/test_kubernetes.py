"""The Kubernetes runner, as far as it can be tried without a cluster.

Manifests are held against the published schemas and given to the real `kubectl`, which checks them on this side; what
happens around a play is tried on a fake `kubectl`.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_kube_api
import pytest
from fake_kubectl import Fake

from patchline.errors import UsageError
from patchline.gates import fleets
from patchline.gates.fleet import Fleet
from patchline.gates.gpus import Gpu
from patchline.gates.plays import Play, plays
from patchline.gates.runners.kubernetes import cluster, manifests, settings, watch
from patchline.gates.runners.kubernetes.cluster import Cluster, Patience
from patchline.gates.runners.kubernetes.runner import Kubernetes, Served
from patchline.gates.runners.runner import NotRun, Runner
from patchline.gates.stack.probe import decoded, get
from patchline.gates.stack.processes import StackFailed

schemas = importlib.import_module("kubernetes_validate")  # it has no types

ROOT = Path(__file__).parents[2]
FLEETS = fleets.load(ROOT / "builds" / "fleets.toml")
MODEL = "/models/gemma-4-31B"
DIGEST = "sha256:" + "0123456789abcdef" * 4
OTHER = "sha256:" + "fedcba9876543210" * 4
VERSIONS = ("1.25", "1.37")
"""Of the published schemas: four years apart."""
GIVEN = {
    "CONTEXT": "fake",
    "STOCK_IMAGE": f"registry.invalid/vllm-runtime@{DIGEST}",
    "OVERLAY_IMAGE": f"registry.invalid/vllm-runtime@{OTHER}",
    "ETCD_IMAGE": f"registry.invalid:5000/etcd@{DIGEST}",
    "NATS_IMAGE": f"registry.invalid/library/nats@{DIGEST}",
    "TEST_IMAGE": f"registry.invalid/patchline@{DIGEST}",
    "MODEL_VOLUME": '{"nfs": {"server": "files.invalid", "path": "/models/gemma", "readOnly": true}}',
}
MORE = {
    "NODE_SELECTOR": "node.invalid/gpu=b300,ours=",
    "TOLERATIONS": "nvidia.com/gpu:NoSchedule,team=voice:NoExecute",
    "GPU_RESOURCE": "nvidia.com/gpu",
    "RDMA_RESOURCE": "rdma.invalid/hca=2",
}
QUICK = Patience(call=10, silence=10, placing=0.4, deletion=5, words=5, look=0.1)


def environment(**changes: str | None) -> dict[str, str]:
    """Variables that say all that is needed, with changes; None leaves one out."""
    given = {**GIVEN, **changes}
    return {f"PATCHLINE_KUBERNETES_{name}": text for name, text in given.items() if text is not None}


def of(fleet: str) -> list[Play]:
    return plays(FLEETS[fleet], {"gemma-4-31B": MODEL})


def play(name: str, fleet: str = "b300") -> Play:
    return next(one for one in of(fleet) if one.name == f"gemma-4-31B-{name}")


PATCHED = play("tp4-tp8-dynamo-overlay")
ALONE = play("tp4-tp4-alone-stock")
SERVED = [*of("b300"), *(one for one in of("h20") if one.form != "engines")]


def objects(of: Play = PATCHED, /, **changes: str | None) -> list[dict[str, Any]]:
    return manifests.manifests(of, settings.read(environment(**{**MORE, **changes})), "patchline-test")


def one(kind: str, name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return next(item for item in found if (item["kind"], item["metadata"]["name"]) == (kind, name))


def container(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = one("Job", name, found)["spec"]["template"]["spec"]["containers"][0]
    return made


class TestSettings:
    def test_all_that_is_needed(self, tmp_path: Path) -> None:
        secret = tmp_path / "config.json"
        secret.write_text('{"auths": {"registry.invalid": {"auth": "eA=="}}}')
        read = settings.read(environment(**MORE, PULL_SECRET_FILE=str(secret)))
        assert read.overlay == f"registry.invalid/vllm-runtime@{OTHER}"
        assert read.selector == {"node.invalid/gpu": "b300", "ours": ""}
        assert read.tolerations == [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal", "value": "voice", "effect": "NoExecute"},
        ]
        assert (read.rdma, read.gpu) == ({"rdma.invalid/hca": 2}, "nvidia.com/gpu")
        assert read.pull_secret == secret

    def test_each_missing_one_is_named(self) -> None:
        with pytest.raises(UsageError) as failed:
            settings.read({"PATCHLINE_KUBERNETES_CONTEXT": " ", "PATH": "/bin"})
        lines = failed.value.what.splitlines()[1:]
        assert [line.split()[1].removeprefix("PATCHLINE_KUBERNETES_") for line in lines] == list(settings.REQUIRED)
        assert all(" is missing: " in line for line in lines)

    @pytest.mark.parametrize(
        ("name", "text", "said"),
        [
            ("STOCK_IMAGE", "registry.invalid/vllm:1.6.0", "an image is named by its digest, NAME@sha256:…, without"),
            ("ETCD_IMAGE", f"registry.invalid/etcd:v3@{DIGEST}", "without a tag"),
            ("NATS_IMAGE", "registry.invalid/nats@sha256:12", "an image is named by its digest"),
            ("TEST_IMAGE", f"registry.invalid/UPPER@{DIGEST}", "an image is named by its digest"),
            ("OVERLAY_IMAGE", GIVEN["STOCK_IMAGE"], "are the same image"),
            ("MODEL_VOLUME", "/models", "it is not JSON"),
            ("MODEL_VOLUME", '{"persistentVolumeClaim": {"claimName": "m"}}', "a claim belongs to its namespace"),
            ("MODEL_VOLUME", '{"hostpath": {"path": "/m"}}', "did you mean 'hostPath'?"),
            ("MODEL_VOLUME", '{"nfs": {}, "csi": {}}', "one source of a pod's volume is wanted"),
            ("MODEL_VOLUME", "[1]", "one source of a pod's volume is wanted"),
            ("NODE_SELECTOR", "gpu", "KEY=VALUE is wanted; not 'gpu'"),
            ("TOLERATIONS", "gpu:Never", "KEY=VALUE:EFFECT or KEY:EFFECT is wanted; not 'gpu:Never'"),
            ("GPU_RESOURCE", "gpu", "a resource's name, as nvidia.com/gpu is wanted"),
            ("RDMA_RESOURCE", "rdma/hca=0", "NAME or NAME=COUNT is wanted"),
            ("PULL_SECRET_FILE", "/nowhere/config.json", "/nowhere/config.json cannot be read: No such file"),
            ("CONTEX", "x", "there is no setting PATCHLINE_KUBERNETES_CONTEX: did you mean 'CONTEXT'?"),
        ],
    )
    def test_what_is_wrong_is_named(self, name: str, text: str, said: str) -> None:
        with pytest.raises(UsageError) as failed:
            settings.read(environment(**{name: text}))
        assert said in str(failed.value)
        assert f"PATCHLINE_KUBERNETES_{name}" in str(failed.value)

    def test_a_secret_is_not_shown(self, tmp_path: Path) -> None:
        secret = tmp_path / "config.json"
        secret.write_text('{"auths": "s3cret"}')
        with pytest.raises(UsageError) as failed:
            settings.read(environment(PULL_SECRET_FILE=str(secret)))
        assert "is not as docker's config.json" in str(failed.value)
        assert "s3cret" not in str(failed.value)


class TestManifests:
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("play", SERVED, ids=[f"{one.fleet.name}-{one.name}" for one in SERVED])
    def test_every_one_is_of_its_published_schema(self, play: Play, version: str) -> None:
        for found in objects(play):
            schemas.validate(found, version, strict=True)

    def test_those_of_every_choice_are_too(self, tmp_path: Path) -> None:
        secret = tmp_path / "config.json"
        secret.write_text('{"auths": {}}')
        bare = manifests.manifests(PATCHED, settings.read(environment()), "patchline-test")
        host = objects(MODEL_VOLUME='{"hostPath": {"path": "/m", "type": "Directory"}}', PULL_SECRET_FILE=str(secret))
        looks = manifests.looks(FLEETS["b300"], settings.read(environment(**MORE)), "patchline-test")
        for found in [*bare, *host, *looks]:
            schemas.validate(found, VERSIONS[-1], strict=True)
        assert one("Secret", "pull", host)["data"] == {".dockerconfigjson": "eyJhdXRocyI6IHt9fQ=="}
        assert all(item["spec"]["template"]["spec"]["imagePullSecrets"] for item in host if item["kind"] == "Job")

    @pytest.mark.parametrize(
        ("kind", "path", "field"),
        [
            ("Job", ("spec",), "activeDeadlineSecond"),
            ("Job", ("spec", "template", "spec"), "restartPolice"),
            ("Job", ("spec", "template", "spec", "containers", 0), "readynessProbe"),
            ("Job", ("spec", "template", "spec", "containers", 0, "securityContext"), "privilege"),
            ("Job", ("spec", "template", "spec", "affinity", "podAntiAffinity"), "required"),
            ("NetworkPolicy", ("spec",), "policies"),
            ("Service", ("spec", "ports", 0), "target"),
        ],
    )
    def test_a_misspelt_field_is_seen(self, kind: str, path: tuple[str | int, ...], field: str) -> None:
        found = next(item for item in reversed(objects()[:-1]) if item["kind"] == kind)
        misspell(found, path, field)
        with pytest.raises(schemas.ValidationError, match=field):
            schemas.validate(found, VERSIONS[-1], strict=True)

    def test_they_are_the_same_again(self) -> None:
        assert manifests.text(objects()) == manifests.text(objects())

    def test_both_sides_differ_in_their_image_alone(self) -> None:
        stock, overlay = (manifests.text(objects(play(f"tp4-tp8-dynamo-{side}"))) for side in ("stock", "overlay"))
        stock = stock.replace(DIGEST, OTHER).replace("dynamo-stock", "dynamo-overlay")
        assert stock == overlay.replace(DIGEST, OTHER)

    def test_two_engines_on_two_nodes(self) -> None:
        found = objects()
        for name, tp in (("prefill", 4), ("decode", 8)):
            engine, spec = container(name, found), one("Job", name, found)["spec"]["template"]["spec"]
            assert engine["resources"]["limits"] == {"nvidia.com/gpu": str(tp), "rdma.invalid/hca": "2"}
            assert option(engine, "--tensor-parallel-size") == str(tp)
            assert option(engine, "--disaggregation-mode") == name
            assert option(engine, "--model") == MODEL
            assert option(engine, "--served-model-name") == "gemma-4-31B"
            assert option(engine, "--kv-transfer-config") == json.dumps(
                {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cuda"}
            )
            assert engine["command"][-2 - len(PATCHED.flags) : -2] == PATCHED.flags
            term = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
            assert term["labelSelector"]["matchExpressions"][0]["values"] == ["prefill", "decode"]
            assert term["topologyKey"] == "kubernetes.io/hostname"
            assert spec["nodeSelector"] == {"node.invalid/gpu": "b300", "ours": ""}
            assert {"name": "shm", "mountPath": "/dev/shm"} in engine["volumeMounts"]
            assert {"name": "model", "mountPath": MODEL, "readOnly": True} in engine["volumeMounts"]

    def test_what_engines_are_told(self) -> None:
        variables = {item["name"]: item for item in container("decode", objects())["env"]}
        assert list(variables) == sorted(variables)
        address = {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}
        assert variables["VLLM_NIXL_SIDE_CHANNEL_HOST"]["valueFrom"] == address
        told = {
            name: item["value"] for name, item in variables.items() if name.startswith(("ETCD", "NATS", "DYN_NAME"))
        }
        assert told == {
            "DYN_NAMESPACE": "patchline-test",
            "ETCD_ENDPOINTS": "http://etcd:2379",
            "NATS_SERVER": "nats://nats:4222",
        }

    def test_the_fleets_environment_is_theirs(self) -> None:
        fleet = copy_of(FLEETS["b300"], env={"UCX_TLS": "rc", "VLLM_SSM_CONV_STATE_LAYOUT": "DS"})
        found = manifests.manifests(PATCHED._replace(fleet=fleet), settings.read(environment()), "patchline-test")
        for name in ("prefill", "decode"):
            told = container(name, found)["env"]
            assert {"name": "UCX_TLS", "value": "rc"} in told
            assert {"name": "VLLM_SSM_CONV_STATE_LAYOUT", "value": "DS"} in told

    def test_a_name_on_a_hub_is_read_from_a_cache_on_the_volume(self) -> None:
        found = objects(PATCHED._replace(model="google/gemma-4-31B"))
        engine = container("decode", found)
        assert {"name": "HF_HOME", "value": "/models"} in engine["env"]
        assert {"name": "HF_HUB_OFFLINE", "value": "1"} in engine["env"]
        assert {"name": "model", "mountPath": "/models", "readOnly": True} in engine["volumeMounts"]

    def test_every_pod_is_bound(self) -> None:
        for job in (item for item in objects() if item["kind"] == "Job"):
            spec = job["spec"]["template"]["spec"]
            assert job["spec"]["activeDeadlineSeconds"] == 1800 + manifests.WORK
            assert job["spec"]["backoffLimit"] == 0
            assert spec["restartPolicy"] == "Never"
            assert spec["automountServiceAccountToken"] is False
            assert spec["enableServiceLinks"] is False
            assert spec["securityContext"]["runAsNonRoot"] is True
            assert spec["containers"][0]["image"].partition("@")[2] in (DIGEST, OTHER)
            assert spec["containers"][0]["securityContext"]["capabilities"]["drop"] == ["ALL"]
            assert spec["containers"][0]["resources"]["requests"]["memory"]

    def test_the_namespace_is_closed(self) -> None:
        spec = one("NetworkPolicy", "closed", objects())["spec"]
        assert spec["podSelector"] == {}
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        assert spec["ingress"] == [{"from": [{"podSelector": {}}]}]
        own, dns = spec["egress"]
        assert own == {"to": [{"podSelector": {}}]}
        assert [port["port"] for port in dns["ports"]] == [53, 53]

    @pytest.mark.parametrize(
        ("changes", "level"),
        [({"RDMA_RESOURCE": None}, "baseline"), ({}, "privileged")],
    )
    def test_what_its_pods_may_do(self, changes: dict[str, str | None], level: str) -> None:
        labels = one("Namespace", "patchline-test", objects(**changes))["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == level

    def test_one_engine_alone(self) -> None:
        found = objects(ALONE)
        assert [item["metadata"]["name"] for item in found] == ["patchline-test", "closed", "engine", "engine", "test"]
        assert container("engine", found)["command"][4:6] == ["serve", MODEL]
        assert "--kv-transfer-config" not in container("engine", found)["command"]
        assert "http://engine:8000" in container("test", found)["command"]

    def test_the_test_is_the_recall_check(self) -> None:
        command = container("test", objects())["command"]
        assert command[:5] == ["python", "-m", "patchline", "check", "http://frontend:8000"]
        assert command[5:] == ["--recall", "--json", "--tokens", "12500"]

    def test_its_words_are_those_of_the_verb(self) -> None:
        from patchline.commands import check

        parser = __import__("argparse").ArgumentParser()
        parser.add_argument("--json", action="store_true")
        check.configure(parser)
        assert parser.parse_args(container("test", objects())["command"][4:]).tokens == 12500

    def test_a_pair_of_plain_engines_is_refused(self) -> None:
        with pytest.raises(UsageError, match="does not bring up gemma-4-31B-tp4-tp8-engines-overlay"):
            objects(play("tp4-tp8-engines-overlay", "h20"))

    def test_names_of_namespaces_are_new_and_legal(self) -> None:
        names = {manifests.namespace_name("Gemma-4-31B-tp4_tp8." + "x" * 80) for _ in range(50)}
        assert len(names) == 50
        assert all(len(name) <= 63 and name.startswith("patchline-gemma-4-31b-tp4-tp8-x") for name in names)


def documents(text: str) -> list[dict[str, Any]]:
    """The objects that `kubectl` printed: one after the other, or in a list."""
    found: list[dict[str, Any]] = []
    rest = text.strip()
    while rest:
        part, end = json.JSONDecoder().raw_decode(rest)
        found += part["items"] if part["kind"] == "List" else [part]
        rest = rest[end:].strip()
    return found


def misspell(found: dict[str, Any], path: tuple[str | int, ...], field: str) -> None:
    """Adds a field that does not exist."""
    place: Any = found
    for step in path:
        place = place[step]
    place[field] = 1


def option(container: dict[str, Any], name: str) -> str:
    command: list[str] = container["command"]
    return command[command.index(name) + 1]


def copy_of(fleet: Fleet, **changes: Any) -> Fleet:
    import msgspec

    return msgspec.structs.replace(fleet, **changes)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not shutil.which("kubectl"):
        pytest.fail(f"there is no kubectl: apt-get install --no-install-recommends {cluster.DEBIAN}")
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture(scope="module", params=VERSIONS)
def config(home: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    folder = home / request.param
    folder.mkdir()
    with fake_kube_api.serving(folder, f"v{request.param}.0") as path:
        yield path


class TestRealKubectl:
    """What `kubectl` itself says, with a stand-in for the API server that knows kinds and definitions alone."""

    def dry_run(self, config: Path, text: str, *words: str) -> subprocess.CompletedProcess[str]:
        """`kubectl create --dry-run=client`, which checks what it is given on this side."""
        command = ["kubectl", "--context", "fake", "create", "--dry-run=client", "--validate=true", "-f", "-", *words]
        env = {"PATH": os.environ["PATH"], "HOME": str(config.parent), "KUBECONFIG": str(config)}
        return subprocess.run(command, input=text, env=env, capture_output=True, text=True)

    @pytest.mark.parametrize("play", of("b300"), ids=lambda one: one.name)
    def test_it_takes_every_manifest_and_gives_it_back_as_it_is(self, config: Path, play: Play) -> None:
        found = objects(play)
        done = self.dry_run(config, manifests.text(found), "-o", "json")
        assert done.returncode == 0, done.stderr
        assert documents(done.stdout) == found

    def test_it_takes_what_shows_gpus_and_a_secret(self, config: Path, tmp_path: Path) -> None:
        secret = tmp_path / "config.json"
        secret.write_text('{"auths": {}}')
        read = settings.read(environment(**MORE, PULL_SECRET_FILE=str(secret)))
        done = self.dry_run(
            config, manifests.text(manifests.looks(FLEETS["b300"], read, "patchline-test")), "-o", "name"
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[2:] == ["secret/pull", "job.batch/gpus"]

    @pytest.mark.parametrize(
        ("path", "field", "said"),
        [
            (("spec", "template", "spec"), "restartPolice", "ValidationError(Job.spec.template.spec): unknown field"),
            (("spec",), "activeDeadlineSecond", "ValidationError(Job.spec): unknown field"),
        ],
    )
    def test_it_refuses_a_misspelt_field(
        self, config: Path, path: tuple[str | int, ...], field: str, said: str
    ) -> None:
        found = objects()
        misspell(found[-1], path, field)
        done = self.dry_run(config, manifests.text(found))
        assert done.returncode == 1
        assert f'{said} "{field}"' in done.stderr

    def test_it_refuses_a_wrong_type(self, config: Path) -> None:
        found = objects()
        found[-1]["spec"]["activeDeadlineSeconds"] = "an hour"
        done = self.dry_run(config, manifests.text(found))
        assert done.returncode == 1
        assert "ValidationError(Job.spec.activeDeadlineSeconds): invalid type" in done.stderr

    def test_the_runners_commands_are_ones_that_it_knows(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        there = [{"kind": "Job", "metadata": {"name": "a"}}, {"kind": "Pod", "metadata": {"name": "a-1"}}]
        with fake_kube_api.serving(tmp_path, "v1.37.0", fake_kube_api.lists("ours", there)) as config:
            monkeypatch.setenv("KUBECONFIG", str(config))
            monkeypatch.setenv("HOME", str(home))
            cluster.refuse("fake")
            with pytest.raises(UsageError, match="kubectl knows no context production"):
                cluster.refuse("production")
            ours = Cluster("fake", "ours", QUICK)
            assert [(item["kind"], item["metadata"]["name"]) for item in ours.items()] == [("Job", "a"), ("Pod", "a-1")]
            assert ours.call("get", "namespace", "ours", "--ignore-not-found", "-o", "name") == b""
            for words in (
                ["logs", "--follow", "pod/a"],
                ["port-forward", "--address", "127.0.0.1", "service/a", ":8000"],
            ):
                with pytest.raises(StackFailed, match=r"(?i)error from server \(NotFound\)"):
                    ours.call(*words)
            ours.delete()

    def test_a_cluster_that_is_not_there(self, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("KUBECONFIG", str(fake_kube_api.configuration(tmp_path, "http://127.0.0.1:1")))
        monkeypatch.setenv("HOME", str(home))
        with pytest.raises(StackFailed, match=r"(?i)connection.*refused") as failed:
            Cluster("fake", "ours", QUICK._replace(silence=0.1)).items()
        assert failed.value.next == "kubectl --context fake --namespace ours get jobs,pods,events"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake(tmp_path / "fake")
    monkeypatch.setenv("PATH", f"{made.root / 'bin'}:{os.environ['PATH']}")
    return made


def runner(patience: Patience = QUICK, **changes: Any) -> Kubernetes:
    fleet = copy_of(FLEETS["b300"], **{"ready_seconds": 30.0, **changes})
    return Kubernetes(fleet, settings.read(environment(**MORE)), patience)


def quick(play: Play = PATCHED, ready: float = 30.0) -> Play:
    return play._replace(fleet=copy_of(play.fleet, ready_seconds=ready))


def fails(tmp_path: Path, play: Play, patience: Patience = QUICK) -> StackFailed:
    """How a play fails that never comes up."""
    with pytest.raises(StackFailed) as failed, runner(patience).serve(play, tmp_path / "logs"):
        pytest.fail("it came up")
    return failed.value


class TestServing:
    """Around a play, on the fake."""

    def test_a_play_is_up_and_then_gone(self, fake: Fake, tmp_path: Path) -> None:
        fake.says("decode", "TransferTopology(tp_ratio=2, local_tp=8, remote_tp=4)")
        with runner().serve(quick(), tmp_path / "logs") as stand:
            assert stand.model == "gemma-4-31B"
            assert decoded(get(int(stand.url.rpartition(":")[2]), "/v1/models"))["data"]
            assert len(fake.namespaces) == 1
            stand.check()
            assert sorted(stand.logs) == ["decode", "etcd", "frontend", "nats", "prefill"]
            assert 0 < stand.ready < 30
            until(lambda: "TransferTopology" in stand.logs["decode"].read_text())
            assert stand.logs["decode"] == tmp_path / "logs" / "decode" / "decode.log"
        assert fake.namespaces == []
        assert runner().name == "kubernetes"

    def test_it_is_a_runner(self) -> None:
        made: Runner = runner()
        assert made.name == "kubernetes"

    def test_services_come_before_what_asks_them(self, fake: Fake, tmp_path: Path) -> None:
        with runner().serve(quick(), tmp_path / "logs"):
            pass
        jobs = [item["metadata"]["name"] for item in fake.made if item["kind"] == "Job"]
        assert jobs == ["etcd", "nats", "frontend", "prefill", "decode"]
        assert fake.made[0]["kind"] == "Namespace"
        creations = [call for call in fake.calls if "create" in call]
        assert len(creations) == 3
        assert all(call[:3:2] == ["--context", "--namespace"] and call[1] == "fake" for call in creations)

    def test_one_engine_alone(self, fake: Fake, tmp_path: Path) -> None:
        fake.plays(door="empty")  # it is no frontend, and knows no workers
        with runner().serve(quick(ALONE), tmp_path / "logs") as stand:
            assert sorted(stand.logs) == ["engine"]
        assert fake.namespaces == []

    def test_the_recall_check_inside(self, fake: Fake, tmp_path: Path) -> None:
        result = {"ok": True, "exit": 0, "passed": True, "checks": [{"check": "recall"}]}
        fake.says("test", f"http://frontend:8000 serves {{x}}\n{json.dumps(result, indent=2)}\n")
        with served(tmp_path) as stand:
            assert stand.recall() == result
            assert '"passed": true' in (tmp_path / "logs" / "test" / "test.log").read_text()
            stand.check()

    def test_a_recall_check_that_says_nothing(self, fake: Fake, tmp_path: Path) -> None:
        fake.plays(test="wrong")
        fake.says("test", "No module named patchline")
        with pytest.raises(StackFailed) as failed, served(tmp_path) as stand:
            stand.recall()
        assert "the test ended with status 6 and gave no result\n  | No module named patchline" in failed.value.what
        assert fake.namespaces == []

    @pytest.mark.parametrize(
        ("faults", "said"),
        [
            ({"engine": "ImagePullBackOff"}, "engine cannot start: ImagePullBackOff: Back-off pulling image"),
            ({"frontend": "InvalidImageName"}, "frontend cannot start: InvalidImageName: Back-off pulling image"),
            (
                {"engine": "homeless"},
                "engine finds no place within 0.4 s: Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
            ),
            (
                {"engine": "quota"},
                "engine finds no place within 0.4 s: its Job has no pod: FailedCreate: exceeded quota: gpus",
            ),
            ({"decode": "OOMKilled"}, "decode ended with status 137 (OOMKilled)\n  | decode says hello"),
            ({"frontend": "ends"}, "frontend ended with status 0\n  | frontend says hello"),
            ({"engine": "deadline"}, "engine is gone: DeadlineExceeded: Job was active too long"),
            ({"create": "refuses"}, 'kubectl ended with status 1: error: ValidationError(Job.spec): unknown field "x"'),
            ({"port_forward": "fails"}, "kubectl port-forward ended\n  | error: error upgrading connection"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
    )
    def test_what_fails_has_its_own_message(
        self, fake: Fake, tmp_path: Path, faults: dict[str, str], said: str
    ) -> None:
        fake.plays(**faults)
        began = time.monotonic()
        assert said in fails(tmp_path, quick(PATCHED if "decode" in faults or "frontend" in faults else ALONE)).what
        assert time.monotonic() - began < 15
        assert fake.namespaces == []

    @pytest.mark.parametrize(
        ("faults", "said"),
        [
            (
                {"engine": "never"},
                "engine was not ready within 1 s: its process runs and is not ready\n  | engine says",
            ),
            ({"engine": "pulls"}, 'engine was not ready within 1 s: ContainerCreating: Pulling: Pulling image "reg'),
            ({"door": "empty"}, "frontend was not ready within 4 s: it does not know prefill, it does not know decode"),
        ],
    )
    def test_what_is_late_says_what_it_waits_for(
        self, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: dict[str, str], said: str
    ) -> None:
        fake.plays(**faults)
        assert said in fails(tmp_path, quick(PATCHED, ready=4) if "door" in faults else quick(ALONE, ready=1.4)).what
        assert fake.namespaces == []

    def test_progress_is_told(
        self, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(watch, "EVERY", 0.3)
        fake.plays(decode="never", prefill="pulls")
        fails(tmp_path, quick(ready=2))
        told = capsys.readouterr().err
        assert (
            "gemma-4-31B-tp4-tp8-dynamo-overlay runs in namespace patchline-gemma-4-31b-tp4-tp8-dynamo-overlay-" in told
        )
        assert "s on node-etcd-0" in told
        assert " of 2 s: its process runs and is not ready; it says: decode says hello" in told
        assert ' of 2 s: ContainerCreating: Pulling: Pulling image "registry.invalid/vllm"' in told

    @pytest.mark.parametrize(
        ("faults", "end", "said"),
        [
            ({"engine": "OOMKilled", "later": "1"}, "engine", "engine ended with status 137 (OOMKilled)"),
            ({"engine": "removed"}, "engine", "engine is gone: it has no Job any more"),
            ({"port_forward": "ends"}, "port-forward", "kubectl port-forward ended\n  | Forwarding from"),
            (
                {"logs": "engine"},
                "engine",
                "engine runs on, and its log is not kept any more: engine ended with status 1",
            ),
        ],
    )
    def test_what_ends_later_is_seen(
        self, fake: Fake, tmp_path: Path, faults: dict[str, str], end: str, said: str
    ) -> None:
        fake.plays(**faults)
        with (
            pytest.raises(StackFailed) as failed,
            runner(QUICK._replace(words=2)).serve(quick(ALONE), tmp_path / "logs") as stand,
        ):
            stand.check()
            fake.ends(end)
            until(lambda: raises(stand))
            stand.check()
        assert said in failed.value.what
        assert fake.namespaces == []

    def test_what_ended_explains_the_error_of_the_block(self, fake: Fake, tmp_path: Path) -> None:
        fake.plays(engine="OOMKilled", later="1")
        with pytest.raises(StackFailed, match="engine ended with status 137") as failed, served(tmp_path):
            fake.ends("engine")
            raise OSError("connection reset")
        assert str(failed.value.__cause__) == "connection reset"

    def test_an_error_of_the_block_is_its_own(self, fake: Fake, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="disk full"), served(tmp_path):
            raise OSError("disk full")
        assert fake.namespaces == []

    def test_a_moment_without_the_cluster(self, fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with served(tmp_path) as stand:
            fake.hiccups("get")
            stand.check()
        assert "the cluster is asked again: kubectl ended with status 1: error: the server is currently" in (
            capsys.readouterr().err
        )

    def test_a_cluster_that_does_not_answer(self, fake: Fake, tmp_path: Path) -> None:
        fake.plays(create="hangs")
        failed = fails(tmp_path, quick(ALONE), QUICK._replace(call=0.5))
        assert failed.what == "kubectl gave no answer within 0.5 s"

    def test_a_cluster_that_falls_silent(self, fake: Fake, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(StackFailed, match=r"kubectl gave no answer within 0\.5 s"), served(tmp_path) as stand:
            stand.watch.cluster.patience = QUICK._replace(call=0.5, silence=0.1)
            fake.plays(get="hangs")
            stand.check()
        assert "may still be there: kubectl gave no answer within 0.5 s" in capsys.readouterr().err

    def test_a_namespace_that_stays(self, fake: Fake, tmp_path: Path) -> None:
        fake.plays(delete="stays")
        patience = QUICK._replace(deletion=0.3)
        with pytest.raises(StackFailed) as failed, runner(patience).serve(quick(ALONE), tmp_path / "logs"):
            pass
        name = fake.namespaces[0]
        assert failed.value.what == f"the namespace {name} may still be there: it is not gone after 0.3 s"
        assert failed.value.next == f"kubectl --context fake delete namespace {name}"

    def test_ctrl_c(self, fake: Fake, tmp_path: Path) -> None:
        with pytest.raises(KeyboardInterrupt), served(tmp_path):
            raise KeyboardInterrupt
        assert fake.namespaces == []
        until(lambda: not children(fake))

    def test_nothing_is_left_of_a_gate_that_was_killed(self, fake: Fake, tmp_path: Path) -> None:
        script = tmp_path / "gate.py"
        script.write_text(GATE.format(tests=str(Path(__file__).parent), logs=str(tmp_path / "logs")))
        gate = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
        assert gate.stdout
        with gate:
            assert gate.stdout.readline() == b"up\n"
            assert len(fake.namespaces) == 1
            gate.send_signal(signal.SIGKILL)
        until(lambda: not fake.namespaces)
        until(lambda: not children(fake))

    def test_a_form_that_it_does_not_serve(self, tmp_path: Path) -> None:
        with (
            pytest.raises(UsageError, match="does not bring up"),
            runner().serve(play("tp2-tp4-engines-stock", "h20"), tmp_path / "logs"),
        ):
            pass

    def test_no_kubectl(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(UsageError) as failed, served(tmp_path):
            pass
        assert str(failed.value) == (
            "there is no kubectl here\n  next:  apt-get install --no-install-recommends kubernetes-client"
        )


GATE = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_kubernetes as own
with own.runner().serve(own.quick(own.ALONE), Path({logs!r})):
    print("up", flush=True)
    time.sleep(600)
"""


def served(tmp_path: Path) -> Any:
    """One engine, up on the fake."""
    return runner().serve(quick(ALONE), tmp_path / "logs")


def raises(stand: Served) -> bool:
    try:
        stand.check()
    except StackFailed:
        return True
    return False


def until(true: Callable[[], bool], limit: float = 15.0) -> None:
    """Waits until something is so."""
    began = time.monotonic()
    while not true():
        assert time.monotonic() - began < limit
        time.sleep(0.05)


def children(fake: Fake) -> list[str]:
    """The command lines of processes that still know the fake."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        found += [line] if str(fake.root) in line else []
    return found


class TestGpus:
    """Which GPUs the nodes have."""

    def test_of_every_node(self, fake: Fake) -> None:
        fake.says("gpus", "NVIDIA B300 SXM6 AC, 580.95.05, 275040\nNVIDIA B300 SXM6 AC, 580.95.05, 275040\n")
        found = runner().gpus()
        assert found[0] == Gpu("NVIDIA B300 SXM6 AC", "580.95.05", 275040 * 2**20, "node-gpus-0")
        assert [gpu.node for gpu in found] == ["node-gpus-0", "node-gpus-0", "node-gpus-1", "node-gpus-1"]
        job = next(item for item in fake.made if item["kind"] == "Job")
        assert job["spec"]["parallelism"] == job["spec"]["completions"] == 2
        spec = job["spec"]["template"]["spec"]
        assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "8"}
        assert spec["affinity"]["podAntiAffinity"]
        assert fake.namespaces == []

    def test_no_kubectl(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(NotRun) as failed:
            runner().gpus()
        assert failed.value.what == "not run: no NVIDIA B300 seen: there is no kubectl here"
        assert failed.value.exit == 5

    def test_no_context(self, fake: Fake) -> None:
        with pytest.raises(NotRun, match="not run: no NVIDIA B300 seen: kubectl knows no context other"):
            Kubernetes(FLEETS["b300"], settings.read(environment(CONTEXT="other")), QUICK).gpus()

    def test_no_settings(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in settings.REQUIRED:
            monkeypatch.delenv(f"{settings.PREFIX}{name}", raising=False)
        with pytest.raises(NotRun) as failed:
            Kubernetes(FLEETS["b300"]).gpus()
        told = failed.value.what.splitlines()
        assert told[0] == "not run: no NVIDIA B300 seen: the settings of the Kubernetes runner are wrong:"
        assert told[1].startswith("  - PATCHLINE_KUBERNETES_CONTEXT is missing: ")

    def test_settings_are_those_of_the_environment(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, text in environment(**MORE).items():
            monkeypatch.setenv(name, text)
        assert Kubernetes(FLEETS["b300"]).settings == settings.read(environment(**MORE))

    @pytest.mark.parametrize(
        ("fault", "text", "said"),
        [
            ("homeless", "", "gpus finds no place within 0.4 s: Unschedulable: 0/3 nodes are available"),
            ("ImagePullBackOff", "", "gpus cannot run: ImagePullBackOff"),
            ("deadline", "", "gpus cannot run: is gone: DeadlineExceeded"),
            ("broken", "not found", "nvidia-smi ended with status 127 on node-gpus-0: not found"),
            ("", "No devices were found", "nvidia-smi names no GPU on node-gpus-0: No devices were found"),
            ("runs", "", "gpus did not end within 1 s"),
        ],
    )
    def test_what_shows_none(self, fake: Fake, fault: str, text: str, said: str) -> None:
        fake.plays(gpus=fault)
        fake.says("gpus", text)
        with pytest.raises(NotRun) as failed:
            runner(ready_seconds=1.0).gpus()
        assert failed.value.what.startswith(f"not run: no NVIDIA B300 seen: {said}")
        assert fake.namespaces == []
