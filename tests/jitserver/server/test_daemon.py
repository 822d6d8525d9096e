"""What the daemon tells those that work for it."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jitclient.wire.address import Address
from jitserver.server import daemon as daemon_module
from jitserver.server.daemon import Daemon
from jitserver.server.options import Options
from jitserver.sessions.registry import Sessions


def test_dry_runs_begin_while_nobody_is_connected_and_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon, sessions, told = Daemon(Options(Address(Path("/nowhere")))), Sessions(), list[Any]()
    daemon._service = SimpleNamespace(sessions=sessions)  # type: ignore[assignment]
    monkeypatch.setattr(daemon_module, "prewarm", lambda engine, stop: ["key"])
    monkeypatch.setattr(daemon_module, "dry_run", lambda *arguments: told.extend(arguments))
    daemon._prewarm("engine")  # type: ignore[arg-type]
    engine, keys, may_begin, find_room = told
    assert (engine, keys, find_room) == ("engine", ["key"], sessions.budget.recount)
    assert may_begin()
    session, _ = sessions.begin(os.getpid())
    assert not may_begin()
    session.presence.part()
    sessions.leave(session, os.getpid())
    assert may_begin()
    sessions.begin(os.getpid())[0].presence._connected.clear()  # it waits for its client
    assert may_begin()
    daemon._end(leaves_sessions=True)
    assert not may_begin()
