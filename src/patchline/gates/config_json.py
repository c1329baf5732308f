"""A model's `config.json` as values that are what they must be, or an error that names the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from patchline.errors import UsageError

_NESTED = ("text_config", "language_config", "llm_config")
"""Where a multimodal model's config keeps its language model's."""


class Config(NamedTuple):
    """The part of a `config.json` that describes the language model, and the whole file.

    A null is the same as a missing key: transformers writes it for "not set".
    """

    path: Path
    text: dict[str, Any]
    root: dict[str, Any]

    def has(self, key: str) -> bool:
        """Whether the language model's part gives `key` a value."""
        return self.text.get(key) is not None

    def number(self, key: str) -> int:
        """A whole number above zero.

        Raises:
            UsageError: the key is missing, or is something else.
        """
        if not self.has(key):
            self.wrong(f"{key} is missing")
        return self.count(key, 1)

    def count(self, key: str, least: int = 0) -> int:
        """A whole number of at least `least`; 0 where the key is missing.

        Raises:
            UsageError: it is something else.
        """
        value = self.text.get(key)
        value = 0 if value is None else value
        if type(value) is not int or value < least:
            self.wrong(f"{key} is {value!r}: a whole number of at least {least} is wanted")
        return value

    def flag(self, key: str) -> bool | None:
        """True or false, None where the key is missing.

        Raises:
            UsageError: it is something else.
        """
        value = self.text.get(key)
        if value is not None and not isinstance(value, bool):
            self.wrong(f"{key} is {value!r}: true or false is wanted")
        return value

    def names(self, key: str) -> list[str]:
        """A list of texts, empty where the key is missing.

        Raises:
            UsageError: it is something else.
        """
        value = self.text.get(key)
        value = [] if value is None else value
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self.wrong(f"{key} is {value!r}: a list of texts is wanted")
        return value

    def wrong(self, what: str) -> NoReturn:
        """Refuses the config.

        Raises:
            UsageError: always.
        """
        raise UsageError(what, where=str(self.path), next="python -m patchline layouts --help")


def load(path: Path) -> Config:
    """Reads a `config.json`, or the one in a model's folder.

    Raises:
        UsageError: it is not there, not a JSON object, names a key twice, or contradicts itself.
    """
    file = path / "config.json" if path.is_dir() else path
    try:
        root = json.loads(file.read_bytes().decode(), object_pairs_hook=_once)
    except OSError as failed:
        raise UsageError(f"the model's config cannot be read: {failed.strerror}", where=str(file)) from failed
    except (ValueError, RecursionError) as wrong:  # ValueError: not JSON, not UTF-8, a key that stands twice
        raise UsageError(f"the model's config is not JSON as it must be: {wrong}", where=str(file)) from wrong
    if not isinstance(root, dict):
        raise UsageError("the model's config is not a JSON object", where=str(file))
    return _with_text(Config(file, root, root))


def _with_text(config: Config) -> Config:
    """The config with the part of it that describes the language model."""
    found = [key for key in _NESTED if config.has(key)]
    if not found:
        return config
    if len(found) > 1:
        config.wrong(f"{' and '.join(found)} both describe a language model")
    text = config.root[found[0]]
    if not isinstance(text, dict):
        config.wrong(f"{found[0]} is not an object")
    for key in ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"):
        outer, inner = config.root.get(key), text.get(key)
        if outer is not None and inner is not None and outer != inner:
            config.wrong(f"{key} is {outer!r} outside {found[0]} and {inner!r} in it")
    return config._replace(text=text)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of which no key stands twice."""
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in names if names.count(name) > 1)!r} stands twice")
    return table
