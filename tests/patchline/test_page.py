"""The divergence page as text: what it says, that every address resolves, and that nothing in a patch becomes HTML."""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from datetime import date
from html.parser import HTMLParser
from pathlib import Path

import page_projects
import pytest
from carrying import core
from page_projects import AUDIT, BODY, CHANGES, HOSTILE_FILES, ODD, VERDICTS
from rebasing import two_versions
from repos import git

from patchline.audit import report
from patchline.audit.finding import Audit, Finding, Known
from patchline.changelog import news
from patchline.cli import Outcome
from patchline.commands import page as verb
from patchline.errors import UsageError
from patchline.page import given
from patchline.page.given import Verdict
from patchline.page.highlight import highlighted
from patchline.page.render import page
from patchline.page.views import paragraphs
from patchline.page.visible import code, prose, visible
from patchline.project import Project
from patchline.series.carried import carried

VOID = {"meta", "link", "input", "br", "img"}


class Read(HTMLParser):
    """Elements with their attributes and their text; every one that opens has to close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.texts: list[list[str]] = []
        self.open: list[tuple[str, int]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.found.append((tag, {name: value or "" for name, value in attrs}))
        self.texts.append([])
        if tag not in VOID:
            self.open.append((tag, len(self.found) - 1))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, at in self.open:
            self.texts[at].append(data)

    def all(self, tag: str, **wanted: str) -> Iterator[tuple[dict[str, str], str]]:
        for (name, attributes), texts in zip(self.found, self.texts, strict=True):
            if name == tag and wanted.items() <= attributes.items():
                yield attributes, "".join(texts)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return page_projects.project(tmp_path_factory.mktemp("page") / "p")


@pytest.fixture(scope="module")
def whole(made: Project) -> str:
    return page(made, verdicts=VERDICTS, audits=[AUDIT]).decode()


@pytest.fixture(scope="module")
def read(whole: str) -> Read:
    return Read(whole)


def lines(read: Read) -> dict[str, str]:
    """The code of every line, by its address."""
    found = {}
    for (tag, attributes), texts in zip(read.found, read.texts, strict=True):
        if tag == "a" and re.fullmatch(r"demo\d+\.\d+[no]\d+", attributes.get("id", "")):
            at = attributes["id"]
            assert "".join(texts) == re.split("[no]", at)[-1]
        elif tag == "code" and "at" in locals() and at not in found:
            found[at] = "".join(texts)
    return found


def test_every_added_line_has_its_address(read: Read) -> None:
    """Numbers and text are those of the file as the patch makes it."""
    found = lines(read)
    after = str(CHANGES[0].files["pkg/core.py"]).split("\n")
    shown = {int(at.split("n")[1]): text for at, text in found.items() if at.startswith("demo1.1n")}
    assert len(shown) > 10
    assert shown == {number: after[number - 1] for number in shown}
    assert {number for number in shown if after[number - 1] in ("    # three", "    # heads")} == {17, 18}
    removed = {int(at.split("o")[2]): text for at, text in found.items() if at.startswith("demo1.1o")}
    before = BODY.split("\n")
    assert removed == {17: "    # note 3", 103: before[102]}


def test_lines_that_stay_have_both_numbers(whole: str) -> None:
    rows = re.findall(r"<div><b>(\d+)</b><a id=demo1\.1n(\d+) [^>]+>\2</a>", whole)
    before, after = BODY.split("\n"), str(CHANGES[0].files["pkg/core.py"]).split("\n")
    assert len(rows) > 8
    assert [(old, new) for old, new in rows if before[int(old) - 1] != after[int(new) - 1]] == []
    assert {int(new) - int(old) for old, new in rows} == {0, 1}


def test_addresses_are_unique_and_resolve(read: Read) -> None:
    ids = Counter(attributes["id"] for _, attributes in read.found if "id" in attributes)
    assert [id for id, count in ids.items() if count > 1] == []
    targets = [attributes["href"] for attributes, _ in read.all("a")]
    assert [one for one in targets if one.startswith("#") and one[1:] not in ids] == []
    assert {one for one in targets if not one.startswith("#")} == {"https://example.org/pull/1"}
    assert all(one in ids for attributes, _ in read.all("section") for one in [attributes["aria-labelledby"]])


def test_numbers_at_the_top(read: Read, whole: str) -> None:
    figures = re.sub(r"\s+", " ", next(text for _, text in read.all("dl", **{"class": "figures"})))
    assert "patches3" in figures
    assert "files changed10" in figures
    assert "oldest since2026-03-04" in figures
    assert whole.index('class="figures"') < whole.index('id="unexplained"') < whole.index('id="timeline"')


def test_unexplained_divergence_is_told_first_and_in_red(read: Read) -> None:
    [section] = list(read.all("section", id="unexplained"))
    assert section[0]["class"] == "alarm"
    assert "demo==1.0: 1,234 files compared, 2 findings." in section[1]
    assert "unexplained pkg/core.py:7\N{EN DASH}9" in section[1]
    assert "-a\n+<b>" in section[1]


def test_nothing_unexplained(made: Project) -> None:
    clean = given.Audit("demo==1.0", 7, ())
    [section] = list(Read(page(made, audits=[clean]).decode()).all("section", id="unexplained"))
    assert section[0]["class"] == "calm"
    assert "7 files compared, everything that differs belongs to a patch." in section[1]


def test_without_an_audit_nothing_is_claimed(made: Project) -> None:
    [section] = list(Read(page(made).decode()).all("section", id="unexplained"))
    assert section[0]["class"] == "unasked"
    assert "Not audited." in section[1]


def test_verdicts_over_versions(read: Read) -> None:
    rows = [re.findall(r"unknown|carried|conflicts|upstream", text) for at, text in read.all("tr") if "data-of" in at]
    assert rows == [
        ["unknown", "carried", "conflicts"],
        ["unknown", "carried", "unknown"],
        ["unknown", "carried", "upstream"],
    ]
    [table] = list(read.all("table", **{"class": "versions"}))
    assert re.findall(r"\d\.\d", table[1])[:3] == ["0.9", "1.0", "2.0"]


def test_dropped_patches_have_rows_over_versions(read: Read) -> None:
    """Dropped on demo 1.0, which has it: named by its news."""
    [row] = [text for at, text in read.all("tr") if at.get("class") == "gone"]
    assert row.startswith("two")
    assert "until 2026-03-01" in row
    assert re.findall(r"carried|dropped|unknown", row) == ["carried", "dropped", "dropped"]
    [cell] = {at["title"] for at, text in read.all("span", **{"class": "verdict dropped"}) if "title" in at}
    assert cell == "Upstream has two heads."


def test_a_patch_that_was_dropped_and_taken_in_again_is_no_dropped_one(made: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "p")
    shutil.copytree(made.root, other.root)
    fields = {"Patch": "demo/1.0/0001-three-heads.patch", "Upstream": "demo==1.0"}
    news.write(other, "dropped", "three", "It was gone once.", fields=fields, day=date(2026, 1, 1))
    rows = [text for at, text in Read(page(other).decode()).all("tr") if at.get("class") == "gone"]
    assert len(rows) == 1


def test_a_drop_that_names_no_version_of_its_upstream(made: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "p")
    shutil.copytree(made.root, other.root)
    fields = {"Patch": "demo/main/0009-odd.patch", "Upstream": "other==7.0"}
    news.write(other, "dropped", "odd", "Another one has it.", fields=fields, day=date(2026, 4, 1))
    rows = [text for at, text in Read(page(other).decode()).all("tr") if at.get("class") == "gone"]
    assert re.findall(r"carried|dropped|unknown", rows[0]) == ["unknown"] * 3


def test_a_patch_that_is_carried_on_another_version_too(made: Project, tmp_path: Path) -> None:
    other = Project(tmp_path / "p")
    shutil.copytree(made.root, other.root)
    shutil.copytree(other.series_dir("demo", "1.0"), other.series_dir("demo", "2.0"))
    row = next(text for at, text in Read(page(other).decode()).all("tr") if "data-of" in at)
    assert row.count("carried") == 2


def test_nothing_of_a_patch_becomes_html(read: Read, whole: str) -> None:
    tags = {name for name, _ in read.found}
    assert len(list(read.all("script"))) == 1
    assert not tags & {"img", "b", "u"} - {"b"}
    assert all((attributes == {} and text.isdigit()) or text == "" for attributes, text in read.all("b"))  # numbers
    assert {name for _, attributes in read.found for name in attributes if name.startswith("on")} == set()
    title = next(text for _, text in read.all("h3") if "alert" in text)
    assert title == '</title><script>alert("subject")</script> \'q\' & "d"'
    assert "{{ 7 * 7 }} {% raw %} <img src=x onerror=alert(2)>" in next(text for _, text in read.all("main"))


def test_what_hides_is_shown(read: Read, whole: str) -> None:
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u200b]", whole)
    message = next(text for at, text in read.all("article") if "2-hostile" in at.get("id", ""))
    assert "⟨U+202E⟩txet⟨U+202C⟩ end ⟨U+001B⟩[31m" in message
    found = lines(read)
    path = sorted(HOSTILE_FILES).index("pkg/odd.py") + 1
    odd = [found[f"demo2.{path}n{number}"] for number in (1, 2, 3, 4)]
    assert odd == [
        "a = '\\xff\\xfe'⟨U+000D⟩b = 1",
        "\tc = '⟨U+202E⟩ evil ⟨U+202C⟩'",
        "d = '⟨U+0007⟩'",
        "last = 1no newline at the end",
    ]


def test_binary_files_modes_and_odd_names(read: Read) -> None:
    texts = (text.replace("\N{MINUS SIGN}", "-") for _, text in read.all("summary"))
    summaries = [re.sub(r"\s+", " ", text).strip() for text in texts]
    assert ODD in "\n".join(summaries)
    assert any(
        re.fullmatch(r"pkg/bin\.dat new file; binary, 1,024 bytes of data; from 0{12} to \w{12}", text)
        for text in summaries
    )
    assert "pkg/gone.py +0 -1 deleted" in summaries
    assert "pkg/run.sh +1 -0 mode 755" in summaries
    assert "pkg/crlf.txt +1 -1" in summaries


def test_only_our_own_script_and_style_may_run(whole: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', whole)
    assert policy
    for element, directive in (("script", "script-src"), ("style", "style-src")):
        body = re.search(f"<{element}>(.*?)</{element}>", whole, re.DOTALL)
        assert body
        digest = base64.b64encode(hashlib.sha256(body[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy[1]
    assert policy[1].startswith("default-src 'none'")
    assert not re.search(r'(?:src|href)="(?:https?:)?//(?!example\.org/)', whole)


def test_the_same_bytes_from_another_folder(made: Project, whole: str, tmp_path: Path) -> None:
    other = Project(tmp_path / "q")
    shutil.copytree(made.root, other.root)
    assert page(other, verdicts=VERDICTS, audits=[AUDIT]).decode() == whole


def test_the_verb_writes_one_file(made: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit, verdicts = tmp_path / "audit.json", tmp_path / "verdicts.json"
    found = report.data([Audit("x", 3, (), known=(Known(Finding("changed", "a.py", "Other."), "It is generated."),))])
    audit.write_text(json.dumps({"ok": True, "exit": 0, **found}))
    judged: dict[str, object] = {
        "name": "0003-terse.patch",
        "verdict": "conflicts",
        "evidence": ["it is not there"],
        "hunks": [],
    }
    judged |= {"conflicts": [{"path": "pkg/core.py", "line": 7, "why": "other lines", "base": ""}]}
    verdicts.write_text(json.dumps({"versions": [{"series": "demo==1.0", "onto": "demo==2.0", "patches": [judged]}]}))
    done = run(
        made,
        monkeypatch,
        "--out",
        str(tmp_path / "out"),
        "--audit",
        str(audit),
        "--verdicts",
        str(verdicts),
        "--no-look",
    )
    path = tmp_path / "out" / "index.html"
    assert (done.exit, done.data["patches"], done.data["findings"]) == (0, 3, 0)
    assert [one.name for one in path.parent.iterdir()] == ["index.html"]
    said = re.sub(r"\s+", " ", "".join(Read(path.read_text()).texts[0]))
    assert "On 2.0it is not there; pkg/core.py:7 (other lines)" in said
    assert "1 known difference of x, with the reason a.py: Other. It is generated." in said


ONE, TWO = ("[Demo] Three heads", core(l3="three")), ("[Demo] Nine heads", core(l3="three", l9="nine"))


def test_the_verb_looks_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree that is not here yet is made and audited, and each patch judged on the later version."""
    project = two_versions(tmp_path / "p", {"setup.py": "# another\n", **core(l9="NINE")}, ONE, TWO)
    done = run(project, monkeypatch)
    assert (done.data["audited"], done.data["findings"], done.data["verdicts"]) == (["demo==1.0"], 0, 2)
    found = Read((project.root / "build/page/index.html").read_text())
    rows = [re.findall(r"carried|applies|moved|conflicts", text) for at, text in found.all("tr") if "data-of" in at]
    assert rows == [["carried", "applies"], ["carried", "conflicts"]]
    assert next(found.all("section", id="unexplained"))[0]["class"] == "calm"
    work = project.root / "work" / "demo-1.0"
    (work / "demo" / "core.py").write_text((work / "demo" / "core.py").read_text() + "by_hand = 1\n")
    assert run(project, monkeypatch).data["findings"] == 1
    [section] = list(Read((project.root / "build/page/index.html").read_text()).all("section", id="unexplained"))
    assert section[0]["class"] == "alarm"
    assert "+by_hand = 1" in section[1]
    given_one = tmp_path / "audit.json"
    given_one.write_text('{"audits": [{"subject": "demo==1.0", "compared": 1, "findings": []}]}')
    assert run(project, monkeypatch, "--audit", str(given_one)).data["findings"] == 0
    assert run(project, monkeypatch, "--no-look").data["audited"] == []


