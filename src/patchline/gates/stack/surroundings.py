"""What a stack's processes see of their caller: little, and nothing that leads to another stack."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from pathlib import Path

from patchline.gates.stack.ports import HOST
from patchline.project import cache_dir

# Everything else stays out: ETCD_ENDPOINTS, NATS_SERVER, DYN_*, VLLM_*, UCX_*, PYTHON*, *_PROXY …
_KEPT = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
)


def scrubbed(scratch: Path, extra: Mapping[str, str], host: str = HOST) -> dict[str, str]:
    """The whole environment of a process on `host`; `extra` wins. Temporary files go to the folder `scratch`."""
    cache = cache_dir().absolute()
    ours = {
        "TMPDIR": str(scratch),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torchinductor"),  # else each stack compiles again: a minute
        "VLLM_HOST_IP": host,
    }
    if ipaddress.ip_address(host).is_loopback:
        ours["GLOO_SOCKET_IFNAME"] = "lo"
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | ours | dict(extra)
