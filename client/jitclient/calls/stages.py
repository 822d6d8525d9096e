"""Stages of a jitted function, one at a time, under JAX's names: traced, lowered, compiled.

Only compiling asks the daemon. All other attributes are those of JAX's own stages in this process, made on demand.
"""

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

from jitclient.calls.arguments import NotAnArray, dtype_name, spec_of, specs_of
from jitclient.calls.attempts import CallFailed, attempted
from jitclient.calls.program import Program
from jitclient.calls.raised import unwrapped
from jitclient.calls.specialisation import Specialisation
from jitclient.core.notices import warn
from jitclient.core.settings import settings
from jitclient.core.tracebacks import api_boundaries
from jitclient.errors import CaptureError, DaemonLost, DaemonUnavailable, Incompatible
from jitclient.jaxside import shardings, tree
from jitclient.jaxside.context import x64
from jitclient.jaxside.interop import is_tracer
from jitclient.session import process
from jitclient.session.session import Session
from jitclient.wire.messages import Inspect, Inspected, Spec, Verb

Prepare = Callable[[Session, Specialisation], Program]


_OF_LOWERED = ("args_info", "donate_argnums", "in_avals", "out_tree")
"""Attributes of compiled functions that need no compilation."""


class _Stage:
    """Stage that forwards all attributes which it does not define to JAX's own stage of the same name, its `_here`."""

    _here: Any

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """JAX's own class, for `isinstance`."""
        import jax

        found: type = getattr(jax.stages, type(self).__name__)
        return found

    def __dir__(self) -> list[str]:
        return [*dir(type(self)), *vars(self), *dir(self.__class__)]

    def __getattr__(self, name: str) -> Any:
        # A copy has no attributes at first.
        if name == "_here" or not vars(self):
            raise AttributeError(name)
        return getattr(self._here, name)


@api_boundaries()
class Traced(_Stage):
    """Function traced in this process, to inspect its `jaxpr`. Has the attributes of `jax.stages.Traced`.

    Example:
        >>> step.trace(params, x).jaxpr
    """

    def __init__(self, here: Any, lowered: "Lowered") -> None:
        self._here = here
        self._lowered = lowered

    def lower(self, **options: Any) -> Any:
        """Lower the traced function as `jit(f).lower(...)` does; with options, such as other platforms, through JAX."""
        return self._here.lower(**options) if options else self._lowered

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the jaxpr in this process."""
        return self._here(*args, **kwargs)


@api_boundaries()
class Lowered(_Stage):
    """Function for one signature, ready to be compiled, with the attributes of `jax.stages.Lowered`.

    Text and analysis come from a trace in this process.

    Example:
        >>> compiled = step.lower(params, jax.ShapeDtypeStruct((64, 8), "float32")).compile()
    """

    def __init__(self, wanted: Specialisation, prepare: Prepare, here: Callable[[], Any]) -> None:
        self._wanted = wanted
        self._prepare = prepare
        self._make_here = here

    def compile(self, compiler_options: Mapping[str, Any] | None = None, **others: Any) -> Any:
        """Compile the program on the daemon. Without a daemon, this process's jax compiles it.

        Args:
            compiler_options: further options of XLA, by name.
            **others: other keywords of JAX's, with which this process compiles the program.

        Raises:
            CaptureError, DaemonError: the daemon cannot compile the program, and JITSERVER_FALLBACK=error.
            BaseException: the function raised it while it was traced.
        """
        wanted = self._wanted
        if any(value is not None for value in others.values()):
            return self.compile_here(compiler_options, **others)
        if compiler_options:
            given = {**(wanted.options.compiler_options or {}), **compiler_options}
            wanted = dataclasses.replace(wanted, options=dataclasses.replace(wanted.options, compiler_options=given))
        return unwrapped(lambda: self._compiled(wanted, compiler_options))

    def _compiled(self, wanted: Specialisation, compiler_options: Mapping[str, Any] | None) -> Any:
        try:
            return Compiled(wanted, self._prepare, self, compiler_options)
        except (CaptureError, DaemonUnavailable, Incompatible) as error:
            if settings().fallback == "error":
                raise
            warn(f"{wanted.name} is compiled in this process: {error}")
            return self.compile_here(compiler_options)

    def compile_here(self, compiler_options: Mapping[str, Any] | None, **others: Any) -> Any:
        """Compile the program in this process, with JAX's own keywords."""
        return self._here.compile(compiler_options, **others)

    @functools.cached_property
    def _here(self) -> Any:
        return self._make_here()


