"""The page as bytes: the same ones from the same files, whatever the clock says."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from patchline import __version__
from patchline.changelog import words
from patchline.changelog.entries import Known, known, spelled
from patchline.page.given import VERDICTS, Audit, Verdict
from patchline.page.gone import dropped
from patchline.page.views import columns
from patchline.page.visible import prose, visible
from patchline.pins import load
from patchline.project import Project

FILE = "index.html"


def page(
    project: Project, *, verdicts: Sequence[Verdict] = (), audits: Sequence[Audit] = (), read: Known | None = None
) -> bytes:
    """The divergence page of a project.

    Raises:
        As `changelog.entries.known`.
    """
    found = read or known(project)
    upstreams = columns(project, found, load(project.upstreams), verdicts)
    views = [view for column in upstreams for view in column.views]
    text = (
        _environment()
        .get_template("page.html")
        .render(
            audits=audits,
            columns=upstreams,
            dropped=dropped(found.news),
            files=len({(view.entry.upstream, one.path) for view in views for one in view.entry.files}),
            findings=[(audit, one) for audit in audits for one in audit.findings],
            releases=found.releases[::-1],
            script=_asset("page.js"),
            script_hash=_hash("page.js"),
            style=_asset("page.css"),
            style_hash=_hash("page.css"),
            verdict_words=VERDICTS,
            version=__version__,
            views=views,
            words=words,
        )
    )
    return text.encode("utf-8", "backslashreplace")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("patchline", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters |= {"spelled": spelled, "prose": prose}
    made.tests["link"] = _is_link
    return made


def _shown(value: Any) -> Any:
    """Every text that goes into the page shows what is hidden in it."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _is_link(value: str) -> bool:
    return bool(re.fullmatch(r"(https?://|mailto:)[^\s\"<>]+", value))


@cache
def _asset(name: str) -> Markup:
    return Markup(files("patchline.page").joinpath(name).read_text("utf-8"))


def _hash(name: str) -> Markup:
    """As a content security policy names what may run: nothing else in the page does."""
    digest = hashlib.sha256(_asset(name).encode()).digest()
    return Markup(f"'sha256-{base64.b64encode(digest).decode()}'")
