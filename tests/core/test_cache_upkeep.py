"""Looking into a cache file and making it smaller: what is counted, what goes, and that no judge notices."""

import contextlib
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from rewardcore import CacheError, Endpoint, Sample, SqliteCache, rubrics
from rewardcore.http import cache_file, cache_prune
from rewardcore.http.cache_contents import find, look_into
from rewardcore.http.cache_prune import prune, shrink
from rewardcore.http.request import RequestBuilder
from rewardcore.reply import Reply
from tests import commands
from tests.core.test_cache import UNUSABLE

NET = 60.0
PADDING = "word " * 900


def quietly(*_):
    pass


def fill(path, count, model="judge", base_url="http://judge.test/v1", age=0.0, draw=0):
    """So many replies of one model, each a second older than the next, the newest of this age."""
    builder = RequestBuilder(Endpoint(base_url, model), rubrics.QUALITY)
    newest = time.time() - age
    with contextlib.closing(SqliteCache(path)) as cache:
        keys = []
        for number in range(count):
            request = builder.build(Sample(PADDING, f"{model} {number}", draw=draw))
            usage = {"prompt_tokens": 1000, "completion_tokens": 10}
            cache.put(request.key, Reply(f"<score>{number % 10}</score>", usage), builder.material(request))
            keys.append(request.key)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        ages = [(newest - (count - 1 - number), key) for number, key in enumerate(keys)]
        connection.executemany("UPDATE replies SET stored_at = ? WHERE key = ?", ages)
    return keys


