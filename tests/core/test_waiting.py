"""What a person is told who waits for something to start."""

import pytest

from rewardcore import progress
from rewardcore.progress import waiting


def test_a_short_wait_is_not_worth_a_word() -> None:
    told: list[str] = []
    with waiting("vLLM", told.append) as tell:
        for tenth in range(20):
            tell(tenth / 10, "loading")
    assert told == []


def test_a_long_wait_is_told_now_and_then_and_when_it_is_over() -> None:
    told: list[str] = []
    with waiting("vLLM", told.append) as tell:
        for second in range(15):
            tell(second, f"shard {second}" if second > 2 else "")
    assert told == ["waiting for vLLM, 2 s", "waiting for vLLM, 12 s, shard 12", "vLLM is ready after 14 s"]


def test_what_failed_is_not_called_ready() -> None:
    told: list[str] = []

    def fail() -> None:
        with waiting("vLLM", told.append) as tell:
            tell(3, "loading")
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fail()
    assert told == ["waiting for vLLM, 3 s, loading"]


def test_nobody_is_told_who_does_not_want_to_know(capsys: pytest.CaptureFixture[str]) -> None:
    with waiting("vLLM", False) as tell:
        tell(100, "loading")
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_one_line_changes_in_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    with waiting("vLLM") as tell:
        tell(2, "loading")
        tell(2.25, "x" * 100)
    assert capsys.readouterr().err == (
        "\r\x1b[Kwaiting for vLLM, 2 s, loading"
        "\r\x1b[K" + ("waiting for vLLM, 2 s, " + "x" * 100)[:39] + "\r\x1b[KvLLM is ready after 2 s\n"
    )
