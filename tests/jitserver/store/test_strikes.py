"""Strikes: shared by all daemons of a cache folder, removed when a phase succeeds or on request."""

import os
import threading
from pathlib import Path

import pytest

from jitserver.store import checked_files
from jitserver.store import strikes as strikes_module
from jitserver.store.strikes import DRY_RUN, KILLS_PER_STRIKE, Strikes, Work

A, B = "a" * 32, "b" * 32


def struck(strikes: Strikes, *works: tuple[str, str]) -> None:
    for key, phase in works:
        strikes.add([Work(phase, key, f"{key[0]}(f32[])")], 1.0)


def of(strikes: Strikes, key: str) -> list[str]:
    suspect = strikes.of(key)
    return [strike.phase for strike in suspect.strikes] if suspect else []


def test_three_strikes_refuse_a_program_and_say_in_which_phase(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path)
    struck(strikes, (A, "tracing"), (A, "running"))
    assert strikes.refusal(A) == ""
    struck(strikes, (A, "running"))
    text = strikes.refusal(A)
    assert text.startswith(
        "the daemon refuses a(f32[]) after it crashed once while tracing it and twice while running it, last"
    )
    assert strikes.refusal(B) == ""


def test_kills_are_told_from_crashes(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path)
    struck(strikes, (A, "tracing"), (A, "running"))
    for _ in range(KILLS_PER_STRIKE):
        assert strikes.refusal(A) == ""
        strikes.add([Work("running", A, "a(f32[])")], 1.0, killed=True)
    how = "it crashed once while tracing it and once while running it, and was killed 3 times while running it, last at"
    assert how in strikes.refusal(A)


def test_strikes_of_dry_runs_refuse_no_calls(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path)
    struck(strikes, (A, DRY_RUN), (A, "running"), (A, DRY_RUN), (A, DRY_RUN), (A, "running"))
    assert strikes.refusal(A) == ""
    struck(strikes, (A, "running"), (A, DRY_RUN))
    assert "after it crashed 3 times while running it, last" in strikes.refusal(A)


def test_another_daemon_sees_strikes_at_once(tmp_path: Path) -> None:
    one, other = Strikes(tmp_path), Strikes(tmp_path)
    struck(one, (A, "running"))
    assert of(other, A) == ["running"]
    struck(other, (A, "tracing"), (B, "tracing"))
    assert of(one, A) == ["running", "tracing"]
    one.clear(A)
    assert (of(other, A), of(other, B)) == ([], ["tracing"])


def test_a_phase_that_succeeds_removes_only_its_own_strikes(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path)
    struck(strikes, (A, "tracing"), (A, "running"), (A, "tracing"), (B, "tracing"))
    strikes.forgive(A, "compiling")
    assert of(strikes, A) == ["tracing", "running", "tracing"]
    strikes.forgive(A, "tracing")
    assert (of(strikes, A), of(strikes, B)) == (["running"], ["tracing"])
    strikes.forgive(A, "running")
    assert (of(Strikes(tmp_path), A), of(Strikes(tmp_path), B)) == ([], ["tracing"])


def test_strikes_are_cleared_by_key_by_name_and_all(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path)
    for prefix, left in (("aaa", [B]), ("a", [B]), ("", []), ("c", [A, B])):
        struck(strikes, (A, "running"), (B, "running"))
        assert sorted(strikes.clear(prefix)) == sorted({A, B} - set(left))
        assert [key for key in (A, B) if of(Strikes(tmp_path), key)] == left
        strikes.clear("")


def test_eight_daemons_change_strikes_concurrently(tmp_path: Path) -> None:
    def change(number: int) -> None:
        mine = Strikes(tmp_path)
        for n in range(10):
            struck(mine, (f"{number}{n}" * 16, "running"))

    threads = [threading.Thread(target=change, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(Strikes(tmp_path).clear("")) == 80


@pytest.mark.parametrize("content", [None, b"", b"\0\1\2", b"[1]", b'{"a": {"label": 3}}'])
def test_an_unreadable_file_is_discarded_with_one_warning(
    tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    struck(Strikes(tmp_path), (A, "running"))
    caplog.clear()
    if content is None:
        os.truncate(tmp_path / "strikes", 20)
    else:
        checked_files.write(tmp_path / "strikes", [content])
    strikes = Strikes(tmp_path)
    assert [of(strikes, A), of(strikes, A)] == [[], []]
    assert len(caplog.records) == 1
    struck(strikes, (A, "running"))
    assert of(Strikes(tmp_path), A) == ["running"]


def test_removing_the_file_removes_the_strikes(tmp_path: Path) -> None:
    strikes = Strikes(tmp_path)
    struck(strikes, (A, "running"))
    (tmp_path / "strikes").unlink()
    assert of(strikes, A) == []


def test_strikes_that_cannot_be_written_hold_for_this_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    strikes = Strikes(tmp_path / "file")
    assert not strikes.add([Work("running", A, "a()")], 1.0)
    struck(strikes, (A, "running"), (A, "running"))
    assert strikes.refusal(A)
    assert sum("cannot be saved" in record.message for record in caplog.records) == 1
    strikes.forgive(A, "running")
    assert of(strikes, A) == []


def test_the_oldest_strikes_are_dropped_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strikes_module, "_MAX_SUSPECTS", 2)
    strikes = Strikes(tmp_path)
    struck(strikes, (A, "running"), (B, "running"), (A, "running"), ("c" * 32, "running"))
    assert [of(strikes, A), of(strikes, B), of(strikes, "c" * 32)] == [["running"] * 2, [], ["running"]]
