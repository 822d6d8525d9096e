"""Programs as `jax.export` serializes them: traced, and not compiled for a kind of machine."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax import export
from jax.extend import core

from jitclient.errors import CaptureError
from jitclient.jaxside import ffi
from jitclient.jaxside.avals import abstract
from jitclient.wire.messages import ForeignFunction, Spec
from jitserver.programs import context
from jitserver.programs.devices.backend import backend
from jitserver.programs.traces import output

log = logging.getLogger(__name__)


def to_bytes(
    traced: Any,
    name: str,
    specs: tuple[Spec, ...],
    foreign: tuple[ForeignFunction, ...],
    settings: Sequence[tuple[str, Any]],
) -> bytes:
    """Serialize a traced program. No user code runs.

    Args:
        traced: the trace, over leaves.
        name: the name of the function.
        specs: the specs of the leaves.
        foreign: the foreign functions that it calls, which readers register by themselves.
        settings: the settings of JAX under which it was traced.

    Returns:
        The program; empty if it has effects, or is for several devices.
    """
    function = core.jaxpr_as_fun(traced.jaxpr)

    def over_leaves(*leaves: Any) -> Any:
        return function(*leaves)

    over_leaves.__name__ = name
    allowed = [export.DisabledSafetyCheck.custom_call(each.name) for each in filter(ffi.can_register, foreign)]
    exporting = export.export(jax.jit(over_leaves), platforms=[backend().export_platform], disabled_checks=allowed)
    try:
        with context.entered(settings), output.withheld():
            exported = exporting(*map(abstract, specs))
            if exported.nr_devices > 1:
                raise ValueError(f"it is for {exported.nr_devices} devices")
            return bytes(exported.serialize())
    # Effects and custom calls without a compatibility guarantee each raise another type.
    except Exception as error:
        log.info("the trace of %s is for this machine only: %s", name, error)
        return b""


def from_bytes(program: bytes | memoryview) -> export.Exported:
    """Read a program.

    Raises:
        CaptureError: it cannot be read.
    """
    try:
        return export.deserialize(bytearray(program))
    except Exception as error:  # the parser may raise any exception
        raise CaptureError(f"the program cannot be read: {type(error).__name__}: {error}") from error


def function_of(program: bytes | memoryview, name: str) -> Callable[..., Any]:
    """Return a program as a function over leaves of a name, to be compiled here.

    Raises:
        CaptureError: it cannot be read.
    """
    exported = from_bytes(program)

    def function(*leaves: Any) -> Any:
        return exported.call(*leaves)

    function.__name__ = name
    return function
