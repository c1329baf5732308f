"""A model hub's cache folder with nothing but `config.json`: enough for tests that load no weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from patchline.errors import CommandFailed, UsageError
from patchline.proofs.upstream.suites import Model
from patchline.run import run

# Runs in the environment. The layout is that of huggingface_hub's cache: a ref names a snapshot.
_WRITE = """\
import hashlib, json, pathlib, sys
import transformers
for model, name, arguments in json.load(sys.stdin):
    data = getattr(transformers, name)(**arguments).to_json_string(use_diff=False).encode()
    at, commit = pathlib.Path(sys.argv[1], "hub", "models--" + model.replace("/", "--")), hashlib.sha1(data).hexdigest()
    (at / "refs").mkdir(parents=True)
    (at / "snapshots" / commit).mkdir(parents=True)
    (at / "refs" / "main").write_text(commit)
    (at / "snapshots" / commit / "config.json").write_bytes(data)
"""


def write(models: Sequence[Model], folder: Path, python: Path, env: Mapping[str, str]) -> None:
    """Makes `folder` a home for the hub's library (`HF_HOME`) that holds the models' configurations.

    Raises:
        UsageError: transformers does not know a class, or not its arguments.
    """
    (folder / "hub").mkdir(parents=True)
    if not models:
        return
    wanted = json.dumps([[model.model, model.config, model.arguments] for model in models]).encode()
    try:
        run([python, "-I", "-c", _WRITE, folder], cwd=folder, env=env, input=wanted)
    except CommandFailed as failed:
        raise UsageError(
            f"the models' configurations cannot be made: {failed.what}",
            where=failed.where,
            next="mend the tables [[hub]] of the list of upstream's tests",
        ) from failed
