"""The divergence page in a real Chromium, from disk: it works with keys alone, in both colour schemes, and asks nobody.

Debian's browser, driven by playwright; its own browsers are not downloaded.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import page_projects
import pytest
from page_projects import AUDIT, VERDICTS
from playwright.sync_api import Browser, Page, sync_playwright

from patchline.page.render import page as made_page

OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
SERIOUS = ("serious", "critical")
PATIENCE = 240_000
"""Milliseconds that anything may take: the machine may be busy."""
WIDTHS = (360, 800, 1400)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page")
    path = folder / "index.html"
    path.write_bytes(made_page(page_projects.project(folder / "p"), verdicts=VERDICTS, audits=[AUDIT]))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium")
    assert found, "Debian's chromium is not installed"
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"]  # root runs it in containers
        running = driver.chromium.launch(executable_path=found, args=arguments, timeout=PATIENCE)
        yield running
        running.close()


@pytest.fixture
def said() -> list[str]:
    """Everything that a page complains of or asks for."""
    return []


@pytest.fixture
def page(browser: Browser, url: str, said: list[str]) -> Iterator[Page]:
    """The page, open; nothing may be logged, thrown or asked for in any test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    opened.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    opened.on("pageerror", lambda error: said.append(f"error: {error}"))
    opened.on("dialog", lambda dialog: said.append(f"dialog: {dialog.message}"))
    opened.on("request", lambda request: said.append(request.url) if request.url.partition("#")[0] != url else None)
    opened.goto(url)
    yield opened
    context.close()
    assert [one for one in said if not one.startswith("data:image/svg+xml")] == []


