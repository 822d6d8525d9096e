"""The heartbeat: a tiny program on each device that checks whether the device still computes."""

import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jitclient.errors import DaemonDraining
from jitserver.programs.exceptions import is_exhausted, is_internal


class DeviceHeartbeat:
    """A tiny program for each device of this process, compiled at the first `beat`."""

    def __init__(self) -> None:
        self._programs: list[tuple[Any, jax.Array]] = []

    def beat(self) -> None:
        """Run the programs and wait for their results.

        Raises:
            RuntimeError: a device failed, or its result is wrong.
        """
        try:
            self._programs = self._programs or [_program(device) for device in jax.local_devices()]
            found = [float(program(one)) for program, one in self._programs]
        except Exception as error:
            if is_exhausted(error):
                return  # a full device is healthy
            raise
        if set(found) != {2.0}:
            raise RuntimeError(f"1 + 1 = {found} on {jax.local_devices()}")


class Health:
    """Whether the devices still compute, which is asked after an internal error of the runtime. Thread-safe.

    Attributes:
        when_failed: called with the reason when a device has failed for good.
    """

    def __init__(self) -> None:
        self.when_failed: Callable[[str], None] = lambda reason: None
        self._heartbeat = DeviceHeartbeat()
        self._lock = threading.Lock()
        self._reason = ""

    def reported(self, error: BaseException) -> BaseException:
        """Return the exception to report for a failed request.

        The result is the error itself, unless a device has failed for good: a new process is needed then, to which
        the client can address the request again.
        """
        if not is_internal(error) or not self._failed():
            return error
        self.when_failed(self._reason)
        return DaemonDraining(self._reason)

    def _failed(self) -> bool:
        with self._lock:
            if not self._reason:
                try:
                    self._heartbeat.beat()
                except Exception as error:
                    first_line = str(error).partition("\n")[0]
                    self._reason = f"the daemon restarts, because a device has failed for good ({first_line})"
            return bool(self._reason)


def _program(device: jax.Device) -> tuple[Any, jax.Array]:
    one = jax.device_put(jnp.float32(1), device)
    return jax.jit(_increment).lower(one).compile(), one


def _increment(x: jax.Array) -> jax.Array:
    return x + 1
