"""What pip's output means to who asked for an environment."""

from __future__ import annotations

import re
from pathlib import Path

from patchline.errors import PatchlineError, Unreachable, UsageError
from patchline.proofs.grafts import CPU_BUILD

_MISSING = re.compile(r"No matching distribution found for (\S+)")
_OFFERED = re.compile(r"\(from versions: ([^)]*)\)")
_SILENT = re.compile(
    r"NewConnectionError|Name or service not known|name resolution|ConnectTimeout|Read timed out"
    r"|Max retries exceeded|Connection (?:refused|reset|broken)"
)


def explain(log: str, path: Path) -> PatchlineError:
    """The error that tells a reader of pip's output `log`, kept at `path`, what to do."""
    missing, offered, silent = _MISSING.search(log), _OFFERED.search(log), _SILENT.search(log)
    versions = offered[1] if offered else "none"
    if missing and missing[1].startswith("torch==") and "+cpu" in missing[1]:
        return UsageError(
            f"pip finds no {missing[1]}: PyTorch's CPU wheels are not on the default index",
            where=str(path),
            next="tell pip where PyTorch's CPU wheels are, with PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS",
        )
    if (missing and versions == "none") or (silent and not missing):
        reason = f"no index has any {missing[1]}" if missing else silent and silent[0]
        return Unreachable(
            f"pip could not install: {reason}",
            where=str(path),
            next="run the same command again; see where pip looks: python -m pip config list",
        )
    if missing and missing[1].startswith(CPU_BUILD):
        return UsageError(
            f"there is no CPU build of that vLLM: pip finds no {missing[1]}",
            where=f"it finds {CPU_BUILD} {versions}; {path}",
            next="prove patches on a version that has a CPU build, and that one on a GPU fleet",
        )
    if missing:
        return UsageError(f"pip finds no {missing[1]}", where=f"it finds {versions}; {path}", next=f"less {path}")
    last = [line for line in log.splitlines() if line.startswith("ERROR")] or log.strip().splitlines()
    return UsageError(f"pip could not install: {last[0] if last else 'it said nothing'}", next=f"less {path}")
