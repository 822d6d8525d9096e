"""Ambient inputs, recognized by object where user code reaches them.

Their values may differ at the next run although every object is the same, so no key can stand for them.
"""

import contextlib
import functools
import threading
from collections.abc import Iterator
from types import BuiltinMethodType, MethodType
from typing import Any

from jitclient.capture.user_code.names import MISSING, lookup
from jitclient.core.compat import modules_stamp

NAMED = {
    "builtins": "open input __import__ hash id",
    "codecs": "open",
    "ctypes": "CDLL PyDLL cdll pydll",
    "ctypes.util": "find_library",
    "gc": "get_count get_freeze_count get_objects get_referents get_referrers get_stats get_threshold isenabled",
    "getpass": "getuser",
    "glob": "glob iglob",
    "importlib": "import_module reload",
    "importlib.machinery": "ExtensionFileLoader FileFinder PathFinder SourceFileLoader SourcelessFileLoader",
    "importlib.metadata": "Distribution distribution distributions entry_points files metadata packages_distributions "
    "requires version",
    "importlib.resources": "as_file contents files is_resource open_binary open_text path read_binary read_text",
    "importlib.util": "LazyLoader find_spec module_from_spec spec_from_file_location spec_from_loader",
    "inspect": "getsource getsourcelines getsourcefile getfile stack currentframe",
    "io": "FileIO open_code",
    "linecache": "getline getlines updatecache",
    "locale": "atof atoi currency format_string getdefaultlocale getencoding getlocale getpreferredencoding localeconv "
    "nl_langinfo setlocale str strcoll strxfrm",
    "multiprocessing": "active_children cpu_count current_process get_start_method parent_process",
    "multiprocessing.shared_memory": "ShareableList SharedMemory",
    "numpy": "load loadtxt genfromtxt fromfile memmap",
    "os": "environ environb getenv getenvb getcwd getcwdb listdir scandir walk fwalk stat lstat access readlink "
    "urandom getrandom getpid getppid getuid geteuid getgid getlogin getpriority cpu_count process_cpu_count "
    "sched_getaffinity sysconf get_terminal_size getloadavg umask uname times open read popen system",
    "os.path": "exists lexists isfile isdir islink getmtime getatime getctime getsize expanduser abspath realpath",
    "pkgutil": "find_loader get_data get_importer get_loader iter_importers iter_modules resolve_name walk_packages",
    "platform": "architecture machine node platform processor release system uname version",
    "pwd": "getpwall getpwnam getpwuid",
    "resource": "getrlimit getrusage",
    "runpy": "run_module run_path",
    "secrets": "token_bytes token_hex token_urlsafe randbelow randbits choice",
    "shutil": "disk_usage get_terminal_size which",
    "signal": "getitimer getsignal",
    "socket": "create_connection getaddrinfo getfqdn gethostbyname gethostname socket",
    "subprocess": "run call check_call check_output getoutput getstatusoutput Popen",
    "sys": "modules argv orig_argv path path_hooks path_importer_cache meta_path warnoptions stdin flags _getframe "
    "_current_frames exc_info exception getallocatedblocks getprofile getrecursionlimit getrefcount getswitchinterval "
    "gettrace",
    "tempfile": "NamedTemporaryFile TemporaryDirectory TemporaryFile gettempdir mkdtemp mkstemp mktemp",
    "threading": "active_count current_thread enumerate get_ident get_native_id main_thread",
    "time": "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time "
    "thread_time_ns clock_gettime clock_gettime_ns get_clock_info localtime gmtime mktime strftime ctime",
    "tokenize": "open",
    "tracemalloc": "get_traced_memory",
    "uuid": "getnode uuid1 uuid4",
    "weakref": "getweakrefcount getweakrefs",
    "zipimport": "zipimporter",
}
"""Module -> names of its ambient objects."""

KINDS = {
    "_frozen_importlib.ModuleSpec": "spec",
    "_frozen_importlib_external.ExtensionFileLoader": "loader",
    "_frozen_importlib_external.FileFinder": "finder",
    "_frozen_importlib_external.NamespaceLoader": "loader",
    "_frozen_importlib_external.SourceFileLoader": "loader",
    "_frozen_importlib_external.SourcelessFileLoader": "loader",
    "contextvars.ContextVar": "ContextVar",
    "ctypes.CDLL": "library",
    "importlib.metadata.Distribution": "distribution",
    "io.IOBase": "file",
    "mmap.mmap": "mapped file",
    "multiprocessing.shared_memory.SharedMemory": "shared memory",
    "zipimport.zipimporter": "loader",
}
"""Classes whose instances are ambient -> label of an instance in messages."""

