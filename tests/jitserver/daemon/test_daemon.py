"""Environment that the daemon passes to its helpers."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.wire.address import Address
from jitserver.daemon import daemon as daemon_module
from jitserver.daemon.daemon import Daemon
from jitserver.daemon.serve_options import Options
from jitserver.daemon.sessions.registry import Sessions


def test_dry_runs_begin_only_without_clients_and_before_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, sessions, told = Daemon(Options(Address(Path("/nowhere")))), Sessions(), list[Any]()
    daemon._service = SimpleNamespace(sessions=sessions)  # type: ignore[assignment]
    daemon._listener = SimpleNamespace(heartbeat=SimpleNamespace(working=lambda: 0))  # type: ignore[assignment]
    monkeypatch.setattr(daemon_module, "prewarm", lambda engine, goes_on: ["key"])
    monkeypatch.setattr(daemon_module, "dry_run", lambda *arguments: told.extend(arguments))
    daemon._prewarm("engine")  # type: ignore[arg-type]
    engine, keys, may_begin, find_room = told
    assert (engine, keys, find_room) == ("engine", ["key"], sessions.budget.default.recount)
    assert may_begin()
    session, _ = sessions.begin(os.getpid())
    assert not may_begin()
    session.presence.goodbye()
    sessions.leave(session, os.getpid())
    assert may_begin()
    sessions.begin(os.getpid())[0].presence._connected.clear()  # it waits for its client
    assert may_begin()
    daemon._request_shutdown(save_sessions=True)
    assert not may_begin()


def test_programs_are_loaded_ahead_only_while_no_client_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, waiting, told = Daemon(Options(Address(Path("/nowhere")))), [2, 1, 0, 0, 1, 1, 1], list[Any]()
    daemon._service = SimpleNamespace(sessions=Sessions())  # type: ignore[assignment]
    daemon._listener = SimpleNamespace(heartbeat=SimpleNamespace(working=lambda: waiting.pop(0)))  # type: ignore[assignment]
    monkeypatch.setattr(daemon_module, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(daemon_module, "dry_run", lambda *_: None)

    def loads(engine: Any, goes_on: Any) -> list[str]:
        told.append((goes_on(), list(waiting)))
        told.append((goes_on(), list(waiting)))
        daemon._request_shutdown(save_sessions=True)
        told.append((goes_on(), list(waiting)))
        return []

    monkeypatch.setattr(daemon_module, "prewarm", loads)
    daemon._prewarm("engine")  # type: ignore[arg-type]
    assert told == [(True, [0, 1, 1, 1]), (True, [1, 1, 1]), (False, [1, 1])]