def faults(page: Page) -> list[str]:
    """What axe finds that is serious or critical."""
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text("utf-8"))
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 15
    return [
        f"{one['id']} ({one['impact']}): {node['target']}: {node['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


def focused(page: Page) -> str:
    """What has the focus: its address, id, name or text."""
    told = "(one => one.id || one.getAttribute('href') || one.getAttribute('aria-label') || one.value || one.innerText)"
    answer: str = page.evaluate(f"{told}(document.activeElement)")
    return answer


def box(page: Page, what: str) -> dict[str, float]:
    """Where the first such element is."""
    found = page.locator(what).first.bounding_box()
    assert found
    return {"x": found["x"], "y": found["y"], "height": found["height"]}


def visible(page: Page) -> list[str]:
    return [one.get_attribute("id") or "" for one in page.locator("article.patch:visible").all()]


@pytest.mark.parametrize("way", ["inline", "split"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page: Page, scheme: Any, way: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.check(f"input[name=diff][value={way}]", force=True)
    page.evaluate(OPEN_ALL)
    assert faults(page) == []


def test_axe_does_look(page: Page) -> None:
    """The test above can fail."""
    page.evaluate("document.querySelector('#search').closest('label').replaceWith(document.querySelector('#search'))")
    page.evaluate("document.querySelector('#search').removeAttribute('placeholder')")
    assert any(one.startswith("label (critical)") for one in faults(page))


def test_every_address_resolves(page: Page) -> None:
    page.evaluate(OPEN_ALL)
    lost = """[...document.querySelectorAll('a[href^="#"]')].map((a) => a.getAttribute("href"))
        .filter((href) => !document.getElementById(href.slice(1)))"""
    assert page.evaluate(lost) == []
    assert page.locator('a[href^="#"]').count() > 60


def test_a_line_is_linked_and_found_again(page: Page, url: str) -> None:
    page.goto(f"{url}#demo1.1n17")
    line = page.locator('[id="demo1.1n17"]')
    assert line.is_visible()
    assert page.evaluate("document.querySelector(':target').id") == "demo1.1n17"
    assert page.evaluate("document.querySelector(':target').getBoundingClientRect().top") > 60  # below the heading
    page.locator('[id="demo1.1n18"]').click()
    assert page.url.endswith("#demo1.1n18")


def test_an_address_shows_what_the_search_hides(page: Page) -> None:
    page.fill("#search", "terse")
    assert page.locator('[id="demo1.1"]').is_hidden()
    page.evaluate("location.hash = 'demo1.1n17'")
    page.wait_for_function("""document.querySelector('[id="demo1.1n17"]').checkVisibility()""")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("terse", ["demo3-terse"]),
        ("THREE heads", ["demo1-three-heads"]),
        ("pkg/bin.dat", ["demo2-hostile-quote"]),
        ("# three # heads", ["demo1-three-heads"]),
        ("conflicts", ["demo1-three-heads"]),
        ("<script>", ["demo2-hostile-quote"]),
        ("core.py", ["demo1-three-heads", "demo3-terse"]),
        ("core.py terse", ["demo3-terse"]),
    ],
)
def test_search(page: Page, words: str, found: list[str]) -> None:
    page.fill("#search", words)
    assert visible(page) == found
    assert page.inner_text("#hits") == f"{len(found)} of 3 patches"
    assert page.locator(".versions tr[data-of]:visible").count() == len(found)
    page.fill("#search", "")
    assert len(visible(page)) == 3
    assert page.inner_text("#hits") == ""


def test_search_finds_dropped_patches_by_their_rows(page: Page) -> None:
    assert page.locator(".versions tr.gone:visible").count() == 1
    page.fill("#search", "2026-03-01 two")
    assert (visible(page), page.locator(".versions tr.gone:visible").count()) == ([], 1)
    page.fill("#search", "terse")
    assert page.locator(".versions tr.gone:visible").count() == 0


def test_search_for_nothing_that_is_there(page: Page) -> None:
    page.fill("#search", "no such word anywhere")
    assert visible(page) == []
    assert page.locator("#none").is_visible()


def test_keys_reach_everything(page: Page) -> None:
    """Tab goes through all that can be used, in order, and comes to the end of the page."""
    page.evaluate(OPEN_ALL)
    wanted = page.evaluate("""[...document.querySelectorAll('a[href], button, summary, input, [tabindex="0"]')]
        .filter((one) => one.tabIndex >= 0 && one.checkVisibility() && !(one.type === 'radio' && !one.checked)).length""")
    assert wanted > 30
    reached = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        reached.append(focused(page))
        style = "(one => getComputedStyle(one.matches('[type=radio]') ? one.nextElementSibling : one).outlineStyle)"
        assert page.evaluate(f"{style}(document.activeElement)") != "none", reached[-1]
    assert reached[0] == "#main"
    last = "[...document.querySelectorAll('a[href], summary')].filter((one) => one.tabIndex >= 0).at(-1)"
    assert page.evaluate(f"document.activeElement === {last}")


def test_the_skip_link(page: Page) -> None:
    page.keyboard.press("Tab")
    assert box(page, ".skip")["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_arrow_keys_go_through_a_diff(page: Page) -> None:
    page.evaluate(OPEN_ALL)
    page.locator('[id="demo1.1"] .h').first.focus()
    count = page.locator('[id="demo1.1"] .code a').count()
    seen = {focused(page)}
    for _ in range(count - 1):
        page.keyboard.press("ArrowDown")
        seen.add(focused(page))
    assert len(seen) == count
    assert "demo1.1n17" in seen
    page.keyboard.press("Enter")
    assert page.url.endswith(focused(page))


def test_diffs_open_and_choices_are_made_by_key(page: Page) -> None:
    page.locator("details.diff summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details.diff[open]").count() == 1
    page.locator("input[name=diff]:checked").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.documentElement.classList.contains('split')")


def test_side_by_side(page: Page) -> None:
    page.check("input[name=diff][value=split]", force=True)
    page.evaluate(OPEN_ALL)
    page.wait_for_selector(".x.both")
    old, new = (box(page, f'[id="demo1.1{at}"]') for at in ("o17", "n17"))
    assert abs(old["y"] - new["y"]) < 1
    assert new["x"] > old["x"] + 300
    rows = [f'[id="demo1.1"] .x:first-of-type > div:nth-child({at})' for at in (1, 2)]
    left, right = (box(page, row) for row in rows)
    assert (left["y"], left["height"]) == (right["y"], right["height"])
    assert len({page.locator(f"{row} code").first.inner_text() for row in rows}) == 1
    page.check("input[name=diff][value=inline]", force=True)
    assert page.locator(".other").count() == 0
    old, new = (box(page, f'[id="demo1.1{at}"]') for at in ("o17", "n17"))
    assert new["y"] > old["y"]


def test_colours_are_chosen_and_kept(page: Page) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(paper)
    page.check("input[name=theme][value=light]", force=True)
    light = page.evaluate(paper)
    assert light != dark
    page.reload()
    assert page.evaluate(paper) == light
    page.check("input[name=theme][value='']", force=True)
    assert page.evaluate(paper) == dark


def test_all_diffs_at_once(page: Page) -> None:
    page.click("#unfold")
    assert page.locator("details.diff:not([open])").count() == 0
    page.click("#unfold")
    assert page.locator("details.diff[open]").count() == 0


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(page: Page, width: int) -> None:
    """Lines of 40,000 characters wrap."""
    page.set_viewport_size({"width": width, "height": 800})
    page.evaluate(OPEN_ALL)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_on_paper_everything_is_open_and_nothing_is_a_switch(page: Page) -> None:
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.locator(".top").is_hidden()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.diff[open]").count() == 0
    assert page.pdf()[:5] == b"%PDF-"


def test_it_can_be_read_without_scripts(browser: Browser, url: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    assert page.locator("article.patch").count() == 3
    assert page.locator(".tools").first.is_hidden()
    page.locator("details.diff summary").first.click()
    assert page.locator('[id="demo1.1n17"]').is_visible()
    context.close()


def test_a_script_of_a_patch_could_not_run(page: Page, said: list[str]) -> None:
    """If HTML of a patch ever got through, the content security policy would stop it."""
    page.evaluate("""document.body.insertAdjacentHTML("beforeend", "<img src='data:,' onerror='window.ran = 1'>")""")
    deadline = time.monotonic() + PATIENCE / 1000
    while not any("Content Security Policy" in one for one in said) and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    assert page.evaluate("window.ran") is None
    assert any("Content Security Policy" in one for one in said)
    said.clear()


def test_a_picture_of_it(page: Page, tmp_path: Path) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for scheme in schemes:
        page.emulate_media(color_scheme=scheme)
        picture = page.screenshot(path=tmp_path / f"{scheme}.png", full_page=True)
        assert len(picture) > 50_000
