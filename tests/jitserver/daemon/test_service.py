"""The verbs that look programs up: each computes the call key once, whatever the cache then does with it."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import msgspec
import pytest

from jitclient.capture.dump import capture
from jitclient.errors import ArrayBudgetExceeded, CaptureError, DaemonUnavailable
from jitclient.jaxside import tree
from jitclient.session.exceptions import to_exception
from jitclient.wire.explaining import Explain, Explained
from jitclient.wire.messages import (
    PROTOCOL,
    Failure,
    Found,
    Hello,
    Lookup,
    Manifest,
    Prepare,
    Prepared,
    Settle,
    Settled,
    Signature,
    Upload,
)
from jitclient.wire.reply import FAILED, OK
from jitserver.daemon.arrays.budget import ArrayBudget
from jitserver.daemon.service import JitService
from jitserver.daemon.sessions import presence
from jitserver.daemon.sessions.session import DaemonSession
from jitserver.daemon.uploads import Incoming
from jitserver.programs import keys
from jitserver.programs.counters import Counters
from jitserver.programs.devices import memories
from jitserver.programs.engine import Engine
from jitserver.store.disk import Store
from jitserver.store.memory import MemoryTier
from jitserver.store.tiers import Tiers
from jitserver.store.write_behind import Writer
from jitserver.system.shared_memory import BlockPool

CAPTURED = capture(lambda: 1)
TREE = tree.encode(tree.structure_of(tree.flatten(((), {}))[1]))
LOOKUP = Lookup(CAPTURED.key, CAPTURED.key, (), Signature(TREE, (), (), (), (), ()))
PREPARE = Prepare(LOOKUP, "function", "nowhere.py:1")


def engine_on(folder: Path) -> Engine:
    return Engine(Counters(), Tiers(MemoryTier(1 << 40, 1 << 20), Store(folder, 1 << 30), Writer(lambda: 0)))


class Client:
    """Asks a service of its own, without a connection between them; counts the keys that it computes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = engine_on(folder)
        self._service = JitService(self.engine, self.engine.counters, BlockPool(0), lambda: None, lambda reason: None)
        self._connection: Any = SimpleNamespace(
            session=DaemonSession(0, ArrayBudget()),
            pid=0,
            is_surplus=False,
            incoming=Incoming(),
            report_phase=lambda _: None,
        )
        self.keys = 0
        made = keys.CallKey

        def counted(text: str, rows: Mapping[str, bytes], base: str) -> keys.CallKey:
            self.keys += 1
            return made(text, rows, base)

        monkeypatch.setattr(keys, "CallKey", counted)

    def ask(self, verb: str, request: Any, kind: Any) -> Any:
        self.keys = 0
        said = getattr(self._service, f"exposed_{verb}")(self._connection, msgspec.msgpack.encode(request))
        assert said.startswith(OK), said
        return msgspec.msgpack.decode(said[len(OK) :], type=kind)

    def refused(self, verb: str, request: Any) -> BaseException:
        said = getattr(self._service, f"exposed_{verb}")(self._connection, msgspec.msgpack.encode(request))
        assert said.startswith(FAILED), said
        return to_exception(msgspec.msgpack.decode(said[len(FAILED) :], type=Failure))

    def prepare(self) -> Prepared:
        self.ask("upload", Upload(CAPTURED.key, 0, CAPTURED.payload), None)
        made: Prepared = self.ask("prepare", PREPARE, Prepared)
        return made

    def find(self, lookup: Lookup = LOOKUP) -> Prepared | None:
        found: Found = self.ask("lookup", lookup, Found)
        assert not found.names
        return found.prepared

    def settle(self, why: str = "") -> None:
        self.ask("settle", Settle(LOOKUP, "function", Manifest(), not why, why), Settled)


def test_each_verb_computes_the_key_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Client(tmp_path, monkeypatch)
    assert first.find() is None
    assert first.keys == 1
    first.prepare()
    assert first.keys == 1
    first.settle()
    assert first.keys == 1
    assert first.find() is not None
    assert first.keys == 1
    assert first.ask("explain", Explain(PREPARE), Explained).found is not None
    assert first.keys == 1
    assert first.engine.cache.close(60)
    following = Client(tmp_path, monkeypatch)
    assert following.find() is not None
    assert following.keys == 1
    assert following.engine.counters.restores == 1


def test_nobody_finds_a_program_before_its_client_has_agreed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(tmp_path, monkeypatch)
    client.prepare()
    assert client.find() is None
    assert not client.engine.cache.infos()
    client.prepare()  # as another process does meanwhile: it gets the same candidate, to compare it itself
    assert client.engine.counters.traces == 1
    client.settle()
    assert client.find() is not None
    assert client.engine.cache.close(60)
    assert Client(tmp_path, monkeypatch).find() is not None


def test_a_program_with_which_no_client_agreed_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(tmp_path, monkeypatch)
    client.prepare()
    client.settle("the trace changes the captured values")
    refused = client.refused("lookup", LOOKUP)
    assert isinstance(refused, CaptureError)
    assert str(refused) == "the trace changes the captured values"
    assert not client.engine.cache.infos()


def test_what_was_not_compared_is_found_by_those_alone_who_compare_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, unverified = Client(tmp_path, monkeypatch), msgspec.structs.replace(LOOKUP, unverified=True)
    client.ask("upload", Upload(CAPTURED.key, 0, CAPTURED.payload), None)
    request = msgspec.structs.replace(PREPARE, lookup=unverified, manifest=Manifest())
    assert not client.ask("prepare", request, Prepared).evidence.digest
    assert client.find(unverified) is not None
    assert client.find() is None


def test_a_session_begins_only_on_a_thread_on_which_jax_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(tmp_path, monkeypatch)

    def broken(*_: Any) -> None:
        raise RuntimeError("random_device could not be read")

    monkeypatch.setattr("jax.device_put", broken)
    client._connection.session = None
    failure = client.refused("hello", Hello(PROTOCOL, "1", "3.11", {}))
    assert isinstance(failure, DaemonUnavailable)
    assert "random_device" in str(failure)


def test_what_the_disk_cannot_make_again_its_client_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Client(tmp_path, monkeypatch)
    first.prepare()
    first.settle()
    [info] = first.engine.cache.infos()
    assert first.engine.cache.close(60)
    store = Store(tmp_path, 1 << 30)
    stored = store.get(info.key)
    assert stored is not None
    store.put(dataclasses.replace(stored, request=b"none"), b"", b"")
    store.close()
    following = Client(tmp_path, monkeypatch)
    assert following.find() is None
    following.prepare()
    assert following.engine.counters.traces == 1


def test_arrays_of_a_client_that_has_been_away_make_room_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_on(tmp_path)
    limits = {memories.default(): 1000 << 10}
    sessions = JitService(engine, engine.counters, BlockPool(0), lambda: None, lambda reason: None, limits).sessions
    budget = sessions.budget.default
    session, first = sessions.begin(0)
    session.keep(first, [jnp.zeros(600 << 10, "uint8")])
    sessions.leave(session, 0)
    with pytest.raises(ArrayBudgetExceeded):
        budget.recount(600 << 10, "f()")
    monkeypatch.setattr(presence, "monotonic", lambda: time.monotonic() + 1800)
    with pytest.raises(ArrayBudgetExceeded, match=r"on another machine, away for 0\.5 h"):
        budget.recount(1001 << 10, "f()", kept_free=1)
    budget.recount(600 << 10, "f()")
    assert session.ended
    assert budget.left == 400 << 10
