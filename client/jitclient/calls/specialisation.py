"""Specialisation of a program: the function, options and signature that it is compiled for."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable
from types import FunctionType
from typing import Any

from jitclient.calls.deps import Deps
from jitclient.capture.user_code.installed import OWN_PACKAGES
from jitclient.capture.user_code.names import content_of
from jitclient.capture.user_code.ownership import functions_in
from jitclient.core.clock import perf_counter
from jitclient.jaxside import tree
from jitclient.jaxside.context import Context
from jitclient.jaxside.naming import leaf_names
from jitclient.jaxside.options import JitOptions, Static
from jitclient.wire import labels
from jitclient.wire.messages import Spec


@dataclasses.dataclass(frozen=True)
class Specialisation:
    """Function, options and signature that a program is compiled for."""

    fun: Callable[..., Any]
    name: str
    options: JitOptions
    deps: Deps | None
    shape: Hashable  # shape of (positional, keywords), without the static arguments
    specs: tuple[Spec, ...]
    statics: tuple[Static, ...]
    context: Context
    # When this process began to look for the program.
    since: float = dataclasses.field(default_factory=perf_counter, compare=False)

    @functools.cached_property
    def structure(self) -> tree.Structure:
        """Tree of (positional, keywords), without the static arguments."""
        return tree.structure_of(self.shape)

    @functools.cached_property
    def order(self) -> tuple[int, ...] | None:
        """Positions of the leaves in wire order; None if they are sent in their own order."""
        return tree.leaf_order(self.structure)

    @property
    def where(self) -> str:
        """File and line of the function, or of the method of a callable object; empty if there is no code."""
        # Functions of this package that adapt the user's, as for Flax NNX and equinox, wrap it or hold it in a cell.
        cells = getattr(self.fun, "__closure__", None) or ()
        held = [self.fun, getattr(self.fun, "__wrapped__", None), *map(content_of, cells)]
        kinds = [*map(type, held), self._first_kind]
        methods = [kind.__call__ for kind in kinds if issubclass(kind, Callable)]  # type: ignore[arg-type]
        functions = itertools.chain.from_iterable(map(functions_in, held + methods))
        code = next((function.__code__ for function in functions if not _is_own(function)), None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""

    @property
    def _first_kind(self) -> type:
        """Class of the first argument: an adapter of equinox's modules gets the module there."""
        assert self.structure is not None
        positional = self.structure.children[0]
        first = positional.children[0] if positional is not None and positional.children else tree.LEAF
        return object if first is tree.LEAF else first.kind

    @property
    def names(self) -> list[str]:
        """Paths of the leaves, in the user's terms."""
        return leaf_names(self.fun, self.structure, [where for where, _ in self.statics])

    @functools.cached_property
    def names_sent(self) -> tuple[str, ...]:
        """Paths of the leaves, in wire order."""
        return tuple(tree.as_sent(self.names, self.order))

    @functools.cached_property
    def label(self) -> str:
        """Short form of the call: `step(f32[8], f32[33,8])`."""
        names = self.names_sent if len(self.specs) > labels.MAX_LEAVES else ()
        return labels.of_call(self.name, self.specs_sent, names)

    @property
    def specs_sent(self) -> tuple[Spec, ...]:
        """Specs of the leaves, in wire order."""
        return tuple(tree.as_sent(self.specs, self.order))

    @property
    def donated_sent(self) -> tuple[int, ...]:
        """Positions of the donated leaves, in wire order."""
        options = self.options
        if not options.donate_argnums and not options.donate_argnames:
            return ()
        assert self.structure is not None
        positional, keywords = self.structure.children
        assert positional is not None
        assert keywords is not None
        left_out = {where for where, _ in self.statics if isinstance(where, int)}
        count = len(positional.children) + len(left_out)
        numbers = {n % count if n < 0 and count else n for n in options.donate_argnums}
        chosen = [place in numbers for place in range(count) if place not in left_out]
        chosen += [name in options.donate_argnames for name in keywords.meta]
        sizes = map(tree.size, positional.children + keywords.children)
        flags = [flag for flag, size in zip(chosen, sizes, strict=True) for _ in range(size)]
        return tuple([position for position, flag in enumerate(tree.as_sent(flags, self.order)) if flag])


def _is_own(function: FunctionType) -> bool:
    return str(function.__globals__.get("__name__")).partition(".")[0] in OWN_PACKAGES
