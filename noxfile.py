"""The face of the project: `nox -l` is its table of contents. All logic is in the package."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import nox

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "venv"
nox.options.reuse_venv = "yes"
nox.options.error_on_missing_interpreters = True

PROJECT = nox.project.load_toml("pyproject.toml")
DEBIAN = {
    "chromium": "chromium",
    "docker-registry": "docker-registry",
    "dockerd": "docker.io",
    "dpkg-source": "dpkg-dev",
    "etcd": "etcd-server",
    "htpasswd": "apache2-utils",
    "kubectl": "kubernetes-client",
    "mmdebstrap": "mmdebstrap",
    "munged": "munge",
    "nats-server": "nats-server",
    "openssl": "openssl",
    "patch": "patch",
    "skopeo": "skopeo",
    "slurmd": "slurm-wlm",
    "umoci": "umoci",
}
"""Debian's package of each program that the tests compare with, or run."""
SEARCHED = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
FLEETS = nox.project.load_toml("builds/fleets.toml")["fleet"]


def patchline(session: nox.Session, verb: str, *arguments: str) -> None:
    """Runs one verb; what follows `--` on nox's command line goes to it."""
    session.install("-q", "-e", ".")
    session.run("python", "-m", "patchline", verb, *arguments, *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check series, patches and trailers, and that the changelog is the one that follows from them."""
    patchline(session, "lint")
    session.run("python", "-m", "patchline", "changelog", "--check")


@nox.session
def style(session: nox.Session) -> None:
    """Check the code: ruff and mypy, strict."""
    session.install("-q", "-e", ".", *nox.project.dependency_groups(PROJECT, "style"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy")


def debian(session: nox.Session, tools: Iterable[str] = DEBIAN) -> None:
    """Brings Debian's tools where they are missing; for the tests, which fetch sources, its package lists of today."""
    packages = [DEBIAN[tool] for tool in tools if not shutil.which(tool, path=SEARCHED)]
    listed = tools is not DEBIAN or any(Path("/var/lib/apt/lists").glob("*_Packages*"))
    able = not os.geteuid() and shutil.which("apt-get")
    if listed and not packages and not (able and tools is DEBIAN):
        return
    if not able:
        needed = ", ".join(DEBIAN[tool] for tool in tools)
        session.error(f"this needs Debian's {needed}, and its package lists: run apt-get as root")
    session.run("apt-get", "update", "-q", external=True)
    if packages:
        session.run("apt-get", "install", "-q", "-y", "--no-install-recommends", *packages, external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tool's own tests (real git, real processes, real package index)."""
    debian(session)
    session.install("-q", "-e", ".", *nox.project.dependency_groups(PROJECT, "tests"))
    session.run("pytest", "-n", "2", *session.posargs)


@nox.session(default=False)
def pin(session: nox.Session) -> None:
    """Record an upstream version with its hashes: nox -s pin -- vllm==X."""
    patchline(session, "pin")


@nox.session(default=False)
def checkout(session: nox.Session) -> None:
    """Bring a pinned upstream here, verified: nox -s checkout -- vllm."""
    patchline(session, "checkout")


@nox.session(default=False)
def apply(session: nox.Session) -> None:
    """Apply a series to its pin, to a repository or to a folder: nox -s apply -- vllm."""
    patchline(session, "apply")


@nox.session(default=False)
def export(session: nox.Session) -> None:
    """Write the commits of a checked-out pin back as its series: nox -s export -- vllm."""
    patchline(session, "export")


@nox.session(default=False)
def prove(session: nox.Session) -> None:
    """Prove on real vLLM that each patch fails without and passes with: nox -s prove -- vllm."""
    patchline(session, "prove")


@nox.session(default=False)
def hunks(session: nox.Session) -> None:
    """Show that a test fails without each piece of each patch, and with each mistake in it."""
    patchline(session, "hunks")


@nox.session(name="upstream-tests", default=False)
def upstream_tests(session: nox.Session) -> None:
    """Run vLLM's own tests on stock and on the overlay: nothing that passes on stock fails."""
    patchline(session, "upstream-tests")


@nox.session(default=False)
@nox.parametrize("fleet", sorted(FLEETS))
def gate(session: nox.Session, fleet: str) -> None:
    """Run a fleet's gate: every layout on stock and on the overlay, the answers checked."""
    debian(session, [tool for tool, package in DEBIAN.items() if package in FLEETS[fleet].get("debian", [])])
    session.install("-q", "-e", ".", "pytest>=8.4")
    session.run("python", "-m", "patchline", "gate", fleet, *session.posargs)


@nox.session(default=False)
def build(session: nox.Session) -> None:
    """Cut a line's image, as a layout on disk: nox -s build -- cpu-smoke."""
    for_images(session)
    patchline(session, "build")


@nox.session(default=False)
def smoke(session: nox.Session) -> None:
    """Serve with the image of a line in real containers, and check the answers: nox -s smoke -- cpu-smoke."""
    for_images(session)
    patchline(session, "smoke")


@nox.session(default=False)
def publish(session: nox.Session) -> None:
    """Publish a line's image as a nightly: nox -s publish -- LINE --to HOST/NAME."""
    patchline(session, "publish")


@nox.session(default=False)
def promote(session: nox.Session) -> None:
    """Make a nightly a release, once its gates hold: nox -s promote -- TAG --to HOST/NAME."""
    patchline(session, "promote")


@nox.session(default=False)
def reproduce(session: nox.Session) -> None:
    """Cut a release's image again from its record, and compare digests: nox -s reproduce -- TAG."""
    for_images(session)
    patchline(session, "reproduce")


@nox.session(default=False)
def nightly(session: nox.Session) -> None:
    """The main job: checkout, apply, lint, prove, build, gates, smoke test; with --publish the tag, too."""
    for_images(session)
    patchline(session, "nightly")


@nox.session(default=False)
def rebase(session: nox.Session) -> None:
    """Say what each patch is on another version: nox -s rebase -- vllm --onto 0.33.0, or --all."""
    patchline(session, "rebase")


@nox.session(default=False)
def drop(session: nox.Session) -> None:
    """Drop a patch, the rest proven again: nox -s drop -- vllm/NAME --reason upstream --in 0.34.0."""
    patchline(session, "drop")


@nox.session(default=False)
def audit(session: nox.Session) -> None:
    """Find every byte that neither upstream nor a patch accounts for: nox -s audit -- --image REF."""
    if session.posargs:
        patchline(session, "audit")
    else:
        patchline(session, "audit", "vllm", "dynamo")


@nox.session(default=False)
def changelog(session: nox.Session) -> None:
    """Write SCICOM_CHANGELOGS.md."""
    patchline(session, "changelog")


@nox.session(default=False)
def page(session: nox.Session) -> None:
    """Write the divergence page: build/page/index.html."""
    patchline(session, "page")


def for_images(session: nox.Session) -> None:
    """What makes a base, runs its image, and serves: brought by root; the verbs say what they miss."""
    if not os.geteuid():
        debian(session, ["mmdebstrap", "dockerd", "etcd", "nats-server"])


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure speed and memory against git am, git apply and quilt, in one run."""
    session.install("-q", "-e", ".")
    session.run("python", "benchmarks/apply.py", *session.posargs)
