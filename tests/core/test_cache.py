"""Replies that were paid for once: in memory, and in one file that processes share and crashes do not spoil."""

import contextlib
import hashlib
import logging
import multiprocessing
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewardcore import CacheError, ConfigurationError, MemoryCache, SqliteCache
from rewardcore.http.cache_contents import find
from rewardcore.http.cache_prune import prune
from rewardcore.reply import Reply

spawn = multiprocessing.get_context("spawn")


def key_of(name):
    return hashlib.sha256(str(name).encode()).digest()


def put(cache, name, text=None):
    cache.put(key_of(name), Reply(str(name) if text is None else text, {"total_tokens": 3}), b'{"name":"%a"}' % name)


def writers():
    return sum(thread.name.startswith("rewardcore-cache") for thread in threading.enumerate())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "judge.sqlite"


@pytest.fixture
def cache(path):
    cache = SqliteCache(path)
    yield cache
    cache.close()


class Warnings(logging.Handler):
    """Every warning of the package, and an event that tells of the first."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.messages = []
        self.came = threading.Event()

    def emit(self, record):
        self.messages.append(record.getMessage())
        self.came.set()


@pytest.fixture
def warnings():
    handler = Warnings()
    logging.getLogger("rewardcore").addHandler(handler)
    yield handler
    logging.getLogger("rewardcore").removeHandler(handler)


# In memory.


def test_memory_keeps_the_latest_replies_used():
    cache = MemoryCache(size=2)
    put(cache, "a")
    put(cache, "b")
    cache.get(key_of("a"))
    put(cache, "c")
    assert cache.get(key_of("b")) is None
    assert [cache.get(key_of(name)).text for name in "ac"] == ["a", "c"]


def test_memory_never_holds_more_than_its_size():
    cache = MemoryCache(size=100)
    for number in range(10_000):
        put(cache, number)
    assert len(cache._replies) == 100
    assert cache.get(key_of(9_999)).text == "9999"


@pytest.mark.parametrize("size", [0, -1, None, "10", 1.5, True, float("inf")])
def test_a_size_that_is_none_is_named(size):
    with pytest.raises(ConfigurationError, match="size must be a whole number above 0, not"):
        MemoryCache(size)


def test_putting_a_key_again_renews_it():
    cache = MemoryCache(size=2)
    for name in ("a", "b", "a", "c"):
        put(cache, name)
    assert cache.get(key_of("a")) is not None
    assert cache.get(key_of("b")) is None


def test_closing_a_judge_does_not_empty_the_memory():
    cache = MemoryCache()
    put(cache, "a")
    cache.close()
    assert cache.get(key_of("a")).text == "a"


# In a file.

texts = st.text(st.characters(exclude_categories=["Cs"]))


@settings(max_examples=10)
@given(st.lists(st.tuples(texts, st.none() | st.dictionaries(texts, st.integers(0, 2**53)))))
def test_any_reply_comes_back_as_it_went_in(tmp_path_factory, replies):
    path = tmp_path_factory.mktemp("cache") / "judge.sqlite"
    cache = SqliteCache(path)
    for number, (text, usage) in enumerate(replies):
        cache.put(key_of(number), Reply(text, usage, quota=5), b"{}")
    cache.close()
    cache = SqliteCache(path)
    for number, (text, usage) in enumerate(replies):
        assert cache.get(key_of(number)) == Reply(text, usage or None)
    assert cache.get(key_of("other")) is None
    cache.close()


def test_a_reply_is_visible_at_once_and_never_disappears_while_it_is_written(cache):
    for number in range(3_000):
        put(cache, number)
        for seen in (number, number // 2, number - 40):
            assert seen < 0 or cache.get(key_of(seen)).text == str(seen)


def test_replies_are_on_disk_when_close_returns(path):
    cache = SqliteCache(path)
    for number in range(2_000):
        put(cache, number)
    cache.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*), sum(length(text) > 0) FROM replies").fetchone() == (2000, 2000)
    connection.close()


def test_the_writer_lets_go_of_what_it_has_written(cache):
    put(cache, "a")
    cache.close()
    assert not cache._unwritten


def test_closing_leaves_no_thread_and_no_open_file(path):
    threads = threading.active_count()
    cache = SqliteCache(path)
    put(cache, "a")
    cache.close()
    cache.close()
    assert threading.active_count() == threads
    assert os.listdir(path.parent) == [path.name]  # the last to close removes the write-ahead log


def test_a_closed_cache_keeps_nothing_starts_nothing_and_stays_quiet(path, warnings):
    cache = SqliteCache(path)
    put(cache, "a")
    cache.close()
    put(cache, "b")
    assert cache.get(key_of("a")) is None
    assert cache.get(key_of("b")) is None
    assert writers() == 0
    assert not warnings.messages


def test_threads_that_share_a_cache_share_its_one_writer(path):
    cache, together = SqliteCache(path), threading.Barrier(8)

    def write(thread):
        together.wait()
        for number in range(100):
            put(cache, f"{thread}-{number}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert writers() == 1
    cache.close()
    assert len(find(path, newest=1000)) == 800


def test_a_later_reply_takes_the_place_of_an_earlier_one(path):
    cache = SqliteCache(path)
    put(cache, "a", "old")
    put(cache, "a", "new")
    assert cache.get(key_of("a")).text == "new"
    cache.close()
    cache = SqliteCache(path)
    assert cache.get(key_of("a")).text == "new"
    cache.close()


def test_a_relative_path_means_the_same_file_after_the_process_has_moved(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cache = SqliteCache("judge.sqlite")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    put(cache, "a")
    cache.close()
    assert os.listdir() == []
    cache = SqliteCache(tmp_path / "judge.sqlite")
    assert cache.get(key_of("a")).text == "a"
    cache.close()


def test_people_can_look_up_rows_by_the_beginning_of_their_key(path):
    cache = SqliteCache(path)
    for number in range(50):
        put(cache, number)
    cache.close()
    wanted = key_of(7).hex()
    ((key, text, material, stored_at),) = find(path, wanted[:12].upper())
    assert [row.key for row in find(path, wanted[:11])] == [wanted]
    assert (key, text, material) == (wanted, "7", b'{"name":"7"}')
    assert stored_at > 1.7e9
    assert len(find(path)) == 20


def test_no_pickle_is_in_the_file(path):
    cache = SqliteCache(path)
    put(cache, "a", "text")
    cache.close()
    connection = sqlite3.connect(path)
    (row,) = connection.execute("SELECT * FROM replies JOIN materials USING (key)").fetchall()
    connection.close()
    assert [type(column) for column in row] == [bytes, str, str, float, bytes]
    assert (*row[1:3], row[4]) == ("text", '{"total_tokens":3}', b'{"name":"\'a\'"}')


# Several processes.


def write_and_read(path, barrier, worker, count):
    """Open the same new file together with seven others; write own and shared rows; read everybody's."""
    barrier.wait()
    cache = SqliteCache(path)
    warnings = Warnings()
    logging.getLogger("rewardcore").addHandler(warnings)
    problems = warnings.messages
    for number in range(count):
        put(cache, f"{worker}-{number}")
        put(cache, f"shared-{number}")
        for other in range(8):
            reply = cache.get(key_of(f"{other}-{number}"))
            if reply is not None and reply.text != f"{other}-{number}":
                problems.append(f"mixed: {reply.text}")
    cache.close()
    if problems:
        raise SystemExit("; ".join(problems))