def left(path):
    """The keys that are there, in a file that is whole and whose tables agree."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        replies, materials = (
            {key for (key,) in connection.execute(f"SELECT key FROM {table}")} for table in ("replies", "materials")
        )
    assert replies == materials
    return replies


@pytest.fixture
def path(tmp_path):
    return tmp_path / "judge.sqlite"


# What it holds.


def test_replies_are_counted_by_model_and_endpoint(path):
    fill(path, 3, "judge", age=100.0)
    fill(path, 2, "judge", "http://other.test/v1", age=50.0)
    fill(path, 4, "small", draw=2)
    found = look_into(path, quietly)
    assert found.by == {
        ("judge", "http://judge.test/v1"): 3,
        ("judge", "http://other.test/v1"): 2,
        ("small", "http://judge.test/v1"): 4,
    }
    assert (found.replies, found.repeats, found.prompt_tokens, found.completion_tokens) == (9, 4, 9000, 90)
    assert found.newest - found.oldest == pytest.approx(102.0, abs=5.0)
    assert found.bytes_on_disk == os.path.getsize(path)


def test_an_identity_stands_for_the_endpoint_and_nonsense_is_counted_as_such(path):
    cache = SqliteCache(path)
    for name, material in (
        ("a", b'{"identity":"judge-7b","repeat":0,"request":{"model":"m"}}'),
        ("b", b"not json"),
        ("c", b"[1]"),
        ("d", b"{}"),
    ):
        cache.put(hashlib.sha256(name.encode()).digest(), Reply("x", None), material)
    cache.close()
    found = look_into(path, quietly)
    assert found.by == {("m", "judge-7b"): 1, ("(unreadable)", "(unreadable)"): 3}


def test_looking_leaves_nothing_behind_and_needs_no_right_to_write(path, monkeypatch):
    fill(path, 3)
    before = path.read_bytes()
    look_into(path, quietly)
    monkeypatch.setattr(cache_file.os, "access", lambda *_: False)
    assert look_into(path, quietly).replies == 3
    assert os.listdir(path.parent) == [path.name]
    assert path.read_bytes() == before


def test_looking_shows_what_a_judge_has_just_written(path):
    cache = SqliteCache(path)
    cache.put(b"k" * 32, Reply("x"), b"{}")
    cache.flush()
    assert look_into(path, quietly).replies == 1
    cache.close()


# What goes.


def test_older_than(path):
    old, new = fill(path, 5, "old", age=1000.0), fill(path, 4, "new")
    assert prune(path, quietly, older_than=500.0) == (9, 5)
    assert left(path) == set(new)
    assert prune(path, quietly, older_than=500.0) == (4, 0)
    assert old


@pytest.mark.parametrize("kept", [0, 1, 7, 10, 11, 1000, 10**30])
def test_keep_newest_keeps_exactly_as_many(path, kept):
    keys = fill(path, 10)
    assert prune(path, quietly, keep_newest=kept).deleted == max(0, 10 - kept)
    assert left(path) == set(keys[10 - min(kept, 10) :])


def test_keep_newest_counts_exactly_where_all_are_of_one_moment(path):
    fill(path, 10)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE replies SET stored_at = 7.0")
    assert prune(path, quietly, keep_newest=4).deleted == 6
    assert len(left(path)) == 4


def test_a_model_goes_and_the_others_stay(path):
    fill(path, 5, "judge"), fill(path, 3, "judge-2")
    assert prune(path, quietly, model="judge") == (8, 5)
    assert look_into(path, quietly).by == {("judge-2", "http://judge.test/v1"): 3}


@pytest.mark.parametrize("rule", [{"older_than": 0.0}, {"keep_newest": 2}, {"model": "judge"}])
def test_a_dry_run_counts_the_same_and_deletes_nothing(path, rule):
    fill(path, 10, age=10.0)
    before = path.read_bytes()
    counted = prune(path, quietly, dry_run=True, **rule)
    assert path.read_bytes() == before
    assert prune(path, quietly, **rule) == counted
    assert counted.deleted in (8, 10)


def test_many_chunks_are_one_prune(path, monkeypatch):
    monkeypatch.setattr(cache_prune, "_ROWS_DELETED", 3)
    monkeypatch.setattr("rewardcore.http.cache_contents._ROWS_READ", 4)
    keys = fill(path, 50, "a")
    assert prune(path, quietly, keep_newest=9).deleted == 41
    assert left(path) == set(keys[-9:])
    assert prune(path, quietly, model="a").deleted == 9


def test_a_reply_that_is_renewed_meanwhile_stays(path):
    """Between looking and deleting, a judge stores one of the chosen again."""
    keys = fill(path, 4, age=1000.0)
    chosen = [(key, stored_at) for key, stored_at in rows(path)]
    with contextlib.closing(SqliteCache(path)) as cache:
        cache.put(keys[0], Reply("again"), b"{}")
    with contextlib.closing(cache_file.connect(path)) as connection:
        assert cache_prune._delete(connection, chosen) == 3
    assert left(path) == {keys[0]}
    assert find(path)[0].text == "again"


def rows(path):
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT key, stored_at FROM replies").fetchall()


# The room on the disk.


def test_the_room_goes_back_to_the_disk(path):
    fill(path, 400)
    before = path.stat().st_size
    prune(path, quietly, keep_newest=40)
    assert path.stat().st_size == before
    shrink(path, quietly)
    assert path.stat().st_size < before / 5
    assert os.listdir(path.parent) == [path.name]
    assert len(left(path)) == 40


# Judges, other processes, and people who lose patience.

WRITER = """
import hashlib, logging, sys
from rewardcore import SqliteCache
from rewardcore.reply import Reply

problems = []
handler = logging.Handler()
handler.emit = lambda record: problems.append(record.getMessage())
logging.getLogger("rewardcore").addHandler(handler)
cache = SqliteCache(sys.argv[1])
for number in range(int(sys.argv[2])):
    key = hashlib.sha256(str(number).encode()).digest()
    cache.put(key, Reply(f"{number} " * 100), b'{"base_url":"u","repeat":0,"request":{"model":"new"}}' + b" " * 5000)
    if number % 10 == 9:
        cache.flush()
        print(number, flush=True)
    assert cache.get(key).text == f"{number} " * 100
