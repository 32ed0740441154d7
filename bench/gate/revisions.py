"""A revision of `rewardcore`, installed in an environment of its own; those of commits are kept, by commit.

The environment sees the packages of the one that runs the gate, so a release of aiohttp between two builds is not
taken for ours, and nothing is downloaded. `rewardcore/testing`, the simulated endpoint, is laid over from this
checkout: it is the ruler, and both revisions are held against the same one.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import io
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.harness import ROOT

CACHE = ROOT / ".bench" / "gate"
KEPT = 30
#: What is measured, and what is needed to install it.
PACKAGE = ("rewardcore", "pytest_rewardcore.py", "pyproject.toml", "README.md", "LICENSE")
RULER = Path("rewardcore") / "testing"
WORKTREE = (".", "WORKTREE")
#: What a commit says of a change that it wants: "Explains: refused-* makespan: a simpler pace".
TRAILER = "Explains:"


class CannotMeasure(Exception):
    """One sentence for whoever started the gate."""


@dataclass(frozen=True)
class Revision:
    """`commit` is None for what is not committed."""

    name: str
    commit: str | None

    @property
    def label(self) -> str:
        name = "the working tree" if self.name in WORKTREE else self.name
        return name if self.commit is None else f"{name} ({self.commit[:10]})"


def resolve(name: str) -> Revision:
    if name in WORKTREE:
        return Revision(name, None if has_changes() else _commit("HEAD"))
    return Revision(name, _commit(name))


def has_changes() -> bool:
    """Whether the working tree has changes of what is measured."""
    return bool(_git("status", "--porcelain", "--", *PACKAGE).strip())


def explained(base: Revision, head: Revision) -> dict[str, str]:
    """Figure → why it had to become another, as the commits between them say."""
    if base.commit is None:
        return {}
    messages = _git("log", "--format=%B", f"{base.commit}..{head.commit or 'HEAD'}")
    lines = [line.removeprefix(TRAILER) for line in messages.splitlines() if line.startswith(TRAILER)]
    return {figure.strip(): why.strip() for figure, _, why in (line.partition(":") for line in lines) if why.strip()}


@contextlib.contextmanager
def installed(revision: Revision) -> Iterator[Path]:
    """The Python of an environment with this revision in it."""
    with tempfile.TemporaryDirectory(prefix="rewardcore-gate-") as temporary:
        if revision.commit is None:
            directory = Path(temporary) / "environment"
            _build(revision, Path(temporary) / "source", directory)
        else:
            directory = CACHE / f"{revision.commit[:16]}-{_ruler_digest()}"
            CACHE.mkdir(parents=True, exist_ok=True)
            with (CACHE / f"{directory.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # two gates at once build it once
                if not (directory / "ready").exists():
                    shutil.rmtree(directory, ignore_errors=True)
                    _build(revision, Path(temporary) / "source", directory)
                (directory / "ready").touch()
                _prune()
        yield directory / "bin" / "python"


def _prune() -> None:
    """What was used longest ago goes."""
    known = sorted(CACHE.glob("*/ready"), key=lambda ready: ready.stat().st_mtime, reverse=True)
    for ready in known[KEPT:]:
        shutil.rmtree(ready.parent, ignore_errors=True)
        ready.parent.with_suffix(".lock").unlink(missing_ok=True)


def _build(revision: Revision, source: Path, directory: Path) -> None:
    source.mkdir()
    _unpack(revision, source)
    shutil.rmtree(source / RULER, ignore_errors=True)
    shutil.copytree(ROOT / RULER, source / RULER, ignore=shutil.ignore_patterns("__pycache__"))
    venv.create(directory, with_pip=False, symlinks=True)
    python = directory / "bin" / "python"
    own = Path(_run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    shared = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
    (own / "packages_of_the_gate.pth").write_text("\n".join(shared) + "\n")
    # Without hatchling here, pip downloads it for the build.
    isolation = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    try:
        _run([*pip, "install", "--quiet", "--no-deps", *isolation, str(source)])
    except subprocess.CalledProcessError as error:
        last = ([line for line in error.stderr.splitlines() if line.strip()] or ["pip said nothing"])[-1]
        raise CannotMeasure(f"{revision.label} cannot be built: {last.strip()}") from error


def _unpack(revision: Revision, source: Path) -> None:
    if revision.commit is None:
        listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PACKAGE).split("\0")
        for name in filter(None, listed):
            if (ROOT / name).exists():  # a tracked file may be deleted
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, source / name)
        return
    there = _git("ls-tree", "--name-only", revision.commit, "--", *PACKAGE).split()
    if "rewardcore" not in there:
        raise CannotMeasure(f"{revision.label} has no package rewardcore: nothing to measure")
    archive = subprocess.run(
        ["git", "archive", revision.commit, "--", *there], cwd=ROOT, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")


def _ruler_digest() -> str:
    digest = hashlib.sha256(sys.version.encode() + sysconfig.get_path("purelib").encode())
    for file in sorted((ROOT / RULER).rglob("*.py")):
        digest.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:12]


def _commit(name: str) -> str:
    try:
        return _run(["git", "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}"]).strip()
    except subprocess.CalledProcessError as error:
        raise CannotMeasure(f"{name!r} is no revision of this repository: see git log, or fetch it first") from error


def _git(*arguments: str) -> str:
    try:
        return _run(["git", *arguments])
    except FileNotFoundError as error:
        raise CannotMeasure("git is not installed, and the gate compares revisions of a repository") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr.strip().splitlines() or ["nothing"])[0]
        raise CannotMeasure(f"git {arguments[0]} failed in {ROOT}: {said}") from error


def _run(command: list[str]) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