def test_a_pin_that_was_only_checked_out_is_patched_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `rebase` leaves it: that no patch is there is no divergence. A tree that was patched once is taken as it is."""
    project = two_versions(tmp_path / "p", core(l9="NINE"), ONE)
    base = carried("demo", project).base()
    assert run(project, monkeypatch).data["findings"] == 0
    git(project.root / "work" / "demo-1.0", "reset", "-q", "--hard", base)
    assert run(project, monkeypatch).data["findings"] > 0


def test_versions_that_are_git_refs(made: Project) -> None:
    """They have no place in the order of versions: they come last, and break nothing."""
    ref = "main-86c7822a61a5"
    folder = made.series_dir("demo", ref)
    shutil.copytree(made.series_dir("demo", "1.0"), folder)
    (folder / "0003-terse.patch").unlink()
    found = Read(page(made, verdicts=[*VERDICTS, Verdict("demo", "topic-1", "0003-terse.patch", "moved")]).decode())
    [table] = list(found.all("table", **{"class": "versions"}))
    assert re.findall(r"\d\.\d|main-[0-9a-f]{12}|topic-\d", table[1])[:5] == ["0.9", "1.0", "2.0", ref, "topic-1"]
    rows = [re.findall(r"unknown|carried|moved", text)[-2:] for at, text in found.all("tr") if "data-of" in at]
    assert rows == [["carried", "unknown"], ["carried", "unknown"], ["unknown", "moved"]]
    [row] = [text for at, text in found.all("tr") if at.get("class") == "gone"]
    assert re.findall(r"carried|dropped|unknown", row) == ["carried", "dropped", "dropped", "unknown", "unknown"]


def run(made: Project, monkeypatch: pytest.MonkeyPatch, *words: str) -> Outcome:
    monkeypatch.chdir(made.root)
    parser = argparse.ArgumentParser()
    verb.configure(parser)
    return verb.run(parser.parse_args(words))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (None, "cannot be read"),
        ("{", "not what `audit --json` prints"),
        ('{"audits": []}', "compared no file"),
        ('{"audits": [{"subject": "x", "compared": 0, "findings": []}]}', "compared no file"),
        ('{"audits": [{"subject": "x", "compared": 1, "findings": [{"kind": "extra"}]}]}', "missing required field"),
    ],
)
def test_what_is_no_audit(tmp_path: Path, text: str | None, what: str) -> None:
    path = tmp_path / "audit.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=what):
        given.audits(path)


def test_a_verdict_that_there_is_not(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.json"
    path.write_text('{"versions": [{"onto": "x==1", "patches": [{"name": "y", "verdict": "fine"}]}]}')
    with pytest.raises(UsageError, match="there is no verdict 'fine'"):
        given.verdicts(path)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", 'def f():\n    """Two\n    lines."""\n\n    return "\r" + 1  # x\n'),
        ("a.py", "\n\nx\n\n"),
        ("a.js", "a = `one\ntwo`;\r\nb"),
        ("a.unknown", "a <b>\n\nc"),
        ("Makefile", "a:\n\tb\n"),
        ("a.py", "x = '" + "<" * 5000 + "'\ny"),
    ],
)
def test_highlighting_changes_no_text(path: str, text: str) -> None:
    """Line by line, and no line end or blank is lost or won."""
    wanted = [visible(line) for line in text.split("\n")]
    assert ["".join(Read(f"<p>{line}</p>").texts[0]) for line in highlighted(path, text.split("\n"))] == wanted


def test_messages_in_paragraphs() -> None:
    found = paragraphs("One\nline.\n\n    code\n    more\n\n- a\n- b\n\ndiff --git a b\n")
    assert [one.form for one in found] == ["text", "code", "lines", "code"]


def test_text_as_html() -> None:
    assert code("a<\u202eb&") == "a&lt;<i>⟨U+202E⟩</i>b&amp;"
    assert prose("a `b<c` d\n\n`e") == "<p>a <code>b&lt;c</code> d</p>\n<p>`e</p>"
