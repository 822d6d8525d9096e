"""Hook in JAX's compiler: finds an executable in a cache of jitserver's before XLA compiles it.

The hook replaces the function that JAX calls after its own cache missed or while that cache is off. So all of JAX's
events, log lines and warnings are those of a process without the hook, its configuration is unchanged, and a cache that
the user configures takes precedence at any time.

As in JAX's own cache, the locations of the source are not in the key: a program is found again after a line was
inserted above it, and profiles then show the lines of the process that compiled it. Compiled objects that the user gets
(`jit(f).lower(x).compile()`) are always compiled: XLA's CPU runtime cannot serialize an executable that it loaded.
Programs that depend on more than their key are neither found nor kept; see `_Hook._why_excluded`.

On a GPU, XLA keeps what it has measured about each fusion, as it does where JAX's own cache is in use: of an edited
program, it tunes only the fusions that have changed.

After an error of the cache, XLA compiles. An exception of a signal handler that runs meanwhile is the program's.

Versions 0.10.2 to 0.12 of jax have all names of `jax._src` below. If another version lacks one, there is no hook.
"""

import contextlib
import functools
import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

from jitclient.capture.user_code.installed import is_user_module
from jitclient.core.clock import monotonic
from jitclient.core.cpu import cpu_features, xla_threads
from jitclient.core.digests import digest
from jitclient.jaxside import cpu_executables

_MAX_TEXT_BYTES = 4 << 20
"""Maximum size of a program's text. Larger ones have large constants, which take long to digest, write and load."""
_HARMLESS_DUMP_OPTIONS = frozenset({"xla_dump_hlo_as_long_text", "xla_dump_max_hlo_modules"})
"""Options that dump nothing by themselves, and are not zero by default."""
_PARAMETERS = [
    *("backend", "computation", "executable_devices", "compile_options"),
    *("host_callbacks", "module_name", "cache_key"),
]
_LOG_PARAMETERS = ["cache_key", "compile_time_secs", "module_name", "backend", "executable"]
_ERRORS = (OSError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError)
"""Errors of the cache itself: of files, of XLA, which refuses executables of other versions and machines, and of names
that another version lacks.
"""


_CALLS_BACK, _LARGE = "the program calls back into Python", "the program is large"
_AHEAD_OF_TIME, _DUMPS = "the program compiles it itself, with lower and compile", "XLA dumps what it compiles"
JAXS_OWN_CACHE = "JAX's own cache is in use"
_TUNED = frozenset({"gpu", "cuda", "rocm"})
"""Platforms for which XLA tunes fusions."""
_TUNING = "xla_gpu_per_fusion_autotune_cache_dir"
"""Option of XLA, and its name among JAX's `jax_persistent_cache_enable_xla_caches`."""
_CURES = {
    _CALLS_BACK: "Call it in a function under jitclient.jit",
    _LARGE: "Pass large arrays as arguments",
    _AHEAD_OF_TIME: "Call the jitted function, or compile it under jitclient.jit",
    _DUMPS: "Unset the option xla_dump_to",
}
"""Means by which later processes find a compilation, by the reason why they do not."""


class Compilations(Protocol):
    """Store of executables; see `compilation_cache.CompilationCache`."""

    def tuning_directory(self) -> str: ...
    def get(self, key: str) -> tuple[bytes, float] | None: ...
    def mark_used(self, key: str) -> None: ...
    def wants(self, seconds: float) -> bool: ...
    def put(self, key: str, executable: bytes, seconds: float) -> None: ...
    def count_found(self, seconds: float, finding_seconds: float) -> None: ...
    def count_compiled(self, seconds: float, remade: "Remade | None") -> None: ...


class Remade(NamedTuple):
    """Compilation that each process makes: of which function, at which line of the program, and why."""

    function: str
    where: str
    why: str

    @property
    def reason(self) -> str:
        """The reason, and what lets later processes find the compilation."""
        cure = _CURES.get(self.why)
        return f"{self.why}. {cure}." if cure else self.why


def use(cache: Compilations, by_text: bool = False) -> bool:
    """Make jax, which is imported, find and keep compilations in `cache` unless the user configures a cache of jax's.

    Args:
        cache: The cache.
        by_text: Whether executables are found by JAX's key alone, and also for compiled objects, which must not be
            serialized then.

    Returns:
        Whether this version of jax has the required internals.
    """
    try:
        hook = _Hook(cache, by_text)
    # An attribute is missing, or is no function.
    except (ImportError, AttributeError, TypeError, ValueError):
        return False
    return hook.install()


class _CallState(threading.local):
    is_call = False
    """Whether this thread compiles for a call of a jitted function."""


_thread_state = _CallState()


