"""`devices` tells the daemon's devices, not those of this process."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import pytest

import jitclient


@pytest.mark.usefixtures("daemon")
def test_devices_are_told_without_jax(run_script: Callable[..., Any]) -> None:
    found = run_script(
        """
        import dataclasses, json, sys, jitclient
        found = [dataclasses.asdict(device) for device in jitclient.devices()]
        assert "jax" not in sys.modules
        print(json.dumps(found))
        """
    )
    [device] = jax.devices()
    assert found == [{"id": 0, "kind": device.device_kind, "platform": "cpu", "memory_bytes": None}]


def test_they_are_the_daemons_own(new_daemon: Any, short_path: Any, run_script: Callable[..., Any]) -> None:
    address = f"unix:{short_path}/d.sock"
    with new_daemon(address, env={"XLA_FLAGS": "--xla_force_host_platform_device_count=3"}):
        found = run_script(
            "import json, jax, jitclient; print(json.dumps([len(jax.devices()), [d.id for d in jitclient.devices()]]))",
            env={"JITSERVER_ADDRESS": address},
        )
    assert found == [1, [0, 1, 2]]


@pytest.mark.usefixtures("daemon")
def test_a_device_cannot_be_changed() -> None:
    [device] = jitclient.devices()
    with pytest.raises(dataclasses.FrozenInstanceError):
        device.id = 1  # type: ignore[misc]
