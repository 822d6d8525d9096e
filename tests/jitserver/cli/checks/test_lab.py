"""The doctor's check of the lab's cache."""

from pathlib import Path

import pytest

from jitclient.wire.address import Address
from jitclient.wire.introspection import ShareStatus, Status
from jitserver.cli.checks.finding import DaemonState
from jitserver.cli.checks.lab import lab

URL = "memory://lab"


def found(share: ShareStatus | None, is_running: bool = True) -> list[tuple[str, str]]:
    status = Status(**{**dict.fromkeys(Status.__struct_fields__, 0), "share": share}) if is_running else None
    return [(each.level, each.says) for each in lab(DaemonState(Address(Path("/nowhere/d.sock")), status))]


def told(rejected: int = 0, why_off: str = "", url: str = URL) -> ShareStatus:
    return ShareStatus(url, True, 3, 1, 2, 7.0, {"signature": rejected} if rejected else {}, why_off)


def test_without_a_lab_there_is_nothing_to_say() -> None:
    assert found(None) == []


def test_what_a_lab_may_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JITSERVER_SHARE", URL)
    assert found(None)[0][0] == "problem"
    monkeypatch.setenv("JITSERVER_SHARE_KEY", "a secret of the project")
    assert found(None, is_running=False) == [("ok", f"{URL}, used by the next daemon")]
    assert [level for level, _ in (*found(None), *found(told(url="s3://other")))] == ["warning", "warning"]
    assert found(told(why_off="it hangs")) == [("warning", f"{URL} is not used now: it hangs")]
    assert found(told(rejected=2)) == [
        ("warning", f"{URL}: 3 found (7.0 s saved), 1 missed, 2 uploaded, 2 rejected (signature)")
    ]
    assert found(told())[0][0] == "ok"
    monkeypatch.setenv("JITSERVER_SHARE", "nonsense://lab")
    assert found(None)[0][0] == "problem"