def test_eight_processes_on_one_new_file_lose_and_mix_nothing(path):
    barrier = spawn.Barrier(8)
    workers = [spawn.Process(target=write_and_read, args=(path, barrier, worker, 300)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    cache = SqliteCache(path)
    names = [f"{worker}-{number}" for worker in [*range(8), "shared"] for number in range(300)]
    assert [cache.get(key_of(name)).text for name in names] == names
    cache.close()


KILLED = """
import sys
from rewardcore import SqliteCache
from rewardcore.reply import Reply
import hashlib
cache = SqliteCache(sys.argv[1])
number = 0
while True:
    cache.put(hashlib.sha256(str(number).encode()).digest(), Reply(str(number) * 50), b"{}")
    number += 1
    if number % 1000 == 0:
        print(number, flush=True)
"""


@pytest.mark.parametrize("rounds", [1, 4])
def test_a_kill_in_the_middle_of_writing_leaves_a_file_that_opens_cleanly(path, rounds):
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
    for _ in range(rounds):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    cache = SqliteCache(path)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    rows = connection.execute("SELECT text FROM replies").fetchall()
    connection.close()
    for (text,) in rows:
        number = text[: len(text) // 50]
        assert cache.get(key_of(number)).text == number * 50
    put(cache, "after")
    cache.close()
    cache = SqliteCache(path)
    assert cache.get(key_of("after")).text == "after"
    cache.close()


AT_EXIT = """
import atexit, sys
from rewardcore import SqliteCache
from rewardcore.reply import Reply
cache = SqliteCache(sys.argv[1])

@atexit.register
def when_no_thread_can_begin():
    cache.put(b"late", Reply("late"), b"{}")
    assert cache.get(b"late").text == "late"
    cache.close()

if sys.argv[2] == "nobody closes it":
    atexit.unregister(when_no_thread_can_begin)
cache.put(b"early", Reply("early"), b"{}")
"""


@pytest.mark.parametrize(("ends", "rows"), [("nobody closes it", ["early"]), ("closed at exit", ["early", "late"])])
def test_rows_are_on_disk_after_a_regular_exit(path, ends, rows):
    done = subprocess.run([sys.executable, "-c", AT_EXIT, str(path), ends], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(found.text for found in find(path)) == rows


# Files that cannot be used.


def other_program(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (precious)")
    connection.execute("INSERT INTO theirs VALUES ('data')")
    connection.commit()
    connection.close()


def other_program_without_tables(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA application_id = 7")
    connection.commit()
    connection.close()


def other_version(path):
    SqliteCache(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()


def no_room_given_back(path):
    """As files were written before they could be made smaller while judges use them."""
    SqliteCache(path).close()
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")


def spoilt_header(path):
    SqliteCache(path).close()
    content = bytearray(path.read_bytes())
    content[100:1000] = b"\xff" * 900
    path.write_bytes(content)


UNUSABLE = {
    "corrupt": (lambda path: path.write_bytes(b"results\n" * 1000), "not a database"),
    "spoilt in the middle": (spoilt_header, "malformed"),
    "another program's": (other_program, "another program"),
    "another program's, empty": (other_program_without_tables, "another program"),
    "another version's": (other_version, "another version of rewardcore; delete it if"),
    "an earlier version's": (no_room_given_back, "another version of rewardcore; delete it if"),
    "a directory": (lambda path: path.mkdir(), "is a directory"),
    "in a directory that is not there": (lambda path: path.parent.rmdir(), "does not exist; make it"),
}


@pytest.mark.parametrize(("spoil", "says"), UNUSABLE.values(), ids=UNUSABLE)
def test_a_file_that_cannot_be_used_is_an_error_up_front_that_names_it(path, spoil, says):
    spoil(path)
    with pytest.raises(CacheError) as caught:
        SqliteCache(path)
    assert str(path) in str(caught.value)
    assert says in str(caught.value)
    assert "name another file" in str(caught.value)


@pytest.mark.parametrize("path", [None, 7, True, b"judge.sqlite", "", ":memory:", "a\0b"])
def test_what_is_no_path_is_named_and_makes_no_file(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CacheError, match=r"cache must be the path of a file, not .*; MemoryCache"):
        SqliteCache(path)
    assert list(tmp_path.iterdir()) == []


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with contextlib.closing(SqliteCache("~/judge.sqlite")) as cache:
        assert cache.path == tmp_path / "judge.sqlite"
    assert (tmp_path / "judge.sqlite").exists()


def test_a_directory_that_cannot_be_written_is_an_error_that_names_the_path():
    """/proc takes no files, not even from root."""
    with pytest.raises(CacheError, match=re.escape("/proc/judge.sqlite")):
        SqliteCache("/proc/judge.sqlite")


def test_another_programs_database_is_not_changed_by_looking_at_it(path):
    other_program(path)
    before = path.read_bytes()
    with pytest.raises(CacheError) as caught:
        SqliteCache(path)
    assert "delete" not in str(caught.value)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_an_empty_file_is_a_new_cache(path):
    path.touch()
    cache = SqliteCache(path)
    put(cache, "a")
    assert cache.get(key_of("a")).text == "a"
    cache.close()


# Files that break while they are used.


def drop_the_table(path):
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("DROP TABLE replies")
    connection.commit()
    connection.close()


def write_nonsense_rows(path):
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("UPDATE replies SET usage = '{not json'")
    connection.commit()
    connection.close()


def overwrite_with_garbage(path):
    """In place: whoever holds the file open meets it too. The write-ahead log is emptied first."""
    connection = sqlite3.connect(path, timeout=30)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with open(path, "r+b") as file:
        file.write(b"\xff" * os.path.getsize(path))


@pytest.mark.parametrize("spoil", [drop_the_table, write_nonsense_rows, overwrite_with_garbage])
def test_a_cache_that_breaks_in_mid_run_warns_once_and_steps_aside(path, warnings, spoil):
    first = SqliteCache(path)
    put(first, "a")
    first.close()
    cache = SqliteCache(path)
    spoil(path)
    for number in range(200):
        put(cache, number)
        cache.get(key_of("a"))
        cache.get(key_of(f"unknown {number}"))
    cache.close()
    assert len(warnings.messages) == 1
    assert str(path) in warnings.messages[0]
    assert "judging goes on" in warnings.messages[0]


def delete(path):
    path.unlink()


def replace_with_another(path):
    path.unlink()
    SqliteCache(path).close()


@pytest.mark.parametrize("take_away", [delete, replace_with_another])
@pytest.mark.parametrize("rows_after", [0, 200])
def test_a_file_that_is_deleted_while_it_is_used_is_told_once(path, warnings, take_away, rows_after):
    """SQLite would go on with a file that has no name any more, and lose every row at the end without a word."""
    cache = SqliteCache(path)
    put(cache, "a")
    cache.flush()
    take_away(path)
    for number in range(rows_after):
        put(cache, number)
        if number % 50 == 0:
            cache.flush()
    cache.close()
    assert len(warnings.messages) == 1
    assert (
        f"cache {path}: the file was deleted or replaced while it was in use; judging goes on" in warnings.messages[0]
    )


def test_a_writer_that_breaks_warns_once_and_the_reader_goes_on(path, warnings):
    cache = SqliteCache(path)
    drop_the_table(path)
    for number in range(100):
        put(cache, number)
    cache.flush()
    assert cache.get(key_of(1)) is None
    put(cache, "later")
    cache.close()
    assert len(warnings.messages) == 1


def test_a_writer_that_breaks_in_a_transaction_leaves_no_lock_behind(path, warnings):
    """A lock would stop every other process for as long as this judge lives."""
    cache = SqliteCache(path)
    other = sqlite3.connect(path, timeout=0, isolation_level=None)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON replies BEGIN SELECT RAISE(FAIL, 'disk full'); END")
    put(cache, "a")
    assert warnings.came.wait(30)
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    other.close()
    cache.close()
    assert len(warnings.messages) == 1


def test_a_file_with_a_table_that_older_versions_wrote_is_used_as_it_is(path):
    """They kept there how fast an endpoint could be asked."""
    with contextlib.closing(SqliteCache(path)) as cache:
        put(cache, "a")
    with contextlib.closing(sqlite3.connect(path)) as other, other:
        other.execute("CREATE TABLE learnt (endpoint TEXT PRIMARY KEY, facts TEXT NOT NULL, stored_at REAL NOT NULL)")
        other.execute("INSERT INTO learnt VALUES ('judge at one', '{\"window\": 80}', 0.0)")
    with contextlib.closing(SqliteCache(path)) as cache:
        put(cache, "b")
        assert [cache.get(key_of(name)).text for name in "ab"] == ["a", "b"]
    assert prune(path, lambda *_: None, keep_newest=1).deleted == 1
