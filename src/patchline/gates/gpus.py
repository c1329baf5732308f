"""The GPUs of this host, as NVML names them; `python -m patchline.gates.gpus` prints them as JSON."""

from __future__ import annotations

import json
import socket
from typing import NamedTuple

import pynvml

from patchline.errors import Unreachable


class Gpu(NamedTuple):
    """One GPU."""

    name: str
    """`NVIDIA H20`"""
    driver: str
    memory: int
    """Bytes."""
    node: str


def seen() -> list[Gpu]:
    """Those that NVML sees; none where there is no NVIDIA driver.

    Raises:
        Unreachable: a driver is there, and does not answer.
    """
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError_LibraryNotFound, pynvml.NVMLError_DriverNotLoaded):
        return []
    except pynvml.NVMLError as silent:
        raise Unreachable(f"the NVIDIA driver does not answer: {silent}", next="nvidia-smi") from silent
    try:
        driver, node = pynvml.nvmlSystemGetDriverVersion(), socket.gethostname()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [
            Gpu(str(pynvml.nvmlDeviceGetName(one)), str(driver), int(pynvml.nvmlDeviceGetMemoryInfo(one).total), node)
            for one in handles
        ]
    finally:
        pynvml.nvmlShutdown()


if __name__ == "__main__":
    print(json.dumps(seen()))
