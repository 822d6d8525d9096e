"""XLA's profiler in this process: sessions of ours, and an observer of those of the program.

All ways to JAX's profiler lead to one class of sessions, so that it does not matter how the program has imported them.
"""

from collections.abc import Callable
from typing import Any, Protocol

from jitclient.jaxside import internals


def session(host_tracer_level: int, enable_hlo_proto: bool, advanced_configuration: dict[str, Any]) -> Any:
    """Return a running session, which has `stop` and `export`. Python functions are not recorded.

    Args:
        host_tracer_level: as in `jax.profiler.ProfileOptions`, like the others.
        enable_hlo_proto: as there.
        advanced_configuration: as there.

    Raises:
        Exception: XLA's profiler does not start, or this version of jax has another. The exception may be of any type.
    """
    profiler, options_class = internals.profiler()
    options = options_class()
    options.python_tracer_level = 0
    options.raise_error_on_start_failure = True
    options.host_tracer_level, options.enable_hlo_proto = host_tracer_level, enable_hlo_proto
    if advanced_configuration:
        options.advanced_configuration = advanced_configuration
    return profiler.ProfilerSession(options)


class Observer(Protocol):
    """The functions that are called with the sessions of the program."""

    def begin(self, options: Any) -> bool:
        """Follow a session that has begun, with its `jax.profiler.ProfileOptions`; return False to ignore it."""

    def end(self, is_written: bool) -> None:
        """Follow the end of that session, before it; if `is_written`, it may be written to a log directory later."""

    def written(self, directory: str) -> None:
        """Follow the writing of the latest session to a log directory."""

    def serves(self) -> None:
        """Follow the start of a profiler server."""

    def memory(self) -> bytes | None:
        """Return a profile of memory to use instead of that of this process, if there is one."""


def observe(observer: Observer) -> None:
    """Make XLA's profiler report to an observer. Without effect if this version of jax has another profiler."""
    profiler, _ = internals.profiler()
    if profiler is None:
        return
    own_session: Any = profiler.ProfilerSession

    class ProfilerSession(own_session):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._is_followed = observer.begin(args[0] if args else kwargs.get("options"))

        def _end(self, is_written: bool) -> bool:
            is_followed, self._is_followed = self._is_followed, False
            if is_followed:
                observer.end(is_written)
            return is_followed

        def stop(self) -> Any:
            self._end(is_written=False)
            return super().stop()

        def stop_and_get_profile_data(self) -> Any:
            self._end(is_written=True)
            return super().stop_and_get_profile_data()

        def stop_and_export(self, directory: str) -> None:
            is_followed = self._end(is_written=True)
            super().stop_and_export(directory)
            if is_followed:
                observer.written(directory)

        def __del__(self) -> None:
            # False after an error of `__init__`.
            if getattr(self, "_is_followed", False):
                self._end(is_written=False)

    profiler.ProfilerSession = ProfilerSession
    _follow(profiler, internals.PROFILE_WRITER, after=lambda data, directory, *_, **__: observer.written(directory))
    _follow(profiler, "start_server", after=lambda *_, **__: observer.serves())
    _observe_memory(observer)


def _follow(module: Any, name: str, after: Callable[..., None]) -> None:
    """Call a function after each call of another one, with the same arguments, if the module has that."""
    own: Any = getattr(module, name, None)
    if own is None:
        return

    def followed(*args: Any, **kwargs: Any) -> Any:
        found = own(*args, **kwargs)
        after(*args, **kwargs)
        return found

    setattr(module, name, followed)


def _observe_memory(observer: Observer) -> None:
    backend_class: Any = internals.backend_class()
    own: Any = getattr(backend_class, "heap_profile", None)
    if own is None:
        return

    def heap_profile(backend: Any) -> Any:
        found = observer.memory()
        return own(backend) if found is None else found

    backend_class.heap_profile = heap_profile


def observe_annotations(begin: Callable[[str, dict[str, Any]], Any], end: Callable[[Any], None]) -> Callable[[], None]:
    """Make `jax.profiler.TraceAnnotation` report the annotations of all threads from now on.

    Args:
        begin: called with the name and metadata of an annotation that begins; what it returns stands for it.
        end: called with that when the annotation ends.

    Returns:
        A function that undoes it.
    """
    from jax.profiler import TraceAnnotation

    annotation: Any = TraceAnnotation
    base: Any = annotation.__base__

    def init(self: Any, name: str, **metadata: Any) -> None:
        base.__init__(self, name, **metadata)
        self._given = name, metadata

    def enter(self: Any) -> Any:
        found = base.__enter__(self)
        # Absent if it was made before.
        if given := getattr(self, "_given", None):
            self._begun = begin(*given)
        return found

    def leave(self: Any, *args: Any) -> Any:
        begun = self.__dict__.pop("_begun", None)
        if begun is not None:
            end(begun)
        return base.__exit__(self, *args)

    methods = {"__init__": init, "__enter__": enter, "__exit__": leave}
    for name, method in methods.items():
        setattr(annotation, name, method)

    def undo() -> None:
        for name in methods:
            delattr(annotation, name)

    return undo
