"""The verdicts as JUnit's XML, which CI systems show as tests."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from patchline.rebase.course import Progress
from patchline.rebase.report.details import details
from patchline.rebase.words import Judged


def junit(found: Sequence[Progress]) -> bytes:
    """One suite a version, one case a patch; a patch that needs hands is a failure.

    A case's class names both versions: GitLab takes cases of one class and name for one case, whatever their suites.
    """
    top = ElementTree.Element(
        "testsuites", {"name": "rebase", **_counts([each for one in found for each in one.judged])}
    )
    for one in found:
        suite = ElementTree.SubElement(top, "testsuite", {"name": one.new.name, **_counts(one.judged)})
        for each in one.judged:
            _case(suite, one, each)
    ElementTree.indent(top)
    whole: bytes = ElementTree.tostring(top, encoding="utf-8", xml_declaration=True)
    return whole + b"\n"


def _counts(judged: Sequence[Judged]) -> dict[str, str]:
    failed = sum(one.needs_hands for one in judged)
    return {"tests": str(len(judged)), "failures": str(failed), "errors": "0", "skipped": "0", "time": "0"}


def _case(suite: ElementTree.Element, found: Progress, one: Judged) -> None:
    names = {"classname": f"{found.old.name} on {found.new.name}", "name": _printable(one.name), "time": "0"}
    case = ElementTree.SubElement(suite, "testcase", names)
    if one.needs_hands:
        failure = ElementTree.SubElement(case, "failure", message=one.verdict.value, type=one.verdict.value)
        failure.text = _printable("\n".join(details(one)))
    ElementTree.SubElement(case, "system-out").text = one.verdict.value


def _printable(line: str) -> str:
    """Without what XML cannot say (XML 1.0, production 2)."""
    return "".join(char if _is_xml(ord(char)) else "\ufffd" for char in line)


def _is_xml(code: int) -> bool:
    return code in (0x9, 0xA) or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