class _Hook:
    """The replaced functions of JAX, and their replacements.

    Raises:
        Exception: This version of jax lacks one of the functions.
    """

    def __init__(self, cache: Compilations, by_text: bool) -> None:
        import jax
        from jax._src import compilation_cache, compiler, config, custom_partitioning, distributed, pjit
        from jax._src.interpreters import pxla

        self._cache, self._by_text, self._version = cache, by_text, jax.__version__
        self._compiler: Any = compiler
        self._caches: Any = compilation_cache
        self._computations: Any = pxla.MeshComputation
        self._directory, self._distributed = config.compilation_cache_dir, distributed.global_state
        self._chosen_for_xla = config.persistent_cache_enable_xla_caches
        self._partitioning = custom_partitioning._sharding_callbacks
        self._compile, self._compile_computation = compiler._compile_and_write_cache, self._computations.compile
        self._evict, self._call = pxla._cached_compilation.evict_weakref, pjit._pjit_call_impl_python.__code__
        names = ("backend_compile_and_load", "_cache_read", "_cache_write")
        self._functions = [(compiler, name, getattr(compiler, name)) for name in names]
        names = ("_get_cache", "get_executable_and_time", "put_executable_and_time")
        self._functions += [(compilation_cache, name, getattr(compilation_cache, name)) for name in names]
        self._log_parameters = [*inspect.signature(compiler._cache_write).parameters]
        self._found: weakref.WeakSet[Any] = weakref.WeakSet()
        """The programs whose executables JAX has from here."""
        # Raise here if this version of jax lacks one of them.
        _ = self._directory.value, self._distributed.client, self._caches._cache, self._caches._cache_initialized

    def install(self) -> bool:
        """Replace JAX's functions, if they are JAX's own and those of a known version; return whether they are."""
        own = (self._compile, self._compile_computation, *(function for *_, function in self._functions))
        is_known = (
            all(_is_of_jax(function.__code__) for function in own)
            and [*inspect.signature(self._compile).parameters] == _PARAMETERS
            and self._log_parameters[: len(_LOG_PARAMETERS)] == _LOG_PARAMETERS
            and len(self._log_parameters) <= len(_LOG_PARAMETERS) + 1
        )
        if is_known:
            from jax._src import traceback_util

            traceback_util.register_exclusion(__file__)
            self._compiler._compile_and_write_cache = self._compile_or_find
            if not self._by_text:
                self._computations.compile = self._noting_calls()
        return is_known

    def _noting_calls(self) -> Callable[..., Any]:
        """Return a replacement of `MeshComputation.compile` that notes whether a call of a jitted function needs it."""
        own, found, call, evict = self._compile_computation, self._found, self._call, self._evict

        @functools.wraps(own)
        def compile_computation(computation: Any, *arguments: Any, **options: Any) -> Any:
            is_call = sys._getframe(1).f_code is call
            program = getattr(computation, "_hlo", None)
            before, _thread_state.is_call = _thread_state.is_call, is_call
            try:
                while True:
                    # JAX would give the user the executable of a call: an earlier one, or that of another thread.
                    if not is_call and program in found:
                        found.discard(program)
                        evict(program)
                        computation._executable = None
                    executable = own(computation, *arguments, **options)
                    if is_call or program not in found:
                        return executable
            finally:
                _thread_state.is_call = before

        return compile_computation

    def _compile_or_find(
        self,
        backend: Any,
        computation: Any,
        executable_devices: Any,
        compile_options: Any,
        host_callbacks: Any,
        module_name: str,
        cache_key: str,
    ) -> Any:
        own = backend, computation, executable_devices, compile_options, host_callbacks, module_name, cache_key
        started = monotonic()
        why_excluded, key = self._why_excluded(compile_options, host_callbacks), None
        if not why_excluded:
            key = _attempt(self._key, computation, compile_options, cache_key)
            why_excluded = "" if key else _LARGE
        found = key and _attempt(self._load, key, backend, executable_devices, compile_options)
        if found:
            executable, seconds = found
            self._found.add(computation)
            self._cache.count_found(seconds, monotonic() - started)
            _attempt(self._cache.mark_used, key)
            # JAX's own cache is off, so this writes the log lines alone.
            log = cache_key, seconds, module_name, backend, executable, host_callbacks
            self._compiler._cache_write(*log[: len(self._log_parameters)])
            return executable
        keeps_tuning = backend.platform in _TUNED and _attempt(self._keep_tuning, compile_options)
        started = monotonic()
        executable = None
        if keeps_tuning:
            # Perhaps XLA cannot write what it has measured.
            with contextlib.suppress(RuntimeError):
                executable = self._compile(*own)
            build = compile_options.executable_build_options  # holds the memory of its options
            setattr(build.debug_options, _TUNING, "")
        executable = self._compile(*own) if executable is None else executable
        seconds = monotonic() - started
        name = module_name.removeprefix("jit_")
        function = f"jit({'<lambda>' if name.strip('_') == 'lambda' else name})"
        remade = Remade(function, _attempt(_user_line) or "", why_excluded) if why_excluded else None
        self._cache.count_compiled(seconds, remade)
        if key and self._cache.wants(seconds) and not self._why_excluded(compile_options, host_callbacks):
            _attempt(self._keep, key, executable, seconds)
        return executable

    def _why_excluded(self, compile_options: Any, host_callbacks: Any) -> str:
        """Return why a compilation is JAX's alone: it depends on more than its key, or the user says so; else ""."""
        # As in JAX, executables with host callbacks belong to this process.
        if host_callbacks:
            return _CALLS_BACK
        if not (self._by_text or _thread_state.is_call):
            return _AHEAD_OF_TIME
        # The user has a cache of JAX's, or one of their own in its place.
        if self._directory.value or self._caches._cache is not None or self._caches._cache_initialized:
            return JAXS_OWN_CACHE
        if any(getattr(module, name) is not function for module, name, function in self._functions):
            return "JAX's compiler is replaced"
        # XLA asks a function of this process how it partitions a program. The text has only the function's id.
        if self._partitioning:
            return "custom_partitioning is in use"
        if self._distributed.client is not None:
            return "several hosts compile together"
        return _DUMPS if _dumps(compile_options) else cpu_executables.refusal()

    def _key(self, computation: Any, compile_options: Any, jax_key: str) -> str | None:
        """Return the key of a program; None if the program is too large."""
        # The text alone does not say which instructions the processor has, and for how many threads XLA compiles.
        parts = [jax_key.encode(), self._version.encode(), cpu_features().encode(), xla_threads().encode()]
        if not self._by_text:
            text = _Text()
            computation.operation.write_bytecode(file=text)
            if text.nbytes > _MAX_TEXT_BYTES:
                return None
            parts += [compile_options.SerializeAsString()]
        return digest(b"".join(map(digest, parts))).hex()

    def _keep_tuning(self, compile_options: Any) -> bool:
        """Let XLA keep what it measures, unless JAX or the user has told it where, or not to; return whether it will.

        No key has the place.
        """
        build = compile_options.executable_build_options  # holds the memory of its options
        chosen = self._chosen_for_xla.value or ""
        is_wanted = (chosen == "all" or _TUNING in chosen) and self._distributed.client is None
        if not is_wanted or getattr(build.debug_options, _TUNING):
            return False
        setattr(build.debug_options, _TUNING, self._cache.tuning_directory())
        return True

    def _load(self, key: str, backend: Any, executable_devices: Any, compile_options: Any) -> tuple[Any, float] | None:
        found = self._cache.get(key)
        if not found:
            return None
        with cpu_executables.loading():
            return backend.deserialize_executable(found[0], executable_devices, compile_options), found[1]

    def _keep(self, key: str, executable: Any, seconds: float) -> None:
        self._cache.put(key, executable.serialize(), seconds)


