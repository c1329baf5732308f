"""What differs between Slurm clusters: environment settings that say how this one wants to be asked."""

from __future__ import annotations

import os
from typing import NamedTuple

from patchline.errors import UsageError
from patchline.gates.fleet import Fleet

_PREFIX = "PATCHLINE_SLURM_"
_PENDING, _TIME = "3600", "12:00:00"


class Settings(NamedTuple):
    """The settings of one cluster; an empty one leaves it to the cluster's own default."""

    partition: str
    """PATCHLINE_SLURM_PARTITION: for `--partition`."""
    account: str
    """PATCHLINE_SLURM_ACCOUNT: for `--account`."""
    constraint: str
    """PATCHLINE_SLURM_CONSTRAINT: for `--constraint`, the features that nodes with the fleet's GPU have there."""
    gpu: str
    """PATCHLINE_SLURM_GPU: what the cluster calls the GPU, as in `--gres=gpu:h20:8`. Empty: any type; NVML then says
    which it is. `none`: the cluster does not count GPUs, and nodes are taken whole."""
    time: str
    """PATCHLINE_SLURM_TIME: for `--time`, in any form that Slurm knows; 12 hours without it."""
    pending: float
    """PATCHLINE_SLURM_PENDING_SECONDS: how long the job may wait for its nodes; one hour without it."""

    def flags(self, fleet: Fleet) -> list[str]:
        """Those of `sbatch`: whole nodes, so many as the fleet has, with all their GPUs and memory."""
        words = [f"--nodes={fleet.nodes}", "--ntasks-per-node=1", "--exclusive", "--mem=0", f"--time={self.time}"]
        names = ("partition", "account", "constraint")
        words += [f"--{name}={value}" for name in names if (value := getattr(self, name))]
        if fleet.gpus_per_node and self.gpu != "none":
            words.append(":".join(["--gres=gpu", *filter(None, [self.gpu]), str(fleet.gpus_per_node)]))
        return words


def settings() -> Settings:
    """As the environment says.

    Raises:
        UsageError: one is not what it has to be.
    """
    seconds = os.environ.get(f"{_PREFIX}PENDING_SECONDS") or _PENDING
    if not seconds.isdecimal() or not int(seconds):
        raise UsageError(f"{_PREFIX}PENDING_SECONDS is {seconds!r}: it must be a whole number of seconds, at least 1")
    partition, account, constraint, gpu, limit = (
        os.environ.get(_PREFIX + name, "") for name in ("PARTITION", "ACCOUNT", "CONSTRAINT", "GPU", "TIME")
    )
    return Settings(partition, account, constraint, gpu, limit or _TIME, float(seconds))
