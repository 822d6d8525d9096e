"""Errors with the types and texts of those that JAX's runtime raises, which programs and tests look for."""

import functools
import sys
from collections.abc import Sequence
from typing import Any

from jitclient.errors import ArrayBudgetExceeded
from jitclient.jaxside import internals
from jitclient.jaxside.interop import is_jax_array


class DeletedBuffer(RuntimeError, ValueError):  # noqa: N818
    """Use of a deleted array as an argument, where the runtime itself refuses it, with a ValueError."""


def runtime_error(text: str) -> RuntimeError:
    """Return JAX's own error of its runtime, if this process uses jax."""
    jax = sys.modules.get("jax")
    kind: type[RuntimeError] = RuntimeError if jax is None else jax.errors.JaxRuntimeError
    return kind(text)


def as_exhausted(error: ArrayBudgetExceeded) -> ArrayBudgetExceeded:
    """Return the error as one that is JAX's own as well, so that programs that handle RESOURCE_EXHAUSTED handle it."""
    jax = sys.modules.get("jax")
    if jax is None or isinstance(error, jax.errors.JaxRuntimeError):
        return error
    made = _exhausted(jax.errors.JaxRuntimeError)(f"RESOURCE_EXHAUSTED: {error}")
    made.__dict__.update(error.__dict__)
    return made


@functools.cache
def _exhausted(kind: type[Exception]) -> type[ArrayBudgetExceeded]:
    namespace = {
        "__module__": ArrayBudgetExceeded.__module__,
        "__init__": kind.__init__,  # JAX's has attributes, which its text comes from
        "__reduce__": lambda self: (ArrayBudgetExceeded, self.args),
    }
    return type(ArrayBudgetExceeded.__name__, (ArrayBudgetExceeded, kind), namespace)


def check_not_deleted(leaves: Sequence[Any]) -> None:
    """Check the arguments of a call for which JAX would take its fast path.

    Raises:
        DeletedBuffer: one is a deleted array, and this version of jax does not raise what other uses of it raise.
    """
    if "jax" not in sys.modules or not internals.runtime_refuses_deleted_arguments():
        return
    for position, leaf in enumerate(leaves):
        if leaf.is_deleted() if is_jax_array(leaf) else getattr(leaf, "deleted", False):
            raise DeletedBuffer(
                f"INVALID_ARGUMENT: Invalid buffer passed to Execute() as argument {position} to replica 0: "
                "INVALID_ARGUMENT: Buffer has been deleted or donated."
            )


def check_donated_once(leaves: Sequence[Any], donated: Sequence[int]) -> None:
    """Check that no other argument is a donated array, which the runtime cannot detect in copies.

    Raises:
        RuntimeError: as JAX's runtime.
    """
    given = [id(leaf) for leaf in leaves]
    for position in donated:
        uses = [n for n, one in enumerate(given) if one == given[position]]
        if len(uses) > 1 and hasattr(leaves[position], "is_deleted"):
            first, second = uses[:2]
            raise runtime_error(_of_two_uses(first, second, first in donated, second in donated))


def _of_two_uses(first: int, second: int, is_first_donated: bool, is_second_donated: bool) -> str:
    if is_first_donated and is_second_donated:
        what, example = "Attempt to donate the same buffer twice in", "f(donate(a), donate(a))"
    elif is_first_donated:
        what, example = "Attempt to use a buffer that was previously donated in the same call to", "f(donate(a), a)"
    else:
        what, example = "Attempt to donate a buffer which is also used by the same call to", "f(a, donate(a))"
    where = f"flattened argument {second}, replica 0, partition 0, first use: {first}"
    return f"INVALID_ARGUMENT: {what} Execute() ({where}). Toy example for this bug: `{example}`."
