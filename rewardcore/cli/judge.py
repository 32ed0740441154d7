"""`rewardcore judge`: a file of samples in, the same rows with their verdicts out."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import rubrics
from ..arguments import check_choice, check_whole
from ..failures import ConfigurationError, RewardcoreError
from ..files.judging import FileRun, check_output, finished_before, partial_of, survey_of
from ..files.rows import Rows, open_rows
from ..files.samples import Survey, texts_of
from ..files.summary import lines_of
from ..http.endpoint import Endpoint, read_extra_body
from ..judge import Judge, open_judge
from ..rubrics import TemplateRubric
from .console import Console, Json, Quiet

_MODES = ("asyncio", "sync", "process")
#: Of English; other languages and code have more tokens for as many characters.
_CHARACTERS_PER_TOKEN = 4


def judge(
    source: Annotated[
        str, typer.Argument(metavar="IN", help="A .jsonl (or .jsonl.gz) or .parquet file, or a hub's data set.")
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .jsonl file: every row, with its verdict.")],
    base_url: Annotated[str, typer.Option(metavar="URL", help="Such as http://127.0.0.1:8000/v1.")],
    model: Annotated[str, typer.Option(metavar="NAME", help="The name that the endpoint serves.")],
    api_key_env: Annotated[
        str, typer.Option(metavar="VARIABLE", help="The variable that holds the key.")
    ] = "OPENAI_API_KEY",
    rubric: Annotated[str, typer.Option(metavar="NAME", help="A rubric's name, or a TOML file.")] = "quality",
    mode: Annotated[str, typer.Option(metavar="MODE", help="asyncio, sync or process.")] = "asyncio",
    max_concurrent: Annotated[str, typer.Option(metavar="N", help="Requests at once, or auto.")] = "60",
    cache: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep replies in this SQLite file.")] = None,
    deadline: Annotated[float, typer.Option(metavar="S", help="Seconds for a row, with all its retries.")] = 300.0,
    max_failures: Annotated[int, typer.Option(metavar="N", help="So many rows may have no score.")] = 0,
    max_tokens: Annotated[str, typer.Option(metavar="N", help="Of a reply; none leaves it out.")] = "1024",
    max_completion_tokens: Annotated[
        int | None, typer.Option(metavar="N", help="In its place, for models that refuse it.")
    ] = None,
    temperature: Annotated[str, typer.Option(metavar="T", help="0 to 2; none leaves it out.")] = "0",
    extra_body: Annotated[str, typer.Option(metavar="JSON", help="Whatever else the server understands.")] = "{}",
    identity: Annotated[
        str | None, typer.Option(metavar="NAME", help="Stands for the URL: another node or port goes on.")
    ] = None,
    split: Annotated[str, typer.Option(help="Of a hub's data set.")] = "train",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show one request, count all, send nothing.")] = False,
    no_resume: Annotated[
        bool, typer.Option("--no-resume", help="Begin anew; what is there is kept under another name.")
    ] = False,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave out rows that are wrong.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Judge a file of rows with prompt, response and, if you have them, ground_truth, data_source and extra.

    Every row comes out with its verdict, in input order; OUT is there when it is complete. A run that was killed goes
    on when the same command is run again, and rows that timed out or failed are then asked for once more. Exit code 1
    if more than --max-failures rows have no score.
    """
    console = Console(quiet, json)
    endpoint = Endpoint(
        base_url,
        model,
        api_key_env,
        temperature=_number("--temperature", temperature, float),
        max_tokens=_number("--max-tokens", max_tokens, int),
        max_completion_tokens=max_completion_tokens,
        extra_body=read_extra_body(extra_body),
        identity=identity,
    )
    check_choice("--mode", mode, *_MODES)
    check_whole("--max-failures", max_failures, least=0)
    if out.suffix not in (".jsonl", ".ndjson"):
        raise ConfigurationError(f"OUT must end in .jsonl, not {out.name!r}")
    limit = _number("--max-concurrent", max_concurrent, int, "auto", "auto")
    chosen, rows = rubrics.named(rubric), open_rows(source, split)
    check_output(rows, out)
    if dry_run:
        with console.progress("rows checked") as tell:
            survey = survey_of(rows, chosen, tell)
        _show_one(console, survey, endpoint, rows)
        return
    made_with = _configuration(rows, endpoint, rubric, chosen)
    document = None if no_resume else finished_before(out, made_with)
    if document is not None:
        console.say(f"{out} is complete already, and nothing was sent")
    else:
        keep = True if cache is None else cache
        with (
            open_judge(mode, endpoint, rubric=chosen, max_concurrent=limit, cache=keep, deadline=deadline) as opened,
            FileRun(
                rows, out, made_with, resume=not no_resume, skip_bad_rows=skip_bad_rows, max_failures=max_failures
            ) as run,
        ):
            document = _run(run, opened, chosen, console)
    _tell(console, document, source, out)
    if document["without_score"] > max_failures:
        raise RewardcoreError(
            f"{document['without_score']:,} of {document['rows']:,} rows have no score, and --max-failures allows"
            f" {max_failures:,}"
        )