cache.close()
sys.exit("; ".join(problems) or 0)
"""


def test_nothing_is_lost_while_another_process_writes(path):
    fill(path, 600, "old", age=10_000.0)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "400"], stdout=subprocess.PIPE)
    with writer:
        assert writer.stdout.readline()  # it is at work
        pruned = 0
        while writer.poll() is None:
            pruned += prune(path, quietly, model="old").deleted
            shrink(path, quietly)
            fill(path, 20, "old", age=10_000.0)
            for _ in range(3):
                writer.stdout.readline()
    assert writer.returncode == 0  # no warning: it never lost its cache
    assert pruned >= 600
    prune(path, quietly, model="old")
    assert left(path) == {hashlib.sha256(str(number).encode()).digest() for number in range(400)}


def run(*arguments):
    return commands.rewardcore("cache", *arguments)


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGINT])
def test_a_prune_that_is_broken_off_leaves_a_whole_file_and_goes_on(path, blow):
    fill(path, 300)
    code = (
        "import sys, time; from rewardcore.http import cache_prune; cache_prune._ROWS_DELETED = 10\n"
        "delete = cache_prune._delete\n"
        "def slowly(*a):\n    print('.', flush=True); sys.stdin.read(1); return delete(*a)\n"
        "cache_prune._delete = slowly\n"
        "from rewardcore.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "cache", "prune", str(path), "--keep-newest", "0"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        for _ in range(4):
            process.stdin.write("x")
            process.stdin.flush()
            process.stdout.readline()
        process.send_signal(blow)
        out, errors = process.communicate(timeout=NET)
    if blow == signal.SIGINT:
        assert process.returncode == 130
        assert "run the same again to go on" in errors
        assert "Traceback" not in out + errors
    assert 0 < len(left(path)) < 300
    assert prune(path, quietly, keep_newest=0).deleted > 0
    assert left(path) == set()


def test_a_file_that_another_process_keeps_locked_is_a_sentence(path, monkeypatch):
    fill(path, 5)
    monkeypatch.setattr(cache_prune, "_PATIENCE_SECONDS", 0.0)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert look_into(path, quietly).replies == 5  # who only reads does not mind
        with pytest.raises(CacheError, match="is kept locked by another process; try again when that is done"):
            prune(path, quietly, keep_newest=0)
    assert len(left(path)) == 5


def test_a_file_that_may_not_be_written_is_a_sentence(path):
    error = sqlite3.OperationalError("attempt to write a readonly database")
    with pytest.raises(CacheError, match="cannot be written; check who may write"), cache_file.explained(path):
        raise error


# The commands.


@pytest.mark.parametrize("command", [["stats"], ["explain"], ["prune", "--keep-newest", "1"]], ids=lambda c: c[0])
@pytest.mark.parametrize("kind", [*(name for name in UNUSABLE if "directory" not in name), "none", "empty"])
def test_a_file_that_cannot_be_used_is_one_sentence_and_is_not_touched(path, command, kind):
    if kind in UNUSABLE:
        UNUSABLE[kind][0](path)
    elif kind == "empty":
        path.touch()
    before = path.read_bytes() if path.exists() else None
    done = run(command[0], path, *command[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"rewardcore: cache {path}")
    assert done.stderr.count("\n") == 1
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_directory_is_one_sentence(tmp_path):
    assert "is a directory; give the file" in run("stats", tmp_path).stderr


def test_stats_tells_people_and_programs(path):
    fill(path, 3, "judge"), fill(path, 2, "small")
    shown, document = run("stats", path).stdout, json.loads(run("stats", path, "--json", "--quiet").stdout)
    assert "5 replies" in shown
    assert "3  judge  at http://judge.test/v1" in shown
    assert "5,000 tokens of prompts, 50 tokens of replies" in shown
    assert document["replies"] == 5
    assert document["by"][1] == {"model": "small", "endpoint": "http://judge.test/v1", "replies": 2}


def test_prune_says_what_it_freed(path):
    fill(path, 200, age=40 * 86_400.0), fill(path, 10, "new")
    would = run("prune", path, "--older-than", "30d", "--dry-run")
    assert "would delete 200 of 210 replies" in would.stdout
    done = run("prune", path, "--older-than", "30d")
    assert "deleted 200 of 210 replies, freed " in done.stdout
    document = json.loads(run("prune", path, "--model", "nobody", "--json").stdout)
    assert (document["deleted"], document["replies"]) == (0, 10)
    assert len(left(path)) == 10


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "one of --older-than, --keep-newest and --model"),
        (["--older-than", "30d", "--model", "m"], "one of --older-than, --keep-newest and --model"),
        (["--older-than", "30"], "--older-than must be a number and a unit, s, m, h, d or w, as in 30d, not '30'"),
        (["--older-than", "-3d"], "--older-than"),
        (["--keep-newest", "-1"], "--keep-newest must be a whole number of at least 0 or None, not -1"),
        (["--keep-newest", "many"], "--keep-newest"),
    ],
)
def test_a_wrong_rule_is_one_sentence_and_deletes_nothing(path, arguments, says):
    fill(path, 3)
    done = run("prune", path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert len(left(path)) == 3
