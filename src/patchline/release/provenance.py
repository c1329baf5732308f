"""Where an image comes from: an in-toto statement (v1) with a SLSA provenance predicate (v1), unsigned.

No clock is asked: the same image, evidence and tool give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from patchline.image.registry.referrers import Artifact
from patchline.pins import ArchivePin
from patchline.release.facts import BUILDER, Facts, Part

KIND = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
BUILD_TYPE = "urn:patchline:append:v1"
"""What the parameters mean: one layer, with the overlays of the line's series, on the base."""
BUILDER_ID = "urn:patchline:builder:append"


def provenance(facts: Facts) -> Artifact:
    """The statement on an image."""
    data = msgspec.json.format(msgspec.json.encode(statement(facts)), indent=1) + b"\n"
    return Artifact(KIND, data, {"in-toto.io/predicate-type": PREDICATE})


def statement(facts: Facts) -> dict[str, Any]:
    """The same as JSON's types."""
    base = facts.image.base
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            "line": facts.line,
            "dynamo": facts.who.version,
            "base": {"name": facts.who.base_name, "digest": base.digest, "platform": base.platform},
            "series": [part.series for part in facts.parts if part.series],
        },
        "internalParameters": {"builder": BUILDER, "created": facts.created, "revision": facts.who.revision},
        "resolvedDependencies": list(_dependencies(facts)),
    }
    details = {
        "builder": {"id": BUILDER_ID, "version": {"patchline": facts.patchline}},
        "byproducts": [{"name": path, "digest": _digest(digest)} for path, digest in facts.evidence.items()],
    }
    return {
        "_type": STATEMENT,
        "subject": [{"name": facts.line, "digest": _digest(facts.image.digest)}],
        "predicateType": PREDICATE,
        "predicate": {"buildDefinition": definition, "runDetails": details},
    }


def _dependencies(facts: Facts) -> Iterator[dict[str, Any]]:
    """Every pinned file, every patch file, the base, and its lock."""
    for part in facts.parts:
        yield from _pinned(part)
        for patch in part.patches:
            about = {"commit": patch.id, "pin": part.series}
            yield {"name": patch.path, "digest": _digest(patch.digest), "annotations": about}
    yield {
        "name": "base",
        "uri": f"pkg:oci/{facts.who.base_name.rpartition('/')[2].partition(':')[0]}@{facts.image.base.digest}",
        "digest": _digest(facts.image.base.digest),
    }
    yield {"name": "base lock", "digest": _digest(facts.lock)}


def _pinned(part: Part) -> Iterator[dict[str, Any]]:
    kind = "sha256" if isinstance(part.pin, ArchivePin) else "gitCommit"
    for name, value in part.files.items():
        yield {"name": name, "uri": part.purl, "digest": {kind: value}}


def _digest(digest: str) -> dict[str, str]:
    name, _, value = digest.partition(":")
    return {name: value}
