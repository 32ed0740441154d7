"""The workflows in .github as GitHub reads them, and their scripts as it runs them: with bash, -e and pipefail."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
FILES = {path.stem: path for path in sorted((ROOT / ".github" / "workflows").iterdir())}
#: Every scalar as it is written: `on` is a word, not true.
WORKFLOWS: dict[str, dict[str, Any]] = {
    name: yaml.load(path.read_text(), yaml.BaseLoader) for name, path in FILES.items()
}
#: At the beginning of a line, or behind another command.
STARTED = re.compile(r"^(?: *|[^#\n]*[;&|(] *)(tox [^\n]*|python -m (?!pip)[^\n]*)", re.MULTILINE)
#: ${MODEL:+--model "$MODEL"}
WHERE_SET = re.compile(r"\$\{\w+:\+([^}]*)\}")
CALLED = re.compile(r"\$/\.github/workflows/([\w-]+)\.yml")


@dataclass(frozen=True)
class Job:
    workflow: str
    name: str
    body: dict[str, Any]

    @property
    def id(self) -> str:
        return f"{self.workflow}/{self.name}"

    @property
    def steps(self) -> list[dict[str, Any]]:
        return self.body.get("steps", [])

    @property
    def calls(self) -> str | None:
        """The workflow that it calls in the place of steps."""
        found = CALLED.fullmatch(self.body.get("uses", ""))
        return found[1] if found else None


JOBS = [
    Job(workflow, name, body) for workflow, document in WORKFLOWS.items() for name, body in document["jobs"].items()
]


def triggers(workflow: str) -> set[str]:
    return set(WORKFLOWS[workflow]["on"])


def started_by(event: str) -> list[Job]:
    """All jobs that such an event may start, those of called workflows among them."""
    names = {name for name in WORKFLOWS if event in triggers(name)}
    names |= {job.calls for job in JOBS if job.workflow in names and job.calls}
    return [job for job in JOBS if job.workflow in names]


@dataclass(frozen=True)
class Command:
    """`tox -e environment -- arguments`, or `python -m module arguments`."""

    job: Job
    environment: str | None
    arguments: list[str]

    @property
    def environments(self) -> list[str]:
        """What a matrix stands for, too."""
        if self.environment == "$ENVIRONMENT":
            return self.job.body["strategy"]["matrix"]["environment"]
        return [self.environment] if self.environment else []


def _commands() -> Iterator[Command]:
    for job in JOBS:
        for step in job.steps:
            for found in STARTED.findall(step.get("run", "").replace("\\\n", " ")):
                words = shlex.split(WHERE_SET.sub(r"\1", found))
                words = words[: words.index("||")] if "||" in words else words
                if words[0] == "python":
                    yield Command(job, None, words)
                else:
                    at = words.index("-e")
                    yield Command(job, words[at + 1], words[words.index("--") + 1 :] if "--" in words else [])


COMMANDS = list(_commands())


def tox() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(ROOT / "tox.ini")
    return parser


def run(
    id: str, step: str, directory: Path, programs: dict[str, str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """A step's script in `directory`, with `programs` in the place of those that would reach out of it."""
    job = next(job for job in JOBS if job.id == id)
    script = next(each["run"] for each in job.steps if each.get("name") == step)
    stubs = directory / "programs"
    stubs.mkdir(exist_ok=True)
    for name, text in programs.items():
        (stubs / name).write_text(text)
        (stubs / name).chmod(0o755)
    for name in ("OUTPUT", "STEP_SUMMARY"):
        (directory / name).touch()
    told = {"GITHUB_OUTPUT": str(directory / "OUTPUT"), "GITHUB_STEP_SUMMARY": str(directory / "STEP_SUMMARY")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=directory,
        env={**os.environ, **told, **environment, "PATH": f"{stubs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
