"""Actions at the first use of jitclient: once, or never in a process that is no program."""

import pytest

from jitclient.core import first_use


def test_an_action_is_called_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "_actions", [])
    called: list[str] = []
    first_use.when_used(lambda: called.append("a"))
    first_use.note()
    first_use.note()
    assert called == ["a"]


def test_a_worker_forgets_the_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "_actions", [])
    called: list[str] = []
    first_use.when_used(lambda: called.append("a"))
    first_use.forget()
    first_use.note()
    assert called == []
