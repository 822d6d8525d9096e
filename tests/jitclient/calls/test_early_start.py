"""The daemon starts while a program sets itself up, as soon as jax works in it."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jitclient.core.settings import Settings
from jitclient.errors import DaemonUnavailable
from jitclient.session import handshake, launch
from jitclient.wire.address import Address

Run = Callable[..., Any]

WHEN = """
    import json, sys
    import jitclient
    from jitclient.session import handshake, process

    started = []
    handshake.start_ahead = lambda chosen, packages: started.append(sorted(packages))
    exec(sys.argv[1])
    seen = [len(started)]
    import jax, optax, statistics

    jax.config.update("jax_num_cpu_devices", 2)
    jitted = jax.jit(lambda x: x)
    seen.append(len(started))
    jax.numpy.arange(3.0) + 1
    seen.append(len(started))
    exec(sys.argv[2])
    jax.numpy.arange(4.0) + 1
    [packages] = started or [[]]
    known = [name for name in ("jax", "optax", "statistics", "json", "jitclient") if name in packages]
    print(json.dumps([*seen, len(started), known]))
"""


def test_it_starts_once_jax_has_compiled_something(run_script: Run) -> None:
    once = [0, 0, 1, 1, ["jax", "optax"]]
    assert run_script(WHEN, "jitclient.install()", "jitclient.install()") == once
    assert run_script(WHEN, "jitclient.jit(len)", "jitclient.jit(max)") == once


def test_a_decorator_in_a_process_whose_jax_works_starts_it_at_once(run_script: Run) -> None:
    assert run_script(WHEN, "", "jitclient.jit(len)") == [0, 0, 0, 1, ["jax", "optax"]]


def test_a_process_with_a_session_and_a_daemon_itself_start_none(run_script: Run) -> None:
    none = [0, 0, 0, 0, []]
    assert run_script(WHEN, "process.current = object(); jitclient.install()", "process.current = None") == none
    assert run_script(WHEN, "process.become_daemon(); jitclient.install()", "jitclient.jit(len)") == none


def test_a_failure_is_left_to_the_first_call(run_script: Run, short_path: Path) -> None:
    (short_path / "file").touch()
    program = """
        import json, jitclient, jax, numpy as np
        jitclient.install()
        first = float(jax.numpy.arange(3.0)[1])
        print(json.dumps([first, float(jax.jit(lambda x: x + 1)(np.float32(1)))]))
    """
    env = {"JITSERVER_AUTOSTART": "1", "JITSERVER_ADDRESS": f"unix:{short_path}/file/d.sock"}
    assert run_script(program, env={**env, "JITSERVER_FALLBACK": "local"}) == [1.0, 2.0]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Address]:
    """Records the daemons that are started without waiting for them."""
    found: list[Address] = []
    monkeypatch.setattr(launch, "begin_start", lambda address, packages: found.append(address))
    return found


def test_the_user_s_settings_and_a_daemon_that_is_there_count(short_path: Path, begun: list[Address]) -> None:
    address = Address(short_path / "d.sock")
    handshake.start_ahead(Settings(address=str(address), autostart=False), [])
    handshake.start_ahead(Settings(address="ssh://host/venv"), [])
    assert begun == []
    handshake.start_ahead(Settings(address=str(address)), [])
    assert begun == [address]
    with address.listen():
        handshake.start_ahead(Settings(address=str(address)), [])
    assert begun == [address]


def test_a_daemon_that_another_process_starts_is_enough(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_spawn", lambda *_: pytest.fail("a second daemon was started"))
    address = Address(short_path / "d.sock")
    with open(short_path / "d.start", "a") as lock:
        assert launch.try_lock(lock)
        assert launch.begin_start(address) is None
    with address.listen():
        assert launch.begin_start(address) is None


AHEAD = """
    import json
    import jax, optax
    import jitclient
    from jitclient.core.settings import settings
    from jitclient.session import launch, process
    from jitclient.wire.address import Address

    jitclient.install()
    jax.numpy.arange(3.0) + 1
    address = Address.parse(settings().address)
    waited = launch.wait_for_other_start(address)
    address.connect().close()
    calls_before = process.current is not None
    value = float(jax.jit(lambda x: optax.l2_loss(x))(jax.numpy.float32(2)))
    print(json.dumps([waited, calls_before, value]))
"""


@pytest.mark.slow
def test_it_serves_before_the_first_call_and_has_the_packages(
    short_path: Path, run_script: Run, cli: Callable[..., Any], until: Callable[..., Any]
) -> None:
    address = Address(short_path / "d.sock")
    env = {"JITSERVER_ADDRESS": str(address), "JITSERVER_AUTOSTART": "1", "JITSERVER_CACHE_DIR": str(short_path / "c")}
    try:
        assert run_script(AHEAD, env=env) == [True, False, 2.0]
        until(lambda: "imported optax" in launch.log_path(address).read_text(), "the import of optax")
    finally:
        cli("stop", "--address", str(address))
    with contextlib.closing(launch.open_lock(short_path / "d.start")) as lock:
        assert launch.try_lock(lock), "the daemon has released the lock"
    with pytest.raises(DaemonUnavailable):
        address.connect()