@api_boundaries()
class Compiled(_Stage):
    """Program on the daemon for one signature only. Calls leave out the static arguments.

    Example:
        >>> compiled = step.lower(params, x).compile()
        >>> params = compiled(params, x)
    """

    def __init__(
        self,
        wanted: Specialisation,
        prepare: Prepare,
        lowered: Lowered,
        compiler_options: Mapping[str, Any] | None,
    ) -> None:
        self._wanted = wanted
        self._make = prepare
        self._lowered = lowered
        self._compiler_options = compiler_options
        self._program = prepare(process.session(), wanted)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; the arguments must have its signature.

        Raises:
            TypeError: the arguments have another signature.
            DaemonLost: the daemon is gone, and the function has changed since.
            BaseException: the program raised it.
        """
        leaves, shape = tree.flatten((args, kwargs))
        self._check(leaves, shape)
        session = process.session()
        try:
            return unwrapped(lambda: attempted(session, lambda: self._program_at(session).call(leaves)))
        except CallFailed as failed:
            raised = failed.error
        raise raised

    def as_text(self) -> str:
        """Return the optimized program as text."""
        return str(self._inspect("text"))

    def cost_analysis(self) -> dict[str, float]:
        """Return the compiler's estimates: flops, bytes accessed, ..."""
        return dict(self._inspect("costs"))

    def memory_analysis(self) -> Any:
        """Return the bytes of memory by their use."""
        return types.SimpleNamespace(**self._inspect("memory"))

    @property
    def in_tree(self) -> Any:
        """Tree of the program's arguments: positional ones and keywords."""
        return tree.treedef_of(self._wanted.structure)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lowered, name) if name in _OF_LOWERED else super().__getattr__(name)

    @functools.cached_property
    def _here(self) -> Any:
        return self._lowered.compile_here(self._compiler_options)

    def _check(self, leaves: list[Any], shape: Any) -> None:
        tracers = [leaf for leaf in leaves if is_tracer(leaf)]
        if tracers:
            raise TypeError(
                "Cannot apply JAX transformations to a function lowered and compiled for a particular signature. "
                f"Detected argument of Tracer type {type(tracers[0])}."
            )
        given = tree.structure_of(shape)
        if given != self._wanted.structure:
            raise TypeError(
                "Function compiled with input pytree does not match the input pytree it was called with. "
                f"Compiled for {_leaves_of(self._wanted.structure)}, called with {_leaves_of(given)}."
            )
        specs = specs_of(leaves, x64(self._wanted.context), abstract_spec)
        differ = [
            f"Argument {name!r} compiled with {_text(want)} and called with {_text(got)}"
            for name, want, got in zip(self._wanted.names, self._wanted.specs, specs, strict=True)
            if (want.shape, want.dtype) != (got.shape, got.dtype)
        ]
        if differ:
            raise TypeError(
                "Argument types differ from the types for which this computation was compiled. Perhaps you are calling "
                "the compiled executable with a different enable_x64 mode than when it was AOT compiled? "
                "The mismatches are:\n" + "\n".join(differ)
            )

    def _program_at(self, session: Session) -> Program:
        known = self._program
        if session is not known.session or session.program_generation != known.generation:
            fresh = self._make(session, self._wanted)
            if known.capture is not None and not fresh.is_same(known):
                raise DaemonLost(
                    f"{self._wanted.name} has changed, and the daemon that compiled it has exited. "
                    "Lower and compile it again."
                )
            self._program = fresh
        return self._program

    def _inspect(self, what: str) -> Any:
        session = process.session()
        with session:
            program = unwrapped(lambda: self._program_at(session))
            asked = Inspect(program.prepared.executable, what)
            return getattr(session.ask(Verb.INSPECT, asked, Inspected), what)


def abstract_spec(leaf: Any, x64: bool) -> Spec:
    """Return the spec of a leaf, which may be any object with a shape and a dtype.

    Raises:
        NotAnArray: the leaf has neither a spec nor a shape and a dtype.
    """
    try:
        return spec_of(leaf, x64)
    except NotAnArray:
        if not (hasattr(leaf, "shape") and hasattr(leaf, "dtype")) or hasattr(leaf, "__array__"):
            raise
    sharding = getattr(leaf, "sharding", None)
    placed = None if sharding is None else shardings.of(sharding)
    return Spec(tuple(leaf.shape), dtype_name(leaf.dtype, x64), bool(getattr(leaf, "weak_type", False)), placed)


def _leaves_of(structure: tree.Structure) -> str:
    return f"({', '.join(path or '*' for path in tree.paths(structure))})"


def _text(spec: Spec) -> str:
    return f"{spec.dtype}[{','.join(map(str, spec.shape))}]"
