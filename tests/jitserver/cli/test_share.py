"""`jitserver share`: what the lab's cache has, what is valid there, and what goes."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

from jitclient.core import directories
from jitclient.core.settings import settings
from jitclient.wire.introspection import EntryInfo
from jitclient.wire.messages import Lookup, Prepare, Signature
from jitserver.store.disk import Store
from jitserver.store.entry import KeyComponents, Stored

pytestmark = pytest.mark.core
SECRET = "a secret of the project"


def key(number: int) -> str:
    return f"{number:032x}"


def keep(store: Store, at: str, name: str, seconds: float, executable: bytes = b"executable") -> None:
    now = time.time()
    where = "/home/me/f.py:1"
    info = EntryInfo(at, "", name, where, f"{name}()", "", "", {}, {"compile": seconds}, 0.0, 0, now, now, 0, base=at)
    request = Prepare(Lookup("capture", "function", (), Signature(b"", (), (), (), (), ())), name, info.where)
    store.put(Stored(info, KeyComponents({}), b"facts", msgspec.msgpack.encode(request)), executable, b"capture")


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a lab's cache, and an environment with programs on its disk."""
    monkeypatch.setenv("JITSERVER_SHARE", f"file://{tmp_path}/lab")
    monkeypatch.setenv("JITSERVER_SHARE_KEY", SECRET)
    monkeypatch.setenv("JITSERVER_CACHE_DIR", f"{tmp_path}/cache")
    settings.cache_clear()
    store = Store(directories.environment_directory(), 1 << 30)
    keep(store, key(1), "step", 5.0)
    keep(store, key(2), "loss", 5.0)
    keep(store, key(3), "loss", 0.2)
    keep(store, key(4), "loss", 5.0, b"")
    store.close()
    return tmp_path / "lab"


def json_of(result: Result) -> Any:
    return json.loads(result.stdout)


def test_programs_are_copied_once(lab: Path, here: Callable[..., Result]) -> None:
    assert json_of(here("cache", "copy", "disk", "lab", "step", "--json"))["programs"] == 1
    told = json_of(here("cache", "copy", "disk", "lab", "--json"))
    left_out = {"already there": 1, "too quick to make": 1, "without executable": 1}
    assert (told["programs"], told["left_out"]) == (1, left_out)
    told = json_of(here("share", "status", "--json"))
    assert (told["url"], told["programs"], told["writes"]) == (f"file://{lab}", 2, True)
    assert told["bytes"] == sum(file.stat().st_size for file in lab.rglob("program"))
    assert ["programs", "2"] in [line.split() for line in here("share", "status").stdout.splitlines()]
    assert here("cache", "copy", "disk", "lab").stdout.startswith(
        "copied 0 programs and 0 compilations; left out: 2 al"
    )


def test_a_member_that_only_reads_copies_nothing(
    lab: Path, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITSERVER_SHARE_MODE", "read")
    done = here("cache", "copy", "disk", "lab", "--json")
    assert done.exit_code == 1
    assert "this machine may not upload" in json_of(done)["error"]
    assert not lab.exists()


def test_entries_that_are_not_valid_are_named_and_removed(lab: Path, here: Callable[..., Result]) -> None:
    here("cache", "copy", "disk", "lab")
    good = here("share", "verify", "--json")
    assert good.exit_code == 0
    assert list(json_of(good)["valid"].values()) == [2]
    next(lab.rglob(f"{key(1)}/program")).write_bytes(b"garbage")
    bad = here("share", "verify")
    assert bad.exit_code == 1
    assert "not valid (unsigned): " in bad.stdout
    assert here("share", "verify", "--remove").exit_code == 0
    assert [file.parent.name for file in lab.rglob("program")] == [key(2)]


def test_a_wrong_key_removes_nothing(lab: Path, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    here("cache", "copy", "disk", "lab")
    monkeypatch.setenv("JITSERVER_SHARE_KEY", "a secret of another project")
    done = here("share", "verify", "--remove", "--json")
    assert done.exit_code == 1
    assert "none is removed" in json_of(done)["error"]
    assert len(list(lab.rglob("program"))) == 2


def test_what_saves_least_goes_first(lab: Path, here: Callable[..., Result]) -> None:
    store = Store(directories.environment_directory(), 1 << 30)
    keep(store, key(5), "slow", 500.0, b"x" * (1 << 20))
    store.close()
    here("cache", "copy", "disk", "lab")
    (large,) = lab.rglob(f"{key(5)}/program")
    hour = time.time() - 3600
    os.utime(large, (hour, hour))  # the oldest is not the least valuable
    limit = str((large.stat().st_size + 10) / (1 << 30))
    assert json_of(here("share", "gc", "--max-size", limit, "--json"))["entries"] == 2
    assert [*lab.rglob("program")] == [large]
    month = time.time() - 200 * 24 * 3600
    os.utime(large, (month, month))  # now worth less than the others, for its size
    here("cache", "copy", "disk", "lab")
    here("share", "gc", "--max-size", limit)
    assert sorted(file.parent.name for file in lab.rglob("program")) == [key(1), key(2)]


def test_old_programs_go(lab: Path, here: Callable[..., Result]) -> None:
    here("cache", "copy", "disk", "lab")
    assert here("share", "gc").exit_code == 2
    assert json_of(here("share", "gc", "--older-than", "1", "--json"))["entries"] == 0
    assert json_of(here("share", "gc", "--max-size", "0", "--dry-run", "--json"))["entries"] == 2
    assert len(list(lab.rglob("program"))) == 2
    assert here("share", "gc", "--max-size", "0").stdout.startswith("removed 2 entries")
    assert list(lab.rglob("program")) == []


def test_without_a_lab_each_command_says_so(here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JITSERVER_SHARE", raising=False)
    lab = ("share", "status"), ("share", "verify"), ("share", "gc", "--max-size", "1"), ("cache", "copy", "disk", "lab")
    for words in lab:
        done = here(*words, "--json")
        assert done.exit_code == 1
        assert "set JITSERVER_SHARE to its URL" in json_of(done)["error"]


def test_a_storage_that_refuses_is_an_error(
    lab: Path, here: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.write_text("not a folder")
    done = here("cache", "copy", "disk", "lab", "--json")
    assert done.exit_code == 1
    assert f"cannot use file://{lab}" in json_of(done)["error"]
