"""Patches in conflict whose port to the other version is in the project already: nobody has to look again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from patchline.rebase.candidate import comes_from
from patchline.rebase.judge import Rebased
from patchline.series import quilt
from patchline.series.carried import Carried


def ported(done: Sequence[Rebased], old: Carried, new: Carried) -> list[Rebased]:
    """The verdicts, those in conflict with the patch of the new version's series that was made of this very patch.

    It has the patch's name and says its digest in `Rebased-From:`: a patch that changed since has to be looked at.

    Raises:
        UsageError: the new version's series and its folder disagree.
    """
    if not any(one.judged.conflicts for one in done) or not new.series.is_file():
        return list(done)
    there = {one.name: one for one in quilt.patches(quilt.files(new.series, own=True))}
    found = []
    for one in done:
        port = there.get(one.patch.name)
        digest = hashlib.sha256(one.patch.raw).hexdigest()
        if one.judged.conflicts and port and comes_from(old, digest) in port.header.trailers.get("rebased-from", []):
            where = (new.folder / port.name).relative_to(new.project.root).as_posix()
            said = f"its conflicts are resolved: {where} was made of this very patch"
            judged = one.judged._replace(resolved=where, evidence=(*one.judged.evidence, said))
            found.append(one._replace(judged=judged))
        else:
            found.append(one)
    return found
