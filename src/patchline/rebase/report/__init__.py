"""A rebase for people, for machines, and for CI."""

from patchline.rebase.report.annotations import annotated
from patchline.rebase.report.folder import SERIES, begin, write
from patchline.rebase.report.machine import data
from patchline.rebase.report.people import text

__all__ = ["SERIES", "annotated", "begin", "data", "text", "write"]
