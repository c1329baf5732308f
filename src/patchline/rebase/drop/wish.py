"""What a drop is asked, what it did, and what it needs of the changelog."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from patchline.project import Project
from patchline.proofs.prove import LIMIT
from patchline.rebase.drop.asked import Asked
from patchline.rebase.drop.journal import Write
from patchline.rebase.drop.proving import Reproved
from patchline.rebase.drop.records import Tests
from patchline.rebase.words import Judged


class Wish(NamedTuple):
    """What somebody asks for."""

    patch: str
    """`vllm/nixl-hybrid-manager-guard`, the file's name, or its number."""
    version: str
    reason: str
    text: str = ""
    run_tests: bool = False
    """Whether its tests run on stock, too, where the verdict does not ask for it."""
    limit: float = LIMIT
    """Seconds that one run of tests may take."""
    unproven: bool = False
    """Whether it is dropped where no test of the rest can run."""
    record: bool = False
    """Whether the proof of the rest is kept in the project."""


class Dropped(NamedTuple):
    """What was done, or with a dry run would be."""

    asked: Asked
    wish: Wish
    judged: Judged
    left: list[str]
    """Patches that are left on that version, in order."""
    rewritten: list[str]
    """Those of them whose lines stand elsewhere now."""
    tests: Tests
    explained: int
    """Explanations that went with it."""
    resolutions: int
    """Recorded resolutions that went with it."""
    proof: Reproved
    news: str
    """Path of the changelog's news, from the project's root; empty until they are written."""
    writes: list[Write]


class Already(NamedTuple):
    """Nothing was to do."""

    name: str
    onto: str
    news: str
    """Where the changelog tells of it; empty where a stopped drop was finished."""


class Chronicle(Protocol):
    """The changelog, which is a room to the right of this one."""

    def tell(self, project: Project, found: Dropped) -> str:
        """Writes the news into `project`; its path from the root."""
        ...

    def told(self, project: Project, upstream: str, word: str, onto: str) -> str:
        """The path of news that says that a patch was dropped in that version; empty where there is none."""
        ...

    def generate(self, project: Project) -> None:
        """Writes the changelog anew, where the project has one."""
        ...
