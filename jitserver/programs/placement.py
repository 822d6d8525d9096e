"""The shardings of a program's arguments and results."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core

from jitclient.capture.codec import values
from jitclient.jaxside import device_options, shardings
from jitclient.jaxside.avals import abstract, is_wider_than_new, spec_of_aval
from jitclient.wire.messages import Signature, Spec
from jitclient.wire.shardings import Sharding


def jitted(function: Callable[..., Any], signature: Signature, options: Mapping[str, Any]) -> Any:
    """Return `jax.jit` of a function over leaves, with the signature's shardings of arguments."""
    inputs = _inputs(signature)
    if any(inputs):
        options = {**options, "in_shardings": tuple(message and shardings.to_jax(message) for message in inputs)}
    return jax.jit(function, donate_argnums=signature.donated, **options)


def _inputs(signature: Signature) -> Sequence[Sharding | None]:
    """Return the `in_shardings` for jit; None for an argument whose abstract value already has its sharding."""
    if signature.shardings is not None and signature.shardings.inputs is not None:
        return signature.shardings.inputs
    return [spec.sharding if is_wider_than_new(spec) else None for spec in signature.leaves]


def lowered(
    traced: Any, name: str, signature: Signature, options: Mapping[str, Any], out_tree: Any, deref: values.Deref
) -> Any:
    """Lower a trace, with the signature's shardings of results.

    The tree of results, which these shardings follow, is known only after the trace.
    """
    requested = signature.shardings
    if requested is None or requested.outputs is None:
        return traced.lower()
    function = core.jaxpr_as_fun(traced.jaxpr)

    def retraced(*leaves: Any) -> Any:
        return function(*leaves)

    retraced.__name__ = name
    outputs = device_options.of_results(requested.outputs, out_tree, deref)
    placed = jitted(retraced, signature, {**options, "out_shardings": outputs})
    return placed.lower(*map(abstract, signature.leaves))


def results(avals: Sequence[Any], compiled: Any, signature: Signature) -> tuple[Spec, ...]:
    """Return the specs of a program's results.

    The specs have no shardings if none was requested and each result is on one device.
    """
    found = list(compiled.output_shardings)
    chosen = signature.shardings is not None or any(spec.sharding is not None for spec in signature.leaves)
    if not chosen and all(isinstance(sharding, jax.sharding.SingleDeviceSharding) for sharding in found):
        return tuple(map(spec_of_aval, avals))
    return tuple(spec_of_aval(aval, shardings.of(sharding)) for aval, sharding in zip(avals, found, strict=True))