class _Text:
    """File object that counts the bytes of a program's text."""

    nbytes = 0

    def write(self, data: bytes) -> None:
        self.nbytes += len(data)


def _user_line() -> str:
    """Return the file and line of the innermost code of the user's on this thread's stack; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_module(frame.f_globals.get("__name__")) and not frame.f_code.co_filename.startswith("<"):
            return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _attempt(act: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function of the cache; None after an error of its own."""
    try:
        return act(*arguments)
    except _ERRORS as error:
        if not _is_ours(error):
            raise
        return None


def _is_ours(error: BaseException) -> bool:
    """Return whether an exception is one of the cache's own.

    It is not if a signal handler raised it, or another thread (`PyThreadState_SetAsyncExc`, which makes it without
    arguments).
    """
    if isinstance(error, OSError):
        is_usual = error.errno is not None
    elif isinstance(error, RuntimeError):
        is_usual = type(error).__module__.startswith(("jax.", "jaxlib."))
    else:
        is_usual = bool(error.args) or isinstance(error, MemoryError)
    if not is_usual:
        return False
    entry = error.__traceback__
    while entry is not None:
        if not str(entry.tb_frame.f_globals.get("__name__")).startswith(("jitclient.", "jaxlib.")):
            return False
        entry = entry.tb_next
    return True


def _dumps(compile_options: Any) -> bool:
    """Return whether XLA writes files about what it compiles."""
    build = compile_options.executable_build_options  # holds the memory of its options
    options = build.debug_options
    cls: Any = type(options)
    return (
        any(getattr(options, name) for name in _dump_options(cls))
        or any("_dump" in name for name, _ in compile_options.env_option_overrides)
        or "_dump" in os.environ.get("XLA_FLAGS", "")
    )


@functools.cache
def _dump_options(cls: Any) -> tuple[str, ...]:
    return tuple(name for name in dir(cls) if "_dump_" in name and name not in _HARMLESS_DUMP_OPTIONS)


def _is_of_jax(code: CodeType) -> bool:
    return code.co_filename.startswith(os.path.dirname(sys.modules["jax"].__file__ or "") + os.sep)
