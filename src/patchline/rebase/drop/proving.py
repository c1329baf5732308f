"""What is left of a series without the patch is proven again; what cannot be proven here is never called proven."""

from __future__ import annotations

from typing import NamedTuple

from patchline.errors import ProofFailed, Refused, Unreachable, UsageError
from patchline.proofs import bench
from patchline.proofs.prove import Proven, prove
from patchline.proofs.verdicts import Proof
from patchline.rebase.drop.trial import seated
from patchline.series.carried import Carried


class Reproved(NamedTuple):
    """What is shown of the rest."""

    state: str
    """`proven`, `not proven` (its tests cannot run here), `not run` (a plan only), or `nothing left`."""
    why: str = ""
    """Why its tests cannot run; or, of a proof without compiled code, what stood in for it."""
    patches: tuple[str, ...] = ()


def reproved(of: Carried, real: Carried, gone: str, *, limit: float, unproven: bool, record: bool) -> Reproved:
    """Proves the trial's series `of`; `real` is the project's own on the same pin. With `unproven` tests need not run.

    Raises:
        ProofFailed: a patch of the rest is not proven without `gone`.
        Refused: its tests cannot run here, and nobody said that this will do.
        As `prove`.
    """
    if why := _unable(of):
        if not unproven:
            raise Refused(
                f"the patches that are left on {of.name} cannot be proven here: {why}; nothing was changed",
                where=str(real.series),
                next="run it where they can be, or drop it with --unproven, which exits with 6 and says so",
            )
        return Reproved("not proven", why)
    seated(of, real)
    done = prove(of, limit=limit, record=record)
    if not done.stands:
        raise _failed(done, gone, real)
    return Reproved("proven", done.without, tuple(proof.patch for proof in done.proofs))


def _unable(of: Carried) -> str:
    """Why no test can run on this version here; empty where they can."""
    try:
        bench.environment(of)
    except (UsageError, Unreachable) as none:
        return " ".join(none.what.split())
    return ""


def _failed(done: Proven, gone: str, real: Carried) -> ProofFailed:
    bad = [proof for proof in done.proofs if not proof.stands]
    lines = [line for proof in bad for line in _faults(proof)]
    return ProofFailed(
        f"{gone} cannot be dropped from {done.name}: {len(bad)} of {len(done.proofs)} patches that are left "
        f"{'is' if len(bad) == 1 else 'are'} not proven without it; nothing was changed\n" + "\n".join(lines),
        where=str(real.series),
        next=f"python -m patchline prove {done.name} shows them with it; then rework them, or drop them first",
    )


def _faults(proof: Proof) -> list[str]:
    shown = [f"    {fault}" for fault in proof.faults[:3]]
    more = len(proof.faults) - len(shown)
    return [f"  {proof.patch} leaned on it:", *shown, *([f"    and {more} more"] if more else [])]
