"""Processes that tests start, forked from templates: processes that have imported numpy and jax already.

`subprocess.Popen` in the process of the tests is the class below. Where a command runs a program that uses jax, or a
daemon, with nothing out of the ordinary, its process is a fork of a template, and else a fresh one, as always. A
template serves one interpreter, one set of variables and limits, and one hash seed; processes without a seed come from
two templates in turn. A test with the mark `fresh_python` starts fresh processes only, and so does the first command
for which there is no template.

The process that is forked is a child of the one of the tests, like any other. Under Python 3.11, its first frame is
that of its program; later versions have frames of this file below.
This file is also the program of the templates, which exit when the connection to the tests breaks.
"""

import builtins
import collections
import contextlib
import ctypes
import fcntl
import functools
import gc
import importlib
import importlib.machinery
import inspect
import io
import itertools
import marshal
import operator
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

_THIRD_PARTY = "numpy jax jax.numpy cloudpickle flatbuffers msgspec rpyc tblib"
_DAEMON = "jitserver.cli jitserver.cli.serve jitserver.daemon.daemon jitserver.daemon.options"

IGNORED = ("JITSERVER_", "XDG_", "PYTEST_")
IGNORED_NAMES = frozenset({"PATH", "PWD", "OLDPWD", "SHLVL", "TMPDIR", "COLUMNS", "LINES", "_"})
"""Variables that the imports of a template do not read, by their beginning and by their name."""

_READ = "JITSERVER_CLIENT_DEVICE"

_STATUS = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "CapEff", "NoNewPrivs", "Cpus_allowed")
_HAS_FIRST_FRAME = sys.version_info < (3, 12)
"""Whether a program's frame is the first: it runs in a thread that becomes the main one. Later versions crash then."""
_PR_SET_MM, _PR_SET_MM_MAP, _PR_SET_CHILD_SUBREAPER = 35, 14, 36
_MAX_TEMPLATES = 8
_MAX_FDS = 64
_MAX_BYTES = 150_000  # of a message, which the system passes on in one piece

# ---- the process of the tests

is_allowed = True
"""Whether the test that runs now may have forked processes."""

started: collections.Counter[str] = collections.Counter()
"""How many processes the test has started, by whether they are fresh, forked or of templates."""

_may_fork_copies = False

_owner = os.getpid()
_lock = threading.Lock()
_templates: dict[Any, "_Template"] = {}
_asked: collections.Counter[Any] = collections.Counter()
_fresh = subprocess.Popen


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """A process that is a fork of a template where that makes no difference."""

    _signature = inspect.signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]

    def _execute_child(self, *given: Any) -> None:
        arguments = self._signature.bind(self, *given).arguments
        request = _request(arguments)
        pid = None if request is None else _forked(request, arguments)
        started["fresh" if pid is None else "forked"] += 1
        if pid is None:
            super()._execute_child(*given)  # type: ignore[misc]
            return
        self.pid = pid
        self._child_created = True
        ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(arguments[name] for name in ends))  # type: ignore[attr-defined]


def install() -> None:
    """Fork the processes that this process starts from now on, if JITSERVER_TEST_FORKED asks for that."""
    if is_asked_for():
        subprocess.Popen = Popen  # type: ignore[misc]


def is_asked_for() -> bool:
    """Return whether processes are forked.

    They are not by default: a program that uses jitclient alone finds jax imported, which hides what a test about that
    would see, and not all tests have run with forked processes yet.
    """
    return os.environ.get("JITSERVER_TEST_FORKED") == "1"


@contextlib.contextmanager
def copies() -> Iterator[None]:
    """Fork daemons of another copy of the packages, too, from templates that have imported neither copy.

    They notice fewer reads of installed packages: what a template has imported keeps the real functions.
    """
    global _may_fork_copies
    _may_fork_copies = True
    try:
        yield
    finally:
        _may_fork_copies = False


def close() -> None:
    """End all templates."""
    while _templates:
        _templates.popitem()[1].close()


