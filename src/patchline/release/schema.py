"""The JSON schema of release records, for who reads them without this tool: from the record's own types and words."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import msgspec

from patchline.release import record

FILE = f"record-{record.SCHEMA}.schema.json"
"""Where it lies in `changelog/releases/`; a record of another schema gets a file of its own."""


def schema() -> dict[str, Any]:
    """The schema: JSON Schema 2020-12, with each field's words as its description."""
    made = msgspec.json.schema(record.Record)
    said = _words(inspect.getsource(record))
    for name, one in made["$defs"].items():
        one.setdefault("properties", {})
        for field, shape in one["properties"].items():
            if words := said.get((name, field)):
                shape["description"] = words
    made["$defs"]["Record"]["properties"]["schema"] |= {"const": record.SCHEMA}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Release record", **made}


def text() -> bytes:
    """The file."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=1) + b"\n"


def _words(source: str) -> dict[tuple[str, str], str]:
    """The string below each field of each class, by their names."""
    found = {}
    for one in ast.parse(source).body:
        if isinstance(one, ast.ClassDef):
            for field, below in zip(one.body, one.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    text = below.value if isinstance(below, ast.Expr) else None
                    if isinstance(text, ast.Constant) and isinstance(text.value, str):
                        found[one.name, field.target.id] = inspect.cleandoc(text.value)
    return found
