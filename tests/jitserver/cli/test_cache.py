"""`jitserver cache`: what is listed, with a daemon and without one; what stays, and what is deleted."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jitclient
from jitclient.core.directories import captures_directory, environment_digest
from jitclient.wire.introspection import EntryInfo
from jitserver.store.catalog import CATALOG, Catalog
from jitserver.store.entry import KeyComponents, Stored

PROGRAM = """
    import json, numpy as np, jitclient

    @jitclient.jit
    def kept(x):
        return x * 2

    for rows in (2, 3):
        kept(np.zeros(rows, np.float32))
    print(json.dumps(jitclient.function_key(kept)))
"""


def info(number: int, **said: Any) -> EntryInfo:
    told: dict[str, Any] = {
        **{"key": f"{number:032x}", "function_key": "f", "name": f"step_{number}", "where": "x.py:1"},
        **{"label": f"step_{number}(f32[3])", "signature": f"step_{number}(f32[3])", "options": "", "context": {}},
        **{"seconds": {"compile": 1.0}, "saved": 0.0, "hits": 0, "created": 1e9, "last_used": 1e9, "code_bytes": 0},
    }
    return EntryInfo(**{**told, **said})


@pytest.fixture
def nobody(short_path: Path) -> dict[str, str]:
    """No daemon, and a cache of its own."""
    return {"JITSERVER_ADDRESS": f"unix:{short_path}/d.sock", "JITSERVER_CACHE_DIR": str(short_path / "cache")}


@pytest.fixture
def on_disk(nobody: dict[str, str]) -> Callable[[list[EntryInfo]], None]:
    """Puts programs into the catalog."""

    def put(infos: list[EntryInfo]) -> None:
        part = Path(nobody["JITSERVER_CACHE_DIR"]) / environment_digest()
        part.mkdir(parents=True)
        catalog = Catalog(part / CATALOG)
        for one in infos:
            catalog.add(Stored(one, KeyComponents({}), b"", b""), {})
        catalog.close()

    return put


def listed(done: Any) -> list[str]:
    assert done.returncode == 0, done.stderr
    return [entry["name"] for entry in json.loads(done.stdout)]


@pytest.mark.slow
def test_the_order_is_chosen(
    cli: Callable[..., Any], nobody: dict[str, str], on_disk: Callable[[list[EntryInfo]], None]
) -> None:
    on_disk(
        [
            info(1, saved=3.0, hits=1, last_used=1e9 + 2, disk_bytes=20),
            info(2, saved=1.0, hits=3, last_used=1e9 + 1, disk_bytes=30),
            info(3, saved=2.0, hits=2, last_used=1e9 + 3, code_bytes=10),
        ]
    )
    orders = {
        "saved": ["step_1", "step_3", "step_2"],
        "hits": ["step_2", "step_3", "step_1"],
        "size": ["step_2", "step_1", "step_3"],
        "last": ["step_3", "step_1", "step_2"],
    }
    for order, names in orders.items():
        assert listed(cli("cache", "ls", "--sort", order, "--json", env=nobody)) == names
    assert listed(cli("cache", "ls", "--json", env=nobody)) == orders["last"]
    assert cli("cache", "ls", "--sort", "nonsense", env=nobody).returncode == 2


def test_a_glob_is_for_names_and_labels(
    cli: Callable[..., Any], nobody: dict[str, str], on_disk: Callable[[list[EntryInfo]], None]
) -> None:
    on_disk([info(1), info(2, label="step_2(bf16[3])"), info(11)])
    assert set(listed(cli("cache", "ls", "--match", "step_1*", "--json", env=nobody))) == {"step_1", "step_11"}
    assert listed(cli("cache", "ls", "--match", "step_1", "--json", env=nobody)) == ["step_1"]
    assert listed(cli("cache", "ls", "--match", "*bf16*", "--json", env=nobody)) == ["step_2"]
    assert listed(cli("cache", "ls", "--match", "nothing", "--json", env=nobody)) == []


@pytest.mark.slow
def test_a_table_has_fifty_rows_and_says_how_many_more_there_are(
    cli: Callable[..., Any], nobody: dict[str, str], on_disk: Callable[[list[EntryInfo]], None]
) -> None:
    on_disk([info(number) for number in range(60)])

    def rows(*options: str) -> int:
        return cli("cache", "ls", *options, env=nobody).stdout.count("step_")

    assert rows() == 50
    assert "and 10 more" in cli("cache", "ls", env=nobody).stdout
    assert rows("--limit", "7") == 7
    assert rows("--limit", "0") == 60
    assert "more" not in cli("cache", "ls", "--limit", "0", env=nobody).stdout
    assert "more" not in cli("cache", "ls", "--limit", "61", env=nobody).stdout
    assert len(listed(cli("cache", "ls", "--json", env=nobody))) == 60
    assert len(listed(cli("cache", "ls", "--json", "--limit", "7", env=nobody))) == 7


def test_without_a_daemon_the_disk_is_told_of_and_nothing_is_changed(
    cli: Callable[..., Any], nobody: dict[str, str], new_daemon: Callable[..., Any], run_script: Callable[..., Any]
) -> None:
    with new_daemon(nobody["JITSERVER_ADDRESS"], env=nobody):
        function_key = run_script(PROGRAM, env=nobody)
        running = json.loads(cli("cache", "ls", "--json", env=nobody).stdout)
        reasons = cli("cache", "why", "kept", env=nobody).stdout
    stopped = json.loads(cli("cache", "ls", "--json", env=nobody).stdout)
    assert {entry["key"] for entry in stopped} == {entry["key"] for entry in running}
    assert len(stopped) == 2
    assert not any(entry["in_memory"] for entry in stopped)
    assert "argument x: float32[2] -> float32[3]" in reasons
    assert cli("cache", "why", "kept", env=nobody).stdout == reasons

    shown = cli("cache", "show", "kept", env=nobody)
    assert (shown.returncode, shown.stdout.count(function_key)) == (0, 2)
    assert "on the disk" in shown.stdout
    assert "in memory" not in shown.stdout
    assert cli("cache", "show", "no-such-key", env=nobody).returncode == 1
    for command in (("show", "kept", "--hlo"), ("rm", "kept"), ("clear",), ("pin", "kept"), ("gc",)):
        assert cli("cache", *command, env=nobody).returncode == 3
    assert len(listed(cli("cache", "ls", "--json", env=nobody))) == 2


def test_a_catalog_that_cannot_be_read_is_none(cli: Callable[..., Any], nobody: dict[str, str]) -> None:
    part = Path(nobody["JITSERVER_CACHE_DIR"]) / environment_digest()
    part.mkdir(parents=True)
    (part / CATALOG).write_bytes(b"no catalog at all" * 100)
    assert cli("cache", "ls", env=nobody).returncode == 3
    assert (part / CATALOG).exists()


def test_programs_are_pinned_and_let_go_again(daemon: str, cli: Callable[..., Any]) -> None:
    @jitclient.jit
    def to_be_pinned(x: Any) -> Any:
        return x * 1.25

    np.asarray(to_be_pinned(np.zeros(3, np.float32)))

    def entry() -> dict[str, Any]:
        [found] = json.loads(cli("cache", "show", "to_be_pinned", "--json").stdout)
        return found  # type: ignore[no-any-return]

    assert entry()["pinned"] is False
    assert cli("cache", "pin", "to_be_pinned").stdout == "pinned 1 program\n"
    assert entry()["pinned"] is True
    assert "pinned" in cli("cache", "ls", "--match", "to_be_pinned").stdout
    assert json.loads(cli("cache", "unpin", entry()["key"][:10], "--json").stdout) == [entry()["key"]]
    assert entry()["pinned"] is False
    assert cli("cache", "pin", "no-such-key").returncode == 1
    assert cli("cache", "pin", "").returncode == 2


@pytest.mark.core  # no other test of the core collects
def test_gc_deletes_what_is_over_a_bound_and_says_how_much(
    cli: Callable[..., Any], nobody: dict[str, str], new_daemon: Callable[..., Any], until: Callable[..., Any]
) -> None:
    with new_daemon(nobody["JITSERVER_ADDRESS"], "--disk", "1", env=nobody):
        assert json.loads(cli("cache", "gc", "--json", env=nobody).stdout) == {"freed_bytes": 0}
        compilations = Path(nobody["JITSERVER_CACHE_DIR"]) / environment_digest() / "compilations"
        compilations.mkdir(exist_ok=True)

        def said_after_leaving_too_much() -> str:
            (compilations / "left").write_bytes(bytes(1 << 20))
            return str(cli("cache", "gc", env=nobody).stdout)

        # The daemon's clean-up at its start may come first, once.
        until(lambda: said_after_leaving_too_much() == "freed 1 MiB\n", "gc to free what was too much")
        assert not (compilations / "left").exists()


def test_more_entries_than_one_message_holds_are_all_listed(
    cli: Callable[..., Any],
    nobody: dict[str, str],
    new_daemon: Callable[..., Any],
    on_disk: Callable[[list[EntryInfo]], None],
) -> None:
    on_disk([info(number, signature="f32[3], " * 100_000, last_used=time.time()) for number in range(25)])
    with new_daemon(nobody["JITSERVER_ADDRESS"], "--no-prewarm", env=nobody):
        assert len(listed(cli("cache", "ls", "--json", env=nobody))) == 25
        assert cli("cache", "clear", env=nobody).stdout == "removed 25 programs\n"


def test_a_shell_completes_commands_functions_and_keys(
    run_script: Callable[..., Any], nobody: dict[str, str], on_disk: Callable[[list[EntryInfo]], None]
) -> None:
    on_disk([info(1), info(2), info(0xABC << 116)])

    def completed(line: str) -> list[str]:
        words = line.split(" ")
        return run_script(  # type: ignore[no-any-return]
            """
            import contextlib, io, json
            from jitserver.cli import main

            said = io.TextIOWrapper(io.BytesIO())
            with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
                main(prog_name="jitserver")
            lines = said.buffer.getvalue().decode().split()
            print(json.dumps([line.partition(",")[2] for line in lines]))
            """,
            env={
                **nobody,
                "_JITSERVER_COMPLETE": "bash_complete",
                "COMP_WORDS": line,
                "COMP_CWORD": str(len(words) - 1),
            },
        )

    assert set(completed("jitserver st")) == {"start", "status", "stop"}
    assert set(completed("jitserver cache show step")) == {"step_1", "step_2", f"step_{0xABC << 116}"}
    assert completed("jitserver cache show abc") == ["abc000000000"]
    assert completed("jitserver cache show nothing") == []


def test_compilations_of_clients_are_counted_and_cleared(
    cli: Callable[..., Any], nobody: dict[str, str], new_daemon: Callable[..., Any]
) -> None:
    directory = Path(nobody["JITSERVER_CACHE_DIR"]) / environment_digest() / "compilations"

    def counted() -> list[int]:
        found = json.loads(cli("status", "--json", env=nobody).stdout)
        return [found["compilations"], found["compilation_bytes"]]

    with new_daemon(nobody["JITSERVER_ADDRESS"], "--no-prewarm", env=nobody):
        assert counted() == [0, 0]
        assert "compilations" not in cli("cache", "ls", env=nobody).stdout
        directory.mkdir(exist_ok=True)
        for name in ("one", "other"):
            (directory / name).write_bytes(bytes(1024))
        assert counted() == [2, 2048]
        assert "and 2 compilations of jax's own (2 KiB)" in cli("cache", "ls", env=nobody).stdout
        assert "2 compilations of jax's own (2 KiB)" in cli("status", env=nobody).stdout
        verdict = captures_directory(directory.parent) / "verdict"
        verdict.parent.mkdir()
        verdict.write_bytes(bytes(1))
        cli("cache", "clear", env=nobody)
        assert counted() == [0, 0]
        assert not verdict.exists()
