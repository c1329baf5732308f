"""The pins: which upstream versions exist for this project, with the hashes of their bytes.

Reading them is cheap; what resolves and downloads is `patchline.pins.pinning`.
"""

from patchline.pins.model import ArchivePin, GitPin, Pin, PinFile, Upstream, name_of
from patchline.pins.select import select
from patchline.pins.store import load, write

__all__ = ["ArchivePin", "GitPin", "Pin", "PinFile", "Upstream", "load", "name_of", "select", "write"]