def _request(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a process is to be; None if only a fresh one can be that."""
    command, executable = given["args"], given["executable"]
    if not is_allowed or os.getpid() != _owner or isinstance(command, (str, bytes, os.PathLike)):
        return None
    words = [os.fspath(word) for word in command]
    is_plain = not given["shell"] and given["preexec_fn"] is None and given["close_fds"] and given["umask"] < 0
    is_plain = (
        is_plain and given["restore_signals"] and all(given[name] in (None, -1) for name in ("uid", "gid", "gids"))
    )
    if not is_plain or executable not in (words[0], None) or words[0] != sys.executable:
        return None
    options = list(itertools.takewhile("-P".__eq__, words[1:]))
    start = _start(words[1 + len(options) :], given["cwd"])
    if start is None or (given["cwd"] is not None and not os.path.isdir(given["cwd"])):
        return None
    environment = os.environ if given["env"] is None else given["env"]
    return {
        "words": words,
        "options": options,
        "start": start,
        "environment": {os.fsdecode(name): os.fsdecode(value) for name, value in environment.items()},
        "cwd": None if given["cwd"] is None else os.fspath(given["cwd"]),
        "group": 0 if given["start_new_session"] else given.get("process_group", -1),
        "is_leader": bool(given["start_new_session"]),
    }


def _start(words: Sequence[str], cwd: Any) -> tuple[str, list[str]] | None:
    """Return how a program starts, by the end of its command line; None if it is none that uses jax."""
    if words[:3] == ["-m", "jitserver", "serve"]:
        return "daemon", ["jitserver"]
    if words[:2] == ["-m", "jitclient"]:
        return "module", ["jitclient"]
    if words[:1] == ["-c"] and len(words) > 1:
        # Later ones show the source of a command in tracebacks, which needs a function that is not public.
        return ("command", [words[1]]) if _uses_jax(words[1]) and sys.version_info < (3, 13) else None
    path = os.path.join(cwd or ".", words[0]) if words else ""
    if path.endswith(".py") and os.path.isfile(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            return ("file", [words[0]]) if _uses_jax(file.read()) else None
    return None


def _uses_jax(code: str) -> bool:
    return "jax" in code or "jitclient" in code


def _forked(request: dict[str, Any], given: Mapping[str, Any]) -> int | None:
    """Fork a process from the template for it, and return its pid; None if there is none."""
    standard = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
    fds = [number if fd == -1 else fd for number, fd in enumerate(standard)]
    passed = list(given["pass_fds"])
    request["fds"] = [0, 1, 2, *passed]
    message = marshal.dumps(request)
    is_small = len(message) < _MAX_BYTES and len(passed) < _MAX_FDS
    if not is_small or any(not _is_open(fd) or os.isatty(fd) for fd in fds):
        return None
    with _lock:
        template = _template_for(request)
        return None if template is None else template.fork(message, [*fds, *passed])


def _is_open(fd: int) -> bool:
    try:
        return fcntl.fcntl(fd, fcntl.F_GETFD) >= 0
    except OSError:
        return False


def _template_for(request: Mapping[str, Any]) -> "_Template | None":
    """Return the template, unless a process of its kind is asked for the first time."""
    is_daemon = request["start"][0] == "daemon"
    environment = dict(request["environment"])
    if is_daemon:
        is_copy = environment.get("PYTHONPATH", "") != os.environ.get("PYTHONPATH", "")
        if is_copy and not _may_fork_copies:
            return None
        environment = _of_daemon(environment)
        is_daemon = not is_copy
    chosen = {name: value for name, value in environment.items() if not is_ignored(name)}
    has_seed = environment.get("PYTHONHASHSEED", "random") != "random"
    key = (is_daemon, tuple(request["options"]), frozenset(chosen.items()), _facts())
    _asked[key] += 1
    if _asked[key] == 1:
        return None
    slot = (key, 0 if has_seed else _asked[key] % 2)
    template = _templates.pop(slot, None)
    if template is None or template.process.poll() is not None:
        template = _Template(is_daemon, request["options"], environment)
    _templates[slot] = template  # the last one used is the last one
    if len(_templates) > _MAX_TEMPLATES:
        _templates.pop(next(iter(_templates))).close()
    return template


def is_ignored(name: str) -> bool:
    """Return whether processes may differ in a variable, and yet have the same template."""
    return (name != _READ and name.startswith(IGNORED)) or name in IGNORED_NAMES


def _of_daemon(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with which a daemon imports jax."""
    from jitclient.core.directories import DAEMON_DEFAULTS, PROCESS_SETTINGS

    kept = {name: v for name, v in environment.items() if not name.startswith("JAX_") or name in PROCESS_SETTINGS}
    return {**DAEMON_DEFAULTS, **kept}


def _facts() -> tuple[Any, ...]:
    """Return what a process inherits, beside its variables."""
    with open("/proc/thread-self/status", encoding="ascii") as file:
        lines = tuple(line for line in file if line.startswith(_STATUS))
    names = sorted(name for name in vars(resource) if name.startswith("RLIMIT_"))
    limits = tuple(resource.getrlimit(getattr(resource, name)) for name in names)
    return (lines, limits, os.getpriority(os.PRIO_PROCESS, 0), os.getpgrp(), os.getsid(0))


class _Template:
    """A process that forks."""

    def __init__(self, is_daemon: bool, options: Sequence[str], environment: Mapping[str, str]) -> None:
        started["template"] += 1
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.process = _fresh(
                [sys.executable, *options, __file__, str(theirs.fileno()), _DAEMON if is_daemon else ""],
                env=environment,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def fork(self, message: bytes, fds: Sequence[int]) -> int:
        """Fork a process, and return its pid. It is a child of this process, as if this one had forked."""
        prctl = ctypes.CDLL(None).prctl
        cwd = os.open(".", os.O_PATH)
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._connection, [message], [cwd, *fds])
            reply = self._connection.recv(4)
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
            os.close(cwd)
        assert reply, f"a template ended with status {self.process.wait()}"
        return int(struct.unpack("i", reply)[0])

    def close(self) -> None:
        self._connection.close()
        self.process.wait()


# ---- the process of a template


def main(connection: socket.socket, modules: str) -> None:
    """Import modules, and fork until the connection breaks."""
    before = dict(os.environ)
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this file
    if modules:
        _prepare_daemon()
    for name in f"{_THIRD_PARTY} {modules}".split():
        importlib.import_module(name)
    changed = {name: value for name, value in os.environ.items() if before.get(name) != value}
    gc.collect()
    gc.freeze()  # the children touch, and so copy, less memory
    # A thread whose function is one of C runs the program of a child without frames of this file below.
    steps: list[Any] = []
    results: list[Any] = []
    steps.append(functools.partial(_serve, connection, changed, steps, results))
    if not _HAS_FIRST_FRAME:
        results.extend(map(operator.call, steps))
    import _thread

    _thread.start_new_thread(results.extend, (map(operator.call, steps),))
    try:
        while True:
            signal.pause()
    finally:
        os._exit(1)


def _prepare_daemon() -> None:
    """Do what a daemon does before it imports jax, and not again in each."""
    from jitserver.daemon import process_setup

    process_setup.install_read_detection()
    process_setup.install_read_detection = lambda: None


def _serve(connection: socket.socket, changed: Mapping[str, str], steps: list[Any], results: list[Any]) -> None:
    """Fork for each request. In the child, become what is asked for, and add the steps that are left."""
    while True:
        message, fds, _, _ = socket.recv_fds(connection, 2 * _MAX_BYTES, _MAX_FDS)
        if not message:
            os._exit(0)
        if _fork(connection):
            break
        for fd in fds:
            os.close(fd)
    request = marshal.loads(message)
    _take(fds, request["fds"])
    status = ctypes.c_int()
    run = _become(request, changed)
    steps += [run, functools.partial(_finish, results, status), functools.partial(ctypes.pythonapi.Py_Exit, status)]


def _fork(connection: socket.socket) -> bool:
    """Fork a process whose parent is that of this one, and return whether this is it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the other thread only waits
        read, write = os.pipe()
        go, give = os.pipe()
        between = os.fork()
        if not between:
            if child := os.fork():
                os.write(write, struct.pack("i", child))
                os._exit(0)
            os.close(give)
            os.read(go, 1)  # until the process between has gone
            return True
    pid = os.read(read, 4)
    os.waitpid(between, 0)
    for fd in (read, write, go, give):
        os.close(fd)
    connection.send(pid)
    return False


def _take(fds: Sequence[int], targets: Sequence[int]) -> None:
    """Put descriptors where they belong, and close all others. The first is of the working directory."""
    os.fchdir(fds[0])
    above = max(targets) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD, above) for fd in fds[1:]]
    for fd, target in zip(moved, targets, strict=True):
        os.dup2(fd, target)
    kept = [*sorted(set(targets)), os.sysconf("SC_OPEN_MAX")]
    for one, other in itertools.pairwise(kept):
        os.closerange(one + 1, other)


def _become(request: Mapping[str, Any], changed: Mapping[str, str]) -> Any:
    """Make this process what a fresh one would be, and return a function of C that runs its program."""
    if request["is_leader"]:
        os.setsid()
    elif request["group"] not in (None, -1):
        os.setpgid(0, request["group"])
    if request["cwd"] is not None:
        os.chdir(request["cwd"])
    _show(request["words"], [f"{name}={value}" for name, value in request["environment"].items()])
    os.environ.clear()
    os.environ.update({**request["environment"], **changed})
    for fd, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        _renew(stream, fd)
    threading.main_thread()._set_native_id()  # type: ignore[attr-defined]
    random.seed()
    sys.modules["numpy"].random.seed()
    if forks := sys.modules.get("jitclient.jaxside.after_fork"):
        forks._is_child = False  # the template had started nothing that a child lacks
    how, (target,) = request["start"]
    sys.orig_argv[:] = request["words"]
    words = request["words"][1 + len(request["options"]) :]
    sys.argv[:] = {"file": words, "command": ["-c", *words[2:]]}.get(how, ["-m", *words[2:]])
    made = types.ModuleType("__main__")
    vars(made).update(__loader__=importlib.machinery.BuiltinImporter, __builtins__=builtins)
    if sys.version_info < (3, 14):
        made.__annotations__ = {}
    sys.modules["__main__"] = made
    if not sys.flags.safe_path:
        first = {"file": os.path.dirname(os.path.realpath(target)), "command": ""}
        sys.path.insert(0, first.get(how) if how in first else os.getcwd())
    if how == "file":
        return _program(target)
    code = target if how == "command" else f"__import__('runpy')._run_module_as_main({target!r})"
    run = ctypes.pythonapi.PyRun_SimpleStringFlags
    run.argtypes = ctypes.c_char_p, ctypes.c_void_p
    return functools.partial(run, code.encode(), None)


def _program(path: str) -> Any:
    """Return a function of C that runs a script, as `python` does."""
    full = path if os.path.isabs(path) else f"{os.getcwd()}/{path}"
    to_stream = ctypes.pythonapi.fdopen
    to_stream.argtypes, to_stream.restype = (ctypes.c_int, ctypes.c_char_p), ctypes.c_void_p
    run = ctypes.pythonapi.PyRun_SimpleFileExFlags
    run.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p
    return functools.partial(run, to_stream(os.open(full, os.O_RDONLY), b"rb"), os.fsencode(full), True, None)


def _renew(stream: Any, fd: int) -> None:
    """Make a standard stream as Python does at its start, of the descriptor that this process has now."""
    is_raw = isinstance(stream.buffer, io.FileIO)
    buffer: Any = open(fd, stream.mode + "b", 0 if is_raw else -1, closefd=False)  # noqa: SIM115
    (buffer if is_raw else buffer.raw).name = stream.name
    kept = {name: getattr(stream, name) for name in ("encoding", "errors", "line_buffering", "write_through")}
    mode = stream.mode
    stream.__init__(buffer, newline="\n", **kept)
    stream.mode = mode


def _show(words: Iterable[str], variables: Iterable[str]) -> None:
    """Set the command line and the variables that other processes see in /proc."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.sbrk.restype = ctypes.c_void_p
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = dict(enumerate(file.read().rpartition(")")[2].split(), start=3))
    bounds = []
    for texts in (words, variables):
        data = b"".join(os.fsencode(text) + b"\0" for text in texts)
        place = libc.malloc(len(data) + 1)  # never freed: it may be read until the end
        ctypes.memmove(place, data, len(data))
        bounds += [place, place + len(data)]
    start = [int(fields[number]) for number in (26, 27, 45, 46, 47)]
    made = struct.pack("=12QII", *start, libc.sbrk(0), int(fields[28]), *bounds, 0, 0, 0xFFFFFFFF)
    libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, made, ctypes.c_ulong(len(made)), 0)


def _finish(results: Sequence[int], status: ctypes.c_int) -> None:
    """Choose the status with which to exit. After an uncaught KeyboardInterrupt, Python exits by that signal."""
    status.value = int(results[-1] != 0)
    if status.value and getattr(sys, "last_type", None) is KeyboardInterrupt:
        libc = ctypes.CDLL(None)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        # The C library calls `raise` with the exit status, which is the number of the signal.
        libc.on_exit(ctypes.cast(libc["raise"], ctypes.c_void_p), None)
        status.value = signal.SIGINT


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
