"""The plays of a gate: every stack that it brings up and looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from patchline.errors import UsageError
from patchline.gates.checks.answers import Api
from patchline.gates.fleet import Expected, Fleet, Layout, Model, Through, engine_flags

Side: TypeAlias = Literal["stock", "overlay"]
Form: TypeAlias = Literal["alone"] | Through
"""`alone`: one engine does both; its answers are what those of the pairs are compared with."""

SIDES: tuple[Side, ...] = ("stock", "overlay")


class Play(NamedTuple):
    """One stack: a layout of a model on stock or on the overlay."""

    fleet: Fleet
    layout: Layout
    side: Side
    form: Form
    model: str
    """A folder, or a name that the engines know."""

    @property
    def name(self) -> str:
        """`tiny-8-2-tp2-tp4-dynamo-overlay`: unique in a gate, and a file's name."""
        return f"{self.layout.name}-{self.form}-{self.side}"

    @property
    def expected(self) -> Expected:
        """What is to become of it."""
        return self.layout.stock if self.side == "stock" else self.layout.overlay

    @property
    def flags(self) -> list[str]:
        """Of both engines, the same on both sides."""
        dynamo = self.fleet.dynamo_flags if self.form == "dynamo" else ()
        return [*engine_flags(self.fleet, self.layout), *dynamo]

    @property
    def apis(self) -> tuple[Api, ...]:
        """How it is asked. Dynamo's frontend (1.6.0) puts no `<bos>` before a completion's prompt: not so there."""
        return ("completions", "chat") if self.description.words and self.form != "dynamo" else ("chat",)

    @property
    def description(self) -> Model:
        """What the fleet says of its model."""
        return next(model for model in self.fleet.models if model.name == self.layout.model)


def plays(fleet: Fleet, models: Mapping[str, str]) -> list[Play]:
    """All plays of a fleet, those that others are compared with first; `models` are folders or names, by model."""
    alone = [
        Play(fleet, reference(model), "stock", "alone", models[model.name])
        for model in fleet.models
        if any(layout.model == model.name for layout in fleet.layouts)
    ]
    return alone + [
        Play(fleet, layout, side, form, models[layout.model])
        for layout in fleet.layouts
        for form in layout.through
        for side in SIDES
    ]


def reference(model: Model) -> Layout:
    """The one engine whose answers are right for a model: stock, without a transfer of KV."""
    return Layout(model=model.name, prefill=model.alone, decode=model.alone, stock="serves", overlay="serves")


def chosen(all_plays: list[Play], parts: Sequence[str]) -> list[Play]:
    """The plays with one of `parts` in their names, and those that they are compared with; without parts all.

    Raises:
        UsageError: there is none.
    """
    if not parts:
        return all_plays
    named = [play for play in all_plays if any(part in play.name for part in parts)]
    if not named:
        raise UsageError(f"no play has {' or '.join(parts)} in its name", next="see builds/fleets.toml")
    models = {play.layout.model for play in named if play.expected == "serves"}
    return [play for play in all_plays if play in named or (play.form == "alone" and play.layout.model in models)]