_INTERPRETER = (
    "gc importlib importlib.machinery importlib.util inspect linecache pkgutil sys threading tracemalloc weakref"
)

HARMLESS = frozenset(
    {"hash", "id", "__import__"}
    | {f"{module}.{name}" for module in _INTERPRETER.split() for name in NAMED[module].split()}
)
"""Names of interpreter state that installed packages read only to find their way or to inform users."""

DIFFERENT_IN_EACH_PROCESS = frozenset({"hash", "id"})
"""Builtins that are ambient only for some arguments or in some places.

Captured code gets its own versions (`steps/sandbox.py`).
"""

GENERATORS = {"random": "_inst", "numpy.random.mtrand": "_rand"}
"""Module -> its hidden generator, whose bound methods draw from process-wide random state."""

CLOCKS = {"datetime": {"now", "today", "utcnow", "fromtimestamp"}, "date": {"today", "fromtimestamp"}}
"""Class of `datetime` -> its methods that return the current or local time."""

RANDOM_FRAME_MODULES = frozenset({"equinox._jit"})
"""Modules of packages that mark their frames with random bytes, to find them in tracebacks.

No trace depends on the marks.
"""


AMBIENT_MODULES = frozenset(NAMED) - {"builtins"} | {"numpy.random"}


_BOUND = frozenset({BuiltinMethodType, MethodType})


@functools.lru_cache(maxsize=1)
def _objects(stamp: int) -> dict[int, tuple[str, Any]]:
    names = [(module, name) for module, text in NAMED.items() for name in text.split()]
    found = [(f"{module}.{name}".removeprefix("builtins."), lookup(module, name)) for module, name in names]
    # Keep `obj` alive, since its id is unique only while it lives.
    return {id(obj): (name, obj) for name, obj in found if obj is not MISSING}


@functools.lru_cache(maxsize=1)
def _kinds(stamp: int) -> dict[type, str]:
    found = {lookup(*name.rsplit(".", 1)): label for name, label in KINDS.items()}
    return {kind: label for kind, label in found.items() if kind is not MISSING}


def ambient_name(obj: Any) -> str | None:
    """Return the name of the ambient input that an object is, or None if it is none."""
    name, _ = _objects(modules_stamp()).get(id(obj), (None, None))
    if name is not None:
        return name
    kinds = _kinds(modules_stamp())
    if issubclass(type(obj), tuple(kinds)):
        label = next(label for kind, label in kinds.items() if issubclass(type(obj), kind))
        return f"{label} {getattr(obj, 'name', '')!r}"
    # An attribute of another object may be computed by code of the user's.
    return _bound_to(obj.__self__, obj.__name__) if type(obj) in _BOUND else None


def _bound_to(owner: Any, method: str) -> str | None:
    for module, attribute in GENERATORS.items():
        if owner is lookup(module, attribute):
            return f"{module.removesuffix('.mtrand')}.{method}"
    return clock_of(owner, method)


def clock_of(owner: Any, method: str) -> str | None:
    """Return the name of a method of a class of `datetime` that returns the current time; None if it does not."""
    for name, methods in CLOCKS.items():
        if method in methods and owner is lookup("datetime", name):
            return f"datetime.{name}.{method}"
    return None


def message_of(name: str) -> str:
    """Return the error message for a read of an ambient input.

    The text is the same in every process, because a capture's bytes may contain it.
    """
    return f"{name} is read from outside the function's own objects"


class _Reads(threading.local):
    noted: list[str] | None = None


reads = _Reads()
"""Messages of the ambient reads of each thread; None where reads are not noted."""


@contextlib.contextmanager
def _recording(into: Any) -> Iterator[Any]:
    before, reads.noted = reads.noted, into
    try:
        yield into
    finally:
        reads.noted = before


def recorded_reads() -> contextlib.AbstractContextManager[list[str]]:
    """Collect the messages of this thread's ambient reads within the block.

    The collection sees reads whose error the calling code swallows.
    """
    return _recording([])


def unrecorded() -> contextlib.AbstractContextManager[None]:
    """Stop noting this thread's ambient reads within the block."""
    return _recording(None)


def record_read(message: str) -> None:
    """Note an ambient read if this thread collects them."""
    if reads.noted is not None:
        reads.noted.append(message)
