"""The report's sources, tables and page: what is read, which value counts, and that nothing read becomes markup.

Plots, and the page in a browser, are tests/page: they need the extra `page`.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import asdict

import pytest

from bench import client_cost
from bench.figures import MEMORY
from bench.profiles.drive import Moment, Played
from bench.profiles.endpoints import PROFILES as ENDPOINTS
from bench.records import record
from bench.report import __main__ as command
from bench.report import computed, headline, palette
from bench.report.newest import SPEED_UP, Newest
from bench.report.page import Card, Figure, Key, Page, Panel, Section, html, laid_out
from bench.report.sources import BrokenSource, History, read, read_gate, read_history, read_nights, read_records
from bench.report.table import Table, provenance, short, told
from bench.report.tables import concurrency, gpu_wait, history, memory, peers, speed_up
from bench.scenarios import BACKEND_MODES, CLAIMS, GRID, PROFILES, REGISTRY, SIZES, STEPS
from tests.bench.report_sources import (
    COMMIT,
    COMMITS,
    MARKUP,
    STEP,
    Elements,
    a_record,
    all_records,
    write_all,
    write_night,
)

HISTORY = json.dumps({"commit_hash": COMMIT, "date": 1, "result_columns": ["result"], "results": 5})
OLD, NEW = "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_all(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def newest():
    return Newest(all_records())


# What is read


def test_every_source_is_read_and_told(files):
    found = read([files.records], files.asv, files.nights, files.gate)
    assert len(found.records) == len(all_records())
    assert (len(found.nights), len(found.history.commits)) == (4, len(COMMITS))
    assert found.gate.verdict == "fail"
    assert [line.split(": ")[1] for line in found.told] == [
        f"{len(all_records()):,} records of 1 run",
        "4 nights",
        "42 series over 12 commits",
        "3 findings, fail",
    ]


def test_a_source_that_is_not_there_is_empty_and_no_error(tmp_path):
    found = read([tmp_path / "none"], tmp_path / "none", tmp_path / "none", tmp_path / "none")
    assert (found.records, found.nights, found.history, found.gate) == ([], [], History(), None)
    assert len(found.told) == 4
    assert all("is not there" in line for line in found.told)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "is no JSON"),
        ('{"scenario": }', "is no JSON"),
        ("[1]", "not a JSON object"),
        ('{"scenario": "a", "mode": "sync"}', "it has no n, backend, metric, value, unit"),
        (json.dumps({**asdict(a_record()), "value": None}), "value is None, not a number or a text"),
        (json.dumps({**asdict(a_record()), "value": float("nan")}), "value is nan, which is no measurement"),
        (json.dumps({**asdict(a_record()), "n": "many"}), "n is 'many', not a whole number"),
        (json.dumps({**asdict(a_record()), "version": True}), "version is True, not a whole number"),
        (json.dumps({**asdict(a_record()), "scenario": 5}), "scenario is 5, not a text"),
        (json.dumps({**asdict(a_record()), "environment": "none"}), "environment is 'none', not an object"),
    ],
)
def test_a_broken_record_is_an_error_that_names_file_and_line(tmp_path, line, complaint):
    file = tmp_path / "records.jsonl"
    file.write_text(json.dumps(asdict(a_record())) + "\n" + line + "\n")
    with pytest.raises(BrokenSource, match=r"records\.jsonl:2: ") as raised:
        read_records(file, [])
    assert complaint in str(raised.value)


def test_a_line_that_a_killed_writer_left_is_passed_over_and_told(tmp_path):
    file = tmp_path / "records.jsonl"
    whole = json.dumps(asdict(a_record()))
    file.write_text(whole[:-9] + "\n" + whole + "\n")
    lines: list[str] = []
    assert len(read_records(file, lines)) == 1
    assert "1 line of a writer that was killed passed over" in lines[0]


@pytest.mark.parametrize(
    ("source", "name", "content", "where"),
    [
        (read_nights, "night.json", '{"schema": 1}', "night.json: is no night"),
        (read_nights, "night.json", '{\n "records": [', r"night.json:2: is no JSON"),
        (read_nights, "night.json", '{"records": [{"metric": "a"}]}', "night.json: record 1: is no record"),
        (read_history, "machine/a.json", '{"results": {}}', "a.json: is no result of asv: it has no commit_hash"),
        (read_history, "machine/a.json", "{", "a.json:1: is no JSON"),
        (read_history, "machine/a.json", HISTORY, "holds what asv does not write"),
        (read_gate, "gate.json", '{"verdict": "good"}', "gate.json: is no verdict of the gate"),
        (read_gate, "gate.json", '{"verdict": "pass"}', "gate.json: is no verdict of the gate: it has no list"),
        (read_gate, "gate.json", '{"verdict": "pass", "findings": [{}]}', "gate.json: finding 1: has no tier"),
        (read_gate, "gate.json", b"\xff\xfe", "gate.json:1: is no text in UTF-8"),
    ],
)
def test_a_broken_document_is_an_error_that_names_it(tmp_path, source, name, content, where):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BrokenSource, match=where):
        source(file if source is read_gate else tmp_path, [])


def test_a_night_is_read_by_its_records_whatever_else_a_later_version_says_and_once(tmp_path):
    for directory in ("history", "."):
        write_night(tmp_path / directory, OLD, 1.0)
    (night,) = read_nights(tmp_path, [])
    assert (night.when, night.commit, night.is_clean) == (OLD, COMMIT, True)
    assert night.setting == f"cuda, {MARKUP}, judge-7b"
    assert {each.metric for each in night.records} > {"speed-up over sync"}


# Which value counts


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ({"time": OLD}, {"time": NEW}, "second"),
        ({"time": NEW}, {"time": OLD}, "first"),
        ({"time": NEW}, {"time": NEW}, "second"),
        ({"time": ""}, {"time": OLD}, "second"),
        ({"time": OLD, "version": 2}, {"time": NEW, "version": 1}, "first"),
    ],
)
def test_the_newest_value_of_the_latest_version_counts(first, second, kept):
    both = [a_record(value=1.0, **first), a_record(value=2.0, **second)]
    assert Newest(both).value("async-1024", "makespan") == {"first": 1.0, "second": 2.0}[kept]


def test_a_dirty_night_gives_no_values_and_a_clean_one_does(tmp_path):
    write_night(tmp_path, OLD, 1.0)
    write_night(tmp_path, NEW, 2.0, is_clean=False)
    found = Newest(nights=read_nights(tmp_path, [])).get("vllm/asyncio/1024", SPEED_UP)
    assert (found.value, found.time) == (20.0, OLD)


def test_two_endpoints_of_a_user_are_two_and_a_server_of_the_nights_is_one_whatever_its_port(tmp_path):
    for when in (OLD, NEW):
        write_night(tmp_path, when, 1.0)  # each has its own port
    mine = [a_record("real/asyncio/16", SPEED_UP, 5.0, base_url=url, model="judge") for url in ("a", "b")]
    tables = speed_up.at_endpoints(Newest(mine, read_nights(tmp_path, [])))
    assert list(tables) == ["judge at a", "judge at b", "a server of the nights (vllm)"]


def test_a_mode_that_is_newer_than_the_page_is_shown_all_the_same():
    rows = [a_record("real/asyncio/16", SPEED_UP, 5.0, mode=mode, model="judge") for mode in ("ray", "asyncio")]
    tables = [speed_up.at_endpoints(Newest([row])) for row in rows]
    assert [table["judge at "].rows[0]["mode"] for table in tables] == ["ray", "asyncio"]
    assert (palette.known("ray"), palette.known("asyncio")) == ("sync", "asyncio")
    assert speed_up.rank("asyncio") < speed_up.rank("ray")


def test_a_text_is_no_value():
    assert Newest([a_record(value="36 s")]).get("async-1024", "makespan") is None


def test_a_figure_says_of_which_commit_it_is_and_when():
    assert provenance([a_record(time=NEW)]) == "commit 0123456, 2026-02-02"
    others = [a_record(time=OLD, commit="f" * 40), a_record(time=NEW, commit=f"{COMMIT}+")]
    assert provenance(others) == "2 commits, 2026-01-01 to 2026-02-02; the newest is 0123456+"
    assert provenance([]) == ""
    assert [short(commit) for commit in ("unknown", COMMIT, f"{COMMIT}+")] == ["unknown", "0123456", "0123456+"]


# Tables


def test_every_claim_stands_beside_what_is_here_and_its_ideal(newest):
    table = speed_up.claims(newest)
    assert [row["claim"] for row in table.rows] == [claim.id for claim in CLAIMS]
    first = table.rows[0]
    assert (first["claimed"], round(first["here"], 1), round(first["ideal"], 1)) == (16.0, 56.9, 56.9)
    calls = table.rows[-1]
    assert (calls["claimed"], round(calls["here"], 1), calls["from"]) == (7.7, 7.7, "100 → 13 calls")


def test_a_claim_without_both_of_its_scenarios_is_left_out():
    table = speed_up.claims(Newest([a_record("async-1024"), a_record("naive-1024", value=2048.0)]))
    assert [row["claim"] for row in table.rows] == [CLAIMS[0].id]


@pytest.mark.parametrize("backend", ["respx", "loopback"])
def test_every_mode_that_is_timed_has_every_size_beside_its_ideal(newest, backend):
    rows = speed_up.by_size(newest, backend).rows
    timed = {each.mode for each in GRID if each.backend == backend and each.is_timed}
    assert timed <= set(BACKEND_MODES[backend])
    assert {(row["mode"], row["n"]) for row in rows} == {(mode, n) for mode in timed for n in SIZES}
    for row in rows:
        assert row["speed_up"] == pytest.approx(row["ideal"] * (1.0 if row["mode"] == "sync" else 0.9))


def test_claims_have_a_place_by_size_where_they_are_speed_ups_without_a_cache():
    assert {(row["n"], row["speed_up"]) for row in speed_up.claimed_by_size()} == {(1024, 16.0), (100, 7.0)}


def test_the_self_mode_begins_at_batch_size_1_which_is_1(newest):
    rows = [row for row in speed_up.by_batch_size(newest).rows if row["n"] == 100]
    assert [(row["batch_size"], row["calls"]) for row in rows] == [(1, 100), (2, 50), (4, 25), (8, 13), (16, 7)]
    assert rows[0]["speed_up"] == 1.0


def test_waits_and_losses_are_there_for_every_shape_and_load(newest):
    assert len(gpu_wait.steps(newest).rows) == len(STEPS)
    assert [row["claimed"] for row in gpu_wait.claimed(newest).rows] == [60.0, 0.0]
    beside = gpu_wait.beside(newest).rows
    assert len(beside) == 6
    assert {(row["lost"], row["noise"]) for row in beside} == {(5.0, 2.0)}


def test_memory_is_of_peaks_with_the_weights_in_them_side_by_side(newest):
    extra = [record(MEMORY, "counted peak, batch 1", 5, "bytes", "lower")]  # what a batch adds to the weights
    extra += [record(MEMORY, "CPU peak, batch 1", 2 * 2**20, "bytes", "lower")]
    table = memory.side_by_side(memory.by_batch_size(Newest([*newest, *extra])))
    assert list(table.columns) == [
        "batch_size",
        "predicted peak",
        "predicted peak of a long reply",
        "CPU peak",
        "CUDA peak allocated",
    ]
    assert [row["batch_size"] for row in table.rows] == [1, 2, 4, 8, 16]
    assert (table.rows[0]["predicted peak"], table.rows[0]["CPU peak"]) == (3.0, 2.0)


def test_a_peer_is_told_in_times_of_ours(newest):
    rows = peers.cpu(newest).rows
    assert [row["client"] for row in rows][:2] == ["bare aiohttp", client_cost.OURS]
    assert [round(row["times"], 2) for row in rows][:2] == [0.77, 1.0]
    assert len(peers.start(newest).rows) == 4 * 3


def test_series_that_do_not_move_are_one_line_and_a_step_is_marked_both_ways(files):
    found = read_history(files.asv, [])
    steps, why = history.change_points(found)
    assert not why
    lines = {row["series"] for row in history.over_commits(found, steps).rows}
    assert lines == {"40 series", "async 1024: makespan", "sweep auto: makespan"}
    assert [
        (row["series"], row["commit"], row["is_worse"], row["change"]) for row in history.moved(found, steps).rows
    ] == [
        ("async 1024: makespan", COMMITS[STEP][:7], True, "+11.1%"),
        ("sweep auto: makespan", COMMITS[STEP][:7], False, "-10.7%"),
    ]
    assert len(history.listed(history.over_commits(found, steps)).rows) == 3


def test_a_series_that_begins_at_0_has_change_points_and_no_share():
    points = [(commit, 0.0 if place < STEP else 3.0) for place, commit in enumerate(COMMITS)]
    found = History({"retries": points}, tuple(COMMITS))
    steps, _ = history.change_points(found)
    assert history.over_commits(found, steps).rows == []
    (row,) = history.moved(found, steps).rows
    assert (row["before"], row["after"], row["share"], row["change"]) == (0.0, 3.0, None, "from 0")


def test_nights_of_another_device_or_model_are_not_compared(files, tmp_path):
    nights = read_nights(files.nights, [])
    assert len(history.comparable(nights)) == 4
    assert {row["mode"] for row in history.speed_ups_by_night(nights).rows} == {"process", "asyncio"}
    assert {row["batch_size"] for row in history.peaks_by_night(nights).rows} == {16}
    (files.nights / "other.json").write_text(json.dumps({"when": "2027", "device": "cpu", "records": []}))
    other = read_nights(files.nights, [])
    (files.nights / "other.json").unlink()
    assert [night.when for night in history.comparable(other)] == ["2027"]


def test_a_column_has_the_same_digits_in_every_cell():
    assert told([94.71, 85.0, 100.1]) == ["94.7", "85.0", "100.1"]
    assert told([0.428, 1.54, -0.2]) == ["0.43", "1.54", "−0.20"]
    assert told([2048.0, None, 36.0]) == ["2,048", "–", "36"]
    assert told([1234567, "a text", True]) == ["1,234,567", "a text", "yes"]


# What is computed


def moment(time: float, in_flight: int) -> Moment:
    return Moment(time, 8, in_flight, 0)


def played(seconds: float, moments: int = 2) -> Played:
    looked = tuple(moment(seconds * place / (moments - 1), place) for place in range(moments))
    return Played((seconds,), 1024, 0, 0, {"ok": 1024}, 0, looked)


def test_the_knee_is_the_smallest_limit_that_is_nearly_the_best():
    fixed = {10: played(100.0), 80: played(20.0), 128: played(18.5), 1000: played(18.0)}
    assert computed.Sweep(ENDPOINTS["cap-429"], fixed, played(19.0)).knee == 80


def test_a_curve_that_rises_to_its_end_has_no_knee_yet():
    assert computed.knee_of({8: 36.0, 64: 177.0, 128: 250.0}) is None
    assert computed.knee_of({60: 100.0}) is None


def test_a_long_run_is_thinned_and_keeps_its_end():
    thin = computed.thinned(played(100.0, 5000), 50)
    assert len(thin) == 50
    assert [each.time for each in thin] == sorted(each.time for each in thin)
    assert thin[-1].in_flight == 4999
    table = concurrency.watched(ENDPOINTS["moving-cap"], played(100.0, 5000))
    assert concurrency.sparse(table).rows[-1] == table.rows[-1]


def test_what_is_recorded_is_not_computed_again(newest):
    lines: list[str] = []
    computed.fill(newest, lines.append)
    assert lines == []


def test_what_is_missing_and_exact_is_computed_from_the_registry():
    known = [each for each in all_records() if each.scenario != "respx/asyncio-httpx/16"]
    found, lines = Newest(known), list[str]()
    computed.fill(found, lines.append)
    assert [line.split(",")[0] for line in lines] == ["computing respx/asyncio-httpx/16", "computing respx/sync/16"]
    assert found.value("respx/asyncio-httpx/16", SPEED_UP) == 16.0


def test_the_headline_is_made_of_figures_that_there_are(newest):
    first, *others = headline.cards(newest)
    assert (first.value, first.unit, first.how) == ("56.9", "×", "virtual time, exact")
    assert "34 min become 36 s" in first.note
    assert len(others) == 3
    assert list(headline.cards(Newest())) == []


def test_every_endpoint_that_is_watched_or_swept_is_one_of_the_registry():
    assert {f"profile-{name}" for name in (*computed.SWEPT, *computed.WATCHED)} <= {each.id for each in PROFILES}
    assert {headline.BASELINE, headline.AHEAD} <= set(REGISTRY)


# The page


def page_of(text: str) -> str:
    """A page with this text wherever a text may come."""
    table = Table({"a": text, "b": "b", "c": "c", "d": "d", "e": "e", "f": "f"}, [{"a": text, "b": 1.5}])
    figure = Figure(
        text, text, text, [Panel({"data": text}, text)], [(text, table)], [Key("circle", "sync", text)], text
    )
    section = Section(text, text, text, [figure], [(text, text)], text, [(text, table)], [text])
    card = Card(text, text, text, text, text, text)
    return html(Page(text, text, [card], [section], text, {"config": text}, f"const script = {json.dumps(text)};"))


def test_no_text_becomes_markup_wherever_it_stands():
    plain, hostile = Elements(page_of("text")), Elements(page_of(MARKUP))
    assert [tag for tag, _ in hostile.found] == [tag for tag, _ in plain.found]
    assert [attributes.keys() for _, attributes in hostile.found] == [
        attributes.keys() for _, attributes in plain.found
    ]
    assert hostile.named("figure")[0]["id"] == MARKUP


def test_the_data_of_a_plot_is_what_it_was():
    config, spec, *_ = Elements(page_of(MARKUP)).scripts
    assert (json.loads(config), json.loads(spec)) == ({"config": MARKUP}, {"data": MARKUP})


def test_the_page_refers_to_nothing_outside_and_forbids_it():
    page = page_of("text")
    elements = Elements(page)
    assert elements.references
    assert all(each.startswith("#") for each in elements.references)
    assert not elements.named("link")
    style = page[page.index("<style>") : page.index("</style>")]
    assert not any(word in style for word in ("url(", "@import", "://"))
    (policy,) = [each["content"] for each in elements.named("meta") if each.get("http-equiv")]
    assert policy.startswith("default-src 'none';")


def test_a_figure_has_a_heading_a_caption_a_named_plot_and_a_table():
    elements = Elements(page_of("text"))
    assert [each["role"] for each in elements.named("div") if each.get("class") == "plot"] == ["img"]
    for tag in ("h1", "nav", "main", "figure", "figcaption", "details", "footer"):
        assert len(elements.named(tag)) == 1, tag
    assert len(elements.named("table")) == 2


@pytest.mark.parametrize(
    ("layouts", "shown"),
    [
        ("half half", "half half"),
        ("half half half", "half half wide"),
        ("half wide half half", "wide wide half half"),
        ("half half beside half", "half half beside wide"),
        ("wide", "wide"),
        ("", ""),
    ],
)
def test_a_figure_that_would_stand_alone_in_its_row_takes_all_of_it(layouts, shown):
    figures = [Figure(str(place), "", "", [], [], layout=layout) for place, layout in enumerate(layouts.split())]
    found = list(laid_out(figures))
    assert [figure.layout for figure in found] == shown.split()
    assert [figure.id for figure in found] == [figure.id for figure in figures]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_colour_stands_out_from_its_background(scheme):
    for background in ("paper", "panel"):
        behind = palette.COLOURS[background][scheme]
        for name in (*palette.MODES, *palette.TEXT, "rate"):
            least = 4.5 if name in palette.TEXT and background == "paper" else 3.0
            assert palette.contrast(palette.COLOURS[name][scheme], behind) >= least, (name, background)


def test_contrast_is_what_wcag_says():
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert palette.contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


def test_a_picture_has_no_variables_left():
    assert palette.painted(f'fill="{palette.var("asyncio")}"') == 'fill="#0072b2"'
    with pytest.raises(KeyError, match="no colour 'pink'"):
        palette.var("pink")


# The command


@pytest.fixture
def with_the_extra(monkeypatch):
    """As if it were installed: what these tests ask for ends before it is imported."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        command.main([])
    assert "pip install '.[page]'" in capsys.readouterr().err


@pytest.mark.usefixtures("with_the_extra")
def test_a_broken_source_ends_with_1_and_writes_nothing(files, tmp_path, capsys):
    broken = tmp_path / "broken.jsonl"
    broken.write_text("nonsense\n")
    output = tmp_path / "index.html"
    assert command.main([*files.flags, "--records", str(broken), "--output", str(output)]) == 1
    assert f"bench.report: {broken}:1: is no JSON" in capsys.readouterr().err
    assert not output.exists()
