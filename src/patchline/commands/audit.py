"""Find every byte that neither upstream nor a patch accounts for: in a tree, an installed package, or an image.

A checked-out pin (`audit vllm`), a fork in git (--git), an image without running or unpacking it (--image), or an
installed site-packages folder (--site). Exits 8 where something is unexplained.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from patchline.audit.finding import Audit
from patchline.cli import Outcome
from patchline.errors import Exit, UsageError
from patchline.project import find


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's arguments."""
    parser.add_argument("upstream", nargs="*", help="vllm, dynamo, or NAME==VERSION: its checked-out pin")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--git", type=Path, metavar="DIR", help="a repository with the fork and its upstream")
    what.add_argument("--image", metavar="REF", help="host/name[:tag][@digest], oci:DIR or docker-archive:FILE")
    what.add_argument("--site", type=Path, metavar="DIR", help="a site-packages folder with the upstream installed")
    _add_more(parser)
    parser.add_argument("--sarif", type=Path, metavar="FILE", help="write the findings as SARIF 2.1.0, too")
    parser.add_argument("--badge", type=Path, metavar="FILE", help="write a badge (JSON: label, message, colour), too")


def _add_more(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", dest="base", metavar="REF", help="of --git: upstream's commit, tag or branch")
    parser.add_argument("--fork", metavar="REF", help="of --git: the fork's")
    parser.add_argument("--series", type=Path, metavar="FILE", help="of --git: the patches that the fork carries")
    parser.add_argument("--line", metavar="LINE", help="of --image and --site: the line that it is of")
    parser.add_argument("--stock", action="store_true", help="of --image: a base; no overlay is in it, and no label")
    parser.add_argument("--patched", action="store_true", help="of --site: the series' overlay is in place there")
    parser.add_argument("--platform", default="linux/amd64", help="of --image (default: linux/amd64)")


def run(args: argparse.Namespace) -> Outcome:
    """Audits.

    Raises:
        UsageError: the arguments do not fit together, or nothing was compared.
        SourceMismatch: an image's bytes are not what its digests say, or no layers at all.
    """
    from patchline.audit import report, sarif
    from patchline.files import write_whole

    _refuse(args)
    audits = _audits(args)
    if args.sarif:
        write_whole(args.sarif, sarif.document(audits))
    if args.badge:
        write_whole(args.badge, report.badge(audits))
    found = any(one.findings for one in audits)
    return Outcome(report.data(audits), report.text(audits), Exit.FINDINGS if found else Exit.DONE)


def _refuse(args: argparse.Namespace) -> None:
    """Every refusal, before anything is read."""
    kind = next((name for name in ("git", "image", "site") if getattr(args, name)), "")
    owners = {
        "base": ("git",),
        "fork": ("git",),
        "series": ("git",),
        "line": ("image", "site"),
        "stock": ("image",),
        "patched": ("site",),
    }
    for name, kinds in owners.items():
        if getattr(args, name) and kind not in kinds:
            shown = "upstream" if name == "base" else name
            raise UsageError(f"--{shown} belongs to {' and '.join(f'--{one}' for one in kinds)}")
    if kind == "git" and not (args.base and args.fork):
        raise UsageError("--git needs to know what to compare", next="add --upstream REF --fork REF")
    if args.line and args.stock:
        raise UsageError("a base is of no line", next="give --line or --stock")
    if bool(args.upstream) == (kind in ("git", "image")):
        raise UsageError("name the upstreams of a checked-out pin or of --site, and none otherwise", next="audit vllm")


def _audits(args: argparse.Namespace) -> list[Audit]:
    if args.git:
        from patchline.audit import tree

        return [tree.fork(args.git, args.base, args.fork, args.series)]
    if args.image:
        from patchline.audit.image import audit as of_image

        return [of_image(find(), args.image, args.line or "", args.platform, stock=args.stock)]
    from patchline.series.carried import carried

    found = [carried(spec, find()) for spec in args.upstream]
    if args.site:
        from patchline.audit.site import audit as of_site

        return [of_site(one, args.site, args.line or "", patched=args.patched) for one in found]
    from patchline.audit import tree

    return [tree.pin(one) for one in found]