def _run(run: FileRun, judge: Judge, rubric: TemplateRubric, console: Console) -> dict[str, Any]:
    if run.resumed:
        console.say(f"{run.resumed:,} rows are done already")
    with console.progress("rows checked") as tell:
        run.check(rubric, tell)
    with console.progress("judged") as tell:
        run.judge(judge, tell)
    with console.progress("rows written") as tell:
        return run.finish(judge.stats, tell)


def _tell(console: Console, document: dict[str, Any], source: str, out: Path) -> None:
    for line in lines_of(document):
        console.say(line)
    console.say(f"written to {out}")
    if document["to_try_again"] and partial_of(out).exists():
        console.say(f"run the same again to try {document['to_try_again']:,} rows again, or delete {partial_of(out)}*")
    console.result({"input": source, "output": str(out)} | document)


def _show_one(console: Console, survey: Survey, endpoint: Endpoint, rows: Rows) -> None:
    request: dict[str, Any] | None = None
    if survey.first is not None:
        row, messages = survey.first
        request = endpoint.parameters() | {"messages": messages}
        console.say(f"the request for {row.place}, to {endpoint.url}:")
        console.say(", ".join(f"{name} {value!r}" for name, value in endpoint.parameters().items()))
        for message in messages:
            console.say("\n".join([f"\n--- {message['role']}", *texts_of(message)]))
    limit = endpoint.reply_limit()
    prompt_tokens = survey.characters // _CHARACTERS_PER_TOKEN
    replies = (
        f"at most {limit[1] * survey.rows:,} of replies ({limit[0]})" if limit else "as many of replies as it likes"
    )
    console.say(
        f"\n{survey.rows:,} requests at most, since rows that are alike share one; about {prompt_tokens:,} tokens of"
        f" prompts (one for every {_CHARACTERS_PER_TOKEN} characters; images are not counted), and {replies}"
    )
    if survey.bad:
        console.say(f"{len(survey.bad):,} bad rows, the first: {' '.join(str(survey.first_bad).split())}")
    console.result(
        {
            "requests": survey.rows,
            "prompt_tokens": prompt_tokens,
            "reply_tokens_at_most": limit[1] * survey.rows if limit else None,
            "bad_rows": len(survey.bad),
            "request": request,
        }
    )


def _configuration(rows: Rows, endpoint: Endpoint, rubric: str, chosen: TemplateRubric) -> dict[str, Any]:
    """What a row's verdict depends on. How fast and with which cache it is asked for is not among it."""
    return {
        "data": rows.fingerprint,
        "endpoint": endpoint.identity or endpoint.base_url,
        "rubric": rubric,
        "rubric_text": sha256(repr(chosen).encode()).hexdigest()[:16],
    } | endpoint.parameters()


def _number(flag: str, text: str, kind: type[int] | type[float], word: str = "none", meaning: Any = None) -> Any:
    if text == word:
        return meaning
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"{flag} must be a number or {word}, not {text!r}") from None
