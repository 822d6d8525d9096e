"""XLA's profiler in this process: sessions of ours, and an observer of those of the program.

All ways to JAX's profiler lead to one class of sessions, so that it does not matter how the program has imported them.
"""

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jitclient.jaxside import internals

if TYPE_CHECKING:
    from jitclient.wire.recording import Record  # its import takes longer than that of this module


def session(asked: "Record") -> Any:
    """Return a running session, which has `stop` and `export`. Python functions are not recorded.

    Raises:
        Exception: XLA's profiler does not start, or this version of jax has another. The exception may be of any type.
    """
    import msgspec

    profiler, options_class = internals.profiler()
    options = options_class()
    options.python_tracer_level, options.raise_error_on_start_failure = 0, True
    for name, value in msgspec.structs.asdict(asked).items():
        setattr(options, name, value)
    return profiler.ProfilerSession(options)


def began(xspace: bytes) -> int:
    """Return when a recording began, in nanoseconds since the epoch."""
    from jax.profiler import ProfileData

    with warnings.catch_warnings():
        # jaxlib 0.12 warns, and ends a process whose warnings are errors.
        warnings.simplefilter("ignore")
        plane = ProfileData.from_serialized_xspace(xspace).find_plane_with_name("Task Environment")
        return int(dict(plane.stats)["profile_start_time"])


def observe(observer: Any) -> None:
    """Make XLA's profiler report to an observer. Without effect if this version of jax has another profiler.

    Args:
        observer: an object like `profiles.observer.Observer`.
    """
    profiler, _ = internals.profiler()
    if profiler is None:
        return
    own_session: Any = profiler.ProfilerSession

    class ProfilerSession(own_session):  # type: ignore[misc]
        def __init__(self, *options: Any) -> None:
            super().__init__(*options)
            observer.begin(id(self), *options)

        def stop(self) -> Any:
            observer.end(id(self), is_written=False)
            return super().stop()

        def stop_and_get_profile_data(self) -> Any:
            observer.end(id(self), is_written=True)
            return super().stop_and_get_profile_data()

        def stop_and_export(self, directory: str) -> None:
            observer.end(id(self), is_written=True)
            super().stop_and_export(directory)
            observer.written(directory)

        def __del__(self) -> None:
            observer.end(id(self), is_written=False)

    def export(own: Any, data: Any, directory: str, *args: Any, **kwargs: Any) -> Any:
        found = own(data, directory, *args, **kwargs)
        observer.written(directory)
        return found

    def start_server(own: Any, *args: Any, **kwargs: Any) -> Any:
        observer.serves()
        return own(*args, **kwargs)

    def heap_profile(own: Any, backend: Any) -> Any:
        found = observer.memory()
        return own(backend) if found is None else found

    profiler.ProfilerSession = ProfilerSession
    _wrap(profiler, internals.PROFILE_WRITER, export)
    _wrap(profiler, "start_server", start_server)
    _wrap(internals.backend_class(), "heap_profile", heap_profile)


def _wrap(owner: Any, name: str, wrapper: Callable[..., Any]) -> None:
    """Call a wrapper instead of a function of the owner, which becomes its first argument, if the owner has it."""
    own: Any = getattr(owner, name, None)
    if own is not None:
        setattr(owner, name, lambda *args, **kwargs: wrapper(own, *args, **kwargs))


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
