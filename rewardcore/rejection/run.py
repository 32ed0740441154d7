"""A whole run: rows, journals, and one checkpoint after another, each with its server, its results and its report.

What can be wrong is looked for before the first server is started: names, paths, journals of another configuration, bad
rows. A checkpoint that cannot be served costs the others nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from .. import notices
from ..failures import ConfigurationError, ServerFailed
from ..files.atomic import explained
from ..files.journal import Journal
from ..files.rows import open_rows
from ..http.cache import SqliteCache
from ..progress import Say, Tell
from . import plots
from .comparison import Outcome, write_comparison
from .plan import Checkpoint, Plan
from .problems import Problems
from .report import PICTURE, RESULTS, STATISTICS, write_figures, write_picture, write_results
from .sampling import Stopped, Tally, sample
from .servers import Address, Serve, started

DATA = "Coobiw/merged_agiqa5k_prompt_1022"
OUTPUT_DIRECTORY = "reject_sampling_results"
JOURNAL = "results.jsonl"


@contextlib.contextmanager
def nobody_watches(what: str) -> Iterator[Tell]:
    yield lambda *_: None


def reject_sample(
    checkpoints: Sequence[Checkpoint],
    data: str | os.PathLike[str] = DATA,
    plan: Plan | None = None,
    *,
    serve: Serve | None = None,
    output_dir: str | os.PathLike[str] = OUTPUT_DIRECTORY,
    say: Say = lambda line: None,
    showing: Callable[[str], AbstractContextManager[Tell]] = nobody_watches,
) -> list[Outcome]:
    """Ask each checkpoint every problem of `data`, several times, and write to `output_dir` how near it came.

    `serve` says where a checkpoint answers: `started()`, by default, or `at(base_url)`. `say` is told lines for a
    person, `showing` gives a function that is told how far it is (`rewardcore.progress.showing` is one). Called again,
    it goes on where it was stopped. Of several checkpoints, one that cannot be served has its `error` in its Outcome.
    """
    plan, serve, directory = plan or Plan(), serve or started(), Path(os.path.expanduser(output_dir))
    _check_names(checkpoints)
    if not callable(serve):
        raise ConfigurationError(f"serve must be started() or at(base_url), not {serve!r:.40}")
    servers = [serve(checkpoint) for checkpoint in checkpoints]
    if plan.cache is not None:
        SqliteCache(plan.cache).close()  # one that cannot be used is told now
    if told := plots.missing():
        say(told)
    rows, images = open_rows(str(data)), Path(os.path.expanduser(data)).parent  # where the paths of images begin
    outcomes = []
    with contextlib.ExitStack() as stack:
        works = []
        for checkpoint in checkpoints:
            path = directory / checkpoint.directory / JOURNAL
            with explained(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            journal = stack.enter_context(
                Journal(path, plan.configuration(checkpoint, rows.fingerprint), resume=plan.resume)
            )
            works.append(_Work(checkpoint, Problems(rows, images, journal.__contains__, plan), journal, path))
        for work in works:
            with showing(f"rows looked at for {work.checkpoint.name}") as tell:
                work.problems.look_at_all(tell)
        for work, server in zip(works, servers, strict=True):
            try:
                outcomes.append(work.run(server, plan, say, showing))
            except (ServerFailed, Stopped) as error:
                if len(works) == 1:
                    raise
                notices.say(logging.ERROR, "%s was not sampled: %s", work.checkpoint.name, error)
                outcomes.append(Outcome(work.checkpoint, work.directory, error=error))
    if len(outcomes) > 1:
        say(f"compared in {', '.join(write_comparison(directory, outcomes))} in {directory}")
    return outcomes


class _Work:
    """One checkpoint, and what is left to ask it."""

    def __init__(self, checkpoint: Checkpoint, problems: Problems, journal: Journal, path: Path) -> None:
        self.checkpoint = checkpoint
        self.problems = problems
        self.directory = path.parent
        self._journal = journal
        self._path = path

    def run(
        self,
        server: AbstractContextManager[Address],
        plan: Plan,
        say: Say,
        showing: Callable[[str], AbstractContextManager[Tell]],
    ) -> Outcome:
        problems, name = self.problems, self.checkpoint.name
        done = self._done(plan)
        total = done + problems.left
        if not total:
            raise ConfigurationError(f"{problems.name} holds no rows that can be asked")
        if problems.bad_rows:
            say(f"skipped: {problems.complaint}")
        if done:
            say(f"{name}: {done:,} of {total:,} samples were done before, and are kept")
        tally = Tally(done, total)
        try:
            if problems.left:  # else nobody needs a server
                with server as address, showing("samples") as tell:
                    sample(problems, address, plan, self._journal, tally, tell, problems.is_broken)
        except KeyboardInterrupt as end:
            end.add_note(
                f"{tally.done:,} of {total:,} samples of {name} are kept in {self._path}; run the same command again to"
                " go on"
            )
            raise
        if tally.failed:
            samples = "1 sample" if tally.failed == 1 else f"{tally.failed:,} samples"
            notices.say(
                logging.WARNING,
                "%s of %s failed: not one rollout could be had (%s); run it again to try again",
                samples,
                name,
                tally.why,
            )
        return self._report(plan, say)

    def _done(self, plan: Plan) -> int:
        """Samples that the journal holds, and that this run is about."""
        if plan.max_data is None:
            return len(self._journal)
        return sum(index in self._journal for index in range(plan.max_data))

    def _report(self, plan: Plan, say: Say) -> Outcome:
        errors = write_results(self.directory / RESULTS, self._journal.in_order(), plan.max_data)
        figures = errors.figures()
        write_figures(self.directory, self.checkpoint, plan, self.problems.name, figures, self.problems.bad_rows)
        name, names = self.checkpoint.name, [RESULTS, STATISTICS]
        if write_picture(self.directory / PICTURE, lambda file: plots.draw_distribution(file, name, errors)):
            names.append(PICTURE)
        say(f"{name}: {', '.join(names)} are in {self.directory}")
        return Outcome(self.checkpoint, self.directory, figures, errors, self.problems.bad_rows)


def _check_names(checkpoints: Sequence[Checkpoint]) -> None:
    is_list = isinstance(checkpoints, Sequence) and all(isinstance(each, Checkpoint) for each in checkpoints)
    if not checkpoints or not is_list:
        raise ConfigurationError('checkpoints must be a list with at least one model, as in [Checkpoint("policy")]')
    seen: dict[str, Checkpoint] = {}
    for checkpoint in checkpoints:
        other = seen.setdefault(checkpoint.directory, checkpoint)
        if other is not checkpoint:
            raise ConfigurationError(
                f"model_name {other.name!r} and {checkpoint.name!r} would write to the same folder; name each model"
                " differently"
            )
