"""Findings as SARIF 2.1.0 (OASIS), which code hosts and editors show beside the lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from patchline import __version__
from patchline.audit.finding import KINDS, Audit, Finding

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"


def document(audits: Sequence[Audit]) -> bytes:
    """One run for each audit; a finding that is known is there, suppressed, with its reason."""
    runs = [_run(one) for one in audits]
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": runs}, indent=1).encode() + b"\n"


def _run(one: Audit) -> dict[str, Any]:
    rules = [{"id": kind, "shortDescription": {"text": what}} for kind, what in KINDS.items()]
    driver = {"name": "patchline", "version": __version__, "rules": rules}
    results = [_result(one, finding) for finding in one.findings]
    for known in one.known:
        reason = {"kind": "external", "status": "accepted", "justification": known.reason}
        results.append({**_result(one, known.finding), "suppressions": [reason]})
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"audit/{quote(one.subject)}/"},
        "results": results,
        "properties": {"compared": one.compared, **one.facts},
    }


def _result(audit: Audit, one: Finding) -> dict[str, Any]:
    where: dict[str, Any] = {"artifactLocation": {"uri": quote(one.path) or "."}}
    if one.line:
        where["region"] = {"startLine": one.line, "endLine": max(one.line, one.end)}
    patch = f" [{one.patch}]" if one.patch else ""
    return {
        "ruleId": one.kind,
        "ruleIndex": list(KINDS).index(one.kind),
        "level": "error",
        "message": {"text": f"{one.path}: {one.what}{patch}"},
        "locations": [{"physicalLocation": where}],
        "partialFingerprints": {"finding/v1": _print(audit, one)},
    }


def _print(audit: Audit, one: Finding) -> str:
    """The same for the same finding in the next audit, whatever lines were added above it."""
    said = "\0".join((audit.subject, one.kind, one.path, *(one.detail or (one.what,))))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()
