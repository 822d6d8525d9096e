"""Machines that want one compilation at a time make it once, and no claim of a machine that is gone holds them up."""

import concurrent.futures
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from jitserver.store.share import compilations, entries
from jitserver.store.share.compilations import SharedCompilations
from jitserver.store.share.objects import Objects
from jitserver.store.share.share import Share


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilations, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(compilations, "_RENEW_SECONDS", 0.01)


@pytest.fixture
def machine(member: Callable[..., Share]) -> Callable[..., SharedCompilations]:
    """A machine of the lab, which uploads at once."""
    return lambda **more: SharedCompilations(member(**more), lambda _, upload: upload())


def claim_of(url: str) -> str:
    return "/" + url.removeprefix("memory://") + "/" + entries.claim_name("key")


class Dead(SharedCompilations):
    """A machine that is gone: it renews no claim."""

    def _renew(self) -> None:
        pass


def test_of_machines_that_start_together_one_compiles(
    machine: Callable[..., SharedCompilations], tmp_path: Path
) -> None:
    made = []

    def run(_: int) -> bytes:
        here = machine(url=f"file://{tmp_path}")  # where to create an entry is atomic
        found = here.get("key")
        if found is not None:
            assert found[1] == 7.0
            return found[0]
        made.append(here)
        here.put("key", b"executable", 7.0)
        return b"executable"

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert set(threads.map(run, range(8))) == {b"executable"}
    assert len(made) == 1


def test_a_claim_lasts_while_its_machine_compiles_and_no_longer(
    machine: Callable[..., SharedCompilations], url: str
) -> None:
    first, other = machine(), machine()
    files = fsspec.filesystem("memory")
    assert first.get("key") is None
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(other.get, "key")
        seen = {files.cat_file(claim_of(url))}
        while len(seen) < 3:  # it is renewed
            seen.add(files.cat_file(claim_of(url)))
        assert not waiting.done()
        first.release("key")  # the compilation failed
        assert waiting.result() is None
    other.release("key")
    assert not files.exists(claim_of(url))


def test_a_machine_that_is_gone_holds_up_nobody(
    machine: Callable[..., SharedCompilations], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Dead(machine()._share, lambda _, upload: None).get("key") is None
    monkeypatch.setattr(compilations, "_STALE_SECONDS", 0.05)
    assert machine().get("key") is None


def test_a_machine_that_may_only_read_leaves_the_claim_of_one_that_is_gone(
    machine: Callable[..., SharedCompilations], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Dead(machine()._share, lambda _, upload: None).get("key") is None
    monkeypatch.setattr(compilations, "_STALE_SECONDS", 0.05)
    assert machine(writes=False).get("key") is None
    assert fsspec.filesystem("memory").exists(claim_of(url))


def test_claims_that_are_written_again_renew_nothing(
    machine: Callable[..., SharedCompilations], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, first = fsspec.filesystem("memory"), machine()
    assert first.get("key") is None
    claims = [files.cat_file(claim_of(url))]
    while len(claims) < 2:
        claims += [claim for claim in [files.cat_file(claim_of(url))] if claim not in claims]
    first.release("key")
    turns, asked = itertools.cycle(claims), []

    def get(self: Objects, name: str, max_bytes: int) -> bytes | None:
        asked.append(name)
        return next(turns) if name == entries.claim_name("key") else None

    monkeypatch.setattr(Objects, "get", get)
    monkeypatch.setattr(compilations, "_STALE_SECONDS", 0.05)
    monkeypatch.setattr(compilations, "_MAX_WAIT_SECONDS", 5.0)
    assert machine(writes=False).get("key") is None
    assert len(asked) < 100


@pytest.mark.parametrize("forbidden", ["reading", "writing"])
def test_a_claim_that_is_forbidden_holds_up_nobody(
    forbidden: str, machine: Callable[..., SharedCompilations], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def forbid(self: Objects, name: str, *_: Any) -> None:
        asked.append(name)
        raise PermissionError(13, "Permission denied", name)

    here = machine()
    monkeypatch.setattr(Objects, *(("get", forbid) if forbidden == "reading" else ("create", forbid)))
    if forbidden == "reading":
        monkeypatch.setattr(Objects, "create", lambda *_: False)
    monkeypatch.setattr(compilations, "_STALE_SECONDS", 0.05)
    monkeypatch.setattr(compilations, "_MAX_WAIT_SECONDS", 5.0)
    assert here.get("key") is None
    assert 0 < len(asked) < 100


def test_a_compiler_that_hangs_elsewhere_is_not_waited_for_for_ever(
    machine: Callable[..., SharedCompilations], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = machine(), machine()
    assert first.get("key") is None  # and its claim is renewed for as long as it takes
    monkeypatch.setattr(compilations, "_MAX_WAIT_SECONDS", 0.05)
    assert other.get("key") is None
    assert fsspec.filesystem("memory").exists(claim_of(url))  # it is the other's
    first.release("key")


def test_a_claim_that_no_member_has_signed_holds_up_nobody(
    machine: Callable[..., SharedCompilations], url: str
) -> None:
    fsspec.filesystem("memory").pipe_file(claim_of(url), b"I compile, for ever")
    assert machine().get("key") is None


def test_what_is_quick_or_may_not_be_written_leaves_no_claim(
    machine: Callable[..., SharedCompilations], url: str
) -> None:
    assert machine(writes=False).get("key") is None
    here = machine()
    assert here.get("key") is None
    here.put("key", b"executable", 0.5)
    assert machine(writes=False).get("key") is None
    assert not fsspec.filesystem("memory").exists(claim_of(url))


def test_a_storage_that_fails_holds_up_nobody(member: Callable[..., Share], monkeypatch: pytest.MonkeyPatch) -> None:
    share = member()

    def refuse(*_: Any) -> bytes:
        raise RuntimeError("the bucket is gone")

    monkeypatch.setattr(share.storage._objects(), "get", refuse)
    here = SharedCompilations(share, lambda _, upload: upload())
    assert here.get("key") is None
    here.put("key", b"executable", 7.0)


def test_a_machine_that_has_just_finished_is_noticed(
    machine: Callable[..., SharedCompilations], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = machine(), machine()
    assert first.get("key") is None
    looked = other._found

    def look(key: str) -> tuple[bytes, float] | None:
        found = looked(key)
        if found is None:
            first.put("key", b"executable", 7.0)  # and its claim is gone
        return found

    monkeypatch.setattr(other, "_found", look)
    assert other.get("key") == (b"executable", 7.0)
    assert not other._held
