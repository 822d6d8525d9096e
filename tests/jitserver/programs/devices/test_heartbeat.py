"""The heartbeat, and the health of devices that compute."""

import jax
import pytest

from jitclient.errors import DaemonUnavailable
from jitserver.programs.devices.heartbeat import DeviceHeartbeat, Health
from jitserver.programs.exceptions import is_internal


def test_healthy_devices_pass_each_beat() -> None:
    heartbeat = DeviceHeartbeat()
    for _ in range(2):
        heartbeat.beat()


@pytest.mark.parametrize("text", ["INTERNAL: a kernel failed", "RESOURCE_EXHAUSTED: no memory"])
def test_an_error_is_reported_as_itself_while_the_devices_compute(text: str) -> None:
    health, reasons = Health(), list[str]()
    health.when_failed = reasons.append
    error = jax.errors.JaxRuntimeError(text)
    assert health.reported(error) is error
    assert not reasons


def test_only_internal_errors_of_the_runtime_raise_a_suspicion() -> None:
    internal = jax.errors.JaxRuntimeError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS")
    caused = DaemonUnavailable("JAX cannot be used")
    caused.__cause__ = internal
    assert is_internal(internal)
    assert is_internal(caused)
    assert is_internal(ValueError("INTERNAL: CUDA_ERROR_ILLEGAL_ADDRESS"))  # from JAX's fast path
    assert not is_internal(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: INTERNAL"))
    assert not is_internal(RuntimeError("INTERNAL: of another library"))
